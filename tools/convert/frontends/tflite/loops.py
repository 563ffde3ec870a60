"""Loops over time in TFLite files: how Keras 3 writes its recurrent layers, and any Keras its GRU.

What a loop's body computes is looked at, not how it is written. Its weights are those that it multiplies a
step of the input and the state with; the cell with such weights is the loop's if it makes the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Act, Call
from microtrain.convert.ops.aten.recurrent import Cell, layers, without_gates
from microtrain.convert.ops.recurrent_cell import GRU, LSTM, real_logistic, real_tangent
from microtrain.convert.ops.tokens import places, view_of, whole

from ..aten.rules import lower
from .file import LOOPS, Flatbuffer, Operator
from .sizes import OF_SIZES
from .tokens import seen
from .values import Walker, held

Arrays = Sequence[np.ndarray]
DENSE, STEP = "FULLY_CONNECTED", "GATHER"
NEAREST = "Keras' LSTM, GRU (reset_after=True) and SimpleRNN, with their own activations and from zeros"
ORDER = {1: (0,), 3: (1, 0, 2), 4: (0, 1, 2, 3)}  # PyTorch's order of gates in Keras': of a GRU r, z, n
CLOSE = 1e-4
MOST = 1 << 22  # numbers that a loop carries, or that one of its operators makes


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
    call = Call(LSTM if gates == 4 else GRU, f"{LSTM if gates == 4 else GRU}{walk.place}", True, {})
    _check_read(walk, op, name, found)
    x = _first_row_first(walk, call, seen(walk, op, name, found.rows))
    made, last = layers(walk.low, call, x, [[cell]], False)
    rows, ends = places(walk.low, made), places(walk.low, last)
    results: list[Act | None] = [None] * len(op.outputs)
    for place in (*found.kept, found.states[0]):
        shape = walk.file.tensors[op.outputs[place]].shape
        order = rows if place in found.kept and shape[0] == len(rows) > 1 else ends
        results[place] = held(walk.low, made.tensor, order.reshape(shape))
    return results


def _first_row_first(walk: Walker, call: Call, x: Act) -> Act:
    """A view [time, 1, features] of a map's rows from the last one on, as one of the map turned round."""
    at = places(walk.low, x)
    if len(at) < 2 or at[0].flat[0] < at[-1].flat[0]:
        return x
    around = Call("flip", f"{call.module}.flip", False, {"self": whole(walk.low, x), "dims": [2]})
    return view_of(walk.low, lower(walk.low, around).tensor, at[::-1])


def _refused(name: str, why: str) -> ConvertError:
    return ConvertError(f"layer {name}: a loop {why} is not supported; the nearest that is: {NEAREST}")


def _check_read(walk: Walker, op: Operator, name: str, found: Loop) -> None:
    """ConvertError where something else of a loop is read."""
    given = {*found.kept, found.states[0]}
    read = {t for step in walk.file.operators for t in step.inputs} | set(walk.file.outputs)
    if any(t in read for place, t in enumerate(op.outputs) if place not in given):
        raise _refused(name, "whose cell or whose number of moments is read")


def _loop(walk: Walker, op: Operator, name: str) -> Loop:
    """What an operator carries. ConvertError where it is no loop over one input's moments, from zeros."""
    graphs = [op.options[part] - 1 for part in LOOPS]
    if not all(0 <= number < len(walk.file.graphs) for number in graphs):
        raise _refused(name, "whose graph is not in the file")
    condition, body = (walk.file.graphs[number] for number in graphs)
    given = [walk.file.tensors[t] for t in op.inputs]
    moving = [place for place, tensor in enumerate(given) if tensor.data is None]
    if len(body.inputs) != len(given) or len(body.outputs) != len(given) or len(moving) != 1:
        raise _refused(name, f"over {len(moving)} inputs")
    if sum(math.prod(tensor.shape) for tensor in given) > MOST:
        raise _refused(name, f"that carries more than {MOST:,} numbers")
    if any(tensor.data is not None and tensor.data.any() for tensor in given):
        raise _refused(name, "that does not begin with zeros")
    (rows,) = moving
    ranks = {
        rank: tuple(i for i, t in enumerate(given) if i != rows and len(t.shape) == rank)
        for rank in (0, 2, 3)
    }
    read = {t for step in body.operators if step.kind == DENSE for t in step.inputs[:1]}
    first = [place for place in ranks[2] if body.inputs[place] in read]
    if body.inputs[rows] != body.outputs[rows] or len(first) != 1 or len(given[rows].shape) != 3:
        raise _refused(name, "of another cell")
    states = (*first, *(place for place in ranks[2] if place not in first))
    return Loop(condition, body, rows, ranks[0], ranks[3], states)


