"""The cell of a loop over time, known by what the loop computes and not by how it is written.

A front end finds what a body multiplies a moment and the state with, and runs it on numbers that are drawn.
The cell with such weights is the loop's if it makes the same numbers of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from microtrain.convert.aten_call import Act, Call, LayerError
from microtrain.convert.lowering import Lowering
from microtrain.convert.ops.aten.recurrent import Cell, layers, without_gates
from microtrain.convert.ops.recurrent_cell import GRU, LSTM, real_logistic, real_tangent

NEAREST = "Keras' LSTM, GRU (reset_after=True) and SimpleRNN, with their own activations and from zeros"
ORDER = {1: (0,), 3: (1, 0, 2), 4: (0, 1, 2, 3)}  # PyTorch's order of gates in Keras': of a GRU r, z, n
CLOSE = 1e-4
MOST = 1 << 22  # numbers that a loop carries, or that one of its operators makes
MOST_BIASES = 8  # different constants of a body that may be one
SMALL, LARGE = 0.5, 4.0  # deviations of drawn numbers: of gates in between, and of those that are shut
WIDE = 32.0  # at least, of an LSTM's cell: it adds up to 1 a moment


@dataclass(frozen=True)
class Spread:
    """Deviations of drawn numbers: of moments and the state, and of an LSTM's cell."""

    state: float
    cell: float


@dataclass(frozen=True, eq=False)
class Moment:
    """What a body makes of one moment x [1, features]. before, after: states [1, units], h and an LSTM's c"""

    x: np.ndarray
    before: tuple[np.ndarray, ...]
    after: tuple[np.ndarray, ...]


def spreads(time: int) -> tuple[Spread, ...]:
    """What to draw with, of so many moments."""
    return Spread(SMALL, SMALL), Spread(LARGE, LARGE), Spread(SMALL, max(WIDE, time))


def refused(name: str, why: str) -> LayerError:
    return LayerError(f"layer {name}", f"a loop {why} is not supported; the nearest that is: {NEAREST}")


def cell_of(
    x: np.ndarray, h: np.ndarray, biases: Sequence[np.ndarray], moments: Sequence[Moment]
) -> tuple[int, Cell] | None:
    """How many gates, and the cell that makes what moments say; None where it is none that is known.

    x, h    weights in Keras' order of gates, [gates * units, features] and [gates * units, units]
    biases  constants that may be one, [gates * units]
    """
    if not moments or (x.ndim, h.ndim) != (2, 2) or x.shape[1] != moments[0].x.shape[-1]:
        return None
    units, gates = h.shape[1], len(h) // max(h.shape[1], 1)
    if gates not in ORDER or len(h) != gates * units or len(x) != len(h):
        return None
    x, h, *biases = (_in_order(values, ORDER[gates]) for values in (x, h, *_different(biases)))
    none = np.zeros(len(h), np.float32)
    for pair in permutations([*biases, none, none], 2):
        cell = Cell(x, h, *pair)
        if all(_is_of(gates, cell, moment) for moment in moments):
            return gates, without_gates(cell) if gates == 1 else cell
    return None


def _different(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Each once, and not too many."""
    found: list[np.ndarray] = []
    for value in values:
        if len(found) < MOST_BIASES and not any(np.array_equal(value, other) for other in found):
            found.append(value)
    return found


def _in_order(values: np.ndarray, order: Sequence[int]) -> np.ndarray:
    parts = np.split(values, len(order))
    return np.concatenate([parts[place] for place in order]).astype(np.float32)


def _is_of(gates: int, cell: Cell, moment: Moment) -> bool:
    """Whether a cell makes what a body made of one moment."""
    wanted = _step(gates, cell, moment.x, *moment.before)
    return len(wanted) == len(moment.after) and all(map(alike, moment.after, wanted))


def alike(made: np.ndarray, wanted: np.ndarray) -> bool:
    return np.shape(made) == np.shape(wanted) and np.allclose(made, wanted, CLOSE, CLOSE)


def _step(gates: int, cell: Cell, x: np.ndarray, h: np.ndarray, *c: np.ndarray) -> tuple[np.ndarray, ...]:
    """What a moment leaves: h, and of an LSTM the cell."""
    sx, sh = (
        np.split(v @ w.T + b, gates, 1) for v, w, b in ((x, cell.x, cell.bias_x), (h, cell.h, cell.bias_h))
    )
    if gates == 1:
        return (real_tangent(sx[0] + sh[0]),)
    if gates == 3:
        r, z = (real_logistic(sx[g] + sh[g]) for g in (0, 1))
        new = real_tangent(sx[2] + r * sh[2])
        return (new + z * (h - new),)
    i, f, g, o = (a + b for a, b in zip(sx, sh, strict=True))
    after = real_logistic(f) * (c[0] if c else 0.0) + real_logistic(i) * real_tangent(g)
    return real_logistic(o) * real_tangent(after), after


def states(rng: np.random.Generator, count: int, units: int, spread: Spread) -> Iterator[np.ndarray]:
    """Drawn numbers of the state, and of an LSTM's cell."""
    for place in range(count):
        yield rng.normal(0, spread.cell if place else spread.state, (1, units))


def called(name: str, gates: int) -> Call:
    """The call that a loop with so many gates is."""
    op = LSTM if gates == 4 else GRU
    return Call(op, name, True, {})


def made(low: Lowering, call: Call, x: Act, cell: Cell) -> tuple[Act, Act]:
    """What all moments of x [time, 1, features] leave, [time, 1, units], and the last one, [1, 1, units]."""
    return layers(low, call, x, [[cell]], False)
