"""The NumPy twin of trained biases, struct trained_bias of kernels/conv2d.h."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .numeric import Array, Error, Sgd, f32, random16, random_key, round_step


@dataclass(frozen=True, eq=False)
class Bias:
    """Trained biases, [c]: base int32, delta int16 in units of 2^shift; struct trained_bias of conv2d.h."""

    base: Array
    delta: Array
    m: Array
    qas: Array
    limit: int
    tensor_id: int

    @property
    def expanded(self) -> Array:
        """The biases, int32 [c]."""
        result: Array = (self.base + (self.delta.astype(np.int64) << bias_shift(self.m))).astype(np.int32)
        return result


LEAN_SHIFT = 2  # see struct trained_bias
DEAD_MULTIPLIER = 2.0**-10  # output units per bias unit of a dead channel


def bias_shift(m: Array) -> Array:
    """Log2 of the unit in which a bias is trained: 15 bits of it are at least 64 units of the output."""
    exponent = m.astype(f32).view(np.uint32) >> 23
    return np.clip(118 - exponent.astype(np.int64), 0, 15)


def lean_of(base: Array, m: Array) -> Array:
    """Start values of biases in 16 bits of 2^(shift + 2) each, the nearest there are: int16 [c]."""
    steps = np.rint(base / 2.0 ** (bias_shift(m) + LEAN_SHIFT))
    found: Array = np.clip(steps, -32767, 32767).astype(np.int16)
    return found


def lean_bias(base: Array, m: Array) -> Array:
    """What those stand for, int32 [c]."""
    found: Array = (lean_of(base, m).astype(np.int64) << (bias_shift(m) + LEAN_SHIFT)).astype(np.int32)
    return found


def qas_of(unit: np.float32, m: Array) -> Array:
    """The scaling of biases that lean start values come with, float32 [c]; 0 of dead channels."""
    found: Array = unit / (m * m) * f32(2.0) ** -bias_shift(m).astype(f32)
    return np.where(m == f32(DEAD_MULTIPLIER), f32(0), found)


def bias_update(ey: Error, b: Bias, sgd: Sgd) -> Array:
    """What training has added after one step, int16 [c]."""
    sums = ey.q.astype(np.int64).sum(axis=(0, 1))
    q = round_step(f32(sgd.lr_bias) * ey.scale * b.qas.astype(f32) * sums.astype(f32))
    noise = random16(random_key(sgd.seed, sgd.step, b.tensor_id), b.base.size) & 0xFF
    base, shift = b.base.astype(np.int64), bias_shift(b.m)
    most, least = (np.minimum((b.limit + side * base) >> shift, 32767) for side in (-1, 1))
    result: Array = np.clip(b.delta.astype(np.int64) - ((q + noise) >> 8), -least, most).astype(np.int16)
    return result