def _cell(walk: Walker, op: Operator, name: str, found: Loop) -> tuple[int, Cell]:
    """Gates and weights of a loop's cell."""
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
        raise _refused(name, "of another cell")
    (x,), (h,) = weights
    assert x is not None and h is not None
    units, gates = h.shape[1], h.shape[0] // max(h.shape[1], 1)
    if not _ends_with_the_rows(walk, op, found):
        raise _refused(name, "of another cell")
    if gates not in ORDER or h.shape[0] != gates * units or len(x) != len(h):
        raise _refused(name, "of another cell")
    numbers = [
        t.data for t in body.tensors if t.data is not None and t.shape == (len(h),) and t.dtype == "<f4"
    ]
    for biases in permutations([*numbers, np.zeros(len(h)), np.zeros(len(h))], 2):
        bias_x, bias_h = (_in_order(bias, ORDER[gates]) for bias in biases)
        cell = Cell(_in_order(x, ORDER[gates]), _in_order(h, ORDER[gates]), bias_x, bias_h)
        if _is_of(walk, op, found, gates, cell):
            return gates, without_gates(cell) if gates == 1 else cell
    raise _refused(name, "of another cell")


def _in_order(values: np.ndarray, order: Sequence[int]) -> np.ndarray:
    parts = np.split(values, len(order))
    return np.concatenate([parts[place] for place in order]).astype(np.float32)


def _is_of(walk: Walker, op: Operator, found: Loop, gates: int, cell: Cell) -> bool:
    """Whether a cell goes through the moments as a loop does, by random numbers at the first and the last."""
    time = walk.file.tensors[op.inputs[found.rows]].shape[0]
    try:
        return all(_is_alike(walk, op, found, moment, gates, cell) for moment in (0, time - 1))
    except (ValueError, IndexError, TypeError, KeyError):
        return False


def _is_alike(walk: Walker, op: Operator, found: Loop, moment: int, gates: int, cell: Cell) -> bool:
    """The same at one moment."""
    given = list(_drawn(walk, op, moment))
    wanted = _step(gates, cell, given[found.rows][moment], *(given[place] for place in found.states))
    leaves = [np.array(moment + 1)] * len(found.counts) + list(wanted)
    leaves += [_kept(given[place], moment, wanted[0]) for place in found.kept]
    made = evaluated(found.body, given)
    places = (*found.counts, *found.states, *found.kept)
    return len(found.states) == len(wanted) and all(
        np.shape(made[place]) == np.shape(want) and np.allclose(made[place], want, CLOSE, CLOSE)
        for place, want in zip(places, leaves, strict=True)
    )


def _goes_on(walk: Walker, op: Operator, found: Loop, moment: int) -> bool:
    return bool(evaluated(found.condition, list(_drawn(walk, op, moment)))[0])


def _ends_with_the_rows(walk: Walker, op: Operator, found: Loop) -> bool:
    """Whether the last moment is one of the loop's, and the one behind it is none."""
    time = walk.file.tensors[op.inputs[found.rows]].shape[0]
    try:
        return _goes_on(walk, op, found, time - 1) and not _goes_on(walk, op, found, time)
    except (ValueError, IndexError, TypeError, KeyError):
        return False


def _drawn(walk: Walker, op: Operator, moment: int) -> Iterator[np.ndarray]:
    """Random numbers for what a loop carries at a moment."""
    rng = np.random.default_rng(0)
    for tensor in op.inputs:
        shape = walk.file.tensors[tensor].shape
        yield rng.normal(0, 0.5, shape) if shape else np.array(moment)


def _kept(before: np.ndarray, moment: int, made: np.ndarray) -> np.ndarray:
    """What the rows have left behind a moment."""
    after = before.copy()
    after[moment if len(before) > 1 else 0] = made
    return after


def _step(gates: int, cell: Cell, x: np.ndarray, h: np.ndarray, *c: np.ndarray) -> tuple[np.ndarray, ...]:
    """What a row leaves: h, and of an LSTM the cell."""
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
