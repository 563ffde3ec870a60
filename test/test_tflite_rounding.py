"""`convert --requantize tflite`: NumPy, portable C and the chip round as TFLite's reference kernels do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernel_cases
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import EXAMPLE, build_example
from kernel_twins import Guarded, Twin
from networks import random_network, residual_network
from pio_build import pio
from planting import planted
from rounding_cases import BUILDS, built, check_dense, check_depthwise, check_noticed, check_others_refused
from test_bit_exact import learn
from test_executor import partly_trained, run_both

from lab.attack.tflite_files import Int8, small_network
from lab.sizes import networks as sizes
from lab.tasks.logits import int8_graph, interpreted, logits
from microtrain.base.pio import NATIVE, product
from microtrain.base.plan import FLOAT, TFLITE
from microtrain.convert.cli import main as convert
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_int8, stored_pixels
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import add, host, mul_add, pool_structs, scale
from microtrain.convert.ops.aten.resample import ALIGNED, ASYMMETRIC, HALF_PIXEL, between, between_in_1024ths
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.reference import hostlib, tflite
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Conv
from microtrain.device.client import Device
from microtrain.device.link import EmulatorPort, ProgramPort
from microtrain.simulate.blueprint import load_blueprint

LEVEL = "-O2 -DMICROTRAIN_TFLITE=1"
STEPS = 40


def by_the_book(value: int, m: float) -> int:
    """MultiplyByQuantizedMultiplier() as gemmlowp writes it, with its nudges and thresholds."""
    fraction, exponent = math.frexp(m)
    fine = math.floor(fraction * 2**31 + 0.5)
    if fine == 2**31:
        fine, exponent = fine // 2, exponent + 1
    return divided(doubled(value << max(exponent, 0), fine), max(-exponent, 0))


def doubled(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul(); C's division goes towards zero."""
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)


def divided(value: int, exponent: int) -> int:
    """RoundingDivideByPOT()"""
    mask = (1 << exponent) - 1
    return (value >> exponent) + ((value & mask) > (mask >> 1) + (value < 0))


def multipliers(seed: int, count: int) -> np.ndarray:
    """float64, of all sizes; some make ties, and with an odd seed some are too large for two roundings."""
    m = np.exp2(np.random.default_rng(seed).uniform(-16, 0.5 if seed % 2 else -1.1, count))
    m[::5] = 2.0**-9
    return m


def test_sums_are_rounded_by_the_book() -> None:
    real = multipliers(1, 60)
    m, fine = tflite.multipliers(real)
    assert (fine[real < 0.5] > 0).all() and (fine[real >= 0.5] == 0).all()
    sums = np.concatenate([np.arange(-5000, 5000, 7), [-(2**30), 2**30 - 1, 2**24, -(2**24), 256, 768, -256]])
    found = tflite.outputs(np.broadcast_to(sums[:, None], (len(sums), len(m))), m, fine, 5)
    for column in np.flatnonzero(fine):
        wanted = [by_the_book(int(s), float(real[column])) + 5 for s in sums]
        assert found[:, column].tolist() == wanted


def test_a_float_multiplier_is_the_fine_one_cut_off() -> None:
    real = multipliers(2, 200)
    m, fine = tflite.multipliers(real)
    np.testing.assert_allclose(m, real, rtol=2.0**-22)
    assert (m[fine > 0] <= real[fine > 0] * (1 + 2.0**-30)).all()


@pytest.mark.parametrize("pixels", [2, 9, 49, 64, 600])
def test_a_mean_divides_its_multiplier(pixels: int) -> None:
    """QuantizedMeanOrSum() of reference_ops."""
    real = np.exp2(np.random.default_rng(pixels).uniform(-1, 0.9, 20))
    m, fine = tflite.multipliers(real, pixels)
    sums = np.random.default_rng(1).integers(-128 * pixels, 128 * pixels, 500)
    found = tflite.outputs(np.broadcast_to(sums[:, None], (500, 20)), m, fine, 0)
    left = int(math.log2(pixels))
    for column in np.flatnonzero(fine):
        fraction, exponent = math.frexp(real[column])
        less = (math.floor(fraction * 2**31 + 0.5) << left) // pixels
        wanted = [divided(doubled(int(s), less), left - exponent) for s in sums]
        assert found[:, column].tolist() == wanted
    assert np.count_nonzero(fine) > 5


