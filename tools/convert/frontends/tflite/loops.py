"""Loops over time in TFLite files: how Keras 3 writes its recurrent layers, and any Keras its GRU.

What a loop's body computes is looked at, not how it is written (frontends/cells.py). Its weights are those
that it multiplies a step of the input and the state with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from microtrain.convert.aten_call import Act
from microtrain.convert.ops.aten.recurrent import Cell
from microtrain.convert.ops.recurrent_cell import GRU, LSTM, real_logistic, real_tangent
from microtrain.convert.ops.tokens import places

from ..cells import MOST, Moment, Spread, alike, called, cell_of, made, refused, spreads
from .file import LOOPS, Flatbuffer, Operator
from .sizes import OF_SIZES
from .tokens import seen
from .values import Walker, held

Arrays = Sequence[np.ndarray]
DENSE, STEP = "FULLY_CONNECTED", "GATHER"


def _dense(op: Operator, v: Arrays) -> np.ndarray:
    return v[0] @ v[1].T + (v[2] if len(v) > 2 else 0.0)


def _split(op: Operator, v: Arrays) -> list[np.ndarray]:
    return np.split(v[1], len(op.outputs), int(v[0].ravel()[0]))


RULES: Mapping[str, Callable[[Operator, Arrays], np.ndarray | list[np.ndarray]]] = {
    **OF_SIZES,
    DENSE: _dense,
    "SPLIT": _split,
    "LOGISTIC": lambda op, v: real_logistic(v[0]),
    "TANH": lambda op, v: real_tangent(v[0]),
    "LESS": lambda op, v: v[0] < v[1],
    "LOGICAL_AND": lambda op, v: v[0] & v[1],
}
OF_COUNTS = ("LESS", "LOGICAL_AND", "FLOOR_DIV", "CAST")  # which may wait for numbers that are not drawn
GROWS = ("ADD", "SUB", "MUL", "LESS", "LOGICAL_AND", DENSE)  # which make more numbers than they read


@dataclass(frozen=True, eq=False)
class Loop:
    """A WHILE: places among what it carries from one moment to the next.

    rows    the input [time, 1, features], which does not change
    counts  numbers that begin with 0
    kept    what the rows leave, [time, 1, units], or what the last one leaves, [1, 1, units]
    states  [1, units]; the first is what a row leaves
    """

    condition: Flatbuffer
    body: Flatbuffer
    rows: int
    counts: tuple[int, ...]
    kept: tuple[int, ...]
    states: tuple[int, ...]


def loop(walk: Walker, op: Operator, name: str) -> list[Act | None]:
    """What is read of what a loop leaves: its results, those of all rows or of the last one."""
    found = _loop(walk, op, name)
    gates, cell = _cell(walk, op, name, found)
    call = called(f"{LSTM if gates == 4 else GRU}{walk.place}", gates)
    _check_read(walk, op, name, found)
    all_of_them, last = made(walk.low, call, seen(walk, op, name, found.rows), cell)
    rows, ends = places(walk.low, all_of_them), places(walk.low, last)
    results: list[Act | None] = [None] * len(op.outputs)
    for place in (*found.kept, found.states[0]):
        shape = walk.file.tensors[op.outputs[place]].shape
        order = rows if place in found.kept and shape[0] == len(rows) > 1 else ends
        results[place] = held(walk.low, all_of_them.tensor, order.reshape(shape))
    return results


def _check_read(walk: Walker, op: Operator, name: str, found: Loop) -> None:
    """ConvertError where something else of a loop is read."""
    given = {*found.kept, found.states[0]}
    read = {t for step in walk.file.operators for t in step.inputs} | set(walk.file.outputs)
    if any(t in read for place, t in enumerate(op.outputs) if place not in given):
        raise refused(name, "whose cell or whose number of moments is read")


def _loop(walk: Walker, op: Operator, name: str) -> Loop:
    """What an operator carries. ConvertError where it is no loop over one input's moments, from zeros."""
    graphs = [op.options[part] - 1 for part in LOOPS]
    if not all(0 <= number < len(walk.file.graphs) for number in graphs):
        raise refused(name, "whose graph is not in the file")
    condition, body = (walk.file.graphs[number] for number in graphs)
    given = [walk.file.tensors[t] for t in op.inputs]
    moving = [place for place, tensor in enumerate(given) if tensor.data is None]
    sizes = {len(given), len(body.inputs), len(body.outputs), len(condition.inputs)}
    if len(sizes) > 1 or len(moving) != 1:
        raise refused(name, f"over {len(moving)} inputs")
    if sum(math.prod(tensor.shape) for tensor in given) > MOST:
        raise refused(name, f"that carries more than {MOST:,} numbers")
    if any(tensor.data is not None and tensor.data.any() for tensor in given):
        raise refused(name, "that does not begin with zeros")
    (rows,) = moving
    ranks = {
        rank: tuple(i for i, t in enumerate(given) if i != rows and len(t.shape) == rank)
        for rank in (0, 2, 3)
    }
    read = {t for step in body.operators if step.kind == DENSE for t in step.inputs[:1]}
    first = [place for place in ranks[2] if body.inputs[place] in read]
    if body.inputs[rows] != body.outputs[rows] or len(first) != 1 or len(given[rows].shape) != 3:
        raise refused(name, "of another cell")
    states = (*first, *(place for place in ranks[2] if place not in first))
    return Loop(condition, body, rows, ranks[0], ranks[3], states)


