"""GRU, LSTM and RNN in ONNX: other orders of gates than PyTorch's, directions in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ops.aten.recurrent import Cell, check_start, layers, without_gates
from microtrain.convert.ops.tokens import numbers, viewed

from .file import Step
from .tokens import seen
from .values import Value, Walker

# Places in PyTorch's order (GRU: r, z, n; LSTM: i, f, g, o) of gates in that of ONNX (z, r, h; i, o, f, c).
ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1), "RNN": (0,)}
ACTIVATIONS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
BACKWARD = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}  # each direction
LENGTHS, START, CELL_START, PEEPHOLES = 4, 5, 6, 7  # places of optional inputs


def recurrent(walk: Walker, step: Step) -> list[Value]:
    """Y [time, directions, batch, units], or with layout 1 [batch, time, directions, units], and Y_h."""
    call = Call(step.op.lower(), step.name, True, {})
    _check(walk, step, call)
    weights = [_constant(walk, step, call, place) for place in (1, 2)]
    backward = BACKWARD[walk.at(step, "direction", "forward")]
    rows, gates, ways = weights[1].shape[1], len(ORDER[step.op]), len(backward)
    units = weights[1].shape[2]
    none = np.zeros((ways, 2 * rows), np.float32)
    bias = _constant(walk, step, call, 3) if _given(walk, step, 3) else none
    if weights[0].shape[:2] != (ways, rows) or rows != gates * units or bias.shape != none.shape:
        shapes = ", ".join(str(list(v.shape)) for v in (*weights, bias))
        raise call.error(f"weights of shapes {shapes} do not make a {step.op} of {ways} directions")
    parts = [
        [_in_order(v, ORDER[step.op]) for v in each] for each in (*weights, bias[:, :rows], bias[:, rows:])
    ]
    cells = [Cell(*each) for each in zip(*parts, backward, strict=True)]
    cells = [without_gates(cell) for cell in cells] if step.op == "RNN" else cells
    first = bool(walk.at(step, "layout", 0))
    x = seen(walk, step, walk.value(step.inputs[0]))
    made, last = layers(walk.low, call, x, [cells], first)
    at = numbers(walk.low, made)
    apart = at.reshape(1, -1, ways, units) if first else at.reshape(-1, 1, ways, units).swapaxes(1, 2)
    ends = numbers(walk.low, last)
    return [viewed(walk.low, made, apart), viewed(walk.low, last, ends.swapaxes(0, 1) if first else ends)]


def _check(walk: Walker, step: Step, call: Call) -> None:
    """ConvertError for what a cell here has not."""
    way = walk.at(step, "direction", "forward")
    if way not in BACKWARD:
        raise call.error(f"{step.op} with the direction {way} is not supported; the nearest that is: forward")
    if step.op == "GRU" and not walk.at(step, "linear_before_reset", 0):
        raise call.error(
            "GRU with linear_before_reset 0 is not supported; the nearest that is: 1, as PyTorch and Keras's "
            "reset_after=True have it"
        )
    names = [str(name).capitalize() for name in walk.at(step, "activations", [])]
    odd = (
        names not in ([], ACTIVATIONS[step.op], 2 * ACTIVATIONS[step.op])
        or walk.at(step, "clip", 0)
        or walk.at(step, "input_forget", 0)
    )
    if odd or _given(walk, step, PEEPHOLES):
        raise call.error(
            f"{step.op} with activations, clipping, peepholes or coupled gates of its own is not supported; "
            "the nearest that is: one without"
        )
    if not isinstance(walk.value(step.inputs[0]), Act) and not hasattr(walk.value(step.inputs[0]), "act"):
        raise call.error(f"{step.op} works on a constant; only ops on activations are supported")
    lengths, time = walk.optional(step, LENGTHS), 1 if walk.at(step, "layout", 0) else 0
    if lengths is not None and not isinstance(lengths, Param):
        raise call.error(
            f"{step.op} of sequences whose lengths are computed is not supported; leave them out"
        )
    moments = seen(walk, step, walk.value(step.inputs[0])).dims[time] if lengths is not None else 0
    if lengths is not None and (lengths.value < moments).any():
        raise call.error(
            f"{step.op} of sequences shorter than the {moments} moments of its input is not supported; the "
            "nearest that is: a Slice of these moments before it"
        )
    check_start(call, [walk.optional(step, place) for place in (START, CELL_START)])


def _given(walk: Walker, step: Step, place: int) -> bool:
    return walk.optional(step, place) is not None


def _constant(walk: Walker, step: Step, call: Call, place: int) -> np.ndarray:
    value = walk.low.constant(call, walk.optional(step, place), "weight").value
    if value.ndim != (2 if place == 3 else 3):
        raise call.error(f"input {place} of {step.op} has the shape {list(value.shape)}")
    return np.asarray(value, np.float32)


def _in_order(values: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Gates one behind the other, in another order."""
    parts = values.reshape(len(order), -1, *values.shape[1:])
    return parts[list(order)].reshape(values.shape)


RULES: dict[str, Callable[[Walker, Step], Any]] = dict.fromkeys(ORDER, recurrent)
