"""The LSTM of int8 TensorFlow Lite files: its state is an int8, its cell an int16 (kernels/recurrent.h).

A node's factors are its units, the cell's bits in front of the point and where it is cut off, scales and zero
points of what a row leaves and of what the next one reads (0: those of the output), the scales of the weights
of x and of the state, the weights [units, 4, inputs] and [units, 4, units], and real biases [units, 4].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.ir import Tensor
from microtrain.convert.reference import tflite
from microtrain.convert.reference.fixed_point import divide_away, logistic16, saturate16, tangent16
from microtrain.convert.reference.numeric import Array, f32, sat8

from .bounds import INT32_MAX, SMALLER, Accumulator, reach
from .recurrent_cell import Real, Recurrent, Stored

GATES = 4  # i, f, g, o
UNIT = 2.0**-12  # of a gate
BITS_MOST = 6  # of a cell in front of its point
OUTPUT = 2 * GATES  # place among the multipliers
HEAD = 7  # numbers of a node before its scales
SHIFT_MOST = 31
WIDE = 1 << 30  # a sum, shifted to the left, is twice in 32 bits


@dataclass(frozen=True, eq=False)
class Coded:
    """Weights as a file has them.

    x, h              int8 [units, 4, inputs], int8 [units, 4, units]; gates i, f, g, o
    x_scale, h_scale  of each gate
    b                 real numbers [units, 4]
    bits              of the cell in front of its point
    most              the cell is held between this and its negative; 0: where it saturates
    left, read        scale and zero point of what a row leaves, and of the state as the next one reads it:
                      the same integers, which TensorFlow's converter may take differently (a scale of 0:
                      those of the output)
    """

    x: np.ndarray
    h: np.ndarray
    x_scale: np.ndarray
    h_scale: np.ndarray
    b: np.ndarray
    bits: int = 3
    most: int = 0
    left: tflite.Side = (0.0, 0)
    read: tflite.Side = (0.0, 0)

    @property
    def factors(self) -> tuple[float, ...]:
        """As a node has them."""
        parts = (self.x_scale, self.h_scale, self.x, self.h, self.b)
        said = len(self.b), self.bits, self.most, *self.left, *self.read
        return tuple(map(float, [*said, *(v for part in parts for v in part.ravel())]))

    @property
    def real(self) -> Real:
        x, h = self.x * self.x_scale[:, None], self.h * self.h_scale[:, None]
        return Real(x.astype(np.float32), h.astype(np.float32), self.b.astype(np.float32))

    def reading(self, columns: np.ndarray) -> Coded:
        """The same, of features in another order. columns: which feature stands at each place of a row"""
        return replace(self, x=self.x[..., columns])


def coded(factors: tuple[float, ...]) -> Coded:
    """Those of a node."""
    units, bits, most, left_zero, read_zero = (int(factors[place]) for place in (0, 1, 2, 4, 6))
    values = np.array(factors[HEAD:])
    ends = np.array([GATES, 2 * GATES, len(values) - GATES * units * (units + 1)])
    x_scale, h_scale, x, rest = np.split(values, ends)
    h, b = np.split(rest, [GATES * units * units])
    return Coded(
        x.reshape(units, GATES, -1).astype(np.int8),
        h.reshape(units, GATES, units).astype(np.int8),
        x_scale,
        h_scale,
        b.reshape(units, GATES),
        bits,
        most,
        (factors[3], left_zero),
        (factors[5], read_zero),
    )


def rounded(real: Real) -> Coded:
    """Real weights, one scale for each gate; the cell goes up to 8."""
    scales = [np.abs(w).max(axis=(0, 2)) / 127 for w in (real.x, real.h)]
    x, h = (np.rint(w / s[:, None]).astype(np.int8) for w, s in zip((real.x, real.h), scales, strict=True))
    return Coded(x, h, scales[0], scales[1], real.b)


def state_of(own: Coded, y: Tensor) -> tflite.Side:
    """Scale and zero point of the state that a row reads. y: what the layer makes"""
    return own.read if own.read[0] else (y.scale, y.zero)


def stored(own: Coded, x: Tensor, y: Tensor) -> Stored:
    """The kernels' integers, by scales in float32 as Prepare() of the operator has them."""
    left, read = own.left if own.left[0] else (y.scale, y.zero), state_of(own, y)
    sums = [_shifted(f32(s) * f32(x.scale) / f32(UNIT)) for s in own.x_scale]
    states = [_shifted(f32(s) * f32(read[0]) / f32(UNIT)) for s in own.h_scale]
    shifted = [*sums, *states, _shifted(f32(2.0**-30) / f32(left[0]))]
    m = [*(v for pair in shifted for v in pair), own.bits, own.most, left[1]]
    b = np.clip(np.rint(own.b / (own.x_scale * x.scale)), -INT32_MAX, INT32_MAX)
    return Stored(own.x, own.h, b.astype(np.int32), np.array(m, np.int32))


