"""Functions of int16 numbers with a fixed point: the twin of kernels/fixed_point.h.

As TensorFlow Lite's integer kernels have them from gemmlowp (fixedpoint/fixedpoint.h). A number with `bits`
bits in front of its point is in units of 2^(bits - 15).
"""

from __future__ import annotations

import numpy as np

from .numeric import Array

MOST16 = 2**15 - 1
POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # 2^31 e^-(2^i), i from -2
AT_EIGHTH, THIRD = 1895147668, 715827883  # e^(-1/8) and 1/3, of 2^31
RATIO, SLOPE = 1515870810, -1010580540  # 48/17 and -32/17, of 2^29


def saturate16(values: Array) -> Array:
    return np.asarray(np.clip(values, -MOST16 - 1, MOST16))


def product16(a: Array, b: Array | int) -> Array:
    """a * b / 2^15, half up."""
    products: Array = a * b + 2**14
    return products >> 15


def divide_away(values: Array, shift: int) -> Array:
    """values / 2^shift, half away from zero."""
    return np.asarray((values - (values < 0) + (1 << shift >> 1)) >> shift) if shift else values


def exponential16(a: Array, bits: int) -> Array:
    """e^a of a <= 0, in units of 2^-15. bits: 0 to 7"""
    quarter = 1 << (13 - bits)
    part = (a & (quarter - 1)) - quarter
    x = (part << bits) + 2**12
    x2 = product16(x, x)
    cubes = divide_away(product16(x2, x2), 2) + product16(x2, x)
    series = x + divide_away(product16(cubes, _of16(THIRD)) + x2, 1)
    made = saturate16(_of16(AT_EIGHTH) + product16(series, _of16(AT_EIGHTH)))
    for i, power in enumerate(POWERS[: bits + 2]):
        made = np.where((part - a) & (quarter << i), product16(made, _of16(power)), made)
    if bits > 5:
        made = np.where(a < -(1 << (20 - bits)), 0, made)
    return np.where(a == 0, MOST16, made)


def logistic16(a: Array) -> Array:
    """1 / (1 + e^-a) of a with three bits in front of its point, in units of 2^-15."""
    size = saturate16(2 * _reciprocal16(exponential16(-np.abs(a), 3)))
    return np.where(a == 0, 2**14, np.where(a > 0, size, MOST16 - size))


def tangent16(a: Array, bits: int) -> Array:
    """The hyperbolic tangent, in units of 2^-15. bits: 0 to 6"""
    size = saturate16(4 * (_reciprocal16(exponential16(-np.abs(a), bits + 1)) - 2**13))
    return np.where(a > 0, size, np.where(a < 0, -size, 0))


def _of16(constant: int) -> int:
    """A constant of 32 bits as one of 16."""
    return (constant + 2**15) >> 16


def _reciprocal16(a: Array) -> Array:
    """2 / (1 + a) of a from 0 to 1, in units of 2^-13."""
    half = (a + 2**15) >> 1
    x = _of16(RATIO) + product16(half, _of16(SLOPE))
    for _ in range(3):
        x = x + 4 * product16(x, 2**13 - product16(half, x))
    return x
