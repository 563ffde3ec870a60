"""The roundings of TensorFlow Lite's reference kernels: the twin of kernels with MICROTRAIN_TFLITE.

Sources, all in tensorflow/lite/kernels/internal: common.h, quantization_util.cc, reference/hard_swish.h,
reference/leaky_relu.h, reference/requantize.h, reference/reduce.h, reference/add.h, reference/sub.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fixed_point import divide_away, product16, saturate16
from .numeric import Array, f32, requantize

Side = tuple[float, int]  # scale and zero point of a tensor

EXPONENT_MOST = 14  # of a multiplier: every number but 0 saturates
SUM_FRACTION = 20  # bits behind the point of what a sum adds up
SUM_SHIFT_MOST = 30
SHIFT_MOST = 22  # behind a fine multiplier: half a unit and a zero point are then an int32


def multipliers(m: Array, pixels: int = 1) -> tuple[Array, Array]:
    """float64 m [c] / pixels as a float32, cut off behind 24 bits, and as 30 or 31 bits, int32; 0: none.

    With pixels, what QuantizedMeanOrSum() of reference_ops makes of it.
    """
    (fine, exponent), left = _multiplier(m), pixels.bit_length() - 1
    fine, shift = (fine << left) // pixels, left - exponent
    found = (fine > 0) & (shift >= 1) & (shift <= SHIFT_MOST)
    more = np.where(fine < 2**30, 6, 7)  # bits than a float32 has
    cut = np.ldexp((fine >> more << more).astype(np.float64), -31 - shift)
    return np.where(found, cut, m / pixels).astype(f32), np.where(found, fine, 0).astype(np.int32)


def outputs(sums: Array, m: Array, fine: Array, zero: int) -> Array:
    """What TensorFlow Lite's reference kernels make of sums [.., c], zero point added, before saturation.

    A doubled product's upper half, half up, then a shift, half away from zero:
    MultiplyByQuantizedMultiplier(), tensorflow/lite/kernels/internal/common.h. Channels without a fine
    multiplier keep float32.
    """
    if not fine.any():
        return requantize(sums, m) + zero
    sums = sums.astype(np.int64)
    twice = np.clip(2 * sums, -(2**31), 2**31 - 1)
    high = (twice * fine + 2**31) >> 32
    shift = np.where(fine > 0, 126 - (m.view(np.int32) >> 23) - (fine < 2**30), 1)
    result: Array = (high - (high < 0) + (1 << (shift - 1))) >> shift
    return (result if fine.all() else np.where(fine > 0, result, requantize(sums, m))) + zero


def away(sums: Array, count: int) -> Array:
    """Integers through a count, half away from zero, as TensorFlow Lite averages."""
    result: Array = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    return result


def rescale(m: Any) -> tuple[int, int, int]:
    """One m of any size, as fine * 2^(left - right - 31): fine, left and right, of which one is 0."""
    fine, exponent = (int(part) for part in _multiplier(m))
    exponent = min(exponent, EXPONENT_MOST)
    return fine, max(exponent, 0), max(-exponent, 0)


def requantized(values: Array, m: Any) -> Array:
    """MultiplyByQuantizedMultiplier() of whole numbers that are a few, m of any size."""
    fine, left, right = rescale(m)
    high: Array = ((values.astype(np.int64) << left) * fine + 2**30) >> 31
    return divide_away(high, right)


def sum_factors(a: float, b: float, y: float) -> tuple[tuple[int, int], ...] | None:
    """What ADD and SUB multiply values of scales a and b with, and what is left of them is multiplied with.

    Each as 31 bits and a shift to the right. b is negative where it is subtracted. None: scales too far apart
    """
    found = [rescale(m) for m in _sum_multipliers(a, b, y)]
    if any(not fine or left or right > SUM_SHIFT_MOST for fine, left, right in found):
        return None
    return tuple((fine, right) for fine, _, right in found)


def _sum_multipliers(a: float, b: float, y: float) -> tuple[float, float, float]:
    """Those of both values, and of their sum, real numbers."""
    most = 2.0 * max(a, abs(b))
    return a / most, abs(b) / most, most / (2**SUM_FRACTION * y)


def added(x: tuple[Array, Array], zeros: tuple[int, int], scales: tuple[float, float, float]) -> Array:
    """What ADD makes of two maps int8, and SUB where the second scale is negative, before the zero point.

    scales  of both and of the result, for which there are sum_factors()
    """
    *own, last = _sum_multipliers(*scales)
    stored = np.arange(-128, 128)
    parts = [
        np.sign(scale) * requantized(stored - zero << SUM_FRACTION, m)
        for zero, scale, m in zip(zeros, scales[:2], own, strict=True)
    ]
    left, right = (part.astype(np.int64)[v.astype(np.int64) + 128] for part, v in zip(parts, x, strict=True))
    return requantized(left + right, last)


def clip(stored: Array, x: Side, y: Side, least: float, most: float) -> Array:
    """What QUANTIZE makes of int8 values, and RELU, which are held between real limits."""
    low, high = (np.clip(np.rint(limit / y[0]) + y[1], -128, 127) for limit in (least, most))
    return _int8(np.clip(requantized(stored - x[1], x[0] / y[0]) + y[1], low, high))


def leaky(stored: Array, x: Side, y: Side, slope: float) -> Array:
    """The same of LEAKY_RELU."""
    values, m = stored - x[1], f32(x[0]) / f32(y[0])
    less = requantized(values, f32(x[0]) * f32(slope) / f32(y[0]))
    made = np.where(values >= 0, requantized(values, m), less) + y[1]
    return _int8(made)


def times_logistic(stored: Array, x: Side, y: Side) -> Array:
    """The same of LOGISTIC, whose values are 256ths, and the product of both."""
    values = stored - x[1]
    gate = np.clip(np.rint(256 / (1 + np.exp(np.minimum(-x[0] * values, 80.0)))), 0, 255)
    made = requantized(values * gate.astype(np.int64), f32(x[0]) * f32(1 / 256) / f32(y[0]))
    return _int8(made + y[1])


def of_itself(stored: Array, x: Side, y: Side, power: float, factor: float) -> Array | None:
    """The same of MUL and of ADD, of a map with itself; None: it is neither its square nor its double."""
    if (power, factor) == (1.0, 2.0):
        return _int8(added((stored, stored), (x[1], x[1]), (x[0], x[0], y[0])) + y[1])
    if (power, factor) != (2.0, 1.0):
        return None
    values = (stored - x[1]) ** 2
    return _int8(requantized(values, f32(x[0]) * f32(x[0]) / f32(y[0])) + y[1])


def absolute(stored: Array, x: Side, y: Side) -> Array:
    """The same of ABS."""
    return _int8(requantized(np.abs(stored - x[1]), f32(x[0]) / f32(y[0])) + y[1])


def hard_swish(stored: Array, x: Side, y: Side) -> Array:
    """The same of HARD_SWISH, which counts in 16 bits."""
    hires = f32(1 / 128) * f32(x[0])
    output, output_exponent = _multiplier16(hires / f32(y[0]))
    reluish, exponent = _multiplier16(hires / f32(3 / 32768))
    wide = (stored.astype(np.int64) - x[1]) << 7
    value = saturate16(wide << max(exponent - 1, 0))
    value = product16(value, reluish)
    value = saturate16(value << 1) if exponent > 0 else divide_away(value, -exponent)
    product = ((value + 2**15) >> 1) * product16(wide, output)
    whole = np.sign(product) * (np.abs(product) >> 15)
    whole <<= min(max(output_exponent, 0), EXPONENT_MOST)
    return _int8(divide_away(whole, max(-output_exponent, 0)) + y[1])


def _int8(values: Array) -> Array:
    result: Array = np.clip(values, -128, 127).astype(np.int8)
    return result


def _multiplier(m: Any) -> tuple[Array, Array]:
    """m, one or many, as 31 bits and the exponent of 2 that goes with them: QuantizeMultiplier()."""
    fraction, exponent = np.frexp(np.asarray(m, np.float64))
    fine = np.floor(fraction * 2.0**31 + 0.5).astype(np.int64)
    over = fine == 2**31
    return np.where(over, 2**30, fine), exponent + over


def _multiplier16(m: Any) -> tuple[int, int]:
    """The same as 15 bits."""
    fine, exponent = (int(part) for part in _multiplier(m))
    return min((fine + 2**15) >> 16, 2**15 - 1), exponent
