"""The NumPy twin of every kernel: the numeric contract of firmware/include/kernels, bit for bit.

Written from the headers, not from the C. Integer sums are exact; all float arithmetic is float32, one
rounding an operation, in the order that the headers write. How weights are split between flash and SRAM is
a matter of storage that the C has to deal with: here a layer has one weight array, and a trained part is the
array of its trained columns.

Shapes are (h, w, c), weights (c_out, kh, kw, c_in), depthwise (c, kh, kw), masks bool (h, w, c).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from microtrain.convert.ir import Shape, Window

from . import tflite
from .numeric import (
    Array,
    Clamp,
    Error,
    Sgd,
    exp_f32,
    f32,
    fixed_outputs,
    kept,
    largest,
    log_f32,
    quantize_error,
    random16,
    random_key,
    requantize,
    rint_s32,
    round_s32,
    round_step,
    sat8,
)


@dataclass(frozen=True, eq=False)
class Conv:
    """A convolution from `x` to `y`, as struct conv2d.

    m      float32 [c_out]
    fixed  m are fixed_multipliers(), and outputs are fixed_outputs()
    fine   int32 [c_out]; m and these are tflite.multipliers(), and outputs are tflite.outputs()
    """

    x: Shape
    y: Shape
    window: Window
    x_zero: int
    y_zero: int
    m: Array
    guard: int = 8
    fixed: bool = False
    fine: Array | None = None


@dataclass(frozen=True)
class Pool:
    """A pooling from `x` to `y`, as struct pool.

    away  averages are rounded as tflite.away() does it, else half to even
    """

    x: Shape
    y: Shape
    window: Window
    x_zero: int
    away: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """Trained weights: int8 `w` in its stored layout, signed fractions in units of 2^-frac_bits (None with
    0 bits), `qas` = 65536 / s_w^2 [c_out], tensor id of the random numbers."""

    w: Array
    frac: Array | None
    frac_bits: int
    qas: Array
    id: int


# ---- windows


_ZERO = np.zeros((), np.int64)


def _flat(values: Array) -> Array:
    return values.reshape(-1, values.shape[-1])


def taps_of(window: Window) -> Iterator[tuple[int, int]]:
    """Every (ky, kx) of a window."""
    return ((ky, kx) for ky in range(window.kh) for kx in range(window.kw))


def _tap_range(tap: int, stride: int, pad: int, size: int, outputs: int) -> tuple[slice, slice]:
    """Outputs that see the image through a tap, and the pixels they see."""
    first = max(0, -((tap - pad) // stride))
    last = min(outputs, (size - 1 - tap + pad) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride + tap - pad
    return slice(first, last), slice(begin, begin + (last - first - 1) * stride + 1, stride)


def _tap_slices(
    k: Window, tap: tuple[int, int], x: Shape, y: Shape
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Index of the outputs that see the image through a tap, and index of the pixels they see."""
    out_h, in_h = _tap_range(tap[0], k.stride_h, k.pad_h, x[0], y[0])
    out_w, in_w = _tap_range(tap[1], k.stride_w, k.pad_w, x[1], y[1])
    return (out_h, out_w), (in_h, in_w)


def seen(values: Array, window: Window, tap: tuple[int, int], y: Shape, padding: int = 0) -> Array:
    """What every output sees of an image [h, w, c] through one tap: [h_out, w_out, c]."""
    result = np.full((*y[:2], values.shape[2]), padding, values.dtype)
    outputs, pixels = _tap_slices(window, tap, values.shape, y)
    result[outputs] = values[pixels]
    return result


# ---- conv2d.h


def conv2d_sums(p: Conv, x: Array, w: Array) -> Array:
    """Integer sums of a convolution without its bias, int64 [h_out, w_out, c_out]."""
    centred = x.astype(np.int64) - p.x_zero
    w = w.astype(np.int64)
    return sum((seen(centred, p.window, t, p.y) @ w[:, t[0], t[1]].T for t in taps_of(p.window)), _ZERO)


