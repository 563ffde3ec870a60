"""Roundings, saturations, random numbers and int8 errors of the NumPy reference: the twin of numeric.h.

All float arithmetic is float32, one rounding an operation. `kernels.py` builds the kernels on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
f32 = np.float32

MULTIPLIER_BITS = 35  # of an integer multiplier M, m * 2^35
FRACTION = MULTIPLIER_BITS - 32
INTEGER = (f32(2.0**-MULTIPLIER_BITS), f32(2.0**-4))  # m of which M is an int32 greater than 0

PEAK_MIN = f32(2.0**-100)  # a channel of float sums below this has no gradient


def spans(whole: int, part: int) -> Iterator[slice]:
    """A range in parts of so many, the last of what is left."""
    return (slice(start, min(start + part, whole)) for start in range(0, whole, part))


@dataclass(frozen=True, eq=False)
class Error:
    """Back-propagated gradient with respect to stored integers: gradient[.., c] = scale[c] * q[.., c].

    q int8 [h, w, c], scale float32 [c], >= 0
    """

    q: Array
    scale: Array

    @property
    def gradient(self) -> Array:
        """The real gradient, float64 [h, w, c]."""
        return self.q.astype(np.float64) * self.scale.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Clamp:
    """Saturation mask and requantization multipliers of the op that made a tensor; None: 1 everywhere."""

    mask: Array | None = None
    m: Array | None = None


@dataclass(frozen=True)
class Sgd:
    """Rate and randomness of one training step."""

    lr_weight: float
    lr_bias: float
    lr_head: float
    seed: int
    step: int


def sat8(v: Array) -> Array:
    return np.clip(v, -128, 127).astype(np.int8)


def rint_s32(v: Array, limit: float) -> Array:
    """Round half to even after clamping to +-limit; 0 for what is no number."""
    clamped: Array = np.clip(np.where(np.isnan(v), f32(0), v), f32(-limit), f32(limit))
    return np.rint(clamped).astype(np.int64)


def round_s32(v: Array) -> Array:
    """Round half to even to int32, saturating; 0 for what is no number. int64."""
    inside = np.where(np.isnan(v), 0.0, v.astype(np.float64))
    return np.clip(np.rint(inside), -(2.0**31), 2.0**31 - 1).astype(np.int64)


def kept(v: Any) -> Any:
    """Float32, a number or an array, as it is kept: what is no number as 0x7fc00000."""
    return np.where(np.isnan(v), f32(np.nan), v)[()]


def largest(v: Array, axis: tuple[int, ...] = (0,)) -> Array:
    """The largest of magnitudes that are numbers, 0 where there are none."""
    result: Array = np.fmax(np.fmax.reduce(v, axis=axis), 0)
    return result


def requantize(acc: Array, m: Array) -> Array:
    """The requantized sum before its zero point, limited to +-1024."""
    return rint_s32(acc.astype(f32) * m.astype(f32), 1024.0)


def fixed_multipliers(m: Array) -> Array:
    """float32 m [c], where an int32 holds M the nearest that is M / 2^35: both forms are exact."""
    rounded = np.rint(m.astype(np.float64) * 2.0**MULTIPLIER_BITS) * 2.0**-MULTIPLIER_BITS
    result: Array = np.where(has_integer(m), rounded, m).astype(f32)
    return result


def has_integer(m: Array) -> Array:
    """Where fixed point applies, bool [c]."""
    result: Array = (m >= INTEGER[0]) & (m < INTEGER[1])
    return result


def integers_of(m: Array) -> Array:
    """M of fixed_multipliers(), int64 [c]; 0 where there is none."""
    scaled = np.where(has_integer(m), m, 0).astype(np.float64) * 2.0**MULTIPLIER_BITS
    return np.rint(scaled).astype(np.int64)


def integer_outputs(sums: Array, integers: Array, zero: int) -> Array:
    """Half up: what integers M [c] make of int64 sums [.., c], zero point added, before saturation."""
    offset = (zero << FRACTION) + (1 << FRACTION >> 1)
    result: Array = (sums * integers + (offset << 32)) >> MULTIPLIER_BITS
    return result


def fixed_outputs(sums: Array, m: Array, zero: int) -> Array:
    """The same of fixed_multipliers(); channels without an integer keep float32."""
    sums = sums.astype(np.int64)
    result: Array = np.where(
        has_integer(m), integer_outputs(sums, integers_of(m), zero), requantize(sums, m) + zero
    )
    return result


def hash32(x: Array) -> Array:
    """C. Wellons' lowbias32 on uint32 arrays."""
    x = x.astype(np.uint32)
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    result: Array = x ^ (x >> np.uint32(16))
    return result


