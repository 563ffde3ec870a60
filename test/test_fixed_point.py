"""`convert --requantize fixed`: NumPy, portable C and the chip round alike, and nothing mixes the two."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from math import floor
from pathlib import Path

import kernel_arm
import kernel_cases
import numpy as np
import pytest
from conftest import EXAMPLE, ROOT, build_example
from kernel_twins import Split, Twin
from networks import random_network, residual_network
from planting import KERNELS, planted
from test_bit_exact import learn
from test_executor import partly_trained, run_both

from microtrain.base.errors import Error
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.header import API_VERSION
from microtrain.convert.export import model as library
from microtrain.convert.ir import Window
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import host
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
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

FIXED = "-O2 -DMICROTRAIN_FIXED=1"
CORES = ("cortex-m7", "cortex-m4")
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


QUICK = ("gcc", "cortex-m7")
BUILDS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in ("gcc", "clang", "gcc -O3 -march=native", *CORES)
]


@pytest.fixture(scope="module", params=BUILDS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    compiler, _, flags = request.param.partition(" ")
    if compiler in CORES:
        pytest.importorskip("unicorn", reason="Unicorn is not installed")
        yield arm_twin(tmp_path_factory.mktemp(compiler), compiler)
        return
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    yield Twin(host.bound(hostlib.build(compiler, level=f"{FIXED} {flags}")))


def arm_twin(folder: Path, cpu: str, kernels: Path = KERNELS) -> Twin:
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    lib = kernel_arm.ArmLib(kernel_arm.build(folder, FIXED, cpu, kernels), cpu=cpu)
    return Twin(lib)  # type: ignore[arg-type]


def check_layer(twin: Twin, op: str, side: int, window: Window, mask: bool, trained: int) -> None:
    """A layer of 23 channels with multipliers of all kinds, and sums as large as int32 lets them be."""
    rng = np.random.default_rng(side)
    shape = (side, side, 23)
    y = (*window.outputs(side, side), 23)
    p = Conv(shape, y, window, -7, -128 + side, multipliers(side, 23), 4, fixed=True)
    taps = (23, window.kh, window.kw) + ((23,) if op == "conv2d" else ())
    x, w = kernel_cases.draw_s8(rng, shape), rng.integers(-127, 128, taps, dtype=np.int8)
    b = rng.integers(-9999, 9999, 23, dtype=np.int32)
    b[[3, 11]] = 2**31 - 1 - 2**25, -(2**31) + 2**25
    got, bits = twin.forward(op, p, x, w, b, Split(tuple(range(trained)), 23), mask)
    want, want_bits = getattr(reference, f"{op}_fwd")(p, x, w, b)
    np.testing.assert_array_equal(got, want)
    kernel_cases.same_mask(bits, want_bits)


@pytest.mark.parametrize("side", [2, 4, 8, 21])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("trained", [0, 9, 23])
def test_dense_layers(twin: Twin, side: int, mask: bool, trained: int) -> None:
    check_layer(twin, "conv2d", side, Window(1, 1), mask, trained)
    check_layer(twin, "conv2d", side, Window(3, 3, 2, 2, 1, 1), mask, trained)


@pytest.mark.parametrize("side", [3, 8, 21, 40])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_layers(twin: Twin, side: int, mask: bool, stride: int) -> None:
    for kernel in (3, 5):
        window = Window(kernel, kernel, stride, stride, kernel // 2, kernel // 2)
        check_layer(twin, "dwconv2d", side, window, mask, 0)


FAULTS = {
    "half down": ("chip.h", "(offset - (int64_t)acc * word)", "(offset - 1 - (int64_t)acc * word)"),
    "half down on the chip": ("dense_armv7em.S", "smmls   \\r, \\r, r0, r6", "smmlsr  \\r, \\r, r0, r6"),
    "by a float on the chip": ("dwconv2d.c", "KERNELS_DSP && !MICROTRAIN_FIXED", "KERNELS_DSP"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_wrong_rounding_is_noticed(tmp_path: Path, fault: str) -> None:
    name, right, _ = FAULTS[fault]
    assert (KERNELS / name).read_text().count(right) == 1
    kernels = planted(tmp_path / "src/kernels", FAULTS[fault])
    if "chip" in fault:
        pytest.importorskip("unicorn", reason="Unicorn is not installed")
        twin = arm_twin(tmp_path, CORES[0], kernels)
    else:
        twin = Twin(host.bound(hostlib.build(kernels=kernels, cache=tmp_path, level=FIXED)))
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        for side in (8, 21, 40):
            test_dense_layers(twin, side, False, 0)
            test_depthwise_layers(twin, side, False, 1)


@pytest.mark.parametrize("fraction_bits", [0, 4])
def test_a_network_learns_in_c_what_it_learns_in_numpy(tmp_path: Path, fraction_bits: int) -> None:
    compiled = partly_trained(residual_network().replace(fixed=True), fraction_bits)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 12)


@pytest.mark.parametrize("seed", range(4))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    compiled = partly_trained(random_network(seed).replace(fixed=True), (0, 4, 8)[seed % 3])
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 4)


def test_kernels_of_the_other_arithmetic_are_refused(tmp_path: Path) -> None:
    compiled = partly_trained(residual_network().replace(fixed=True), 0)
    for name, text in generate(compiled, "a test").files.items():
        (tmp_path / name).write_text(text)
    include = [f"-I{ROOT / 'firmware/include'}", f"-I{tmp_path}"]
    command = ["gcc", "-std=c11", "-fsyntax-only", *include, str(tmp_path / "model.c")]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode and "converted with --requantize fixed" in refused.stderr
    subprocess.run([*command, "-DMICROTRAIN_FIXED=1"], check=True)
    with pytest.raises(Error, match="without --requantize fixed"):
        library.read(tmp_path, API_VERSION)


def test_the_board_learns_what_this_machine_learns(tmp_path: Path) -> None:
    """The demo's network, from conversion to the emulated board."""
    built = build_example(EXAMPLE / "scheme.yaml", tmp_path, True, "--requantize", "fixed")
    assert built.plan["requantize"] == "fixed"
    board = learn(EmulatorPort(built.elf), STEPS)
    assert board == learn(ProgramPort(built.program), STEPS)