def test_it_is_another_arithmetic() -> None:
    """Ties of a sum, and of an average, go away from zero."""
    m, fine = tflite.multipliers(np.full(4, 2.0**-9))
    sums = np.array([[256, 768, -256, -768]])
    assert tflite.outputs(sums, m, fine, 0).tolist() == [[1, 2, -1, -2]]
    assert tflite.outputs(sums, m, 0 * fine, 0).tolist() == [[0, 2, 0, -2]]
    assert tflite.away(np.array([6, 10, -6, -10]), 4).tolist() == [2, 3, -2, -3]


@pytest.fixture(scope="module", params=BUILDS)
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return built(request.param, LEVEL, tmp_path_factory.mktemp("kernels"))


def as_tflite(p: Conv) -> Conv:
    """Multipliers of all kinds, of a mean too."""
    m, fine = tflite.multipliers(multipliers(p.x[0], p.y[2]), pixels=1 + 2 * (p.x[0] % 3))
    return replace(p, m=m, fine=fine)


@pytest.mark.parametrize("side", [2, 4, 8, 21])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("trained", [0, 9, 23])
def test_dense_layers(twin: Twin, side: int, mask: bool, trained: int) -> None:
    check_dense(twin, side, mask, trained, as_tflite)


@pytest.mark.parametrize("side", [3, 8, 21, 40])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_layers(twin: Twin, side: int, mask: bool, stride: int) -> None:
    check_depthwise(twin, side, mask, stride, as_tflite)


UNEVEN = (0.18986915, 0.16990492, 0.18754955)  # of which no integers make the pairs that lie near a tie


def draw_add(seed: int, sign: int = 1) -> reference.Add:
    """A sum, or with sign -1 a difference, whose scales have no integers with seed 0."""
    rng = np.random.default_rng(seed)
    a, b, y = (float(np.float32(s)) for s in (rng.uniform(0.4, 1, 3) if seed else UNEVEN))
    a_zero, b_zero, y_zero = (int(z) for z in rng.integers(-128, 128, 3))
    return reference.Add(a_zero, b_zero, y_zero, a, sign * b, y, as_tflite=True)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_maps_are_rounded_by_the_book(seed: int, sign: int) -> None:
    """AddElementwise() and SubElementwise() of reference_ops."""
    p = draw_add(seed, sign)
    most, stored = 2 * max(p.a_scale, abs(p.b_scale)), np.arange(-128, 128, dtype=np.int8)
    left = [by_the_book((int(v) - p.a_zero) << 20, p.a_scale / most) for v in stored]
    right = [sign * by_the_book((int(v) - p.b_zero) << 20, abs(p.b_scale) / most) for v in stored]
    found = reference.add_wide(p, stored[:, None], stored)
    for i in range(0, 256, 5):
        wanted = [by_the_book(left[i] + r, most / (2**20 * p.y_scale)) + p.y_zero for r in right]
        assert found[i].tolist() == wanted


def check_sums(twin: Twin, seed: int, sign: int) -> None:
    """All pairs of two bytes, with and without a mask."""
    p, stored = draw_add(seed, sign), np.arange(-128, 128, dtype=np.int8)
    a, b = (np.ascontiguousarray(v) for v in np.broadcast_arrays(stored[:, None], stored))
    want, want_mask = reference.add_fwd(p, a[None], b[None])
    for mask in (np.zeros((1, 256, 32), np.uint8), None):
        y = np.zeros((1, 256, 256), np.int8)
        twin.lib.add_fwd_s8(add.params(p, 256, 256), a, b, y, mask)
        np.testing.assert_array_equal(y, want)
        if mask is not None:
            kernel_cases.same_mask(mask, want_mask)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(4))
def test_sums_of_maps(twin: Twin, seed: int, sign: int) -> None:
    check_sums(twin, seed, sign)


def test_scales_without_integers_have_multipliers() -> None:
    assert add.params(draw_add(0), 1, 1).shifts and not add.params(draw_add(2), 1, 1).shifts
    apart = replace(draw_add(0), b_scale=1e-12)
    assert tflite.sum_factors(apart.a_scale, apart.b_scale, apart.y_scale) is None


