"""Loops over time in ONNX files: how tf2onnx, and so Keras 3, writes GRU and SimpleRNN.

What a loop's body computes is looked at, not how it is written (frontends/cells.py): it is run on drawn
numbers, moment by moment, with the counters that it has. Its weights are what it multiplies a moment and the
state with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microtrain.base.errors import short
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.aten import recurrent
from microtrain.convert.ops.aten.recurrent import Cell
from microtrain.convert.ops.tokens import numbers, viewed

from ..cells import MOST, Moment, Spread, alike, called, cell_of, made, refused, spreads, states
from .bodies import Run, is_plain, touched, unchanged, without_idle
from .file import BODY, LOOP, OnnxGraph, Step
from .tokens import seen
from .values import Turned, Value, Walker

OTHER = "of another cell"
OF_NO_CELL = (ConvertError, *(ValueError, IndexError, TypeError, KeyError, OverflowError, AssertionError))
CARRIED = 2  # place of what a loop carries, behind the number of moments and whether there is a first one
MOST_MOMENTS = 2048
SOME = 16  # moments that are run with large numbers too


@dataclass(frozen=True, eq=False)
class Loop:
    """A loop over the rows of one activation. Names are those of its body.

    rows    what has the activation x, [time, 1, features]
    known   constants
    counts  whole numbers that are carried, and what they begin with
    states  what is carried and begins with zeros, [1, units]
    after   what is carried and changes -> what it becomes
    most    how many moments there may be
    """

    name: str
    body: OnnxGraph
    x: Act
    rows: tuple[str, ...]
    known: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray]
    states: Mapping[str, np.ndarray]
    after: Mapping[str, str]
    most: int

    @property
    def time(self) -> int:
        return self.x.dims[0]


@dataclass(frozen=True, eq=False)
class Found:
    """What a loop was found to be.

    h       the state that each moment leaves
    scans   results of the body that are what each moment leaves
    counts  whole numbers behind the last moment
    """

    gates: int
    cell: Cell
    h: str
    scans: frozenset[str]
    counts: Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Trace:
    """What moments of drawn numbers made. made: all of the last one; others as Found has them"""

    moments: list[Moment]
    scans: frozenset[str]
    counts: Mapping[str, np.ndarray]
    made: Mapping[str, np.ndarray]


def loop(walk: Walker, step: Step) -> list[Value]:
    """What is read of what a loop leaves: its state, counters and constants, and what all rows leave."""
    given = _loop(walk, step)
    found = _found(given)
    carried = given.body.inputs[CARRIED:]
    scanned = given.body.outputs[1 + len(carried) :]
    read = {i for later in walk.file.steps for i in later.inputs} | set(walk.file.outputs)
    lacking = [n in given.states and n != found.h for n in carried] + [n not in found.scans for n in scanned]
    if any(none and name in read for none, name in zip(lacking, step.outputs, strict=False)):
        raise refused(step.name, "of which more is read than its state, as of an LSTM's cell,")
    rows, last = made(walk.low, called(step.name, found.gates), given.x, found.cell)
    ends = viewed(walk.low, last, numbers(walk.low, last).reshape(1, -1))
    outer = dict(zip(carried, step.inputs[CARRIED:], strict=False))
    values: dict[str, Value] = {n: walk.value(outer[n]) for n in carried if n not in given.after}
    values |= {name: Param(name, value) for name, value in found.counts.items()} | {found.h: ends}
    return [*(values.get(n) for n in carried), *(rows if n in found.scans else None for n in scanned)]


def _loop(walk: Walker, step: Step) -> Loop:
    """What a loop reads and carries. ConvertError where it is none over one input's moments, from zeros."""
    body, own = step.attributes.get(BODY), step.inputs[: len(step.inputs) - len(step.around)]
    if not isinstance(body, OnnxGraph) or not _fits(body, own, step.outputs):
        raise refused(step.name, "whose body does not fit what it is given")
    most = _moments_at_most(walk, step, own)
    outer = {**dict(zip(body.inputs[CARRIED:], own[CARRIED:], strict=True)), **{n: n for n in step.around}}
    values = {name: walk.value(given) for name, given in outer.items()}
    after = dict(zip(body.inputs[CARRIED:], body.outputs[1:], strict=False))
    after = {name: made for name, made in after.items() if unchanged(body, made) != name}
    fixed = {n: v.value for n, v in values.items() if isinstance(v, Param) and n not in after}
    moved = {n: _begin(step, values[n]) for n in after}
    rows = tuple(n for n in values if n not in (*fixed, *after))
    return Loop(
        step.name, without_idle(body), _rows(walk, step, [values[n] for n in rows]), rows, fixed,
        {n: v for n, v in moved.items() if v.dtype.kind in "iub"},
        {n: v for n, v in moved.items() if v.dtype.kind not in "iub"}, after, most,
    )  # fmt: skip


