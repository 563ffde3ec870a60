"""The kernels as built for the chip, with its DSP extension: NumPy's bits, no forbidden instruction."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import kernel_cases
import kernel_twins
import numpy as np
import pytest
from kernel_twins import Twin
from planting import planted

from microtrain.convert.ir import Window
from microtrain.convert.ops.conv_constants import words_of
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.kernels import Conv, Error
from microtrain.convert.reference.proofs import multiplier_words

pytest.importorskip("unicorn", reason="Unicorn is not installed")
if shutil.which("arm-none-eabi-gcc") is None:
    pytest.skip("arm-none-eabi-gcc is not installed", allow_module_level=True)

import kernel_arm
import kernel_m55

CASES = {  # of each check: most as the firmware is built; the others get the first of the same cases
    ("-O2", "cortex-m7"): 60,
    ("-O3", "cortex-m7"): 20,
    ("-O2", "cortex-m4"): 30,
    ("-O2", "cortex-m55"): 15,
}


@pytest.fixture(
    scope="module",
    params=CASES,
    ids=lambda built: "".join(built),
)
def built(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Optimisation and core."""
    found: tuple[str, str] = request.param
    if found[1] == kernel_m55.CPU and shutil.which(kernel_m55.QEMU) is None:
        pytest.skip(f"{kernel_m55.QEMU} is not installed")
    return found