def _word(value: int) -> Array:
    return np.array([value & 0xFFFFFFFF], np.uint32)


def random_key(seed: int, step: int, tensor_id: int) -> int:
    """Key of all random numbers of one tensor in one step."""
    key = hash32(_word(seed))
    for part in (step, tensor_id):
        key = hash32(key + _word(part))
    return int(key[0])


def random16(key: int, count: int) -> Array:
    """16 random bits of each of the elements 0 .. count - 1 of a tensor, int64."""
    pairs = np.arange((count + 1) // 2, dtype=np.uint32)
    words = hash32(pairs * np.uint32(0x9E3779B9) + _word(key)).astype(np.int64)
    return np.stack([words & 0xFFFF, words >> 16], axis=1).reshape(-1)[:count]


def round_step(v: Array) -> Array:
    return rint_s32(v, 2147418112.0)


def _horner(r: Array, coefficients: tuple[str, ...]) -> Array:
    """Polynomial with float32 coefficients, highest power first, one rounding an operation."""
    y: Array = np.full_like(r, f32(float.fromhex(coefficients[0])))
    for c in coefficients[1:]:
        y = y * r + f32(float.fromhex(c))
    return y


_LN2_HIGH, _LN2_LOW = f32(float.fromhex("0x1.63p-1")), f32(float.fromhex("-0x1.bd0106p-13"))
_EXP = ("0x1.a12516p-13", "0x1.6d434ep-10", "0x1.1110ep-7", "0x1.5554e8p-5", "0x1.555556p-3", "0x1.0p-1")
_LOG = (
    *("0x1.1d8ea6p-4", "-0x1.d635bcp-4", "0x1.dea282p-4", "-0x1.fcf4c6p-4", "0x1.23d21ap-3"),
    *("-0x1.555b4ap-3", "0x1.999d5ap-3", "-0x1.fffffcp-3", "0x1.555554p-2"),
)


def exp_f32(x: Array | f32) -> Array:
    """exp in float32; 0 below -87 and for what is no number, exp(88) above 88."""
    x = np.asarray(x, f32)
    inside: Array = np.where(x >= f32(-87), np.minimum(x, f32(88)), f32(0))
    n: Array = np.rint(inside * f32(float.fromhex("0x1.715476p+0")))
    r: Array = inside - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    y = _horner(r, _EXP) * (r * r) + r
    y = y + f32(1)
    power = ((n.astype(np.int32) + 127) << 23).astype(np.int32).view(f32)
    return np.where(x >= f32(-87), y * power, f32(0))


def log_f32(x: Array | f32) -> Array:
    """Natural logarithm of positive, normal float32 values."""
    bits = np.asarray(x, f32).view(np.uint32)
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).astype(np.uint32).view(f32)
    small = mantissa < f32(float.fromhex("0x1.6a09e6p-1"))
    e = ((bits >> 23).astype(np.int64) - 126 - small).astype(f32)
    r = np.where(small, mantissa + mantissa, mantissa) - f32(1)
    z = r * r
    y = _horner(r, _LOG) * r * z
    y = y + e * _LN2_LOW
    y = y - f32(0.5) * z
    result: Array = (r + y) + e * _LN2_HIGH
    return result


def inverse_root(weight: int) -> np.float32:
    """1 / sqrt(weight), weight 1 to 2^62: the twin of inverse_of in kernels/root.h."""
    k = (62 - int(weight).bit_length()) // 2
    return f32(f32(1.0) / f32(isqrt(int(weight) << 2 * k)) * f32(1 << k))


def quantize_error(sums: Array, unit: Array | float, clamp: Clamp) -> Error:
    """Sums [h, w, c], int or float32, behind a clamp, to int8 with one scale per channel.

    unit  float32 real gradient of 1 in a sum, a number or [c]
    """
    units: Array = np.broadcast_to(np.asarray(unit, f32), sums.shape[2:])
    units = units if clamp.m is None else units * clamp.m
    passing = np.where(clamp.mask, sums, 0) if clamp.mask is not None else sums
    peak = largest(np.abs(passing), axis=(0, 1)).astype(f32)
    scale = np.where(peak >= PEAK_MIN, peak / f32(127) * units, f32(0)).astype(f32)
    live = scale > 0
    gain = np.where(live, f32(127) / np.where(live, peak, f32(1)), f32(0))
    return Error(round_s32(passing.astype(f32) * gain).astype(np.int8), scale)