@pytest.mark.parametrize(
    "fault",
    [
        ("p->y_zero;\n}\n\n#endif", "p->y_zero + 1;\n}\n\n#endif"),
        ("left - right : left + right", "left + right : left + right"),
        ("p->shifts >> 8 & 255u", "p->shifts & 255u"),
        ("SUM_FRACTION = 20", "SUM_FRACTION = 18"),
    ],
)
def test_a_wrong_sum_of_maps_is_noticed(tmp_path: Path, fault: tuple[str, str]) -> None:
    kernels = planted(tmp_path / "src/kernels", ("elementwise.c", *fault))
    wrong = Twin(host.bound(hostlib.build(kernels=kernels, cache=tmp_path, level=LEVEL)))
    with pytest.raises(AssertionError):
        check_sums(wrong, 0, 1)
        check_sums(wrong, 0, -1)


@pytest.mark.parametrize("seed", range(12))
def test_averages(twin: Twin, seed: int) -> None:
    p = replace(kernel_cases.draw_pool(np.random.default_rng(seed), tall=True), away=True)
    guard, rng = Guarded(), np.random.default_rng(seed)
    x, y = kernel_cases.draw_s8(rng, p.x), guard.array(p.y, np.int8)
    twin.lib.avgpool_fwd_s8(pool_structs.pool_struct(p.x, p.y, p.window, p.x_zero), x, y)
    guard.check()
    np.testing.assert_array_equal(y, reference.avgpool_fwd(p, x))


@pytest.mark.parametrize("seed", range(12))
def test_lines_and_averages_of_windows_of_different_sizes(twin: Twin, seed: int) -> None:
    kernel_cases.same_resampled(twin, np.random.default_rng(seed), away=True)


@pytest.mark.parametrize("inputs", [1, 5, 12])
@pytest.mark.parametrize("outputs", [1, 7, 24])
@pytest.mark.parametrize("way", [HALF_PIXEL, ALIGNED, ASYMMETRIC])
def test_lines_in_1024ths_are_those_between_pixels(inputs: int, outputs: int, way: str) -> None:
    """To the last step, which is what a 1024th makes of the way from the first place to the last."""
    axis, wanted = between_in_1024ths(inputs, outputs, way), between(inputs, outputs, way)
    x = np.arange(inputs) / inputs
    got, true = (a.matrix @ x / a.whole for a in (axis, wanted))
    assert (axis.matrix.sum(1) == axis.whole).all() and np.abs(got - true).max() <= (outputs + 1) / 1024
    assert inputs * 2 != outputs or way != HALF_PIXEL or axis.terms == wanted.terms


def test_pixels_by_a_table_of_the_file(tmp_path: Path) -> None:
    """A subtraction and a product by channel: three tables, which C, NumPy and the plan have."""
    path = tmp_path / "normalised.tflite"
    path.write_bytes(normalised(*IMAGENET)())
    graph = int8_graph(path)
    assert len(graph.input.table) == 3 and len(graph.nodes) == 3
    compiled = partly_trained(graph, 0)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path / "out"), 2)


def test_a_device_looks_its_pixels_up(tmp_path: Path) -> None:
    path, own = tmp_path / "normalised.tflite", tmp_path / "own"
    path.write_bytes(normalised(*IMAGENET)())
    words = ["--head-rows", "0-4", "-o", str(own), "--board", "native"]
    assert CliRunner().invoke(convert, [str(path), *words]).exit_code == 0
    done = pio(tmp_path / "pio", "run", "-s", "-e", NATIVE, model=own)
    assert done.returncode == 0, done.stderr
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    graph = int8_graph(path)
    np.testing.assert_array_equal(load_blueprint(own).stored(pixels), stored_pixels(graph, pixels[None])[0])
    with Device(ProgramPort(product(tmp_path / "pio", NATIVE))) as device:
        np.testing.assert_array_equal(device.infer(pixels).logits, run_int8(graph, pixels[None])[0])


