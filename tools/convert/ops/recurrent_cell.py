"""Recurrent cells in NumPy: the twin of kernels/recurrent.h, and the same in real numbers."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from microtrain.convert.reference.hostlib import S8, S32, Record
from microtrain.convert.reference.numeric import f32, rint_s32, sat8

from .tokens import LAST

GRU, LSTM, INTEGER_LSTM = LAST
GATES = {GRU: 3, LSTM: 4, INTEGER_LSTM: 4}
SUM_BITS, ONE_BITS, GATE_BITS, CELL_BITS = 26, 15, 12, 3
ONE = 1 << ONE_BITS
SIGMOID = np.rint(ONE / (1.0 + np.exp(-np.arange(257) / 16))).astype(np.int64)


class Recurrent(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("rows", "inputs", "units")),
        *((n, ctypes.c_int16) for n in ("x_zero", "y_zero")),
        ("last", ctypes.c_uint16),
        *((n, ctypes.c_void_p) for n in ("w_x", "w_h", "b", "m")),
        ("y_unit", ctypes.c_float),
    )
    _arrays_: ClassVar = {"w_x": S8, "w_h": S8, "b": S32, "m": S32}


@dataclass(frozen=True, eq=False)
class Real:
    """Real numbers of a cell: x [units, gates, inputs], h [units, gates, units], b [units, 4]."""

    x: np.ndarray
    h: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, eq=False)
class Stored:
    """The same as they lie in flash: int8, int8, int32, and the multipliers m int32 (kernels/recurrent.h)."""

    x: np.ndarray
    h: np.ndarray
    b: np.ndarray
    m: np.ndarray


def logistic(a: np.ndarray) -> np.ndarray:
    at = np.minimum(np.abs(a), 65535)
    left, right = SIGMOID[at >> 8], SIGMOID[(at >> 8) + 1]
    s = left + (((right - left) * (at & 255) + 128) >> 8)
    found: np.ndarray = np.where(a < 0, ONE - s, s)
    return found


def tangent(a: np.ndarray) -> np.ndarray:
    t = np.minimum(2 * logistic(2 * np.abs(a)) - ONE, ONE - 1)
    found: np.ndarray = np.where(a < 0, -t, t)
    return found


def share(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    found: np.ndarray = (v * w + ONE // 2) >> ONE_BITS
    return found


def _gates(w: Stored, sx: np.ndarray, sh: np.ndarray) -> np.ndarray:
    """a [..., units, gates]"""
    sums = sx * w.m[:, 0] + sh * w.m[:, 1]
    found: np.ndarray = w.b[:, : w.m.shape[-1]] + ((sums + (1 << SUM_BITS >> 1)) >> SUM_BITS)
    return found


def _gru(w: Stored, sx: np.ndarray, sh: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    (h,) = state
    r, z, _ = np.moveaxis(_gates(w, sx, sh), -1, 0)
    half = 1 << SUM_BITS >> 1
    nx, nh = (
        bias + ((sums[..., 2] * m + half) >> SUM_BITS)
        for bias, sums, m in ((w.b[:, 2], sx, w.m[:, 0, 2]), (w.b[:, 3], sh, w.m[:, 1, 2]))
    )
    n = tangent(nx + share(logistic(r), nh))
    return (n + share(logistic(z), h - n),)


def _lstm(w: Stored, sx: np.ndarray, sh: np.ndarray, state: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    _, cell = state
    i, f, g, o = np.moveaxis(_gates(w, sx, sh), -1, 0)
    cell = (logistic(f) * cell + logistic(i) * tangent(g) + ONE // 2) >> ONE_BITS
    return share(logistic(o), tangent((cell + (1 << CELL_BITS >> 1)) >> CELL_BITS)), cell


def wide_fwd(p: Recurrent, cell: str, w: Stored, x: np.ndarray) -> np.ndarray:
    """The twin of gru_fwd_s8 and lstm_fwd_s8, whose states are int16.

    x int8 [..., rows, inputs]; y [..., rows or 1, units]
    """
    w = Stored(*(v.astype(np.int64) for v in (w.x, w.h, w.b, w.m)))
    zeros = np.zeros((*x.shape[:-2], p.units), np.int64)
    state: tuple[np.ndarray, ...] = (zeros,) if cell == GRU else (zeros, zeros)
    sums = np.einsum("...rk,ugk->...rug", x.astype(np.int64) - p.x_zero, w.x)
    made = []
    for row in range(p.rows):
        sh = np.einsum("...k,ugk->...ug", state[0], w.h)
        state = (_gru if cell == GRU else _lstm)(w, sums[..., row, :, :], sh, state)
        made.append(state[0])
    h = np.stack(made[-1:] if p.last else made, axis=-2)
    return sat8(rint_s32(h.astype(f32) * f32(p.y_unit), 1024.0) + p.y_zero)


def real_fwd(cell: str, real: Real, x: np.ndarray) -> np.ndarray:
    """What each row leaves, [n, rows, units] of x's type. x [n, rows, inputs]"""
    h = c = np.zeros((len(x), len(real.b)), np.float32)
    sums, made = np.einsum("nrk,ugk->nrug", x, real.x), []
    for row in range(x.shape[1]):
        sx, sh = sums[:, row], np.einsum("nk,ugk->nug", h, real.h)
        if cell == GRU:
            r, z = (real_logistic(sx[..., g] + sh[..., g] + real.b[:, g]) for g in range(2))
            n = real_tangent(sx[..., 2] + real.b[:, 2] + r * (sh[..., 2] + real.b[:, 3]))
            h = n + z * (h - n)
        else:
            i, f, g, o = np.moveaxis(sx + sh + real.b, -1, 0)
            c = real_logistic(f) * c + real_logistic(i) * real_tangent(g)
            h = real_logistic(o) * real_tangent(c)
        made.append(h)
    return np.stack(made, axis=1)


def real_logistic(a: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1.0 / (1.0 + np.exp(-np.clip(a, -80.0, 80.0)))
    return found


def real_tangent(a: np.ndarray) -> np.ndarray:
    """The hyperbolic one."""
    found: np.ndarray = 2.0 * real_logistic(2.0 * a) - 1.0
    return found