def dwconv2d_sums(p: Conv, x: Array, w: Array) -> Array:
    """Integer sums of a depthwise convolution without its bias, int64 [h_out, w_out, c]."""
    centred = x.astype(np.int64) - p.x_zero
    w = w.astype(np.int64)
    return sum((seen(centred, p.window, t, p.y) * w[:, t[0], t[1]] for t in taps_of(p.window)), _ZERO)


def stored(sums: Array, m: Array, zero: int, fixed: bool, fine: Array | None) -> Array:
    """Sums [.., c] as the fields of Conv say, zero point added, before saturation."""
    if fine is not None:
        return tflite.outputs(sums, m, fine, zero)
    return fixed_outputs(sums, m, zero) if fixed else requantize(sums, m) + zero


def _store(p: Conv, sums: Array, b: Array) -> tuple[Array, Array]:
    """Requantized outputs and their clamp mask."""
    v = stored(sums + b, p.m, p.y_zero, p.fixed, p.fine)
    return sat8(v), (v >= -128) & (v <= 127)


def conv2d_fwd(p: Conv, x: Array, w: Array, b: Array) -> tuple[Array, Array]:
    """int8 x [h, w, c_in], int8 w, int32 b [c_out] -> int8 y and its mask."""
    return _store(p, conv2d_sums(p, x, w), b)


def dwconv2d_fwd(p: Conv, x: Array, w: Array, b: Array) -> tuple[Array, Array]:
    return _store(p, dwconv2d_sums(p, x, w), b)


def scatter(p: Conv | Pool, terms: Iterable[tuple[tuple[int, int], Array]], dtype: Any = np.int64) -> Array:
    """Sums, of p.x, of what every tap sends back to the pixels it saw."""
    sums = np.zeros(p.x, dtype)
    for tap, term in terms:
        outputs, pixels = _tap_slices(p.window, tap, p.x, p.y)
        sums[pixels] += term[outputs]
    return sums


def align(scale: Array, guard: int) -> tuple[Array, Any]:
    """Factors 0 .. 2^guard that bring channels of an error to one scale, and that scale / 2^guard."""
    most, one = f32(largest(scale)), f32(2**guard)
    if most == 0:
        return np.zeros(scale.shape, np.int64), f32(0)
    return round_s32(scale / most * one), most / one


def conv2d_bwd_x(p: Conv, ey: Error, w: Array, clamp: Clamp) -> Error:
    """Gradient with respect to x, behind the clamp of the op that made x. w: before the update."""
    r, unit = align(ey.scale, p.guard)
    e = ey.q.astype(np.int64) * r
    w = w.astype(np.int64)
    sums = scatter(p, ((t, e @ w[:, t[0], t[1]]) for t in taps_of(p.window)))
    return quantize_error(sums, unit, clamp)


def dwconv2d_bwd_x(p: Conv, ey: Error, w: Array, clamp: Clamp) -> Error:
    """Depthwise: channels never meet, so nothing is aligned; one unit of a sum is the channel's scale."""
    e, w = ey.q.astype(np.int64), w.astype(np.int64)
    sums = scatter(p, ((t, e * w[:, t[0], t[1]]) for t in taps_of(p.window)))
    return quantize_error(sums, ey.scale, clamp)


def conv2d_weight_sums_of(p: Conv, e: Array, centred: Array) -> Array:
    """sum over pixels of e * centred, [c_out, kh, kw, channels of centred]."""
    taps = [_flat(e).T @ _flat(seen(centred, p.window, t, p.y)) for t in taps_of(p.window)]
    return np.stack(taps, axis=1).reshape(e.shape[2], p.window.kh, p.window.kw, centred.shape[2])


def dwconv2d_weight_sums_of(p: Conv, e: Array, centred: Array) -> Array:
    """The same for depthwise, e and centred of the same channels: [channels, kh, kw]."""
    taps = [(e * seen(centred, p.window, t, p.y)).sum(axis=(0, 1)) for t in taps_of(p.window)]
    return np.stack(taps, axis=1).reshape(e.shape[2], p.window.kh, p.window.kw)