@pytest.mark.parametrize("real", [2.0**-9, 0.0123, 0.3, 0.7])
@pytest.mark.parametrize("kernel", [scale.SCALE, scale.MULTIPLY, scale.PIXELS])
def test_products(twin: Twin, kernel: str, real: float) -> None:
    rng, shape = np.random.default_rng(3), (5, 4, 11)
    (m,), (fine,) = tflite.multipliers(np.array([real]))
    p = scale.Scale(x_zero=-7, s_zero=3, y_zero=-5, m=float(m), fine=int(fine))
    factors = {scale.SCALE: (11,), scale.MULTIPLY: shape, scale.PIXELS: (5, 4, 1)}[kernel]
    x, s, y = (kernel_cases.draw_s8(rng, each) for each in (shape, factors, shape))
    mask = np.zeros((5, 4, 2), np.uint8)
    getattr(twin.lib, f"{kernel}_fwd_s8")(p, 20, 11, x, s, y, mask)
    want, want_mask = scale.scaled(p, x, s)
    np.testing.assert_array_equal(y, want)
    kernel_cases.same_mask(mask, want_mask)


FAULTS = {
    "half up alone": ("requantize.h", "return (t + (t >> 31) + m.offset)", "return (t + m.offset)"),
    "the shift of a mean": ("requantize.h", "(fine < 1 << 30)", "(fine < 1)"),
    "one rounding": ("requantize.h", "((int64_t)a * b + ((int64_t)1 << 31))", "((int64_t)a * b)"),
    "one rounding on the chip": ("assembly.inc", "smmlar  \\temp", "smmla   \\temp"),
    "half up alone on the chip": ("assembly.inc", "add     \\v, \\temp, \\v, asr #31", "mov     \\v, \\temp"),
    "the shift of a mean on the chip": (
        "assembly.inc",
        "sublt   \\shift, \\shift, #1",
        "movlt   \\shift, \\shift",
    ),
    "a mask on the chip": ("dense_armv7em.S", "    ssat    \\r, #16, \\r", "    ssat    \\r, #8, \\r"),
}


def test_a_wrong_rounding_of_lines_is_noticed(tmp_path: Path) -> None:
    fault = ("chip.h", "sum < 0 ? -(count / 2)", "sum < 0 ? (count / 2)")
    kernels = planted(tmp_path / "src/kernels", fault)
    wrong = Twin(host.bound(hostlib.build(kernels=kernels, cache=tmp_path, level=LEVEL)))
    with pytest.raises(AssertionError):
        for seed in range(12):
            kernel_cases.same_resampled(wrong, np.random.default_rng(seed), away=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_wrong_rounding_is_noticed(tmp_path: Path, fault: str) -> None:
    check_noticed(tmp_path, LEVEL, FAULTS[fault], "chip" in fault, as_tflite)


@pytest.mark.parametrize("fraction_bits", [0, 4])
def test_a_network_learns_in_c_what_it_learns_in_numpy(tmp_path: Path, fraction_bits: int) -> None:
    compiled = partly_trained(residual_network().replace(requantize=TFLITE), fraction_bits)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 12)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(tmp_path: Path, seed: int) -> None:
    compiled = partly_trained(random_network(seed).replace(requantize=TFLITE), (0, 4, 8)[seed % 3])
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 4)


def test_factors_and_terms_of_a_file(tmp_path: Path) -> None:
    """They are ops of their own, however all else is rounded, and what is before them learns."""
    path = tmp_path / "norms.tflite"
    path.write_bytes(with_norms())
    graph = int8_graph(path)
    terms = [mul_add.constants(n).term is not None for n in graph.nodes if n.op == mul_add.MUL_ADD]
    assert terms == [True, True, False] and not any(n.op == "dwconv2d" for n in graph.nodes[:-2])
    for rounding in (TFLITE, FLOAT):
        compiled = partly_trained(graph.replace(requantize=rounding), 4)
        run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path / rounding), 6)


def test_a_network_of_all_ops(tmp_path: Path) -> None:
    """Streams, gates, groups, concatenations, activations by table: C makes and learns what NumPy does."""
    graph = sizes.everything(5, True, tmp_path, shuffled=2).replace(requantize=TFLITE)
    compiled = compile_graph(graph, sizes.SCHEMES[4], sizes.CLASSES)
    run_both(compiled, NativeModel(generate(compiled, "a test"), tmp_path), 2)


