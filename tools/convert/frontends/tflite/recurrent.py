"""UNIDIRECTIONAL_SEQUENCE_LSTM: Keras' LSTM in files of TensorFlow up to 2.15, and of tf_keras."""

from __future__ import annotations

import math
import warnings

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ops.aten.recurrent import Cell, layers
from microtrain.convert.ops.integer_cell import BITS_MOST, Coded
from microtrain.convert.ops.recurrent_cell import INTEGER_LSTM
from microtrain.convert.ops.tokens import places

from .file import Operator, Stored
from .tokens import seen
from .values import Walker, held, real, side_of

# Places of inputs (tensorflow/lite/kernels/lstm_shared.h); gates in the order input, forget, cell, output.
X, WEIGHTS, RECURRENT, PEEPHOLES, BIASES = 0, range(1, 5), range(5, 9), range(9, 12), range(12, 16)
PROJECTION, STATE, CELL, NORMS = range(16, 18), 18, 19, range(20, 24)
LEFT = 4  # place among intermediates of what a row leaves
TANH = 4
MOST16 = 2**15 - 1


def lstm(walk: Walker, op: Operator, name: str) -> list[Act]:
    """What each row leaves, [n, time, units]. The activation that the operator names is inside it."""
    call = Call("lstm", name, True, {})
    _check(op, call)
    constants = [
        [_constant(walk, op, call, place) for place in part] for part in (WEIGHTS, RECURRENT, BIASES)
    ]
    values = [[real(c) for c in part] for part in constants]
    x, h, b = (np.concatenate(part) for part in values)
    units = len(values[2][0])
    if any(w.shape[:1] != (units,) for part in values for w in part) or h.shape != (4 * units, units):
        raise call.error(f"weights of shapes {list(x.shape)}, {list(h.shape)} do not make an LSTM")
    whole = _coded(walk, op, name, constants)
    rows = walk.file.tensors[op.inputs[X]].shape[0 if op.options["TimeMajor"] else 1]
    if whole is None and 0 < op.options["CellClip"] < rows:  # one that adds at most 1 a step
        warnings.warn(
            f"{name} cuts its cell off at {op.options['CellClip']:g} in the file and not here: where it "
            f"grows larger, in {rows} steps, the answer is a little different",
            stacklevel=2,
        )
    cells = [Cell(x, h, b, np.zeros_like(b), coded=whole)]
    made, _ = layers(walk.low, call, seen(walk, op, name), [cells], not op.options["TimeMajor"])
    value = held(walk.low, made.tensor, places(walk.low, made))
    walk.give(value, walk.file.tensors[op.outputs[0]])
    return [value]


def renamed(walk: Walker, op: Operator) -> None:
    """Give what an LSTM makes the scale under which an operator that turns it round passes it on.

    The integers are the same: TensorFlow's converter gives a concatenation's parts one scale by names alone.
    """
    x = walk.env.get(op.inputs[0])
    given, made = (walk.file.tensors[t] for t in (op.inputs[0], op.outputs[0]))
    maker = walk.low.maker(x.tensor) if isinstance(x, Act) else None
    if maker is None or maker.op != INTEGER_LSTM or side_of(given) == side_of(made):
        return
    if walk.file.readers()[op.inputs[0]] == [walk.place]:
        walk.give(x, made)


def _check(op: Operator, call: Call) -> None:
    """ConvertError for what a cell here has not."""
    given = {place for place, tensor in enumerate(op.inputs) if tensor >= 0}
    odd = {
        "peepholes": given & {*PEEPHOLES},
        "a projection": given & {*PROJECTION},
        "layer norms": given & {*NORMS},
        "coupled gates": not given >= {*WEIGHTS, *RECURRENT},
        "an activation of its own": op.options["FusedActivationFunction"] != TANH,
        "no biases": not given >= {*BIASES},
    }
    for what in (what for what, is_so in odd.items() if is_so):
        raise call.error(
            f"an LSTM with {what} is not supported; the nearest that is: keras.layers.LSTM as it is"
        )


def _constant(walk: Walker, op: Operator, call: Call, place: int) -> Stored:
    stored = walk.file.tensors[op.inputs[place]]
    if stored.data is None:
        raise call.error(f"an LSTM whose {stored.name} is computed is not supported; make it a constant")
    return stored


def _coded(walk: Walker, op: Operator, name: str, constants: list[list[Stored]]) -> Coded | None:
    """The integers of an int8 file; None where it holds floats, or activations of 16 bits."""
    weights, entry = constants[0] + constants[1], walk.file.tensors[op.inputs[X]]
    by = [_scale(stored) for stored in weights]
    x, cell = _scale(entry), _scale(walk.file.tensors[op.inputs[CELL]])
    read = side_of(walk.file.tensors[op.inputs[STATE]])
    left = side_of(walk.file.tensors[op.intermediates[LEFT]]) if len(op.intermediates) > LEFT else None
    if x is None or cell is None or None in by or any(stored.dtype != "i1" for stored in (entry, *weights)):
        return None
    if read is None or left is None:
        return None
    bits = 15 + round(math.log2(cell))
    if 2.0 ** (bits - 15) != cell or not 0 <= bits <= BITS_MOST:
        warnings.warn(
            f"{name} keeps its cell in units of {cell:g}, for which TFLite has no kernel: it is computed "
            "with more bits here, and answers as the model that was quantized",
            stacklevel=3,
        )
        return None
    w, r, b = (np.stack([np.asarray(stored.data) for stored in part], axis=1) for part in constants)
    x_scale, h_scale = np.array(by, np.float64).reshape(2, -1)
    most = int(min(op.options["CellClip"] / cell, MOST16))  # cut off, as a cast does
    return Coded(w, r, x_scale, h_scale, b * (x_scale * x), bits, most, left, read)


def _scale(stored: Stored) -> float | None:
    """Of a tensor that has one; None for floats. A constant's zero point is 0."""
    found = stored.quantized
    if found is None or len(found.scale) != 1 or (stored.data is not None and found.zero.any()):
        return None
    return float(found.scale[0])