def _integers(p: Conv, e: Array, x: Array) -> tuple[Array, Array]:
    return e.astype(np.int64), x.astype(np.int64) - p.x_zero


def descend(w: Trained, sums: Array, factor: Array, sgd: Sgd) -> Trained:
    """The stochastic step: w -= factor * sums / 2^16. factor: float32, broadcast against sums."""
    shift = 16 - w.frac_bits
    noise = random16(random_key(sgd.seed, sgd.step, w.id), w.w.size).reshape(w.w.shape)
    noise = noise & ((1 << shift) - 1)
    delta = (round_step(factor * sums.astype(f32)) + noise) >> shift
    value = w.w.astype(np.int64) << w.frac_bits
    if w.frac is not None:
        value = value + w.frac
    limit = 127 << w.frac_bits
    value = np.clip(value - delta, -limit, limit)
    whole = (value + ((1 << w.frac_bits) >> 1)) >> w.frac_bits
    frac = None if w.frac is None else (value - (whole << w.frac_bits)).astype(np.int8)
    return replace(w, w=whole.astype(np.int8), frac=frac)


def conv2d_bwd_w(p: Conv, ey: Error, x: Array, w: Trained, sgd: Sgd) -> Trained:
    """The trained columns after one step. x [h, w, c_trained]: the saved input of the trained channels."""
    factor = f32(sgd.lr_weight) * w.qas.astype(f32) * ey.scale
    sums = conv2d_weight_sums_of(p, *_integers(p, ey.q, x))
    return descend(w, sums, factor[:, None, None, None], sgd)


def dwconv2d_bwd_w(p: Conv, ey: Error, x: Array, channels: Array, w: Trained, sgd: Sgd) -> Trained:
    """The same for depthwise. channels [c_trained]: those of the trained rows and of x."""
    factor = f32(sgd.lr_weight) * w.qas.astype(f32)[channels] * ey.scale[channels]
    sums = dwconv2d_weight_sums_of(p, *_integers(p, ey.q[:, :, channels], x))
    return descend(w, sums, factor[:, None, None], sgd)


def gather(x: Array, index: Array) -> Array:
    """The listed channels of x."""
    return np.ascontiguousarray(x[..., index])


# ---- elementwise.h


@dataclass(frozen=True)
class Add:
    """A residual add: zero points and real values per unit.

    as_tflite  it is rounded as TensorFlow Lite's reference kernels do
    """

    a_zero: int
    b_zero: int
    y_zero: int
    a_scale: float
    b_scale: float
    y_scale: float
    as_tflite: bool = field(default=False, kw_only=True)


def add_wide(p: Add, a: Array, b: Array) -> Array:
    """int8 a, b -> the sums before saturation."""
    if p.as_tflite:
        return tflite.added((a, b), (p.a_zero, p.b_zero), (p.a_scale, p.b_scale, p.y_scale)) + p.y_zero
    left = (a.astype(np.int32) - p.a_zero).astype(f32) * f32(p.a_scale)
    right = (b.astype(np.int32) - p.b_zero).astype(f32) * f32(p.b_scale)
    return rint_s32((left + right) / f32(p.y_scale), 1024.0) + p.y_zero


def add_fwd(p: Add, a: Array, b: Array) -> tuple[Array, Array]:
    """int8 a, b -> int8 y and its mask."""
    v = add_wide(p, a, b)
    return sat8(v), (v >= -128) & (v <= 127)


def error_pass(e: Error, factor: float, clamp: Clamp) -> Error:
    """factor * e behind a clamp; the maximum is not renewed."""
    scale = e.scale * f32(factor)
    scale = scale if clamp.m is None else scale * clamp.m
    return Error(e.q if clamp.mask is None else np.where(clamp.mask, e.q, np.int8(0)), scale)


def error_add(a: Error, a_factor: float, b: Error, b_factor: float, clamp: Clamp) -> Error:
    """a_factor * a + b_factor * b behind a clamp."""
    left = a.q.astype(f32) * (a.scale * f32(a_factor))
    right = b.q.astype(f32) * (b.scale * f32(b_factor))
    return quantize_error(left + right, 1.0, clamp)


