"""Random cases of every kernel, NumPy reference against C, all exact.

Each `check_*` draws one case and compares; `CHECKS` names them all. A fault in the C must make one of them
raise AssertionError, which `test_kernels.py` proves with planted ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import coded_cases
import numpy as np
from imprint_cases import check_imprint as check_imprint  # in CHECKS
from kernel_twins import (
    Guarded,
    Split,
    Twin,
    clamp_struct,
    error_struct,
    pack_mask,
    sgd_struct,
)
from log_mel_cases import check_log_mel as check_log_mel  # in CHECKS
from log_mel_cases import check_mfcc as check_mfcc
from log_mel_cases import check_vibration as check_vibration
from product_code_cases import check_product_code as check_product_code  # in CHECKS
from recurrent_cases import check_recurrent as check_recurrent  # in CHECKS

from lab.networks import coded_weights
from microtrain.base.trained import DISTANCES, SCORES, SUMS
from microtrain.convert.axis import Axis
from microtrain.convert.ir import FACTOR, LESS, TERM, Codes, Graph, Input, Node, Tensor, Window
from microtrain.convert.ops import (
    activations,
    add,
    attention,
    channel_pool,
    channels,
    grouped,
    head,
    mul_add,
    multilabel,
    normalise,
    pool_structs,
    position,
    reconstruct,
    regression,
    resample,
    scale,
    scale_pixels,
    unflatten,
    upsample,
)
from microtrain.convert.ops.bounds import guard_bits
from microtrain.convert.ops.environment import Env
from microtrain.convert.ops.grouped import Groups
from microtrain.convert.ops.prototypes import NAME as PROTOTYPES
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference import prototypes
from microtrain.convert.reference.biases import (
    DEAD_MULTIPLIER,
    Bias,
    bias_shift,
    bias_update,
    lean_of,
    qas_of,
)
from microtrain.convert.reference.kernels import Add, Array, Clamp, Conv, Error, Pool, Sgd, Trained

Rng = np.random.Generator
KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (7, 7), (1, 3), (3, 2), (2, 5), (4, 4))


def pick(rng: Rng, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def draw_zero(rng: Rng) -> int:
    return int(pick(rng, -128, 127, 0, rng.integers(-128, 128)))


def draw_s8(rng: Rng, shape: tuple[int, ...], low: int = -128) -> Array:
    kind = rng.integers(6)
    if kind == 0:
        return np.full(shape, pick(rng, low, 127), np.int8)
    if kind == 1:
        return rng.choice(np.array([low, 127], np.int8), shape)
    return rng.integers(low, 128, shape, dtype=np.int8)


def draw_window(rng: Rng) -> Window:
    kh, kw = pick(rng, *KERNELS)
    if kh == kw == 1 and rng.integers(4):
        return Window(1, 1)
    strides = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    return Window(kh, kw, *strides, int(rng.integers(0, kh + 1)), int(rng.integers(0, kw + 1)))


def draw_size(rng: Rng, size: int, kernel: int, stride: int, pad: int) -> int:
    """Outputs along an axis, with some padding at the end that need not equal that at the beginning."""
    spare = size + pad + int(rng.integers(0, kernel)) - kernel
    return max(1, spare // stride + 1)


def draw_sides(rng: Rng, side: int) -> tuple[int, int]:
    """Height and width: a point, one long side that takes several tiles, or both below `side`."""
    kind, long = rng.integers(8), int(rng.integers(side, 6 * side))
    if kind == 0:
        return 1, 1
    if kind < 3:
        short = int(rng.integers(1, 5))
        return (short, long) if kind == 1 else (long, short)
    return int(rng.integers(1, side)), int(rng.integers(1, side))


def draw_conv(rng: Rng, depthwise: bool, side: int = 8) -> Conv:
    k = draw_window(rng)
    c_in = int(rng.integers(1, 21))
    c_out = c_in if depthwise else int(rng.integers(1, 21))
    h, w = draw_sides(rng, side)
    if k == Window(1, 1):
        h_out, w_out = h, w
    else:
        h_out, w_out = (
            draw_size(rng, h, k.kh, k.stride_h, k.pad_h),
            draw_size(rng, w, k.kw, k.stride_w, k.pad_w),
        )
    spread = np.sqrt(c_in * k.kh * k.kw) * 100 * pick(rng, 0.001, 1, 1, 30)
    m = (rng.uniform(0.2, 2.0, c_out) / spread).astype(np.float32)
    x, y = (h, w, c_in), (h_out, w_out, c_out)
    guard = guard_bits(x, y, k)
    guard = int(pick(rng, guard, rng.integers(0, guard + 1)))
    return Conv(x, y, k, draw_zero(rng), draw_zero(rng), m, guard)


def draw_split(rng: Rng, channels: int) -> Split:
    kind = rng.integers(4)
    if kind == 0:
        return Split((), channels, True)
    if kind == 1:
        return Split(tuple(range(channels)), channels, True)
    count = int(rng.integers(0, channels + 1))
    return Split(tuple(int(i) for i in rng.permutation(channels)[:count]), channels)


def draw_error(rng: Rng, shape: tuple[int, ...]) -> Error:
    q = draw_s8(rng, shape, -127)
    spread = pick(rng, 0.0, 1.0, 6.0)
    scale = (10.0 ** (pick(rng, -9.0, -3.0, 1.0) + rng.uniform(-spread, spread, shape[2]))).astype(np.float32)
    dead = rng.random(shape[2]) < pick(rng, 0.0, 0.2, 0.2, 1.0)
    return Error(np.where(dead, np.int8(0), q), np.where(dead, np.float32(0), scale))


def draw_clamp(rng: Rng, shape: tuple[int, ...]) -> Clamp:
    mask = None if rng.integers(3) == 0 else rng.random(shape) < pick(rng, 0.1, 0.5, 0.9)
    m = None if rng.integers(3) == 0 else (10.0 ** rng.uniform(-4, 0, shape[2])).astype(np.float32)
    return Clamp(mask, m)


def draw_sgd(rng: Rng) -> Sgd:
    weight, bias, head = (float(np.float32(10.0 ** rng.uniform(-4, 0))) for _ in range(3))
    return Sgd(weight, bias, head, int(rng.integers(2**32)), int(rng.integers(2**32)))


def draw_trained(rng: Rng, shape: tuple[int, ...], factor: Array) -> Trained:
    """Weights whose steps are mostly of the size of their resolution. factor [c_out]: gradient per unit."""
    bits = int(pick(rng, 0, 4, 8))
    w = draw_s8(rng, shape, -127)
    half = 1 << bits >> 1
    frac = rng.integers(-half, half, shape).astype(np.int8) if bits else None
    if frac is not None:
        frac = np.where(np.abs(w) == 127, np.int8(0), frac)
    size = 10.0 ** rng.uniform(-3, 2, factor.shape) * 65536 / np.maximum(factor, 1e-12)
    qas = np.where(rng.random(factor.shape) < 0.1, 0, size).astype(np.float32)
    return Trained(w, frac, bits, qas, int(rng.integers(2**32)))


def same_error(got: Error, want: Error) -> None:
    np.testing.assert_array_equal(got.scale, want.scale)
    np.testing.assert_array_equal(got.q, want.q)


def same_mask(got: Array | None, want: Array) -> None:
    if got is not None:
        np.testing.assert_array_equal(got, pack_mask(want))


# ---- one random case of each kernel, NumPy against C


def _check_forward(op: str, twin: Twin, rng: Rng) -> None:
    p = draw_conv(rng, op == "dwconv2d")
    shape = (p.y[2], p.window.kh, p.window.kw, p.x[2])[: 3 if op == "dwconv2d" else 4]
    x, w = draw_s8(rng, p.x), draw_s8(rng, shape)
    room = 2**31 - 1 - p.window.kh * p.window.kw * p.x[2] * 255 * 128
    most = int(pick(rng, 30000, room))
    b = rng.integers(-most, most, p.y[2], dtype=np.int32)
    split, masked = draw_split(rng, p.x[2]), bool(rng.integers(4))
    y, mask = twin.forward(op, p, x, w, b, split, masked)
    want, want_mask = getattr(reference, f"{op}_fwd")(p, x, w, b)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    if twin.in_place(op, p) and y.size <= x.size:
        y, mask = twin.forward(op, p, x, w, b, split, masked, in_place=True)
        np.testing.assert_array_equal(y, want)
        same_mask(mask, want_mask)


def _check_backward_x(op: str, twin: Twin, rng: Rng, side: int = 8) -> None:
    p = draw_conv(rng, op == "dwconv2d", side)
    shape = (p.y[2], p.window.kh, p.window.kw, p.x[2])[: 3 if op == "dwconv2d" else 4]
    ey, w, clamp = draw_error(rng, p.y), draw_s8(rng, shape), draw_clamp(rng, p.x)
    got = twin.backward_x(op, p, ey, w, clamp, draw_split(rng, p.x[2]))
    same_error(got, getattr(reference, f"{op}_bwd_x")(p, ey, w, clamp))


def _check_backward_w(op: str, twin: Twin, rng: Rng, side: int = 8) -> None:
    p = draw_conv(rng, op == "dwconv2d", side)
    channels = rng.permutation(p.x[2])[: int(rng.integers(1, p.x[2] + 1))].astype(np.uint16)
    ey, x, sgd = draw_error(rng, p.y), draw_s8(rng, p.x), draw_sgd(rng)
    gathered = reference.gather(x, channels)
    factor = ey.scale * sgd.lr_weight * np.sqrt(p.y[0] * p.y[1]) * 127 * 74
    depthwise = op == "dwconv2d"
    shape = (
        (len(channels), p.window.kh, p.window.kw)
        if depthwise
        else (p.y[2], p.window.kh, p.window.kw, len(channels))
    )
    w = draw_trained(rng, shape, factor)
    saved, index = (gathered, None) if rng.integers(2) else (x, channels)
    got = twin.backward_w(op, p, ey, saved, index, channels if depthwise else None, w, sgd)
    extra = (channels,) if depthwise else ()
    want = getattr(reference, f"{op}_bwd_w")(p, ey, gathered, *extra, w, sgd)
    np.testing.assert_array_equal(got.w, want.w)
    if want.frac is not None:
        np.testing.assert_array_equal(got.frac, want.frac)


def draw_grouped(rng: Rng, side: int = 8) -> tuple[Conv, Groups, tuple[int, ...]]:
    """A convolution in groups, or with taps apart, or both; and the shape of its weights."""
    (kh, kw), n = pick(rng, *KERNELS), int(rng.integers(1, 8))
    inputs, outputs = int(rng.integers(1, 10)), int(rng.integers(1, pick(rng, 8, 40)))
    down, across = int(rng.integers(1, 5)) if kh > 1 else 1, int(rng.integers(1, 4)) if kw > 1 else 1
    sides = ((kh - 1) * down + 1, (kw - 1) * across + 1)
    strides = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    k = Window(*sides, *strides, *(int(rng.integers(0, size + 1)) for size in sides))
    h, w = draw_sides(rng, side)
    size = draw_size(rng, h, k.kh, k.stride_h, k.pad_h), draw_size(rng, w, k.kw, k.stride_w, k.pad_w)
    x, y, shape = (h, w, n * inputs), (*size, n * outputs), (n * outputs, kh, kw, inputs)
    spread = np.sqrt(inputs * kh * kw) * 100 * pick(rng, 0.001, 1, 1, 30)
    m = (rng.uniform(0.2, 2.0, n * outputs) / spread).astype(np.float32)
    guard = guard_bits((1, 1, 1), (1, 1, outputs * kh * kw), Window(1, 1))
    p = Conv(x, y, k, draw_zero(rng), draw_zero(rng), m, int(pick(rng, guard, rng.integers(0, guard + 1))))
    return p, Groups(groups=n, dilation_h=down, dilation_w=across), shape


def draw_coded(rng: Rng, side: int = 8) -> tuple[Conv, Array]:
    """A dense convolution and weights that can be codes; sometimes rows that fill scratch by themselves."""
    p = draw_conv(rng, False, side)
    if rng.integers(4) == 0:
        c_in, c_out = int(rng.integers(100, 900)), int(rng.integers(1, 150))
        m = (rng.uniform(0.2, 2.0, c_out) / (100 * np.sqrt(c_in))).astype(np.float32)
        x, y = (*p.x[:2], c_in), (*p.x[:2], c_out)
        p = Conv(x, y, Window(1, 1), x_zero=p.x_zero, y_zero=p.y_zero, m=m, guard=p.guard // 2)
    return p, coded_weights(rng, (p.y[2], p.window.kh, p.window.kw, p.x[2]))


def check_cconv2d_fwd(twin: Twin, rng: Rng) -> None:
    p, w = draw_coded(rng)
    x, b = draw_s8(rng, p.x), rng.integers(-30000, 30000, p.y[2], dtype=np.int32)
    y, bits = coded_cases.forward(twin, p, x, w, b, bool(rng.integers(2)))
    want, want_mask = reference.conv2d_fwd(p, x, w, b)
    np.testing.assert_array_equal(y, want)
    same_mask(bits, want_mask)


def check_codes_expand(twin: Twin, rng: Rng) -> None:
    w = coded_weights(rng, (int(rng.integers(1, 60)), int(rng.integers(1, 8)), int(rng.integers(1, 8))))
    np.testing.assert_array_equal(coded_cases.expanded(twin, w), w)


def check_cconv2d_bwd_x(twin: Twin, rng: Rng, side: int = 8) -> None:
    p, w = draw_coded(rng, side)
    ey, clamp = draw_error(rng, p.y), draw_clamp(rng, p.x)
    same_error(coded_cases.backward_x(twin, p, ey, w, clamp), reference.conv2d_bwd_x(p, ey, w, clamp))


def check_gconv2d_fwd(twin: Twin, rng: Rng) -> None:
    p, groups, shape = draw_grouped(rng)
    x, w = draw_s8(rng, p.x), draw_s8(rng, shape)
    b = rng.integers(-30000, 30000, p.y[2], dtype=np.int32)
    split, mask = draw_split(rng, shape[-1]), bool(rng.integers(4))
    y, bits = twin.forward("gconv2d", p, x, w, b, split, mask, groups)
    want, want_mask = grouped.gconv2d_fwd(p, groups.groups, x, w, b)
    np.testing.assert_array_equal(y, want)
    same_mask(bits, want_mask)


def check_gconv2d_bwd_x(twin: Twin, rng: Rng, side: int = 8) -> None:
    p, groups, shape = draw_grouped(rng, side)
    ey, w, clamp = draw_error(rng, p.y), draw_s8(rng, shape), draw_clamp(rng, p.x)
    got = twin.backward_x("gconv2d", p, ey, w, clamp, draw_split(rng, shape[-1]), groups)
    same_error(got, grouped.gconv2d_bwd_x(p, groups.groups, ey, w, clamp))


def check_gconv2d_bwd_w(twin: Twin, rng: Rng, side: int = 8) -> None:
    p, groups, shape = draw_grouped(rng, side)
    columns = rng.permutation(shape[-1])[: int(rng.integers(1, shape[-1] + 1))]
    index = np.concatenate([columns + g * shape[-1] for g in range(groups.groups)]).astype(np.uint16)
    ey, x, sgd = draw_error(rng, p.y), draw_s8(rng, p.x), draw_sgd(rng)
    gathered = reference.gather(x, index)
    factor = ey.scale * sgd.lr_weight * np.sqrt(p.y[0] * p.y[1]) * 127 * 74
    w = draw_trained(rng, (*shape[:3], len(columns)), factor)
    stored = (gathered, None) if rng.integers(2) else (x, index)
    got = twin.backward_w("gconv2d", p, ey, *stored, None, w, sgd, groups)
    want = grouped.gconv2d_bwd_w(p, groups.groups, ey, gathered, w, sgd)
    np.testing.assert_array_equal(got.w, want.w)
    if want.frac is not None:
        np.testing.assert_array_equal(got.frac, want.frac)


def check_conv2d_of_few(twin: Twin, rng: Rng) -> None:
    """One to three outputs or inputs fill no tile; sums are so long that what else lies in it would show."""
    few, shape = int(rng.integers(1, 4)), (7, 7, int(rng.integers(15, 21)))
    whole = Conv(shape, (1, 1, 3), Window(7, 7), draw_zero(rng), 0, np.full(3, 1e-5, np.float32))
    x, w = draw_s8(rng, shape), np.full((3, *shape), pick(rng, -128, 127), np.int8)
    y, _ = twin.forward("conv2d", whole, x, w, np.zeros(3, np.int32), Split((), shape[2], True), False)
    np.testing.assert_array_equal(y, reference.conv2d_fwd(whole, x, w, np.zeros(3, np.int32))[0])
    wide = Conv((1, 2, few), (1, 2, 1001), Window(1, 1), 0, 0, np.ones(1001, np.float32), 7)
    ey, w = draw_error(rng, wide.y), draw_s8(rng, (1001, 1, 1, few))
    got = twin.backward_x("conv2d", wide, ey, w, Clamp(), Split((), few, True))
    same_error(got, reference.conv2d_bwd_x(wide, ey, w, Clamp()))
    window = pick(rng, Window(1, 1), Window(3, 3, 1, 1, 1, 1))
    large = Conv((33, 32, 2), (33, 32, few), window, draw_zero(rng), 0, np.ones(few, np.float32))
    ey = Error(draw_s8(rng, large.y, -127), np.ones(few, np.float32))
    x, trained = draw_s8(rng, large.x), draw_trained(rng, (few, window.kh, window.kw, 2), np.full(few, 1e5))
    sgd = draw_sgd(rng)
    stepped = twin.backward_w("conv2d", large, ey, x, None, None, trained, sgd)
    np.testing.assert_array_equal(stepped.w, reference.conv2d_bwd_w(large, ey, x, trained, sgd).w)


def check_conv2d_fwd(twin: Twin, rng: Rng) -> None:
    _check_forward("conv2d", twin, rng)


def check_conv2d_of_short_rows(twin: Twin, rng: Rng) -> None:
    """Pixels of up to 33 channels, of one matrix, which Helium keeps in vectors; mostly without a mask."""
    c_in, c_out = int(pick(rng, 8, 16, 24, rng.integers(1, 34))), int(rng.integers(1, 41))
    h, w = (int(n) for n in rng.integers(1, 9, 2))
    m = (rng.uniform(0.2, 2.0, c_out) / (np.sqrt(c_in) * 100)).astype(np.float32)
    p = Conv((h, w, c_in), (h, w, c_out), Window(1, 1), draw_zero(rng), draw_zero(rng), m, 0)
    x, weights = draw_s8(rng, p.x), draw_s8(rng, (c_out, 1, 1, c_in))
    b, split = rng.integers(-30000, 30000, c_out, dtype=np.int32), Split((), c_in, True)
    y, mask = twin.forward("conv2d", p, x, weights, b, split, bool(rng.integers(4) == 0))
    want, want_mask = reference.conv2d_fwd(p, x, weights, b)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)


def check_dwconv2d_fwd(twin: Twin, rng: Rng) -> None:
    _check_forward("dwconv2d", twin, rng)


def check_dwconv2d_of_strips(twin: Twin, rng: Rng) -> None:
    """Rows as a stream gives them, the padding above and below among them; sometimes one is missing."""
    stride, c = int(rng.integers(1, 3)), int(rng.integers(2, 21))
    rows, w, pad = int(rng.integers(1, 7)), int(rng.integers(6, 40)), int(rng.integers(0, 3))
    h = max(1, (rows - 1) * stride + 3 - int(rng.integers(8) == 0))
    m = (rng.uniform(0.2, 2.0, c) / 300).astype(np.float32)
    window = Window(3, 3, stride, stride, 0, pad)
    size = (rows, draw_size(rng, w, 3, stride, pad), c)
    p = Conv((h, w, c), size, window, draw_zero(rng), draw_zero(rng), m, 0)
    x, weights = draw_s8(rng, p.x), draw_s8(rng, (c, 3, 3))
    b = rng.integers(-30000, 30000, c, dtype=np.int32)
    y, mask = twin.forward("dwconv2d", p, x, weights, b, draw_split(rng, c), bool(rng.integers(4) == 0))
    want, want_mask = reference.dwconv2d_fwd(p, x, weights, b)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)


def check_dwconv2d_of_fours(twin: Twin, rng: Rng) -> None:
    """Small images of whole fours of channels, which Helium takes as vectors: forward, and backward."""
    side, stride, c = int(pick(rng, 3, 5, 7)), int(pick(rng, 1, 1, 2)), 4 * int(rng.integers(1, 5))
    pad, (h, w) = int(rng.integers(0, side)), (int(n) for n in rng.integers(1, 9, 2))
    h_out, w_out = (draw_size(rng, n, side, stride, pad) for n in (h, w))
    m = (rng.uniform(0.2, 2.0, c) / (side * 100)).astype(np.float32)
    window = Window(side, side, stride, stride, pad, pad)
    p = Conv((h, w, c), (h_out, w_out, c), window, draw_zero(rng), draw_zero(rng), m, 0)
    x, weights = draw_s8(rng, p.x), draw_s8(rng, (c, side, side))
    b, split = rng.integers(-30000, 30000, c, dtype=np.int32), Split((), c, True)
    y, mask = twin.forward("dwconv2d", p, x, weights, b, split, bool(rng.integers(2)))
    want, want_mask = reference.dwconv2d_fwd(p, x, weights, b)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp = draw_error(rng, p.y), draw_clamp(rng, p.x)
    got = twin.backward_x("dwconv2d", p, ey, weights, clamp, split)
    same_error(got, reference.dwconv2d_bwd_x(p, ey, weights, clamp))


def check_conv2d_bwd_x(twin: Twin, rng: Rng) -> None:
    _check_backward_x("conv2d", twin, rng)


def check_conv2d_bwd_x_of_rows(twin: Twin, rng: Rng) -> None:
    """Errors of any length, of more neighbouring outputs than any kernel takes at once."""
    window, c_in = pick(rng, Window(1, 1), Window(3, 3, 1, 1, 1, 1)), int(rng.integers(1, 8))
    sides = (int(rng.integers(1, 4)), int(rng.integers(6, 12)))
    c_out = int(rng.integers(1, 66))
    x, y = (*sides, c_in), (*sides, c_out)
    p = Conv(x, y, window, 0, 0, np.ones(c_out, np.float32), guard_bits(x, y, window))
    ey, w = draw_error(rng, y), draw_s8(rng, (c_out, window.kh, window.kw, c_in))
    got = twin.backward_x("conv2d", p, ey, w, Clamp(), draw_split(rng, c_in))
    same_error(got, reference.conv2d_bwd_x(p, ey, w, Clamp()))


def check_conv2d_bwd_x_of_equal_rows(twin: Twin, rng: Rng) -> None:
    """As behind a global average pool: all pixels have the same errors, or one differs in one channel."""
    sides, c_in, c_out = rng.integers(1, 7, 2), int(rng.integers(1, 30)), int(rng.integers(1, 66))
    x, y = (*sides, c_in), (*sides, c_out)
    p = Conv(x, y, Window(1, 1), 0, 0, np.ones(c_out, np.float32), guard_bits(x, y, Window(1, 1)))
    ey, clamp = draw_error(rng, y), draw_clamp(rng, x)
    ey.q[:] = ey.q[:1, :1]
    live = np.flatnonzero(ey.scale)
    if live.size and rng.integers(2):
        pixel, channel = pick(rng, (-1, -1), tuple(rng.integers(0, sides))), pick(rng, live[-1], *live)
        ey.q[(*pixel, channel)] = draw_s8(rng, (1,), -127)[0]
    if rng.integers(3):
        w = draw_s8(rng, (c_out, 1, 1, c_in))
        got = twin.backward_x("conv2d", p, ey, w, clamp, draw_split(rng, c_in))
    else:
        w = coded_weights(rng, (c_out, 1, 1, c_in))
        got = coded_cases.backward_x(twin, p, ey, w, clamp)
    same_error(got, reference.conv2d_bwd_x(p, ey, w, clamp))


def check_dwconv2d_bwd_x(twin: Twin, rng: Rng) -> None:
    _check_backward_x("dwconv2d", twin, rng)


def check_conv2d_bwd_w(twin: Twin, rng: Rng) -> None:
    _check_backward_w("conv2d", twin, rng)


def check_dwconv2d_bwd_w(twin: Twin, rng: Rng) -> None:
    _check_backward_w("dwconv2d", twin, rng)


def check_bias_update(twin: Twin, rng: Rng) -> None:
    shape = (int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 40)))
    ey, sgd, c = draw_error(rng, shape), draw_sgd(rng), shape[2]
    limit = int(pick(rng, 2**31 - 1, 2**31 - 1 - 2**20, 100000))
    base = rng.integers(-limit, limit, c, dtype=np.int32)
    base[rng.random(c) < 0.2] = pick(rng, -limit, limit)
    low, high = pick(rng, (-6, 0), (-3, -1), (-12, 3))
    m = (10.0 ** rng.uniform(low, high, c)).astype(np.float32)
    room = np.minimum((limit - np.abs(base.astype(np.int64))) >> bias_shift(m), 32767)
    delta = np.clip(rng.integers(-32767, 32768, c), -room, room).astype(np.int16)
    gradient = ey.scale * sgd.lr_bias * np.sqrt(shape[0] * shape[1]) * 74
    qas = (256 * 10.0 ** rng.uniform(-3, 5, c) / np.maximum(gradient, 1e-12)).astype(np.float32)
    b = Bias(base, delta, m, qas, limit, int(rng.integers(2**32)))
    np.testing.assert_array_equal(twin.bias_expand(b), b.expanded)
    np.testing.assert_array_equal(twin.bias_update(ey, b, sgd), bias_update(ey, b, sgd))
    same_lean_bias(twin, rng, ey, replace(b, delta=np.zeros_like(delta)), sgd)


def same_lean_bias(twin: Twin, rng: Rng, ey: Error, b: Bias, sgd: Sgd) -> None:
    """The same biases with start values in 16 bits, where they stay within the limit."""
    dead = rng.random(len(b.m)) < 0.1
    m = np.where(dead, np.float32(DEAD_MULTIPLIER), b.m)
    near = lean_of(b.base, m).astype(np.int64) << (bias_shift(m) + 2)
    if m.min() < 1e-6 or m.max() > 1 or np.abs(near).max() > b.limit:
        return
    unit = np.float32(np.median(b.qas * np.square(m.astype(np.float64)) * 2.0 ** bias_shift(m)))
    b = replace(b, m=m, base=near.astype(np.int32), qas=qas_of(unit, m))
    np.testing.assert_array_equal(twin.bias_expand(b, unit), b.expanded)
    np.testing.assert_array_equal(twin.bias_update(ey, b, sgd, unit), bias_update(ey, b, sgd))


def check_gather(twin: Twin, rng: Rng) -> None:
    x = draw_s8(rng, (int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(rng.integers(1, 20))))
    index = rng.permutation(x.shape[2])[: int(rng.integers(1, x.shape[2] + 1))].astype(np.uint16)
    guard = Guarded()
    y = guard.array((*x.shape[:2], index.size), np.int8)
    twin.lib.gather_s8(x.shape[0] * x.shape[1], x.shape[2], x, index, index.size, y)
    guard.check()
    np.testing.assert_array_equal(y, reference.gather(x, index))


def check_add_fwd(twin: Twin, rng: Rng) -> None:
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    a, b = draw_s8(rng, shape), draw_s8(rng, shape)
    least = rng.choice([-3, -0.3])  # alike, as they are in networks, and far apart
    scales = (float(np.float32(10.0 ** rng.uniform(least, 0))) for _ in range(3))
    p = Add(draw_zero(rng), draw_zero(rng), draw_zero(rng), *scales)
    p = replace(p, b_scale=float(pick(rng, -1, 1)) * p.b_scale)  # a sum or a difference
    want, want_mask = reference.add_fwd(p, a, b)
    guard = Guarded()
    left, right = guard.copy(a), guard.copy(b)
    y = pick(rng, guard.array(shape, np.int8), left, right)
    mask = guard.array((*shape[:2], (shape[2] + 7) // 8), np.uint8) if rng.integers(4) else None
    struct = add.params(p, shape[0] * shape[1], shape[2])
    twin.lib.add_fwd_s8(struct, left, right, y, mask)
    guard.check()
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)


def _copy_error(guard: Guarded, e: Error) -> Error:
    return Error(guard.copy(e.q), guard.copy(e.scale))


def check_error_pass(twin: Twin, rng: Rng) -> None:
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    e, clamp, factor = draw_error(rng, shape), draw_clamp(rng, shape), float(np.float32(rng.uniform(0.01, 4)))
    guard = Guarded()
    source = _copy_error(guard, e)
    out = source if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    pixels = shape[0] * shape[1]
    twin.lib.error_pass_s8(
        pixels, shape[2], error_struct(source), factor, clamp_struct(clamp), error_struct(out)
    )
    guard.check()
    same_error(out, reference.error_pass(e, factor, clamp))


def check_error_add(twin: Twin, rng: Rng) -> None:
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    a, b, clamp = draw_error(rng, shape), draw_error(rng, shape), draw_clamp(rng, shape)
    fa, fb = (float(np.float32(rng.uniform(0.01, 4))) for _ in range(2))
    guard = Guarded()
    left, right = _copy_error(guard, a), _copy_error(guard, b)
    out = pick(rng, left, right, _copy_error(guard, draw_error(rng, shape)))
    sizes = (shape[0] * shape[1], shape[2])
    ends = (clamp_struct(clamp), error_struct(out))
    twin.lib.error_add_s8(*sizes, error_struct(left), fa, error_struct(right), fb, *ends)
    guard.check()
    same_error(out, reference.error_add(a, fa, b, fb, clamp))


def check_lookup(twin: Twin, rng: Rng) -> None:
    """Any table, also slopes of both signs, in place or not."""
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    guard, x, table = Guarded(), draw_s8(rng, shape), draw_s8(rng, (256,))
    slope = rng.integers(-32768, 32768, 256).astype(np.int16) * rng.integers(0, 2, 256).astype(np.int16)
    p = activations.Lookup(y=table, slope=slope, unit=float(np.float32(10.0 ** rng.uniform(-7, -2))))
    source = guard.copy(x)
    y = pick(rng, guard.array(shape, np.int8), source)
    twin.lib.lookup_fwd_s8(p, x.size, source, y)
    np.testing.assert_array_equal(y, activations.lookup_fwd(table, x))
    ey, clamp = draw_error(rng, shape), draw_clamp(rng, shape)
    error = _copy_error(guard, ey)
    ex = error if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    ends = (clamp_struct(clamp), error_struct(ex))
    twin.lib.lookup_bwd_x_s8(p, shape[0] * shape[1], shape[2], error_struct(error), x, *ends)
    guard.check()
    same_error(ex, activations.lookup_bwd_x(slope, p.unit, ey, x, clamp))


@dataclass(frozen=True)
class Scaled:
    """A map times factors of which there are fewer, and its forward pass found right.

    sizes  how the kernels are told of them
    """

    guard: Guarded
    shape: tuple[int, int, int]
    x: np.ndarray
    s: np.ndarray
    p: scale.Scale

    @property
    def sizes(self) -> tuple[scale.Scale, int, int]:
        return self.p, self.shape[0] * self.shape[1], self.shape[2]


def forward_scaled(rng: Rng, kernel: Any, pixels: bool) -> Scaled:
    """kernel: the forward one. pixels: there is a factor for each pixel, in the place of each channel"""
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    factors = (*shape[:2], 1) if pixels else shape[2:]
    guard, x, s = Guarded(), draw_s8(rng, shape), draw_s8(rng, factors)
    zeros = {f"{name}_zero": draw_zero(rng) for name in "xsy"}
    p = scale.Scale(**zeros, m=float(np.float32(10.0 ** rng.uniform(-5, -1))))
    made = Scaled(guard, shape, x, s, p)
    want, want_mask = scale.scaled(p, x, s)
    source = guard.copy(x)
    y = pick(rng, guard.array(shape, np.int8), source)
    mask = guard.array((*shape[:2], (shape[2] + 7) // 8), np.uint8) if rng.integers(4) else None
    kernel(*made.sizes, source, s, y, mask)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    return made


def check_scale_channels(twin: Twin, rng: Rng) -> None:
    made = forward_scaled(rng, twin.lib.scale_channels_fwd_s8, pixels=False)
    guard, shape, x, s, p, sizes = made.guard, made.shape, made.x, made.s, made.p, made.sizes
    ey, clamp = draw_error(rng, shape), draw_clamp(rng, shape)
    error = _copy_error(guard, ey)
    ex = error if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    one = (1, 1, shape[2])
    clamp_s, es = draw_clamp(rng, one), _copy_error(guard, draw_error(rng, one))
    ends = (clamp_struct(clamp_s), error_struct(es))
    twin.lib.scale_channels_bwd_s_s8(*sizes, error_struct(error), x, *ends)
    same_error(es, scale.scale_channels_bwd_s(p, ey, x, clamp_s))
    ends = (clamp_struct(clamp), error_struct(ex))
    twin.lib.scale_channels_bwd_x_s8(*sizes, error_struct(error), s, *ends)
    guard.check()
    same_error(ex, scale.errors_times(p, ey, s, p.s_zero, clamp))


def check_multiply_maps(twin: Twin, rng: Rng) -> None:
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    guard, x, s = Guarded(), draw_s8(rng, shape), draw_s8(rng, shape)
    zeros = {f"{name}_zero": draw_zero(rng) for name in "xsy"}
    p = scale.Scale(**zeros, m=float(np.float32(10.0 ** rng.uniform(-5, -1))))
    sizes = (p, shape[0] * shape[1], shape[2])
    want, want_mask = scale.scaled(p, x, s)
    first, other = guard.copy(x), guard.copy(s)
    y = (first, other, guard.array(shape, np.int8))[int(rng.integers(3))]
    mask = guard.array((*shape[:2], (shape[2] + 7) // 8), np.uint8) if rng.integers(4) else None
    twin.lib.multiply_maps_fwd_s8(*sizes, first, other, y, mask)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp, second = draw_error(rng, shape), draw_clamp(rng, shape), int(rng.integers(2))
    error = _copy_error(guard, ey)
    ex = error if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    ends = (second, clamp_struct(clamp), error_struct(ex))
    other, zero = (x, p.x_zero) if second else (s, p.s_zero)
    twin.lib.multiply_maps_bwd_x_s8(*sizes, error_struct(error), other, *ends)
    guard.check()
    same_error(ex, scale.errors_times(p, ey, other, zero, clamp))


def check_upsample(twin: Twin, rng: Rng) -> None:
    shape = h, w, c = (int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20)))
    down, across = (int(n) for n in rng.integers(1, 5, 2))
    p, large = upsample.Upsample(h=h, w=w, c=c, down=down, across=across), (h * down, w * across, c)
    guard, x = Guarded(), draw_s8(rng, shape)
    y = guard.array(large, np.int8)
    twin.lib.upsample_fwd_s8(p, x, y)
    np.testing.assert_array_equal(y, upsample.upsample_fwd(x, down, across))
    ey, clamp = draw_error(rng, large), draw_clamp(rng, shape)
    ex = _copy_error(guard, draw_error(rng, shape))
    twin.lib.upsample_bwd_x_s8(p, error_struct(ey), clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, upsample.upsample_bwd_x(p, ey, clamp))


def check_unflatten(twin: Twin, rng: Rng) -> None:
    """In the place of its input too, scales of fewer channels among them; of a vector, and of a map."""
    h, w, c = (int(rng.integers(1, most)) for most in (6, 6, 20))
    n, guard, x = h * w * c, Guarded(), draw_s8(rng, (h, w, c))
    pixels = int(pick(rng, 1, h, w, h * w))
    shape = (pixels, 1, n // pixels)
    for y in (guard.array((n,), np.int8), guard.copy(x)):
        twin.lib.unflatten_fwd_s8(n, y if y.shape == x.shape else x, y)
        np.testing.assert_array_equal(y.ravel(), x.ravel())
    ey, clamp = draw_error(rng, (h, w, c)), draw_clamp(rng, shape)
    ex = _copy_error(guard, draw_error(rng, shape))
    given = ey
    if rng.integers(2):
        ex.q[:], ex.scale[:c] = ey.q.reshape(shape), ey.scale
        given = Error(ex.q, ex.scale)
    sizes = (pixels, shape[2], c)
    twin.lib.unflatten_bwd_x_s8(*sizes, error_struct(given), clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, unflatten.unflatten_bwd_x(ey, shape, clamp))


def check_scale_pixels(twin: Twin, rng: Rng) -> None:
    """One factor per pixel; its error is a sum of floats, whose sizes differ by channel."""
    made = forward_scaled(rng, twin.lib.scale_pixels_fwd_s8, pixels=True)
    guard, shape, x, s, p, sizes = made.guard, made.shape, made.x, made.s, made.p, made.sizes
    one = s.shape
    ey, clamp = draw_error(rng, shape), draw_clamp(rng, shape)
    error = _copy_error(guard, ey)
    clamp_s, es = draw_clamp(rng, one), _copy_error(guard, draw_error(rng, one))
    ends = (clamp_struct(clamp_s), error_struct(es))
    twin.lib.scale_pixels_bwd_s_s8(*sizes, error_struct(error), x, *ends)
    same_error(es, scale_pixels.scale_pixels_bwd_s(p, ey, x, clamp_s))
    ex = error if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    ends = (clamp_struct(clamp), error_struct(ex))
    twin.lib.scale_pixels_bwd_x_s8(*sizes, error_struct(error), s, *ends)
    guard.check()
    same_error(ex, scale.errors_times(p, ey, s, p.s_zero, clamp))


def check_channel_mean(twin: Twin, rng: Rng) -> None:
    h, w, c = (int(rng.integers(1, most)) for most in (6, 6, 24))
    guard, x = Guarded(), draw_s8(rng, (h, w, c))
    y = guard.array((h, w, 1), np.int8)
    twin.lib.channel_mean_fwd_s8(h * w, c, x, y)
    np.testing.assert_array_equal(y, channel_pool.channel_mean_fwd(x))
    ey, clamp = draw_error(rng, (h, w, 1)), draw_clamp(rng, (h, w, c))
    ex = _copy_error(guard, draw_error(rng, (h, w, c)))
    twin.lib.channel_mean_bwd_x_s8(h * w, c, error_struct(ey), clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, channel_pool.channel_mean_bwd_x(ey, c, clamp))


def check_channel_max(twin: Twin, rng: Rng) -> None:
    """With as many channels as a byte counts, and with ties."""
    h, w, c = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(pick(rng, rng.integers(1, 24), 256))
    guard, x = Guarded(), draw_s8(rng, (h, w, c))
    x = pick(rng, x, x // 64)
    y, arg = guard.array((h, w, 1), np.int8), guard.array((h, w, 1), np.uint8)
    want, want_arg = channel_pool.channel_max_fwd(x)
    twin.lib.channel_max_fwd_s8(h * w, c, x, y, arg)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(arg, want_arg)
    twin.lib.channel_max_fwd_s8(h * w, c, x, y, None)
    np.testing.assert_array_equal(y, want)
    ey, clamp = draw_error(rng, (h, w, 1)), draw_clamp(rng, (h, w, c))
    ex = _copy_error(guard, draw_error(rng, (h, w, c)))
    ends = (clamp_struct(clamp), error_struct(ex))
    twin.lib.channel_max_bwd_x_s8(h * w, c, error_struct(ey), arg, *ends)
    guard.check()
    same_error(ex, channel_pool.channel_max_bwd_x(ey, arg, c, clamp))


def draw_axis(rng: Rng, inputs: int, outputs: int, copies: bool) -> Axis:
    """Single places or nothing; or weights that make up to the whole, of places in any order."""
    if copies:
        places = rng.integers(-1, inputs, outputs).tolist()
        return Axis(inputs, tuple(((place, 1),) if place >= 0 else () for place in places))
    terms = []
    for _ in range(outputs):
        places = rng.permutation(inputs)[: int(rng.integers(0, inputs + 1))].tolist()
        terms.append(tuple((place, int(rng.integers(1, 40))) for place in places))
    sums = [sum(weight for _, weight in own) for own in terms]
    return Axis(inputs, tuple(terms), max(2, *sums) + int(rng.integers(0, 3)))


def check_resample(twin: Twin, rng: Rng) -> None:
    same_resampled(twin, rng)


def same_resampled(twin: Twin, rng: Rng, away: bool = False) -> None:
    """away: of kernels that round half away from zero"""
    copies = bool(rng.integers(2))
    h, w, down, across = (int(n) for n in rng.integers(1, 7, 4))
    rows, columns = draw_axis(rng, h, down, copies), draw_axis(rng, w, across, copies)
    shape = (h, w, int(rng.integers(1, 20)))
    made = (down, across, shape[2])
    sizes = dict(zip(("h_in", "w_in", "h_out", "w_out", "c"), (h, w, *made), strict=True))
    unit = float(np.float32(1.0 / (rows.whole * columns.whole)))
    divisor = rows.whole * columns.whole if away else 0
    p = resample.Resample(**sizes, zero=draw_zero(rng), unit=unit, divisor=divisor)
    guard, x = Guarded(), draw_s8(rng, shape)
    y = guard.array(made, np.int8)
    twin.lib.resample_fwd_s8(p, *(guard.copy(resample.words(a)) for a in (rows, columns)), x, y)
    np.testing.assert_array_equal(y, resample.resample_fwd(p, rows, columns, x))
    ey, clamp = draw_error(rng, made), draw_clamp(rng, shape)
    ex, back = _copy_error(guard, draw_error(rng, shape)), (rows.turned, columns.turned)
    ends = (error_struct(ey), clamp_struct(clamp), error_struct(ex))
    twin.lib.resample_bwd_x_s8(p, *(guard.copy(resample.words(a)) for a in back), *ends)
    guard.check()
    same_error(ex, resample.resample_bwd_x(p, *back, ey, clamp))


def check_normalise(twin: Twin, rng: Rng) -> None:
    """Groups over all pixels or at each; values that are all alike, with an epsilon of 1 and of any size."""
    groups, each = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    h, w = draw_sides(rng, 6)
    shape = (h, w, groups * each)
    p = normalise.Normalise(
        pixels=h * w,
        c=shape[2],
        groups=groups,
        apart=int(rng.integers(2)),
        y_zero=draw_zero(rng),
        unit=float(np.float32(10.0 ** rng.uniform(-1, 3))),
        epsilon=int(pick(rng, 1, 10.0 ** rng.uniform(0, 18), normalise.MOST_EPSILON)),
    )
    guard, x = Guarded(), draw_s8(rng, shape)
    want, want_mask = normalise.normalise_fwd(p, x)
    source = guard.copy(x)
    y = pick(rng, guard.array(shape, np.int8), source)
    mask = guard.array((h, w, (shape[2] + 7) // 8), np.uint8) if rng.integers(4) else None
    twin.lib.normalise_fwd_s8(p, source, y, mask)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp = draw_error(rng, shape), draw_clamp(rng, shape)
    error = _copy_error(guard, ey)
    ex = error if rng.integers(2) else _copy_error(guard, draw_error(rng, shape))
    scratch = guard.array((twin.lib.normalise_bwd_x_scratch(p),), np.uint8)
    ends = (clamp_struct(clamp), error_struct(ex), scratch)
    twin.lib.normalise_bwd_x_s8(p, error_struct(error), x, *ends)
    guard.check()
    same_error(ex, normalise.normalise_bwd_x(p, ey, x, clamp))


def draw_attention(rng: Rng) -> attention.Attention:
    """All tokens, or those of a grid; scores that are all alike, and some that leave one share."""
    step_h, step_w = (int(pick(rng, 1, 1, rng.integers(1, 4))) for _ in range(2))
    rows, columns = draw_sides(rng, 5)
    return attention.Attention(
        h=rows * step_h,
        w=columns * step_w,
        heads=int(rng.integers(1, 4)),
        size=int(rng.integers(1, 9)),
        step_h=step_h,
        step_w=step_w,
        x_zero=draw_zero(rng),
        y_zero=draw_zero(rng),
        sharpness=int(pick(rng, 0, 2**32 - 1, 2.0 ** rng.uniform(10, 32), 2.0 ** rng.uniform(14, 24))),
        unit=float(np.float32(10.0 ** rng.uniform(-1, 1))),
        slope=float(np.float32(10.0 ** rng.uniform(-6, 0))),
    )


def check_attention(twin: Twin, rng: Rng) -> None:
    p = draw_attention(rng)
    c = int(p.heads * p.size)
    x, shape = draw_s8(rng, (p.h, p.w, 3 * c)), (p.h, p.w, c)
    guard = Guarded()
    want, want_mask = attention.attention_fwd(p, x)
    y = guard.array(shape, np.int8)
    mask = guard.array((p.h, p.w, (c + 7) // 8), np.uint8) if rng.integers(4) else None
    twin.lib.attention_fwd_s8(p, x, y, mask, twin.scratch(guard, "attention_fwd", p))
    guard.check()
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp = draw_error(rng, shape), draw_clamp(rng, x.shape)
    ex = _copy_error(guard, draw_error(rng, x.shape))
    ends = (clamp_struct(clamp), error_struct(ex), twin.scratch(guard, "attention_bwd_x", p))
    twin.lib.attention_bwd_x_s8(p, error_struct(ey), x, *ends)
    guard.check()
    same_error(ex, attention.attention_bwd_x(p, ey, x, clamp))


def check_position(twin: Twin, rng: Rng) -> None:
    """With tokens in front and without; in place where there are none."""
    lead, pixels, c = (
        int(pick(rng, 0, rng.integers(1, 4))),
        int(rng.integers(1, 12)),
        int(rng.integers(1, 21)),
    )
    scales = (float(np.float32(10.0 ** rng.uniform(-3, 0))) for _ in range(3))
    p = Add(draw_zero(rng), 0, draw_zero(rng), *scales)
    x, table = draw_s8(rng, (pixels, c)), draw_s8(rng, (lead + pixels, c), -127)
    record = position.Position(lead=lead, table=table, add=add.params(p, pixels, c))
    want, want_mask = position.position_fwd(p, x, table)
    guard = Guarded()
    source = guard.copy(x)
    y = source if lead == 0 and rng.integers(2) else guard.array(want.shape, np.int8)
    mask = guard.array((len(want), (c + 7) // 8), np.uint8) if rng.integers(4) else None
    twin.lib.position_fwd_s8(record, source, y, mask)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp = draw_error(rng, (lead + pixels, 1, c)), draw_clamp(rng, (pixels, 1, c))
    ex = _copy_error(guard, draw_error(rng, (pixels, 1, c)))
    factor = float(np.float32(rng.uniform(0.1, 3)))
    twin.lib.position_bwd_x_s8(record, error_struct(ey), factor, clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, position.position_bwd_x(ey, lead, factor, clamp))


def check_mul_add(twin: Twin, rng: Rng) -> None:
    """With a term whose scale is the smaller one, or the larger, and without; in place and not."""
    pixels, c = int(rng.integers(1, 12)), int(rng.integers(1, 21))
    p = draw_mul_add(rng, c)
    x, guard = draw_s8(rng, (pixels, c)), Guarded()
    record = mul_add.c_struct(p)
    want, want_mask = mul_add.mul_add_fwd(p, x)
    source = guard.copy(x)
    y = source if rng.integers(2) else guard.array(want.shape, np.int8)
    mask = guard.array((pixels, (c + 7) // 8), np.uint8) if rng.integers(4) else None
    twin.lib.mul_add_fwd_s8(record, pixels, c, source, y, mask)
    np.testing.assert_array_equal(y, want)
    same_mask(mask, want_mask)
    ey, clamp = draw_error(rng, (pixels, 1, c)), draw_clamp(rng, (pixels, 1, c))
    ex = _copy_error(guard, draw_error(rng, (pixels, 1, c)))
    twin.lib.mul_add_bwd_x_s8(record, pixels, c, error_struct(ey), clamp_struct(clamp), error_struct(ex))
    guard.check()
    factor = p.own.factor
    same_error(ex, scale.errors_times(mul_add.product_of(p), ey, factor.values, factor.zero, clamp))


def draw_mul_add(rng: Rng, c: int) -> mul_add.Arithmetic:
    """Constants and scales that the kernel takes, of products that mostly fit and sums that do."""
    while True:
        sides = [(float(np.float32(10.0 ** rng.uniform(-3, 0))), draw_zero(rng)) for _ in range(5)]
        x, between, y, w, b = sides
        between = (float(np.float32(x[0] * w[0] * 10.0 ** rng.uniform(0.5, 2.5))), between[1])
        y = (float(np.float32(max(between[0], b[0]) * 10.0 ** rng.uniform(-0.5, 1))), y[1])
        factor, term = (
            Codes(rng.integers(-128, 128, c).astype(np.int8), *side, means)
            for side, means in ((w, FACTOR), (b, str(rng.choice([TERM, LESS]))))
        )
        own = mul_add.Constants(factor, term if rng.integers(4) else None, between)
        p = mul_add.arithmetic(own, x, between if own.term is None else y)
        if p.is_possible:
            return p


def check_concat(twin: Twin, rng: Rng) -> None:
    """One map among others: what lies beside its channels, in y and in the mask, stays."""
    h, w, c = int(rng.integers(1, 6)), int(rng.integers(1, 6)), int(rng.integers(1, 20))
    start = int(rng.integers(0, 12))
    guard, x, total = Guarded(), draw_s8(rng, (h, w, c)), start + c + int(rng.integers(0, 12))
    zeros = {f"{name}_zero": draw_zero(rng) for name in "xy"}
    m = float(np.float32(10.0 ** rng.uniform(-2, 1)))
    p = channels.Concat(**{"c": c, "from": start, "total": total}, **zeros, m=m)
    before = draw_s8(rng, (h, w, total))
    bits = rng.integers(0, 256, (h, w, (total + 7) // 8)).astype(np.uint8)
    y, mask = guard.copy(before), guard.copy(bits) if rng.integers(4) else None
    twin.lib.concat_fwd_s8(p, h * w, guard.copy(x), y, mask)
    guard.check()
    want, passes = channels.concat_fwd(p, x)
    expected = before.copy()
    expected[..., start : start + c] = want
    np.testing.assert_array_equal(y, expected)
    if mask is not None:
        unpacked = np.unpackbits(bits, axis=-1, bitorder="little")
        unpacked[..., start : start + c] = passes
        np.testing.assert_array_equal(np.unpackbits(mask, axis=-1, bitorder="little"), unpacked)


def check_error_take(twin: Twin, rng: Rng) -> None:
    h, w, c, n = (int(rng.integers(1, most)) for most in (6, 6, 20, 24))
    guard, ey, clamp = Guarded(), draw_error(rng, (h, w, c)), draw_clamp(rng, (h, w, n))
    index = rng.integers(0, c, n).astype(np.uint16)
    index[rng.random(n) < 0.2] = channels.NO_CHANNEL
    factor = float(np.float32(rng.uniform(0.01, 4)))
    ex = _copy_error(guard, draw_error(rng, (h, w, n)))
    source = error_struct(_copy_error(guard, ey))
    ends = (clamp_struct(clamp), error_struct(ex))
    twin.lib.error_take_s8(h * w, c, source, guard.copy(index), n, factor, *ends)
    guard.check()
    same_error(ex, channels.error_take(ey, index, factor, clamp))


def draw_pool(rng: Rng, tall: bool = False) -> Pool:
    c, h, w = int(rng.integers(1, 12)), int(rng.integers(1, 9)), int(rng.integers(1, 9))
    if tall and rng.integers(8) == 0:  # over all time of a series
        h, w = int(rng.integers(256, 600)), 1
        return Pool((h, w, c), (1, 1, c), Window(h, w, h, w), draw_zero(rng))
    if rng.integers(3) == 0:
        return Pool((h, w, c), (1, 1, c), Window(h, w), draw_zero(rng))
    kh, kw = int(rng.integers(1, h + 1)), int(rng.integers(1, w + 1))
    pads = (int(rng.integers(0, kh // 2 + 1)), int(rng.integers(0, kw // 2 + 1)))
    k = Window(kh, kw, int(rng.integers(1, 4)), int(rng.integers(1, 4)), *pads)
    sizes = (draw_size(rng, h, kh, k.stride_h, k.pad_h), draw_size(rng, w, kw, k.stride_w, k.pad_w))
    return Pool((h, w, c), (*sizes, c), k, draw_zero(rng))


def _pool_struct(p: Pool) -> pool_structs.Pool:
    return pool_structs.pool_struct(p.x, p.y, p.window, p.x_zero)


def check_avgpool(twin: Twin, rng: Rng) -> None:
    p, guard = draw_pool(rng, tall=True), Guarded()
    x, y = draw_s8(rng, p.x), guard.array(p.y, np.int8)
    twin.lib.avgpool_fwd_s8(_pool_struct(p), x, y)
    guard.check()
    np.testing.assert_array_equal(y, reference.avgpool_fwd(p, x))
    ey, clamp = draw_error(rng, p.y), draw_clamp(rng, p.x)
    same_error(twin.pool_backward("avgpool", p, ey, None, clamp), reference.avgpool_bwd_x(p, ey, clamp))


def check_maxpool(twin: Twin, rng: Rng) -> None:
    p, guard = draw_pool(rng), Guarded()
    x, y, arg = draw_s8(rng, p.x), guard.array(p.y, np.int8), guard.array(p.y, np.uint8)
    x = pick(rng, x, x // 64)
    want, want_arg = reference.maxpool_fwd(p, x)
    twin.lib.maxpool_fwd_s8(_pool_struct(p), x, y, arg)
    guard.check()
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(arg, want_arg)
    twin.lib.maxpool_fwd_s8(_pool_struct(p), x, y, None)
    np.testing.assert_array_equal(y, want)
    ey, clamp = draw_error(rng, p.y), draw_clamp(rng, p.x)
    same_error(
        twin.pool_backward("maxpool", p, ey, arg, clamp), reference.maxpool_bwd_x(p, ey, want_arg, clamp)
    )


def check_head(twin: Twin, rng: Rng) -> None:
    pixels, c, classes = int(pick(rng, 1, 1, 4, 9)), int(rng.integers(1, 30)), int(rng.integers(1, 14))
    zero, scale, sgd, guard = (
        draw_zero(rng),
        float(np.float32(10.0 ** rng.uniform(-3, 0))),
        draw_sgd(rng),
        Guarded(),
    )
    x, shape = draw_s8(rng, (pixels, 1, c)), (pixels, 1, c)
    w = guard.copy(rng.normal(0, 0.3, (classes, pixels * c)).astype(np.float32))
    b = guard.copy(rng.normal(0, 1, classes).astype(np.float32))
    p = head.Head(pixels=pixels, c=c, classes=classes, x_zero=zero, x_scale=scale)
    logits = guard.array((classes,), np.float32)
    twin.lib.head_fwd_f32(p, x, w, b, logits)
    np.testing.assert_array_equal(logits, reference.head_fwd(x, zero, scale, w, b))
    grad, clamp = rng.normal(0, 1, classes).astype(np.float32), draw_clamp(rng, shape)
    ex = Error(guard.array(shape, np.int8), guard.array((c,), np.float32))
    scratch = guard.array((twin.lib.head_bwd_x_scratch(p),), np.uint8)
    twin.lib.head_bwd_x_f32(p, grad, w, clamp_struct(clamp), error_struct(ex), scratch)
    same_error(ex, reference.head_bwd_x(shape, scale, grad, w, clamp))
    want_w, want_b = reference.head_bwd_w(x, zero, scale, grad, w, b, sgd)
    twin.lib.head_bwd_w_f32(p, grad, x, w, b, sgd_struct(sgd))
    guard.check()
    np.testing.assert_array_equal(w, want_w)
    np.testing.assert_array_equal(b, want_b)


def check_reconstruct(twin: Twin, rng: Rng) -> None:
    """The score of an autoencoder, its gradient behind a clamp, and what is learned of which label."""
    n, guard, label = int(rng.integers(1, 70)), Guarded(), int(rng.integers(2))
    zeros, scales = (draw_zero(rng), draw_zero(rng)), (10.0 ** rng.uniform(-3, 0, 2)).astype(np.float32)
    ends = [Tensor("yx"[i], (1, 1, n), "s8", float(scales[i]), zeros[i]) for i in range(2)]
    tensors = {end.name: end for end in ends}
    factors = (float(10.0 ** rng.uniform(-3, 2)), 0.1, 0.04)
    node = Node(reconstruct.NAME, "score", ("y", "x"), ("logits",), factors=factors)
    graph = Graph("g", Input("x", (1.0,), (0.0,)), "logits", tensors, (node,), {})
    p, y, x = reconstruct.c_struct(graph, node), draw_s8(rng, (1, 1, n)), draw_s8(rng, (1, 1, n))
    logits = guard.array((2,), np.float32)
    normal = guard.copy(rng.uniform(0, 2, 2).astype(np.float32))
    twin.lib.reconstruct_fwd_f32(p, y, x, normal, logits)
    env = Env(graph, {}, values={"y": y, "x": x}, label=label, statistics={SCORES: normal.copy()})
    reconstruct.FORWARD.run(env, node)
    np.testing.assert_array_equal(logits, env.values["logits"])
    grad = guard.copy(logits)
    loss, before = twin.lib.loss_score_f32(2, grad, label, normal, grad), env.statistics[SCORES].copy()
    reconstruct.OPS[1].run(env, Node("loss_score", "score", ("logits",), ("grad",)))
    np.testing.assert_array_equal(normal, env.statistics[SCORES])
    assert (normal != before).any() == (label == 0)
    assert np.float32(loss) == logits[1] and grad.tolist() == [0.0, float(label == 0)]
    clamp = draw_clamp(rng, (1, 1, n))
    ex = Error(guard.array((1, 1, n), np.int8), guard.array((n,), np.float32))
    twin.lib.reconstruct_bwd_x_s8(p, grad, y, x, clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, reconstruct.error(graph, node, grad, (y, x), clamp))
    check_reconstructed_map(twin, rng)


def check_reconstructed_map(twin: Twin, rng: Rng) -> None:
    """The gradient of a score of a map, whose pixels share channels."""
    c, guard = int(rng.integers(1, 20)), Guarded()
    shape = (*draw_sides(rng, 6), c)
    ends = [Tensor(n, shape, "s8", float(10.0 ** rng.uniform(-3, 0)), draw_zero(rng)) for n in "yx"]
    node = Node(reconstruct.NAME, "score", ("y", "x"), ("logits",), factors=(1.0, 0.1, 0.04))
    graph = Graph("g", Input("x", (1.0,), (0.0,)), "logits", {end.name: end for end in ends}, (node,), {})
    p, y, x = reconstruct.c_struct(graph, node), draw_s8(rng, shape), draw_s8(rng, shape)
    grad, clamp = np.array([0.0, rng.integers(2)], np.float32), draw_clamp(rng, shape)
    ex = Error(guard.array(shape, np.int8), guard.array((c,), np.float32))
    twin.lib.reconstruct_map_bwd_x_s8(p, c, grad, y, x, clamp_struct(clamp), error_struct(ex))
    guard.check()
    same_error(ex, reconstruct.error(graph, node, grad, (y, x), clamp))


def check_prototypes(twin: Twin, rng: Rng) -> None:
    """Distances of an embedding, the loss of a label, its gradient behind a clamp, and what joins."""
    shape, classes, guard = (
        (*draw_sides(rng, 3), int(rng.integers(1, 30))),
        int(rng.integers(2, 8)),
        Guarded(),
    )
    n, label = int(np.prod(shape)), int(rng.integers(classes))
    p = prototypes.Prototypes(
        pixels=shape[0] * shape[1], c=shape[2], classes=classes, unit=-pick(rng, 8, 0.3)
    )
    x, centre = draw_s8(rng, shape), (16 * rng.uniform(-128, 127, n)).astype(np.int16)
    if not rng.integers(4):
        centre = 16 * x.reshape(-1).astype(np.int16)  # an embedding without a direction
    counts = pick(rng, rng.integers(0, 3, classes - 1), rng.uniform(0, 40, classes - 1)).astype(np.float32)
    sums = (
        np.append(rng.normal(0, 0.3, (classes - 1, n)), np.ones((classes - 1, 1)), axis=1) * counts[:, None]
    )
    sums = sums.astype(np.float32)
    distances = (rng.uniform(0.1, 40, 5)).astype(np.float32)
    learned = {SUMS: sums.copy(), DISTANCES: distances.copy()}
    sums, distances = guard.copy(sums), guard.copy(distances)
    logits = guard.array((classes,), np.float32)
    twin.lib.prototypes_fwd_f32(p, centre, x, sums, distances, logits)
    tensors = {"x": Tensor("x", shape, "s8"), "logits": Tensor("logits", (1, 1, classes))}
    node = Node(PROTOTYPES, PROTOTYPES, ("x",), ("logits",))
    graph = Graph(
        "g", Input("x", (1.0,), (0.0,)), "logits", tensors, (node,), {}, centre=tuple(centre.tolist())
    )
    e, _ = prototypes.embedding(graph, x)
    np.testing.assert_array_equal(logits, prototypes.logits_of(p, e, learned))
    grad = guard.copy(logits)
    found = twin.lib.loss_prototypes_f32(classes, grad, label, distances, grad)
    loss, wanted = prototypes.loss(logits, label, learned[DISTANCES])
    assert np.float32(found) == np.float32(loss)
    np.testing.assert_array_equal(grad, wanted)
    np.testing.assert_array_equal(distances, learned[DISTANCES])
    clamp = draw_clamp(rng, shape)
    ex = Error(guard.array(shape, np.int8), guard.array((shape[2],), np.float32))
    scratch = guard.array((twin.lib.prototypes_bwd_x_scratch(p),), np.uint8)
    ends = (clamp_struct(clamp), error_struct(ex), scratch)
    twin.lib.prototypes_bwd_x_f32(p, centre, x, grad, sums, *ends)
    same_error(ex, prototypes.error(p, graph, x, wanted, learned, clamp))
    twin.lib.prototypes_update_f32(p, centre, x, label, sums)
    prototypes.join(e, label, learned[SUMS])
    guard.check()
    np.testing.assert_array_equal(sums, learned[SUMS])


def check_losses(twin: Twin, rng: Rng) -> None:
    classes = int(rng.integers(1, 14))
    logits = rng.normal(0, pick(rng, 0.1, 3, 100), classes).astype(np.float32)
    label, guard = int(rng.integers(classes)), Guarded()
    for name in ("cross_entropy", "mse"):
        grad = guard.copy(logits)
        source = grad if rng.integers(2) else logits
        loss = getattr(twin.lib, f"loss_{name}_f32")(classes, source, label, grad)
        want, want_grad = getattr(reference, f"loss_{name}")(logits, label)
        guard.check()
        assert np.float32(loss) == want, name
        np.testing.assert_array_equal(grad, want_grad)


@np.errstate(over="ignore", invalid="ignore")
def check_targets(twin: Twin, rng: Rng) -> None:
    """Losses against targets: both gradients of a regression, labels that hold or not."""
    n, guard = int(rng.integers(1, 14)), Guarded()
    y = rng.normal(0, pick(rng, 0.1, 3, 100), n).astype(np.float32)
    unit = (10.0 ** rng.uniform(-3, 3, n)).astype(np.float32)
    target = (y + unit * rng.normal(0, 2, n)).astype(np.float32)
    y = spoil(rng, y) if rng.integers(4) == 0 else y
    for name in regression.COSTS:
        up, down = guard.copy(y), guard.array((n,), np.float32)
        source = up if rng.integers(2) else y
        loss = getattr(twin.lib, f"{name}_f32")(n, source, target, unit, up, down)
        wanted = regression.values(name, y, target, unit)
        guard.check()
        for found, want in zip((np.float32(loss), up, down), wanted, strict=True):
            np.testing.assert_array_equal(found, want, name)
    grad, holds = guard.copy(y), rng.integers(0, 2, n).astype(np.float32)
    loss = twin.lib.loss_labels_f32(n, grad if rng.integers(2) else y, holds, grad)
    want, want_grad = multilabel.values(y, holds)
    guard.check()
    np.testing.assert_array_equal(np.float32(loss), want)
    np.testing.assert_array_equal(grad, want_grad)


def check_exp_log(twin: Twin, rng: Rng) -> None:
    low = np.concatenate([rng.uniform(-90, 0, 40), [0, -87, -88, 3.5, 100, np.nan]]).astype(np.float32)
    got = np.array([twin.lib.exp_f32(float(v)) for v in low], np.float32)
    np.testing.assert_array_equal(got, reference.exp_f32(low))
    positive = (10.0 ** rng.uniform(-37, 38, 40)).astype(np.float32)
    got = np.array([twin.lib.log_f32(float(v)) for v in positive], np.float32)
    np.testing.assert_array_equal(got, reference.log_f32(positive))


def spoil(rng: Rng, values: Array) -> Array:
    """Some of what training that diverges leaves behind: infinite, too large, no numbers of any kind."""
    odd = np.array(
        [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FC12345, 0xFFFFFFFF, 0x7F7FFFFF], np.uint32
    )
    chosen = rng.choice(odd.view(np.float32), values.shape)
    return np.where(rng.random(values.shape) < pick(rng, 0.05, 0.3, 1.0), chosen, values).astype(np.float32)


def same_bits(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(np.asarray(got, np.float32).view(np.uint32), want.view(np.uint32))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def check_overflow_of_errors(twin: Twin, rng: Rng) -> None:
    """Errors whose scales are infinite or no numbers, through every kernel that takes or makes some."""
    p = draw_conv(rng, False)
    ey, clamp, sgd = draw_error(rng, p.y), draw_clamp(rng, p.x), draw_sgd(rng)
    ey = Error(ey.q, np.abs(spoil(rng, ey.scale)))
    w = draw_s8(rng, (p.y[2], p.window.kh, p.window.kw, p.x[2]))
    got = twin.backward_x("conv2d", p, ey, w, clamp, draw_split(rng, p.x[2]))
    same_error(got, reference.conv2d_bwd_x(p, ey, w, clamp))
    x, trained = draw_s8(rng, p.x), draw_trained(rng, w.shape, np.ones(p.y[2]))
    stepped = twin.backward_w("conv2d", p, ey, x, None, None, trained, sgd)
    np.testing.assert_array_equal(stepped.w, reference.conv2d_bwd_w(p, ey, x, trained, sgd).w)
    zeros = np.zeros(p.y[2], np.int32)
    b = Bias(zeros, zeros.astype(np.int16), p.m, np.full(p.y[2], 1e9, np.float32), 2**30, 5)
    np.testing.assert_array_equal(twin.bias_update(ey, b, sgd), bias_update(ey, b, sgd))
    other, factors = draw_error(rng, p.y), tuple(float(f) for f in spoil(rng, np.ones(2, np.float32)))
    clamp, guard = draw_clamp(rng, p.y), Guarded()
    out = _copy_error(guard, other)
    ends = (clamp_struct(clamp), error_struct(out))
    records = (error_struct(ey), factors[0], error_struct(other), factors[1])
    twin.lib.error_add_s8(p.y[0] * p.y[1], p.y[2], *records, *ends)
    same_error(out, reference.error_add(ey, factors[0], other, factors[1], clamp))
    twin.lib.error_pass_s8(p.y[0] * p.y[1], p.y[2], error_struct(ey), factors[0], *ends)
    same_error(out, reference.error_pass(ey, factors[0], clamp))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def check_overflow_of_the_head(twin: Twin, rng: Rng) -> None:
    """Logits, losses and weights of a head that has diverged, bit for bit."""
    c, classes, guard, sgd = int(rng.integers(1, 30)), int(rng.integers(1, 14)), Guarded(), draw_sgd(rng)
    x, shape = draw_s8(rng, (1, 1, c)), (1, 1, c)
    w = guard.copy(spoil(rng, rng.normal(0, 0.3, (classes, c)).astype(np.float32)))
    b = guard.copy(spoil(rng, rng.normal(0, 1, classes).astype(np.float32)))
    p = head.Head(pixels=1, c=c, classes=classes, x_zero=3, x_scale=0.5)
    logits, label = guard.array((classes,), np.float32), int(rng.integers(classes))
    twin.lib.head_fwd_f32(p, x, w, b, logits)
    same_bits(logits, reference.head_fwd(x, 3, 0.5, w, b))
    for name in ("cross_entropy", "mse"):
        source, grad = spoil(rng, logits), guard.array((classes,), np.float32)
        loss = getattr(twin.lib, f"loss_{name}_f32")(classes, source, label, grad)
        want, want_grad = getattr(reference, f"loss_{name}")(source, label)
        np.testing.assert_array_equal(np.float32(loss), want)
        np.testing.assert_array_equal(grad, want_grad)
    clamp = draw_clamp(rng, shape)
    ex = Error(guard.array(shape, np.int8), guard.array((c,), np.float32))
    scratch = guard.array((twin.lib.head_bwd_x_scratch(p),), np.uint8)
    twin.lib.head_bwd_x_f32(p, grad, w, clamp_struct(clamp), error_struct(ex), scratch)
    same_error(ex, reference.head_bwd_x(shape, 0.5, grad, w, clamp))
    want_w, want_b = reference.head_bwd_w(x, 3, 0.5, grad, w, b, sgd)
    twin.lib.head_bwd_w_f32(p, grad, x, w, b, sgd_struct(sgd))
    guard.check()
    same_bits(w, want_w)
    same_bits(b, want_b)


CHECKS: dict[str, Callable[[Twin, Rng], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


def run(name: str, twin: Twin, cases: int, seed: int = 0) -> None:
    """`cases` random cases of one check; the failing case's number stands in the error."""
    for case in range(cases):
        try:
            CHECKS[name](twin, np.random.default_rng([seed, case]))
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}, case {case}: {error}") from None