@pytest.fixture(scope="module")
def elf(built: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel_arm.build(tmp_path_factory.mktemp("arm"), *built)


@pytest.fixture(scope="module")
def twin(elf: Path, built: tuple[str, str]) -> Iterator[Twin]:
    if built[1] != kernel_m55.CPU:
        yield Twin(kernel_arm.ArmLib(elf, cpu=built[1]))  # type: ignore[arg-type]
        return
    with kernel_m55.M55Lib(elf) as lib:
        yield Twin(lib)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", kernel_cases.CHECKS)
def test_numpy_equals_the_chip(twin: Twin, built: tuple[str, str], name: str) -> None:
    kernel_cases.run(name, twin, CASES[built], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", kernel_cases.CHECKS)
def test_numpy_equals_the_chip_in_all_cases(twin: Twin, built: tuple[str, str], name: str) -> None:
    kernel_cases.run(name, twin, max(CASES.values()), seed=1)


TILES = {
    "low": (3, 70, 5),
    "row": (1, 41, 4),
    "high": (21, 37, 6),
    "four": (4, 17, 3),
    "whole": (8, 8, 5),
    "phases": (6, 24, 6),
    "kept": (16, 16, 4),
    "computed twice": (16, 24, 4),
}


@pytest.mark.parametrize("shape", TILES.values(), ids=TILES.keys())
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [3, 5, 7])
def test_depthwise_images_of_several_tiles(
    twin: Twin, side: int, stride: int, shape: tuple[int, int, int]
) -> None:
    """Tiles of either width, with parts of the last one missing, and a channel without errors."""
    rng = np.random.default_rng(side + stride)
    h, w, c = shape
    window = Window(side, side, stride, stride, side // 2, side // 2)
    m = rng.uniform(1e-4, 1e-3, c).astype(np.float32)
    p = Conv(shape, ((h - 1) // stride + 1, (w - 1) // stride + 1, c), window, -7, 5, m, 4)
    x, taps = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (c, side, side), dtype=np.int8)
    b = rng.integers(-9999, 9999, c, dtype=np.int32)
    y, mask = twin.forward("dwconv2d", p, x, taps, b, kernel_cases.Split((), c, True), bool(stride - 1))
    want, want_mask = reference.dwconv2d_fwd(p, x, taps, b)
    np.testing.assert_array_equal(y, want)
    kernel_cases.same_mask(mask, want_mask)
    ey, clamp = kernel_cases.draw_error(rng, p.y), kernel_cases.draw_clamp(rng, p.x)
    ey.q[..., 1] = 0
    got = twin.backward_x("dwconv2d", p, ey, taps, clamp, kernel_cases.Split((), c, True))
    kernel_cases.same_error(got, reference.dwconv2d_bwd_x(p, ey, taps, clamp))
    trained = kernel_cases.draw_trained(rng, taps.shape, ey.scale)
    sgd, channels = kernel_cases.draw_sgd(rng), np.arange(c, dtype=np.uint16)
    step = twin.backward_w("dwconv2d", p, ey, x, None, channels, trained, sgd)
    np.testing.assert_array_equal(step.w, reference.dwconv2d_bwd_w(p, ey, x, channels, trained, sgd).w)


def mixed_layer(depthwise: bool, side: int, window: Window) -> tuple[Conv, np.ndarray]:
    """A layer of 23 channels, some with a proven integer and some with a float, one after the other."""
    rng = np.random.default_rng(side)
    taps = window.kh * window.kw * (1 if depthwise else 23)
    m = (rng.uniform(0.5, 2.0, 23) / (np.sqrt(taps) * 100)).astype(np.float32)
    m[::3] = 2.0**-10  # ties, which no integer rounds as float32 does
    p = Conv((side, side, 23), (side, side, 23), window, -7, -128 + side, m, 4)
    words = multiplier_words(p.m, p.y_zero)
    assert (words[::3] > 0).all() and (words < 0).sum() > 8
    return p, rng.integers(-127, 128, (23, *(window.kh, window.kw)), dtype=np.int8)


@pytest.mark.parametrize("side", [2, 4, 8], ids=["four lanes", "both", "six lanes"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("trained", [0, 9, 23])
def test_integers_and_floats_in_one_tile(twin: Twin, side: int, mask: bool, trained: int) -> None:
    p, _ = mixed_layer(False, side, Window(1, 1))
    rng = np.random.default_rng(trained)
    split = kernel_cases.Split(tuple(range(trained)), 23)
    x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (23, 1, 1, 23), dtype=np.int8)
    b = rng.integers(-99999, 99999, 23, dtype=np.int32)
    y, bits = twin.forward("conv2d", p, x, w, b, split, mask)
    want, want_bits = reference.conv2d_fwd(p, x, w, b)
    np.testing.assert_array_equal(y, want)
    kernel_cases.same_mask(bits, want_bits)


LENGTHS = (*range(1, 34), 40, 48, 56, 63, 64, 65, 72, 80, 96, 127, 128, 129, 136, 255, 256, 257)


@pytest.mark.parametrize("mask", [False, True])
def test_rows_of_every_length(twin: Twin, mask: bool) -> None:
    """A vector of Helium has 16 values; rows of 8, of whole and of part vectors, and long ones differ."""
    rng = np.random.default_rng(1)
    for c_in in LENGTHS:
        m = rng.uniform(1e-4, 1e-3, 19).astype(np.float32)
        pixels = (2, 3) if c_in % 2 else (1, 5)
        p = Conv((*pixels, c_in), (*pixels, 19), Window(1, 1), -7, 5, m, 4)
        x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (19, 1, 1, c_in), dtype=np.int8)
        b = rng.integers(-9999, 9999, 19, dtype=np.int32)
        y, bits = twin.forward("conv2d", p, x, w, b, kernel_cases.Split((), c_in, True), mask)
        want, want_bits = reference.conv2d_fwd(p, x, w, b)
        np.testing.assert_array_equal(y, want, f"{c_in} values")
        kernel_cases.same_mask(bits, want_bits)


@pytest.mark.parametrize("pixels", [(1, 1), (2, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("lengths", [(5, 24), (24, 24), (31, 70), (130, 17)], ids=str)
def test_rows_in_two_parts(twin: Twin, lengths: tuple[int, int], pixels: tuple[int, int]) -> None:
    """Frozen and trained weights of two lengths: to the sums of one those of the other are added."""
    rng = np.random.default_rng(sum(lengths))
    c_in = sum(lengths)
    m = rng.uniform(1e-4, 1e-3, 27).astype(np.float32)
    p = Conv((*pixels, c_in), (*pixels, 27), Window(1, 1), -7, 5, m, 4)
    split = kernel_cases.Split(tuple(int(i) for i in rng.permutation(c_in)[: lengths[1]]), c_in)
    for mask in (False, True):
        x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (27, 1, 1, c_in), dtype=np.int8)
        b = rng.integers(-9999, 9999, 27, dtype=np.int32)
        y, bits = twin.forward("conv2d", p, x, w, b, split, mask)
        want, want_bits = reference.conv2d_fwd(p, x, w, b)
        np.testing.assert_array_equal(y, want)
        kernel_cases.same_mask(bits, want_bits)


def check_small_depthwise(twin: Twin, side: int, stride: int, shape: tuple[int, int]) -> None:
    """Images of whole fours of channels and few pixels, with any padding; errors with zeros between them."""
    rng = np.random.default_rng(side * stride + sum(shape))
    for pad in (0, side // 2, side):
        h, w = ((n + 2 * pad - side) // stride + 1 for n in shape)
        if h < 1 or w < 1:
            continue
        window = Window(side, side, stride, stride, pad, pad)
        m = rng.uniform(1e-4, 1e-3, 12).astype(np.float32)
        p = Conv((*shape, 12), (h, w, 12), window, int(rng.integers(-128, 128)), 5, m, 4)
        split = kernel_cases.Split((), 12, True)
        x, taps = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (12, side, side), dtype=np.int8)
        b = rng.integers(-9999, 9999, 12, dtype=np.int32)
        for mask in (False, True):
            y, bits = twin.forward("dwconv2d", p, x, taps, b, split, mask)
            want, want_bits = reference.dwconv2d_fwd(p, x, taps, b)
            np.testing.assert_array_equal(y, want)
            kernel_cases.same_mask(bits, want_bits)
        ey, clamp = kernel_cases.draw_error(rng, p.y), kernel_cases.draw_clamp(rng, p.x)
        got = twin.backward_x("dwconv2d", p, ey, taps, clamp, split)
        kernel_cases.same_error(got, reference.dwconv2d_bwd_x(p, ey, taps, clamp))


@pytest.mark.parametrize("shape", [(4, 4), (8, 8), (1, 1), (3, 5), (2, 17), (13, 4), (7, 7)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [3, 5, 7])
def test_depthwise_images_that_are_small(twin: Twin, side: int, stride: int, shape: tuple[int, int]) -> None:
    check_small_depthwise(twin, side, stride, shape)


def test_sums_of_errors_of_any_size(twin: Twin) -> None:
    """Subnormal floats and huge ones: Helium takes the former for 0, so that such sums are not its work."""
    rng = np.random.default_rng(1)
    for size in (1e-44, 1e-39, 1.1e-38, 2.0**-126, 2.0**-101, 2.0**-100, 1e-20, 2.0**100, 2.0**101, 1e38):
        for other in (size, 0.0, 1.0):
            a, b = (
                Error(kernel_cases.draw_s8(rng, (3, 5, 8), -127), np.full(8, n, np.float32))
                for n in (size, other)
            )
            b.scale[1::3] = -b.scale[1::3]
            a.scale[2] = 0.0
            out = Error(np.zeros((3, 5, 8), np.int8), np.zeros(8, np.float32))
            clamp = kernel_cases.Clamp(rng.random((3, 5, 8)) < 0.8, None)
            ends = (kernel_twins.clamp_struct(clamp), kernel_twins.error_struct(out))
            left, right = kernel_twins.error_struct(a), kernel_twins.error_struct(b)
            twin.lib.error_add_s8(15, 8, left, 1.0, right, 1.0, *ends)
            with np.errstate(over="ignore", invalid="ignore"):
                kernel_cases.same_error(out, reference.error_add(a, 1.0, b, 1.0, clamp))


def test_lanes_of_many_values(twin: Twin) -> None:
    """More than 512 values a lane: four lanes at once, and a third less scratch than six would take."""
    rng = np.random.default_rng(1)
    for n, lanes in ((512, 6), (516, 4), (579, 4)):
        m = rng.uniform(1e-4, 1e-3, 11).astype(np.float32)
        p = Conv((3, 3, n), (3, 3, 11), Window(1, 1), -7, 5, m, 4)
        x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (11, 1, 1, n), dtype=np.int8)
        b = rng.integers(-9999, 9999, 11, dtype=np.int32)
        for mask in (False, True):
            y, bits = twin.forward("conv2d", p, x, w, b, kernel_cases.Split((), n, True), mask)
            want, want_bits = reference.conv2d_fwd(p, x, w, b)
            np.testing.assert_array_equal(y, want)
            kernel_cases.same_mask(bits, want_bits)
        p = Conv((3, 3, 11), (3, 3, n), Window(1, 1), -7, 5, np.full(n, 0.001, np.float32), 0)
        assert (
            twin.lib.conv2d_bwd_x_scratch(twin.conv(p))
            == lanes * (4 * 9 + 2 * -(-n // 4) * 4) + -(-n // 2) * 4
        )
        ey, clamp, w = (
            kernel_cases.draw_error(rng, p.y),
            kernel_cases.draw_clamp(rng, p.x),
            w.transpose(3, 1, 2, 0),
        )
        w = np.ascontiguousarray(w)
        got = twin.backward_x("conv2d", p, ey, w, clamp, kernel_cases.Split((), 11, True))
        kernel_cases.same_error(got, reference.conv2d_bwd_x(p, ey, w, clamp))


def pointwise(twin: Twin, side: int, c_in: int, c_out: int, equal: bool = False) -> None:
    """Forward without a mask and errors of a layer. equal: all pixels have the same errors"""
    rng = np.random.default_rng(c_in + c_out)
    m = rng.uniform(1e-4, 1e-3, c_out).astype(np.float32)
    p = Conv((side, side, c_in), (side, side, c_out), Window(1, 1), -7, 5, m, 4)
    x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (c_out, 1, 1, c_in), dtype=np.int8)
    b, split = rng.integers(-9999, 9999, c_out, dtype=np.int32), kernel_cases.Split((), c_in, True)
    y, _ = twin.forward("conv2d", p, x, w, b, split, False)
    np.testing.assert_array_equal(y, reference.conv2d_fwd(p, x, w, b)[0])
    ey, clamp = kernel_cases.draw_error(rng, p.y), kernel_cases.draw_clamp(rng, p.x)
    if equal:
        ey.q[...] = ey.q[0, 0]
    kernel_cases.same_error(
        twin.backward_x("conv2d", p, ey, w, clamp, split), reference.conv2d_bwd_x(p, ey, w, clamp)
    )


@pytest.mark.parametrize("c_in", [12, 20, 26, 48])
@pytest.mark.parametrize("c_out", [316, 320, 322, 513, 577])
def test_long_columns_are_summed_in_parts(twin: Twin, c_in: int, c_out: int) -> None:
    for side in (1, 2, 4, 5):
        pointwise(twin, side, c_in, c_out)


@pytest.mark.parametrize("c_in", [95, 96, 100, 201])
@pytest.mark.parametrize("c_out", [15, 16, 33])
def test_equal_errors_of_many_spans(twin: Twin, c_in: int, c_out: int) -> None:
    for side in (3, 4, 5):
        pointwise(twin, side, c_in, c_out, equal=True)


@pytest.mark.parametrize("c_in", [39, 40, 64, 68])
def test_blocks_of_channels_whose_weights_stay_cached(twin: Twin, c_in: int) -> None:
    for c_out, side in ((77, 4), (160, 5), (211, 3)):
        pointwise(twin, side, c_in, c_out)


@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("mask", [False, True])
def test_integers_and_floats_in_one_depthwise_layer(twin: Twin, side: int, mask: bool) -> None:
    p, taps = mixed_layer(True, 12, Window(side, side, 1, 1, side // 2, side // 2))
    rng = np.random.default_rng(side)
    x, b = kernel_cases.draw_s8(rng, p.x), rng.integers(-9999, 9999, 23, dtype=np.int32)
    y, bits = twin.forward("dwconv2d", p, x, taps, b, kernel_cases.Split((), 23, True), mask)
    want, want_bits = reference.dwconv2d_fwd(p, x, taps, b)
    np.testing.assert_array_equal(y, want)
    kernel_cases.same_mask(bits, want_bits)


def check_a_stem(twin: Twin, stride: int, pad: int, shape: tuple[int, int, int]) -> None:
    """Six fields of 27 values at a time: inside, over the edges, and with fewer left at the end."""
    rng = np.random.default_rng(stride)
    window = Window(3, 3, stride, stride, pad, pad)
    h, w = ((side + 2 * pad - 3) // stride + 1 for side in shape[:2])
    m = rng.uniform(1e-4, 1e-3, 9).astype(np.float32)
    p = Conv(shape, (h, w, 9), window, -7, 5, m, 4)
    x, taps = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (9, 3, 3, 3), dtype=np.int8)
    b = rng.integers(-9999, 9999, 9, dtype=np.int32)
    for mask in (False, True):
        y, bits = twin.forward("conv2d", p, x, taps, b, kernel_cases.Split((), 3, True), mask)
        want, want_bits = reference.conv2d_fwd(p, x, taps, b)
        np.testing.assert_array_equal(y, want)
        kernel_cases.same_mask(bits, want_bits)


@pytest.mark.parametrize("shape", [(16, 16, 3), (3, 29, 3), (9, 7, 3)], ids=str)
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_stems_over_three_channels(twin: Twin, stride: int, pad: int, shape: tuple[int, int, int]) -> None:
    check_a_stem(twin, stride, pad, shape)


def check_pixels_in_a_row(twin: Twin, c_in: int, side: int) -> None:
    """A pointwise layer without a mask, of channels with a proven integer and with a float."""
    rng = np.random.default_rng(c_in + side)
    m = (rng.uniform(0.5, 2.0, 23) / (np.sqrt(c_in) * 100)).astype(np.float32)
    m[::3] = 2.0**-10
    p = Conv((side, side, c_in), (side, side, 23), Window(1, 1), -7, 5, m, 4)
    x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (23, 1, 1, c_in), dtype=np.int8)
    b = rng.integers(-9999, 9999, 23, dtype=np.int32)
    y, _ = twin.forward("conv2d", p, x, w, b, kernel_cases.Split((), c_in, True), False)
    np.testing.assert_array_equal(y, reference.conv2d_fwd(p, x, w, b)[0])


@pytest.mark.parametrize("side", [4, 6, 7, 10])
@pytest.mark.parametrize("c_in", [4, 8, 12, 72])
def test_tiles_that_follow_one_another(twin: Twin, c_in: int, side: int) -> None:
    """And, of eight channels, blocks of pixels."""
    check_pixels_in_a_row(twin, c_in, side)


@pytest.mark.parametrize("trained", [0, 5, 24])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("side", [1, 2, 4, 8])
def test_outputs_may_take_the_place_of_inputs(twin: Twin, side: int, mask: bool, trained: int) -> None:
    rng = np.random.default_rng(side)
    split = kernel_cases.Split(tuple(range(trained)), 24)
    for c_out in (3, 16, 24):
        m = rng.uniform(1e-4, 1e-3, c_out).astype(np.float32)
        p = Conv((side, side, 24), (side, side, c_out), Window(1, 1), -7, 5, m, 4)
        assert twin.in_place("conv2d", p)
        x, w = kernel_cases.draw_s8(rng, p.x), rng.integers(-127, 128, (c_out, 1, 1, 24), dtype=np.int8)
        b = rng.integers(-9999, 9999, c_out, dtype=np.int32)
        y, bits = twin.forward("conv2d", p, x, w, b, split, mask, in_place=True)
        want, want_bits = reference.conv2d_fwd(p, x, w, b)
        np.testing.assert_array_equal(y, want)
        kernel_cases.same_mask(bits, want_bits)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("channels", [4, 7])
def test_a_depthwise_layer_of_pixels_takes_the_place_of_any_map(
    twin: Twin, channels: int, mask: bool
) -> None:
    """Of many tiles too, as each pixel is read before it is written; with a stride there is another order."""
    rng = np.random.default_rng(channels)
    shape = (37, 41, channels)
    p = Conv(shape, shape, Window(1, 1), -7, 5, rng.uniform(1e-3, 1e-2, channels).astype(np.float32), 4)
    assert twin.in_place("dwconv2d", p)
    x, w = kernel_cases.draw_s8(rng, shape), rng.integers(-127, 128, (channels, 1, 1), dtype=np.int8)
    b = rng.integers(-9999, 9999, channels, dtype=np.int32)
    y, bits = twin.forward("dwconv2d", p, x, w, b, kernel_cases.Split((), channels), mask, in_place=True)
    want, want_bits = reference.dwconv2d_fwd(p, x, w, b)
    np.testing.assert_array_equal(y, want)
    kernel_cases.same_mask(bits, want_bits)
    halved = Conv(shape, (19, 21, channels), Window(1, 1, 2, 2), -7, 5, p.m, 4)
    wider = Conv(shape, (37, 42, channels), Window(1, 1, more_w=1), -7, 5, p.m, 4)
    assert not twin.in_place("dwconv2d", halved) and not twin.in_place("dwconv2d", wider)


def test_outputs_may_not_take_the_place_of_what_is_read_again(twin: Twin) -> None:
    """Of 25 pixels the last four begin with three that were read; fewer outputs leave them alone."""
    for c_out, free in ((24, False), (16, True), (25, False)):
        p = Conv((5, 5, 24), (5, 5, c_out), Window(1, 1), 0, 0, np.full(c_out, 0.001, np.float32), 4)
        assert twin.in_place("conv2d", p) == free
    window = Window(3, 3, 1, 1, 1, 1)
    assert not twin.in_place("conv2d", Conv((4, 4, 24), (4, 4, 8), window, 0, 0, np.ones(8, np.float32), 4))


DSP = {
    "the fourth of three values": ("tiles_armv7em.S", "uxth    r9, r9", "mov     r9, r9"),
    "a row of nine bytes": ("tiles_armv7em.S", "orr     r7, r7, r9, lsl #24", "mov     r7, r7"),
    "padding from the image": ("conv2d.c", "(struct field){bytes, 9}", "fields[lane]"),
    "a pixel of another plane": (
        "depthwise_armv7em.S",
        "strd    r11, r8, [r3], #8",
        "strd    r8, r11, [r3], #8",
    ),
    "the last pixel of a row": ("depthwise_armv7em.S", "cmn     r6, #1", "cmn     r6, #2"),
    "a pair of eight weights": ("narrow_armv7em.S", "sxtb16  r5, r0, ror #8", "sxtb16  r5, r0"),
    "pixels of the next tile": ("dense_armv7em.S", "add     r4, r1, r12, lsl #1", "add     r4, r1, r12"),
    "the errors of another part": ("conv2d_bwd_x_armv7em.h", "col->ey + i * c + o", "col->ey + i * c"),
    "the factors of other rows": ("conv2d_bwd_x_armv7em.h", "col->tile + o, n", "col->tile, n"),
    "the biases of another block": ("conv2d.c", "put.from = b + o;", "put.from = b;"),
    "a column that windows see": ("planes.c", "(v->shift + (tile->w - 1)", "((tile->w - 1)"),
}


@pytest.mark.parametrize("fault", DSP)
def test_a_planted_fault_of_the_dsp_path_is_noticed(tmp_path: Path, fault: str) -> None:
    kernels = planted(tmp_path / "src/kernels", DSP[fault])
    twin = Twin(kernel_arm.ArmLib(kernel_arm.build(tmp_path, kernels=kernels)))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        pointwise(twin, 4, 20, 577)
        pointwise(twin, 4, 100, 33, equal=True)
        pointwise(twin, 4, 64, 160)
        check_a_stem(twin, 2, 1, (16, 16, 3))
        check_pixels_in_a_row(twin, 8, 6)
        check_pixels_in_a_row(twin, 12, 6)
        for stride in (1, 2):
            for shape in TILES.values():
                test_depthwise_images_of_several_tiles(twin, 3, stride, shape)


TRAINING = {
    "noise of another bias": (
        "update_armv7em.S",
        "descend r9, s5, r7, ror #16",
        "descend r9, s5, r7",
        "bias_update",
    ),
    "a float of a bias": ("update_armv7em.S", "vmovlt  \\v, s12", "movlt   \\v, #0", "bias_update"),
    "a weight without noise": ("update_armv7em.S", "uxth    lr, r12", "mov     lr, #0", "conv2d_bwd_w"),
    "a weight of -128": ("update_armv7em.S", "ssat    \\v, #8, \\v", "ssat    \\v, #9, \\v", "conv2d_bwd_w"),
    "what saturates": ("dense_armv7em.S", "usat    \\v, #1, \\v", "mov     \\v, #0", "conv2d_fwd"),
    "a mask of another lane": ("requantize_armv7em.S", "byte_of 1, [r12]", "byte_of 0, [r12]", "conv2d_fwd"),
    "a depthwise mask": ("requantize_armv7em.S", "cmp     lr, \\v, asr #3", "cmp     lr, lr", "dwconv2d_fwd"),
    "another lane's weights": (
        "tiles_armv7em.S",
        "ldrsb   r5, [r12, #4]",
        "ldrsb   r5, [r12]",
        "conv2d_bwd_x",
    ),
    "a row's factor twice": (
        "weighted_armv7em.S",
        "smlatt  r6, r11, r12, r6",
        "smlatb  r6, r11, r12, r6",
        "conv2d_bwd_x_of_equal_rows",
    ),
    "a channel beside a dead one": ("dwconv2d_armv7em.h", "live >>= 8", "live >>= 4", "phases"),
    "a tap of the other columns": ("phases_armv7em.S", "uxth    r9, r6", "mov     r9, r6", "phases"),
    "sums of another row": ("phases_armv7em.S", "addlt   lr, lr, r4, lsl #5", "addlt   lr, lr, #0", "phases"),
}


@pytest.mark.parametrize("fault", TRAINING)
def test_a_planted_fault_of_a_training_step_is_noticed(tmp_path: Path, fault: str) -> None:
    *planting, check = TRAINING[fault]
    kernels = planted(tmp_path / "src/kernels", tuple(planting))  # type: ignore[arg-type]
    twin = Twin(kernel_arm.ArmLib(kernel_arm.build(tmp_path, kernels=kernels)))  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        if check == "phases":
            test_depthwise_images_of_several_tiles(twin, 7, 2, TILES["phases"])
        else:
            kernel_cases.run(check, twin, 200, seed=1)


def test_a_wrong_integer_is_noticed(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words do reach the kernels: integers that are a thousandth too large make other outputs."""

    def wrong(m: np.ndarray, zero: int, requantize: str) -> np.ndarray:
        words = words_of(m, zero, requantize)
        return np.where(words < 0, words + words // 1000, words)

    monkeypatch.setattr(kernel_twins, "words_of", wrong)
    with pytest.raises(AssertionError):
        test_integers_and_floats_in_one_depthwise_layer(twin, 3, False)
    with pytest.raises(AssertionError):
        test_integers_and_floats_in_one_tile(twin, 8, False, 0)


def test_the_dsp_path_is_there_and_nothing_forbidden(elf: Path, built: tuple[str, str]) -> None:
    """SMLAD in use; no fused multiply-add, no double, no helper, no library but memcpy and memset."""
    if built[1] == kernel_m55.CPU:
        pytest.skip("objdump 2.40 does not know Helium")
    tool = ["arm-none-eabi-objdump", "-d", str(elf)]
    code = subprocess.run(tool, capture_output=True, text=True, check=True).stdout
    assert "smlad" in code
    assert not re.search(r"\b(vn?fm[as]|vn?ml[as])|\.f64|__aeabi_", code)
    functions = set(re.findall(r"<(\w+)>:", code))
    assert functions >= {"conv2d_fwd_s8", "memcpy", "memset"}
    assert not functions & {"malloc", "expf", "logf", "sqrtf", "fmaxf"}
    assert ("rintf" in functions) == (built[1] == "cortex-m4") != ("vmaxnm" in code)


HELIUM_TOO = {
    "conv2d_mve.S": ("vpt.u16 hi, q6, r0", "vpt.u16 cs, q6, r0", "conv2d_fwd"),  # what just fits is stopped
    "dense_mve.S": ("vstrb.16 q0, [r0], #8", "vstrb.16 q0, [r0], #4", "conv2d_bwd_w"),
    "depthwise_mve.S": ("rsbs    r4, r4, #0", "rsbs    r4, r4, #2", "dwconv2d_of_fours"),  # flipped taps
}
HELIUM_WIDE = {
    "dense_mve.S": ("vmladava.s16 r12, q0, q3", "vmladava.s16 r12, q1, q3", "conv2d_bwd_x"),
    "short_mve.S": ("vmla.s16 q4, q5, r5", "vadd.i16 q4, q4, q5", "conv2d_of_short_rows"),  # places
    "depthwise_mve.S": ("vfma.f32 q\\sum, q7, q6", "vfma.f32 q\\sum, q7, q5", "dwconv2d_of_fours"),
    "elementwise_mve.S": ("vmaxnma.f32 q5, q0", "vmaxnm.f32 q5, q5, q0", "error_add"),
}
HELIUM_LONG = {
    "dense_mve.S": ("bic     r0, r0, #7", "bic     r0, r0, #3", "conv2d_bwd_x_of_rows"),
    "depthwise_mve.S": ("vsli.16 q1, q3, #8", "vsli.16 q1, q2, #8", "dwconv2d_of_strips"),  # the fourth row
    "pairs_mve.S": ("vmladava.s8 r12, q2, q1", "vmladava.s8 r12, q2, q0", "conv2d_fwd"),
}
HELIUM_SHORT = {
    "short_mve.S": ("vmladava.s8 \\other, q5, q3", "vmladava.s8 \\other, q5, q1", "conv2d_of_short_rows"),
    "elementwise_mve.S": (".hword  0, 4, 1, 5, 2, 6, 3, 7", ".hword  0, 1, 2, 3, 4, 5, 6, 7", "add_fwd"),
    "depthwise_mve.S": ("movgt   r0, r12", "movgt   r0, r0", "dwconv2d_of_fours"),  # rows below the image
    "bias_mve.h": ("vqsubq_u32", "vsubq_u32", "bias_update"),  # a shift to the other side
    "update_mve.h": ("vrshrq_n_s32(value, 8)", "vshrq_n_s32(value, 8)", "conv2d_bwd_w"),
}
HELIUM = {
    "conv2d_mve.S": ("vcvtn.s32.f32", "vcvtm.s32.f32", "conv2d_fwd"),  # down instead of to the nearest
    "depthwise_mve.S": ("addne   r10, r9, r7, lsl #4", "addne   r10, r9, r7, lsl #3", "dwconv2d_bwd_x"),
    "dense_mve.S": ("bic     r0, r0, #15", "bic     r0, r0, #7", "conv2d_bwd_w"),  # where rows do not fit
}


@pytest.mark.parametrize(
    "faults",
    [HELIUM, HELIUM_TOO, HELIUM_WIDE, HELIUM_LONG, HELIUM_SHORT],
    ids=["sums", "masks", "vectors", "rows", "steps"],
)
def test_planted_faults_of_helium_are_noticed(
    tmp_path: Path, faults: dict[str, tuple[str, str, str]]
) -> None:
    """A rounding, places of sums, rows and saved inputs, a bit of the mask, a sum of 16 bits."""
    if shutil.which(kernel_m55.QEMU) is None:
        pytest.skip(f"{kernel_m55.QEMU} is not installed")
    planting = [(name, right, wrong) for name, (right, wrong, _) in faults.items()]
    kernels = planted(tmp_path / "src/kernels", *planting)
    with kernel_m55.M55Lib(kernel_arm.build(tmp_path, cpu=kernel_m55.CPU, kernels=kernels)) as lib:
        for _, _, check in faults.values():
            with pytest.raises(AssertionError, match=check):
                kernel_cases.run(check, Twin(lib), 60, seed=1)  # type: ignore[arg-type]


MOST = {"conv2d_fwd": 2.3, "conv2d_bwd_x": 2.0, "conv2d_bwd_w": 3.5, "dwconv2d_fwd": 9.5}


@pytest.mark.parametrize("kernel", MOST)
def test_instructions_a_multiply_accumulate(elf: Path, built: tuple[str, str], kernel: str) -> None:
    """48 channels to 192 on 8x8, depthwise 3x3 on 192; a whole call, a weight update included."""
    if built[1] == kernel_m55.CPU:
        pytest.skip("QEMU's debugger does not count; make cores does")
    lib = kernel_arm.ArmLib(elf, count=True, cpu=built[1])
    assert instructions_per_mac(lib, kernel) < MOST[kernel]


def instructions_per_mac(lib: kernel_arm.ArmLib, kernel: str, channels: int = 48, side: int = 8) -> float:
    op, way = kernel.split("_", 1)
    rng = np.random.default_rng(0)
    depthwise = op == "dwconv2d"
    window = Window(3, 3, 1, 1, 1, 1) if depthwise else Window(1, 1)
    c_in = 192 if depthwise else channels
    p = Conv((side, side, c_in), (side, side, 192), window, -5, 3, np.full(192, 0.001, np.float32), 8)
    x, q = (rng.integers(-127, 128, shape, dtype=np.int8) for shape in (p.x, p.y))
    w = rng.integers(-127, 128, (192, 3, 3) if depthwise else (192, 1, 1, c_in), dtype=np.int8)
    error, twin, split = Error(q, np.ones(192, np.float32)), Twin(lib), kernel_cases.Split((), c_in, True)  # type: ignore[arg-type]
    if way == "fwd":
        twin.forward(op, p, x, w, np.zeros(192, np.int32), split, True)
    elif way == "bwd_x":
        clamp = kernel_cases.Clamp(rng.random(p.x) < 0.8, np.ones(c_in, np.float32))
        twin.backward_x(op, p, error, w, clamp, split)
    else:
        trained = kernel_cases.Trained(w, None, 0, np.ones(192, np.float32), 1)
        channels_of = np.arange(192, dtype=np.uint16) if depthwise else None
        twin.backward_w(op, p, error, x, None, channels_of, trained, kernel_cases.Sgd(0.1, 0.1, 0.1, 1, 2))
    return lib.instructions / (side * side * w.size)
