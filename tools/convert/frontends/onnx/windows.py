"""Averages of windows of different sizes, and windows side by side (`F.unfold`), as PyTorch's exporter writes
them since 2.9: by lists of places along rows and columns.

Which sums make an average does not matter: their numbers are compared with those of the pooling.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from microtrain.convert.ir import ConvertError

from ..aten.constants import MOST, MOST_IN_ALL
from .constants import folded
from .file import OnnxGraph, Step
from .parts import Pieces

TO_FRONT = [2, 3, 0, 1]  # rows and columns before the others
SIDE_BY_SIDE = [0, 1, 2, 4, 3, 5]  # [n, c, kernel, windows, kernel, windows], kernels before windows
OF_PLACES = ("Transpose", "GatherND", "Where", "Gather", "Add", "Div", "ReduceMean")
ENDS = ("Div", "ReduceMean")
MOST_STEPS = 256  # of one pooling
CLOSE = 1e-5
Found = dict[str, tuple[Step, frozenset[str]]]


def windows(file: OnnxGraph) -> Found:
    """Each as one step, by the name of its result; and what is inside it."""
    pieces, found, made = Pieces(file), Found(), 0
    for step in file.steps:
        each = None
        if step.op == "GatherND" and made < MOST_IN_ALL:
            pooling = _Pooling(pieces)
            each, made = pooling.of(step), made + pooling.made
        elif step.op == "Gather" and step.attributes.get("axis") == 2:
            each = _unfolded(pieces, step)
        if each is not None:
            found[each[0].outputs[0]] = each
    return found


class _Pooling:
    """What a list of places is the beginning of, tried with numbers.

    made  how many of them there were
    """

    def __init__(self, pieces: Pieces) -> None:
        self.pieces, self.made = pieces, 0

    def of(self, step: Step) -> tuple[Step, frozenset[str]] | None:
        front, places = self.pieces.made(step.inputs[0], "Transpose"), self.pieces.held(step.inputs[1])
        perm = list(front.attributes.get("perm") or []) if front else []
        if front is None or sorted(perm) != [0, 1, 2, 3] or perm[2] != 0 or places is None:
            return None
        given = self.pieces.file.sizes.get(front.inputs[0], ())
        if len(given) != 4 or None in given[1:] or places.size * math.prod(d or 1 for d in given[1:]) > MOST:
            return None
        order = [perm[TO_FRONT.index(axis)] for axis in range(4)]  # the exporter joins transpositions
        x = np.random.default_rng(0).normal(0, 1, [1, *(given[axis] or 1 for axis in order[1:])])
        values, steps = {front.outputs[0]: x.transpose(TO_FRONT)}, [front]
        pending = list(self.pieces.readers.get(front.outputs[0], ()))
        while pending and len(steps) < MOST_STEPS:
            later = pending.pop(0)
            made = None if later in steps else self.value(later, values)
            if made is None:
                continue
            steps.append(later)
            if later.op in ENDS and _is_pooled(x, made):
                inside = frozenset(values)
                about = {"output_size": list(made.shape[2:]), "perm": order}
                whole = replace(later, op="Averages", inputs=front.inputs[:1], attributes=about)
                return (whole, inside) if self.pieces.alone(inside, steps) else None
            values[later.outputs[0]] = made
            pending += self.pieces.readers.get(later.outputs[0], ())
        return None

    def value(self, step: Step, values: dict[str, np.ndarray]) -> np.ndarray | None:
        """What a step makes of numbers; None where it reads others, or is of another kind."""
        if step.op not in OF_PLACES:
            return None
        given = [values[name] if name in values else self.pieces.held(name) for name in step.inputs]
        if any(array is None for array in given):
            return None
        try:
            made = folded(step, given)
        except (ConvertError, ValueError, IndexError, TypeError):
            return None
        self.made += made.size
        return made


def _is_pooled(x: np.ndarray, made: np.ndarray) -> bool:
    """Whether these are averages over windows, as PyTorch's adaptive pooling cuts them."""
    if made.ndim != 4 or made.shape[:2] != x.shape[:2] or not made.size:
        return False
    rows, columns = (_shares(n, m) for n, m in zip(x.shape[2:], made.shape[2:], strict=True))
    return bool(np.abs(rows @ x @ columns.T - made).max() < CLOSE)


def _shares(n: int, m: int) -> np.ndarray:
    """Of n numbers, in which shares each of m averages has them [m, n]."""
    first, behind = np.arange(m) * n // m, -(-(np.arange(m) + 1) * n // m)
    at = np.arange(n)
    within = (at >= first[:, None]) & (at < behind[:, None])
    return np.asarray(within / within.sum(1, keepdims=True))


def _unfolded(pieces: Pieces, rows: Step) -> tuple[Step, frozenset[str]] | None:
    """What begins with places of rows, then of columns, and lays windows side by side."""
    steps = [rows]
    for op in ("Gather", "Transpose", "Reshape"):
        readers = pieces.readers.get(steps[-1].outputs[0], [])
        if len(readers) != 1 or readers[0].op != op or readers[0].inputs[0] != steps[-1].outputs[0]:
            return None
        steps.append(readers[0])
    columns, turn, last = steps[1:]
    size, made = (pieces.file.sizes.get(name, ()) for name in (rows.inputs[0], last.outputs[0]))
    fits = columns.attributes.get("axis") == 4 and turn.attributes.get("perm") == SIDE_BY_SIDE
    if not fits or len(size) != 4 or len(made) != 3 or None in size[1:] or None in made[1:]:
        return None
    sides = [_steps(pieces.held(s.inputs[1]), n) for s, n in ((rows, size[2]), (columns, size[3]))]
    if sides[0] is None or sides[1] is None:
        return None
    kernel, stride, dilation, count = (list(each) for each in zip(*sides, strict=True))
    inside = frozenset(s.outputs[0] for s in steps[:-1])
    whole = (math.prod(kernel) * (size[1] or 0), math.prod(count)) == tuple(made[1:])
    if not whole or not pieces.alone(inside, steps):
        return None
    about = {"kernel_size": kernel, "stride": stride, "dilation": dilation}
    return replace(last, op="Windows", inputs=rows.inputs[:1], attributes=about), inside


def _steps(places: np.ndarray | None, size: int | None) -> tuple[int, int, int, int] | None:
    """Kernel, stride, dilation and number of windows along a side, of where each begins [kernel, windows]."""
    if places is None or places.ndim != 2 or not places.size or places[0, 0] or size is None:
        return None
    kernel, count = places.shape
    stride, dilation = (int(places[0, 1]) if count > 1 else size), (int(places[1, 0]) if kernel > 1 else 1)
    at = np.arange(kernel)[:, None] * dilation + np.arange(count) * stride
    if min(stride, dilation) < 1 or not np.array_equal(places, at):
        return None
    whole = (size - dilation * (kernel - 1) - 1) // stride + 1 == count
    return (kernel, stride, dilation, count) if whole else None