@pytest.mark.parametrize("m", [1e-12, 1.0, 1e5, 1e9])
def test_any_multiplier_makes_a_table(m: float) -> None:
    """Conversion of other models may ask for one that no file of TFLite has."""
    stored = np.arange(-128, 128)
    sides = (m, 3), (1.0, -5)
    for table in (tflite.hard_swish, tflite.times_logistic, lambda q, x, y: tflite.leaky(q, x, y, 0.1)):
        made = table(stored, *sides)
        assert made.dtype == np.int8 and made[131] == -5, "0 stays 0"
    assert (np.diff(tflite.clip(stored, *sides, -1e9, 1e9).astype(int)) >= 0).all()


def test_kernels_of_the_other_arithmetic_are_refused(tmp_path: Path) -> None:
    check_others_refused(tmp_path, TFLITE)


def test_the_board_learns_what_this_machine_learns(tmp_path: Path) -> None:
    """The demo's network, from conversion to the emulated board."""
    built = build_example(EXAMPLE / "scheme.yaml", tmp_path, True, "--requantize", "tflite")
    assert built.plan["requantize"] == TFLITE
    board = learn(EmulatorPort(built.elf), STEPS)
    assert board == learn(ProgramPort(built.program), STEPS)


def with_activations() -> bytes:
    """What else rounds in a way of its own: HARD_SWISH, SiLU, LEAKY_RELU and AVERAGE_POOL_2D."""
    net = Int8.input((12, 12, 3))
    net.conv(8, (3, 3), 1, (12, 12), (0.05, -10), act=0)
    net.map("HARD_SWISH", (0.03, -115))
    net.conv(8, (3, 3), 2, (6, 6), (0.06, 4), act=0)
    net.map("LEAKY_RELU", (0.05, -60), "LeakyReluOptions", Alpha=0.3)
    net.conv(8, (3, 3), 1, (6, 6), (0.05, 3), act=0)
    x = net.x
    net.map("LOGISTIC", (1 / 256, -128)).times(x, (0.04, -120))
    pooled = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    net.map("AVERAGE_POOL_2D", (0.04, -120), "Pool2DOptions", (3, 3, 8), **pooled)
    return net.mean((0.02, -110)).linear(5, (0.05, 3)).file()


def with_norms() -> bytes:
    """Batch norms behind an activation: a product and a sum, whose scale is the smaller one or the larger,
    one of them with an activation; and a product alone."""
    net = Int8.input((12, 12, 3))
    net.conv(8, (3, 3), 1, (12, 12), (0.05, -128))
    net.by_constant("MUL", True, (0.012, -100), (0.06, -40)).by_constant("ADD", True, (0.01, 9), (0.05, -30))
    net.conv(12, (3, 3), 2, (6, 6), (0.05, 4), act=0)
    net.by_constant("MUL", True, (0.012, -7), (0.05, 11)).by_constant(
        "ADD", True, (0.07, 2), (0.04, -128), act=1
    )
    net.conv(6, (3, 3), 1, (6, 6), (0.05, -128)).by_constant("MUL", False, (0.008, -128), (0.03, -128))
    return net.mean((0.02, -128)).linear(5, (0.02, 3)).file()


def normalised(*steps: tuple[str, bool, tuple[float, int], tuple[float, int]]) -> Callable[[], bytes]:
    """A network that does something to its input first. steps: operator, whether a constant for each channel,
    the constant's scale and zero point, and those of the result"""

    def network() -> bytes:
        net = Int8.input((8, 8, 3), scale=1.0, zero=-128)
        for step in steps:
            net.by_constant(*step)
        net.conv(8, (3, 3), 1, (8, 8), (0.4, -128))
        return net.mean((0.05, -128)).linear(5, (0.005, 3)).file()

    return network


def with_others() -> bytes:
    """Lines between pixels, averages of windows that are cut off, the larger and the smaller of two maps, and
    slopes below 0 by channel."""
    net = Int8.input((8, 8, 3))
    net.conv(8, (3, 3), 1, (8, 8), (0.05, 4), act=0).prelu((0.008, 0), (0.04, -60))
    net.resize((12, 20)).conv(6, (3, 3), 2, (6, 10), (0.03, 9), act=0)
    first = net.map("ABS", (0.04, -101)).conv(6, (1, 1), 1, (6, 10), (0.03, 9), act=0).x
    net.conv(6, (1, 1), 1, (6, 10), (0.03, 9), act=0).with_other("MAXIMUM", first).with_other(
        "MINIMUM", first
    )
    net.conv(6, (3, 3), 2, (3, 5), (0.03, -9), act=0)
    pooled = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    net.map("AVERAGE_POOL_2D", (0.03, -9), "Pool2DOptions", (2, 3, 6), **pooled)
    return net.mean((0.0131, -20)).linear(5, (0.01, 3)).file()