def _fits(body: OnnxGraph, own: Sequence[str], outputs: Sequence[str]) -> bool:
    carried = len(own) - CARRIED
    return 0 <= carried < len(body.outputs) > len(outputs) and len(own) == len(body.inputs) and is_plain(body)


def _moments_at_most(walk: Walker, step: Step, own: Sequence[str]) -> int:
    """How many moments a loop may have; there is a first one."""
    most, begins = (walk.value(name) for name in own[:CARRIED])
    if not isinstance(most, Param | None) or not isinstance(begins, Param | None):
        raise refused(step.name, "whose number of moments is computed")
    if any(v is not None and v.value.size != 1 for v in (most, begins)):
        raise refused(step.name, "whose number of moments is computed")
    if most is None and begins is None:
        raise refused(step.name, "without an end")
    count = MOST_MOMENTS + 1 if most is None else int(most.value.ravel()[0])
    if count < 1 or (begins is not None and not begins.value.any()):
        raise refused(step.name, "of no moments")
    return count


def _begin(step: Step, value: Value) -> np.ndarray:
    """What something carried begins with: whole numbers, or zeros."""
    if not isinstance(value, Param) or value.value.dtype.kind not in "fiub":
        raise refused(step.name, "that does not begin with zeros")
    if value.value.dtype.kind == "f" and value.value.any():
        raise refused(step.name, "that does not begin with zeros")
    if value.value.dtype.kind == "f" and (value.value.ndim != 2 or len(value.value) != 1):
        raise refused(step.name, OTHER)
    return value.value


def _rows(walk: Walker, step: Step, values: Sequence[Value]) -> Act:
    """The one activation that a loop reads, moment by moment."""
    different = list({id(value): value for value in values}.values())
    if len(different) != 1 or not isinstance(different[0], Act | Turned):
        mask = ", as with a mask," if len(different) > 1 else ""
        raise refused(step.name, f"over {len(different)} inputs{mask}")
    x = seen(walk, step, different[0])
    if len(x.dims) != 3 or x.dims[1] != 1 or not 0 < x.dims[0] <= MOST_MOMENTS or math.prod(x.dims) > MOST:
        raise refused(
            step.name,
            f"over {list(x.dims)}, which is not [time, 1, features] of up to {MOST_MOMENTS:,} moments,",
        )
    act: Act = x
    return act


def _found(given: Loop) -> Found:
    """The cell of a loop, and what of its results is the state."""
    data, op = touched(given.body, {*given.rows, *given.states})
    if data & {given.body.outputs[0], *(given.after[name] for name in given.counts)}:
        raise refused(given.name, "that goes on as long as its data say")
    if op:
        raise refused(given.name, f"with {short(op)[1:-1]} in its cell")
    try:
        found = _traced(given, data)
    except OF_NO_CELL as error:
        raise refused(given.name, OTHER) from error
    if isinstance(found, str):
        raise refused(given.name, found)
    return found