def _shifted(m: np.floating) -> tuple[int, int]:
    """A multiplier as 31 bits and a shift to the left, or a negative one."""
    fine, left, right = tflite.rescale(m)
    return (0, 0) if right > SHIFT_MOST else (fine, left - right)


def fwd(p: Recurrent, w: Stored, x: np.ndarray) -> np.ndarray:
    """The twin of integer_lstm_fwd_s8. x int8 [..., rows, inputs]; y [..., rows or 1, units]"""
    shifted = w.m[: 2 * OUTPUT + 2].reshape(-1, 2)
    bits, most, zero = (int(v) for v in w.m[2 * OUTPUT + 2 :])
    b, own, state = w.b.astype(np.int64), shifted[:GATES], shifted[GATES:OUTPUT]
    sums = np.einsum("...rk,ugk->...rug", x.astype(np.int64) - p.x_zero, w.x.astype(np.int64))
    h = cell = np.zeros((*x.shape[:-2], p.units), np.int64)
    made = []
    for row in range(p.rows):
        by_state = np.einsum("...k,ugk->...ug", h, w.h.astype(np.int64))
        a = saturate16(_rescaled(b + sums[..., row, :, :], own))
        i, f, g, o = np.moveaxis(saturate16(a + _rescaled(by_state, state)), -1, 0)
        kept = divide_away(logistic16(f) * cell, 15)
        cell = saturate16(kept + divide_away(logistic16(i) * tangent16(g, 3), 15 + bits))
        cell = np.clip(cell, -most, most) if most else cell
        out = _rescaled((logistic16(o) * tangent16(cell, bits))[..., None], shifted[OUTPUT:])[..., 0]
        h = sat8(out + zero).astype(np.int64) - p.y_zero
        made.append(h)
    return sat8(np.stack(made[-1:] if p.last else made, axis=-2) + p.y_zero)


def _rescaled(sums: Array, m: np.ndarray) -> Array:
    """MultiplyByQuantizedMultiplier() of sums [..., n] by multipliers and shifts [n, 2]."""
    fine, shift = m[:, 0].astype(np.int64), m[:, 1]
    high = ((sums << np.maximum(shift, 0)) * fine + 2**30) >> 31
    return np.stack([divide_away(high[..., n], max(-int(by), 0)) for n, by in enumerate(shift)], axis=-1)


def bounds(own: Coded, x: Tensor, y: Tensor) -> Iterator[Accumulator]:
    w, read = stored(own, x, y), state_of(own, y)[1]
    shifts = np.maximum(w.m[1 : 2 * OUTPUT + 2 : 2], 0)
    sums, states = (np.abs(v.astype(np.int64)).sum(axis=-1) for v in (w.x, w.h))
    of_x = (sums * reach(x) + np.abs(w.b.astype(np.int64))) << shifts[:GATES]
    of_state = (states * max(127 - read, 128 + read)) << shifts[GATES:OUTPUT]
    yield Accumulator("a sum of inputs of a gate", int(of_x.max()), WIDE, SMALLER)
    yield Accumulator("a sum of the state of a gate", int(of_state.max()), WIDE, SMALLER)
    yield Accumulator("the shift of an output", int(shifts[OUTPUT]), 0, SMALLER)
