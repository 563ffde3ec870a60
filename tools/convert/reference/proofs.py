"""Where integers do what the contract says in float32, for every sum that there is.

The contract rounds a float32 product (`numeric.h`). An output has 256 values, and both ways only grow
with the sum. So they are equal everywhere if they are at the 257 sums where the float one takes a step,
the two behind which it saturates among them. Of a residual add all 65,536 pairs are looked at.

A table of multipliers holds words: a float's bits, or -M where M was proven. `multiplier_f32` of numeric.h
makes the float of either. M is m * 2^35, near enough that the nearest float32 of M is exactly that.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from . import tflite
from .kernels import Add, add_wide
from .numeric import FRACTION, MULTIPLIER_BITS, Array, f32, has_integer, integers_of

PROVABLE = (2.0**-14, 2.0**-4)  # m within: M is an int32, and no sum at a step leaves float32's integers
STEPS = np.arange(-128, 129, dtype=np.int64)  # an output or more; 128: the first that saturates


def multiplier_words(m: Array, zero: int) -> Array:
    """int32 [c]: a layer's table of multipliers m, float32 [c], for outputs of that zero point."""
    return np.frombuffer(_words(np.ascontiguousarray(m, f32).tobytes(), zero), np.int32)


@lru_cache(maxsize=4096)  # a conversion asks for the tables of each layer over and over
def _words(multipliers: bytes, zero: int) -> bytes:
    m = np.frombuffer(multipliers, f32)
    words = m.view(np.int32).copy()
    found = (m >= f32(PROVABLE[0])) & (m < f32(PROVABLE[1]))
    if found.any():
        integers, proven = _proven(m[found], zero)
        words[found] = np.where(proven, -integers, words[found])
    return words.tobytes()


def fixed_words(m: Array) -> Array:
    """The same where fixed point is the contract: -M wherever there is one, m of fixed_multipliers()."""
    bits = np.ascontiguousarray(m, f32).view(np.int32)
    result: Array = np.where(has_integer(m), -integers_of(m), bits).astype(np.int32)
    return result


def multipliers_of(words: Array) -> Array:
    """The float32 multipliers of such a table."""
    integers = np.maximum(-words.astype(np.int64), 0).astype(f32) * f32(2.0**-MULTIPLIER_BITS)
    result: Array = np.where(words < 0, integers, words.view(f32))
    return result


def _proven(m: Array, zero: int) -> tuple[Array, Array]:
    """M of each channel, and whether it is one."""
    first, certain = _first_sums(m, zero)
    low, high = _interval(first, zero)
    scaled = m.astype(np.float64) * 2.0**MULTIPLIER_BITS
    integers = np.clip(np.rint(scaled).astype(np.int64), low, np.maximum(low, high))
    kept = integers.astype(f32) == scaled.astype(f32)
    proven: Array = certain & (low <= high) & kept
    return integers, proven


def _first_sums(m: Array, zero: int) -> tuple[Array, Array]:
    """The least sum [c][257] whose output is at least a step, in float32; and where that is certain [c]."""
    steps = STEPS - zero
    guess = np.ceil((steps - 0.5) / m.astype(np.float64)[:, None]).astype(np.int64)
    first = guess + 2
    for less in (1, 0, -1, -2):
        first = np.where(_outputs(guess + less, m) >= steps, guess + less, first)
    certain = (_outputs(first, m) >= steps) & (_outputs(first - 1, m) < steps)
    return first, np.asarray(certain.all(axis=1))


def _outputs(sums: Array, m: Array) -> Array:
    result: Array = np.rint(sums.astype(f32) * m[:, None]).astype(np.int64)
    return result


def _interval(first: Array, zero: int) -> tuple[Array, Array]:
    """The integers M [c] that step at just these sums, first * M >= need > (first - 1) * M: low to high."""
    need = (((STEPS - zero) << FRACTION) - (1 << FRACTION >> 1)) << 32
    low, high = np.ones(len(first), np.int64), np.full(len(first), 2**31 - 1, np.int64)
    for sums, limit, sign in ((first, need, 1), (first - 1, need - 1, -1)):
        # sums * M * sign >= limit * sign
        factor, bound = sums * sign, limit * sign
        at_least = np.where(factor > 0, -(-bound // np.where(factor > 0, factor, 1)), 1)
        at_most = np.where(factor < 0, -bound // np.where(factor < 0, -factor, 1), 2**31 - 1)
        never = (factor == 0) & (bound > 0)
        low = np.maximum(low, at_least.max(axis=1))
        high = np.where(never.any(axis=1), 0, np.minimum(high, at_most.min(axis=1)))
    return low, high


ADD_FRACTION = 22
NEAR = 2  # how far the factors of a residual add are looked for from their real values


@lru_cache(maxsize=4096)  # as for multipliers; all pairs are looked at
def add_words(p: Add) -> tuple[int, int, int]:
    """The words a, b, y of an add: -A, B, C where integers were proven, else its scales' bits.

    Or, as TensorFlow Lite rounds, what it multiplies with, beside add_shifts().
    """
    scales = p.a_scale, p.b_scale, p.y_scale
    factors = tflite.sum_factors(*scales) if p.as_tflite else None
    a, b, y = np.array(scales, f32).view(np.int32).tolist() if factors is None else (f for f, _ in factors)
    values = np.arange(-128, 128, dtype=np.int8)
    wanted = add_wide(p, values[:, None], values)
    guess = [round(scale / float(f32(p.y_scale)) * 2**ADD_FRACTION) for scale in (p.a_scale, p.b_scale)]
    near = sorted(((i, j) for i in range(-NEAR, NEAR + 1) for j in range(-NEAR, NEAR + 1)), key=_size)
    for i, j in near:
        first, second = guess[0] + i, guess[1] + j
        whole = first > 0 and second * p.b_scale > 0
        constant = _constant(values.astype(np.int64), wanted, first, second) if whole else None
        if constant is not None:
            return -first, second, constant
    return a, b if factors is None or p.b_scale > 0 else -b, y


def add_shifts(p: Add) -> int:
    """The shifts of a, b and y behind the words, a byte each; 0: words of integers, or of scales."""
    factors = tflite.sum_factors(p.a_scale, p.b_scale, p.y_scale) if p.as_tflite else None
    if factors is None or add_words(p)[0] < 0:
        return 0
    return sum(shift << 8 * place for place, (_, shift) in enumerate(factors))


def _size(offsets: tuple[int, int]) -> tuple[int, tuple[int, int]]:
    return abs(offsets[0]) + abs(offsets[1]), offsets


def _constant(values: Array, wanted: Array, a: int, b: int) -> int | None:
    """C with (a * va + b * vb + C) >> ADD_FRACTION as wanted [va][vb] for all pairs, if all fits int32."""
    products = a * values[:, None] + b * values
    low = np.where(wanted < -128, -(2**40), np.minimum(wanted, 128) << ADD_FRACTION)
    high = np.where(wanted > 127, 2**40, (np.maximum(wanted, -129) + 1 << ADD_FRACTION) - 1)
    least, most = int((low - products).max()), int((high - products).min())
    constant = (least + most) >> 1
    reach = [sums for end in (int(products.min()), int(products.max())) for sums in (end, end + constant)]
    fits = all(-(2**31) <= sums < 2**31 for sums in (*reach, constant))
    return constant if least <= most and fits else None
