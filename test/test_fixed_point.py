"""`convert --requantize fixed`: NumPy, portable C and the chip round alike, and nothing mixes the two."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, build_example
from kernel_twins import Twin
from networks import random_network, residual_network
from rounding_cases import BUILDS, built, check_dense, check_depthwise, check_noticed, check_others_refused
from test_bit_exact import learn
from test_executor import partly_trained, run_both

from microtrain.base.errors import Error
from microtrain.base.plan import FIXED
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.header import API_VERSION
from microtrain.convert.export import model as library
from microtrain.convert.native_model import NativeModel
from microtrain.convert.reference.kernels import Conv
from microtrain.convert.reference.numeric import (
    MULTIPLIER_BITS,
    fixed_multipliers,
    fixed_outputs,
    has_integer,
    integers_of,
    requantize,
)
from microtrain.convert.reference.proofs import fixed_words, multipliers_of
from microtrain.device.link import EmulatorPort, ProgramPort

LEVEL = "-O2 -DMICROTRAIN_FIXED=1"
STEPS = 40


def multipliers(seed: int, count: int) -> np.ndarray:
    """Of all sizes; some make ties, some are too large for an integer."""
    m = np.exp2(np.random.default_rng(seed).uniform(-14, -3.5, count)).astype(np.float32)
    m[::5] = 2.0**-9
    return fixed_multipliers(m)


@pytest.mark.parametrize("zero", [-128, -3, 0, 127])
def test_integers_round_half_up(zero: int) -> None:
    """Against rational numbers: ties, every size of sum, and the ends of int32."""
    m = multipliers(zero & 255, 40)
    m = m[has_integer(m)]
    sums = np.concatenate([np.arange(-1100, 1100, 37), [-(2**31), 2**31 - 1, 256, 768, -256, -768]])
    found = fixed_outputs(np.broadcast_to(sums[:, None], (len(sums), len(m))), m, zero)
    for column, factor in enumerate(m):
        wanted = [floor(int(s) * Fraction(float(factor)) + Fraction(1, 2)) + zero for s in sums]
        assert found[:, column].tolist() == wanted


def test_words_hold_the_multipliers_and_say_where_there_is_no_integer() -> None:
    ends = np.array([2.0**-36, 2.0**-35, 2.0**-12 + 2.0**-30, 0.0624999, 0.0625, 3.0], np.float32)
    m = fixed_multipliers(np.concatenate([multipliers(1, 99), ends]))
    words = fixed_words(m)
    np.testing.assert_array_equal(multipliers_of(words), m)
    assert (words[-6:] < 0).tolist() == [False, True, True, True, False, False]
    assert (integers_of(m)[words < 0] == np.rint(m[words < 0].astype(float) * 2**MULTIPLIER_BITS)).all()


def test_it_is_another_arithmetic() -> None:
    """A tie: float32 rounds to even, an integer up."""
    sums, m = np.array([[256, 768]]), np.full(2, 2.0**-9, np.float32)
    assert fixed_outputs(sums, m, 0).tolist() == [[1, 2]]
    assert requantize(sums, m).tolist() == [[0, 2]]


@pytest.fixture(scope="module", params=BUILDS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return built(request.param, LEVEL, tmp_path_factory.mktemp("kernels"))


def fixed(p: Conv) -> Conv:
    """Multipliers of all kinds."""
    return replace(p, m=multipliers(p.x[0], p.y[2]), fixed=True)


@pytest.mark.parametrize("side", [2, 4, 8, 21])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("trained", [0, 9, 23])
def test_dense_layers(twin: Twin, side: int, mask: bool, trained: int) -> None:
    check_dense(twin, side, mask, trained, fixed)


@pytest.mark.parametrize("side", [3, 8, 21, 40])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_layers(twin: Twin, side: int, mask: bool, stride: int) -> None:
    check_depthwise(twin, side, mask, stride, fixed)


FAULTS = {
    "half down": ("requantize.h", "(offset - (int64_t)acc * m.word)", "(offset - 1 - (int64_t)acc * m.word)"),
    "half down on the chip": ("dense_armv7em.S", "smmls   \\r, \\r, r0, r6", "smmlsr  \\r, \\r, r0, r6"),
    "by a float on the chip": ("dwconv2d.c", "KERNELS_DSP && !MICROTRAIN_FIXED", "KERNELS_DSP"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_wrong_rounding_is_noticed(tmp_path: Path, fault: str) -> None:
    check_noticed(tmp_path, LEVEL, FAULTS[fault], "chip" in fault, fixed)


@pytest.mark.parametrize("fraction_bits", [0, 4])
def test_a_network_learns_in_c_what_it_learns_in_numpy(tmp_path: Path, fraction_bits: int) -> None:
    compiled = partly_trained(residual_network().replace(requantize=FIXED), fraction_bits)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 12)


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    compiled = partly_trained(random_network(seed).replace(requantize=FIXED), (0, 4, 8)[seed % 3])
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 4)


def test_kernels_of_the_other_arithmetic_are_refused(tmp_path: Path) -> None:
    check_others_refused(tmp_path, FIXED)
    with pytest.raises(Error, match="with --requantize float"):
        library.read(tmp_path, API_VERSION)


def test_the_board_learns_what_this_machine_learns(tmp_path: Path) -> None:
    """The demo's network, from conversion to the emulated board."""
    built = build_example(EXAMPLE / "scheme.yaml", tmp_path, True, "--requantize", "fixed")
    assert built.plan["requantize"] == "fixed"
    board = learn(EmulatorPort(built.elf), STEPS)
    assert board == learn(ProgramPort(built.program), STEPS)