def _check_data(name: str, found: Loop) -> None:
    """ConvertError where data decide something, beside what is computed of them."""
    body, places = found.body, (found.rows, *found.kept, *found.states)
    data = _touched(body, [body.inputs[place] for place in places])
    deciding = next((s.kind for s in body.operators if s.kind in OF_COUNTS and data & set(s.inputs)), None)
    if deciding is not None:
        raise refused(name, f"with {deciding} in its cell")
    ends = _touched(found.condition, [found.condition.inputs[place] for place in places])
    if data & {body.outputs[place] for place in found.counts} or ends & set(found.condition.outputs):
        raise refused(name, "that goes on as long as its data say")


def _touched(graph: Flatbuffer, data: Sequence[int]) -> set[int]:
    """What of a graph depends on some tensors."""
    found = set(data)
    for step in graph.operators:
        if found & set(step.inputs):
            found.update(step.outputs)
    return found


def _cell(walk: Walker, op: Operator, name: str, found: Loop) -> tuple[int, Cell]:
    """Gates and weights of a loop's cell."""
    _check_data(name, found)
    body, state = found.body, found.body.inputs[found.states[0]]
    moments = {
        s.outputs[0] for s in body.operators if s.kind == STEP and s.inputs[0] == body.inputs[found.rows]
    }
    dense = [s for s in body.operators if s.kind == DENSE]
    weights = [
        [body.tensors[s.inputs[1]].data for s in dense if s.inputs[0] in given]
        for given in (moments, {state})
    ]
    if any(len(each) != 1 or each[0] is None or each[0].ndim != 2 for each in weights):
        raise refused(name, "of another cell")
    (x,), (h,) = weights
    assert x is not None and h is not None
    biases = [
        t.data for t in body.tensors if t.data is not None and t.shape == (len(h),) and t.dtype == "<f4"
    ]
    try:
        made_of = list(_moments(walk, op, found)) if _ends_with_the_rows(walk, op, found) else []
        of = cell_of(x, h, biases, made_of)
    except (ValueError, IndexError, TypeError, KeyError):
        of = None
    if of is None:
        raise refused(name, "of another cell")
    return of


def _moments(walk: Walker, op: Operator, found: Loop) -> Iterator[Moment]:
    """What a body makes of drawn numbers at the first moment and at the last.

    ValueError: it goes on otherwise than from one moment to the next
    """
    rng, time = np.random.default_rng(0), walk.file.tensors[op.inputs[found.rows]].shape[0]
    for spread, moment in product(spreads(time), (0, time - 1)):
        given = list(_drawn(walk, op, found, moment, spread, rng))
        left = evaluated(found.body, given)
        before, after = (tuple(v[place] for place in found.states) for v in (given, left))
        kept = all(alike(left[p], _kept(given[p], moment, after[0])) for p in found.kept)
        if not kept or not all(alike(left[place], np.array(moment + 1)) for place in found.counts):
            raise ValueError(f"moment {moment}")
        yield Moment(given[found.rows][moment], before, after)


def _goes_on(walk: Walker, op: Operator, found: Loop, moment: int) -> bool:
    drawn = _drawn(walk, op, found, moment, spreads(1)[0], np.random.default_rng(0))
    return bool(evaluated(found.condition, list(drawn))[0])


def _ends_with_the_rows(walk: Walker, op: Operator, found: Loop) -> bool:
    """Whether the last moment is one of the loop's, and the one behind it is none."""
    time = walk.file.tensors[op.inputs[found.rows]].shape[0]
    return _goes_on(walk, op, found, time - 1) and not _goes_on(walk, op, found, time)


def _drawn(
    walk: Walker, op: Operator, found: Loop, moment: int, spread: Spread, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Random numbers for what a loop carries at a moment."""
    for place, tensor in enumerate(op.inputs):
        shape = walk.file.tensors[tensor].shape
        size = spread.cell if place in found.states[1:] else spread.state
        yield rng.normal(0, size, shape) if shape else np.array(moment)


def _kept(before: np.ndarray, moment: int, left: np.ndarray) -> np.ndarray:
    """What the rows have left behind a moment."""
    after = before.copy()
    after[moment if len(before) > 1 else 0] = left
    return after


def evaluated(graph: Flatbuffer, given: Arrays) -> list[np.ndarray]:
    """What a graph makes of arrays, in real numbers. KeyError: an operator or its size is that of no cell"""
    known = {i: t.data for i, t in enumerate(graph.tensors) if t.data is not None}
    known |= dict(zip(graph.inputs, given, strict=True))
    for op in graph.operators:
        if op.options.get("FusedActivationFunction"):
            raise KeyError(op.kind)
        values = [known[t] for t in op.inputs if t >= 0]
        if op.kind in GROWS and _numbers(op, values) > MOST:
            raise KeyError(op.kind)
        made = RULES[op.kind](op, values)
        known.update(zip(op.outputs, made if isinstance(made, list) else [made], strict=True))
    return [np.asarray(known[t]) for t in graph.outputs]


def _numbers(op: Operator, values: Arrays) -> int:
    """How many numbers an operator makes of some."""
    if op.kind == DENSE:
        return int(values[0].size // max(values[1].shape[-1], 1) * len(values[1]))
    return math.prod(np.broadcast_shapes(*(v.shape for v in values)))