def of_features() -> bytes:
    """Each less its mean, over its deviation: more of them than there are tables for."""
    net = Int8.input((20,))
    net.by_constant("SUB", True, (0.004, 35), (0.06, -20)).by_constant("MUL", True, (0.0116, -128), (0.1, -9))
    return net.dense(16, (0.05, -128), 1).dense(5, (0.1, 3), 0).file()


MOBILENET = (("MUL", False, (2 / 65025, -128), (0.01176, -43)), ("ADD", False, (1 / 255, 127), (0.00784, -1)))
IMAGENET = (("SUB", True, (0.4706, -128), (1.0784, -17)), ("MUL", True, (7e-05, -128), (0.0181, -16)))


def with_sums_alone() -> bytes:
    """A map that is turned and squared, a term by channel that is no bias of the file's, and a mean that
    keeps its scale."""
    net = Int8.input((4, 10, 3))
    net.conv(6, (3, 3), 1, (4, 10), (0.05, -9), act=0).transposed((0, 2, 1, 3))
    net.times(net.x, (0.013, -128)).conv(8, (3, 3), 2, (5, 2), (0.05, -9), act=0).by_constant(
        "ADD", True, (0.013, 7), (0.06, -12)
    )
    return net.mean((0.06, -12)).linear(5, (0.013, 3)).file()


@pytest.mark.parametrize(
    "network",
    [
        small_network,
        with_activations,
        with_norms,
        normalised(*MOBILENET),
        normalised(*IMAGENET),
        with_others,
        with_sums_alone,
    ],
)
def test_a_files_logits_are_those_of_the_reference_kernels(network: object, tmp_path: Path) -> None:
    """Every one; rounded once a layer, by a float, they are not."""
    graph, samples, said, expected = same_as_reference(network, tmp_path)
    assert (logits(graph.replace(requantize=FLOAT), samples, said) != expected).any()


def test_features_that_a_file_normalises(tmp_path: Path) -> None:
    """Each by numbers of its own, more than there are tables for: by ops."""
    graph, *_ = same_as_reference(of_features, tmp_path)
    assert [n.op for n in graph.nodes[:2]] == [mul_add.MUL_ADD] * 2 and not graph.input.table


def same_as_reference(network: Any, tmp_path: Path) -> tuple[Graph, np.ndarray, Any, np.ndarray]:
    """A network's graph, samples, scale and zero point of its logits, and what the reference kernels make."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(network())
    graph = int8_graph(path)
    assert graph.requantize == TFLITE
    entry = graph.tensors[graph.input.tensor].elements
    samples = np.random.default_rng(1).integers(-128, 128, (300, entry)).astype(np.int8)
    expected, said = interpreted(path, samples, reference=True)
    assert len(np.unique(expected)) > 25, "the logits say something"
    np.testing.assert_array_equal(logits(graph, samples, said), expected)
    return graph, samples, said, expected


def test_conversion_says_how_sums_are_rounded(tmp_path: Path) -> None:
    """By itself as the file's kernels do; for the library in float32, which is a word that differs."""
    path = tmp_path / "small.tflite"
    path.write_bytes(small_network())
    for more, header, page, line in (
        ([], True, "file, sums rounded as TensorFlow Lite", ""),
        (["--requantize", "float"], False, "file, sums not rounded as TensorFlow Lite", ""),
        (["--library", str(tmp_path / "library")], False, "file, sums not rounded as", "may differ a little"),
    ):
        words = [str(path), "--classes", "3", "-o", str(tmp_path / "out"), "--board", "native"]
        done = CliRunner().invoke(convert, [*words, *more])
        assert done.exit_code == 0, done.output
        assert ("MODEL_TFLITE" in (tmp_path / "out/model.h").read_text()) is header
        assert page in (tmp_path / "out/report.html").read_text() and line in done.output