def _traced(given: Loop, data: set[str]) -> Found | str:
    """The cell, or what the loop is otherwise. Any exception: another cell"""
    run = Run(given.body, given.known, {*given.body.inputs[:CARRIED], *given.counts, *data})
    weights = _weights(given, run, data)
    if isinstance(weights, str):
        return weights
    h, of_row, of_state = weights
    names = (h, *(name for name in given.states if name != h))
    traces = [_trace(given, run, names, spread) for spread in spreads(given.time)]
    whole = traces[0]
    if len(whole.moments) != given.time:
        return f"over {len(whole.moments):,} of {given.time:,} moments"
    biases = [v for v in run.known.values() if v.size == len(of_state) and v.dtype.kind == "f"]
    moments = [moment for trace in traces for moment in trace.moments]
    cell = cell_of(of_row, of_state, [np.ravel(v) for v in biases], moments)
    scans = frozenset.intersection(*(trace.scans for trace in traces))
    return OTHER if cell is None else Found(*cell, h, scans, whole.counts)


def _weights(given: Loop, run: Run, data: set[str]) -> tuple[str, np.ndarray, np.ndarray] | str:
    """The state that is multiplied with weights, those of a moment and those of the state; or what the loop
    is otherwise."""
    one = _trace(given, run, tuple(given.states), spreads(1)[0], 1)
    before = dict(zip(given.states, one.moments[0].before, strict=True))
    read = {**before, "": one.moments[0].x}  # by the state, or "" of the moment
    found: dict[str, list[np.ndarray]] = {name: [] for name in read}
    for product in run.products(data):
        for name, values in read.items():
            if np.array_equal(np.ravel(one.made[product.of]), np.ravel(values)):
                found[name].append(product.weights)
    states_read = [name for name in given.states if found[name]]
    if len(states_read) != 1 or len(found[""]) != 1 or len(found[states_read[0]]) != 1:
        return OTHER
    (of_row,), (of_state,) = found[""], found[states_read[0]]
    if len(of_state) == 2 * of_state.shape[1] and len(of_row) == 3 * of_state.shape[1]:
        return "of a GRU with reset_after=False"
    return states_read[0], of_row, of_state


def _trace(given: Loop, run: Run, names: Sequence[str], spread: Spread, most: int = 0) -> Trace:
    """A loop's moments from the first one on. names: of the states. most: how many; 0: all, or SOME of large
    numbers"""
    rng, body, counts = np.random.default_rng(len(names)), given.body, dict(given.counts)
    most = most or (given.most if spread == spreads(given.time)[0] else min(given.time, SOME))
    rows = rng.normal(0, spread.state, given.x.dims)
    (units,) = {given.states[name].shape[1] for name in names}
    scans = set(body.outputs[1 + len(body.inputs) - CARRIED :])
    moments: list[Moment] = []
    for moment in range(most):
        before = dict(zip(names, states(rng, len(names), units, spread), strict=True))
        clock = dict(zip(body.inputs, (np.array(moment), np.array(True)), strict=False))
        made_of = run.of({**clock, **dict.fromkeys(given.rows, rows), **counts, **before})
        after = tuple(made_of[given.after[name]] for name in names)
        scans = {name for name in scans if alike(made_of[name], after[0])}
        counts = {name: made_of[given.after[name]] for name in counts}
        moments.append(Moment(rows[moment], tuple(before.values()), after))
        if not made_of[body.outputs[0]].reshape(()):
            break
    return Trace(moments, frozenset(scans), counts, made_of)


def turned_round(walk: Walker, step: Step) -> Value:
    """ReverseSequence of all of an axis, as tf2onnx writes what reads time from its end."""
    x, lengths = seen(walk, step, walk.value(step.inputs[0])), walk.optional(step, 1)
    batch, time = walk.at(step, "batch_axis", 1), walk.at(step, "time_axis", 0)
    if not isinstance(x, Act) or not isinstance(lengths, Param) or {batch, time} != {0, 1}:
        raise unsupported(Call("reversesequence", step.name, True, {}))
    if lengths.value.shape != (x.dims[batch],) or (lengths.value != x.dims[time]).any():
        raise ConvertError(
            f"layer {step.name}: {step.op} of lengths {lengths.value.ravel()[:8].tolist()} of {x.dims[time]} "
            "is not supported; the nearest that is: of the whole axis"
        )
    return recurrent.turned_round(walk.low, Call("flip", step.name, False, {"self": x}), x, time)


RULES: dict[str, Callable[[Walker, Step], Any]] = {LOOP: loop, "ReverseSequence": turned_round}