# ---- pool.h


def average(sums: Array, count: int, halves_away: bool) -> Array:
    """Whole sums through a count, rounded as Pool says."""
    result: Array = tflite.away(sums, count) if halves_away else np.rint(sums.astype(f32) / f32(count))
    return result


def avgpool_fwd(p: Pool, x: Array) -> Array:
    x = x.astype(np.int64)
    sums = sum((seen(x, p.window, t, p.y, p.x_zero) for t in taps_of(p.window)), _ZERO)
    count = p.window.kh * p.window.kw
    return average(sums, count, p.away).astype(np.int8)


def maxpool_fwd(p: Pool, x: Array) -> tuple[Array, Array]:
    """int8 y and uint8 position of the maximum in its window, the first of equals."""
    x = x.astype(np.int16)
    views = np.stack([seen(x, p.window, t, p.y, -129) for t in taps_of(p.window)])
    return sat8(views.max(axis=0)), views.argmax(axis=0).astype(np.uint8)


def avgpool_bwd_x(p: Pool, ey: Error, clamp: Clamp) -> Error:
    q = ey.q.astype(np.int64)
    sums = scatter(p, ((t, q) for t in taps_of(p.window)))
    return quantize_error(sums, ey.scale / f32(p.window.kh * p.window.kw), clamp)


def maxpool_bwd_x(p: Pool, ey: Error, arg: Array, clamp: Clamp) -> Error:
    """arg: as maxpool_fwd returned it."""
    q = ey.q.astype(np.int64)
    terms = ((t, np.where(arg == i, q, 0)) for i, t in enumerate(taps_of(p.window)))
    return quantize_error(scatter(p, terms), ey.scale, clamp)


# ---- head.h


def features(x: Array, x_zero: int, x_scale: float) -> Array:
    """Real values of stored features, float32 [h * w * c]."""
    return ((x.astype(np.int32) - x_zero).astype(f32) * f32(x_scale)).reshape(-1)


def head_fwd(x: Array, x_zero: int, x_scale: float, w: Array, b: Array) -> Array:
    """float32 logits [classes]; sums start at b and run over the features in order."""
    logits = b.astype(f32)
    for column, feature in zip(w.T, features(x, x_zero, x_scale), strict=True):
        logits = logits + column * feature
    result: Array = kept(logits)
    return result


def loss_cross_entropy(logits: Array, label: int) -> tuple[Any, Array]:
    """Loss and its gradient with respect to the logits."""
    top = logits[0]
    for logit in logits[1:]:
        top = logit if logit > top else top
    shifted = logits - top
    powers = exp_f32(shifted)
    total = f32(0)
    for power in powers:
        total = total + power
    onehot = (np.arange(logits.size) == label).astype(f32)
    return kept(log_f32(total) - shifted[label]), powers / total - onehot


def loss_mse(logits: Array, label: int) -> tuple[Any, Array]:
    """Loss and its gradient with respect to the logits."""
    d = logits - (np.arange(logits.size) == label).astype(f32)
    total = f32(0)
    for square in d * d:
        total = total + square
    return kept(total / f32(logits.size)), f32(2) * d / f32(logits.size)


def head_bwd_x(shape: Shape, x_scale: float, grad: Array, w: Array, clamp: Clamp) -> Error:
    """Gradient with respect to the stored features of that shape; sums run over the classes in order."""
    sums = np.zeros(w.shape[1], f32)
    for row, g in zip(w, grad, strict=True):
        sums = sums + row * g
    return quantize_error(sums.reshape(shape), x_scale, clamp)


def head_bwd_w(
    x: Array, x_zero: int, x_scale: float, grad: Array, w: Array, b: Array, sgd: Sgd
) -> tuple[Array, Array]:
    """Weights and biases of the head after one step."""
    step = f32(sgd.lr_head) * grad
    return kept(w - step[:, None] * features(x, x_zero, x_scale)), kept(b - step)
