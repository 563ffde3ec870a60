"""Sizes that a TFLite file leaves open, where its batch is: here the batch is one, and all sizes are known.

What computes sizes (SHAPE and what reads it) becomes constants. Tensors get the shapes that follow from them;
the file has a 1 for each size that it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from microtrain.convert.ir import ConvertError

from .cuts import spans
from .file import OF_ONE, Flatbuffer, Operator, Stored
from .names import UNARY
from .values import real
from .windows import SAME

Values = Sequence[np.ndarray]
Shape = tuple[int, ...]
MOST = 64  # numbers of a size


def _cut(op: Operator, values: Values) -> np.ndarray:
    whole, *numbers = values
    for span in spans(op, op.kind, whole.shape, [n.ravel().tolist() for n in numbers]):
        before = (slice(None),) * span.axis
        whole = whole[(*before, span.taken.start if span.alone else span.taken)]
    return np.asarray(whole)


def _axis(op: Operator) -> int:
    return int(op.options.get("Axis", 0))


OF_SIZES: Mapping[str, Callable[[Operator, Values], np.ndarray]] = {
    "GATHER": lambda op, v: v[0].take(v[1].astype(int), _axis(op)),
    "REDUCE_PROD": lambda op, v: v[0].prod(axis=tuple(int(a) for a in v[1].ravel())),
    "CONCATENATION": lambda op, v: np.concatenate(list(v), _axis(op)),
    "PACK": lambda op, v: np.stack(list(v), _axis(op)),
    "RESHAPE": lambda op, v: v[0].reshape(v[1].ravel().tolist()),
    "MUL": lambda op, v: v[0] * v[1],
    "ADD": lambda op, v: v[0] + v[1],
    "SUB": lambda op, v: v[0] - v[1],
    "FLOOR_DIV": lambda op, v: v[0] // v[1],
    "CAST": lambda op, v: v[0],
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), _cut),
}
SHAPED, UNPACKS = "RESHAPE", "DEQUANTIZE"
WINDOWS = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
REDUCES = ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
ALIKE = (  # each number is made of those at its place
    *UNARY,
    *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW", "SQUARED_DIFFERENCE", "PRELU", "LEAKY_RELU"),
    *("GELU", "SOFTMAX", "QUANTIZE", UNPACKS, "SELECT_V2", "GREATER", "LESS", "CAST", "L2_NORMALIZATION"),
)


def sized(file: Flatbuffer) -> Flatbuffer:
    """The file with all its sizes for a batch of one. ConvertError where one does not follow from others."""
    tensors, operators = list(file.tensors), []
    for number in file.inputs:
        _check(file, tensors[number])
    for op in file.operators:
        operators.append(op)
        made = _value(op, tensors)
        if made is not None:
            out = tensors[op.outputs[0]]
            tensors[op.outputs[0]] = replace(out, shape=made.shape, data=made, dtype="<i4")
            continue
        for number in op.outputs:
            out = tensors[number]
            found = _shape(op, out, tensors)
            if out.open and found is None:
                _check(file, out)
            tensors[number] = out if found is None else replace(out, shape=found, open=False)
    return replace(file, tensors=tuple(tensors))


def _check(file: Flatbuffer, stored: Stored) -> None:
    if stored.open:
        raise ConvertError(
            f"{file.name}.tflite: {stored.name} has a size that may vary; convert the model for a fixed one: "
            f"{OF_ONE}"
        )


def unpacked(file: Flatbuffer) -> Flatbuffer:
    """The file with constants for what a DEQUANTIZE makes of constants, as of float16 weights."""
    tensors = list(file.tensors)
    for op in file.operators:
        given = tensors[op.inputs[0]] if op.kind == UNPACKS and op.inputs else None
        if given is not None and given.data is not None:
            made = tensors[op.outputs[0]]
            tensors[op.outputs[0]] = replace(made, data=real(given), dtype=given.dtype)
    return replace(file, tensors=tuple(tensors))


def _value(op: Operator, tensors: Sequence[Stored]) -> np.ndarray | None:
    """What an operator makes of sizes alone; None where it reads something else, or all is in the file."""
    if op.kind == "SHAPE":
        return np.array(tensors[op.inputs[0]].shape, np.int32)
    given = [tensors[t] for t in op.inputs if t >= 0]
    whole = ("<i4", "<i8")
    values = [each.data.astype(np.int64) for each in given if each.data is not None and each.dtype in whole]
    if op.kind not in OF_SIZES or len(values) < len(given) or not given or tensors[op.outputs[0]].quantized:
        return None
    if sum(v.size for v in values) > MOST:
        return None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(OF_SIZES[op.kind](op, values), np.int32)
    except (ValueError, IndexError, ZeroDivisionError, TypeError):
        return None


def _shape(op: Operator, out: Stored, tensors: Sequence[Stored]) -> Shape | None:
    """The shape that follows from those of what is read; None where that of the file holds."""
    shapes = [tensors[t].shape for t in op.inputs if t >= 0]
    if not shapes or not shapes[0]:
        return None
    if op.kind == SHAPED and len(shapes) > 1:
        return _viewed(shapes[0], tensors[op.inputs[1]].data)
    if op.kind == "FULLY_CONNECTED" and len(shapes[0]) == len(out.shape) and shapes[0][-1] == shapes[1][-1]:
        return (*shapes[0][:-1], shapes[1][0])
    if not out.open:
        return None
    if op.kind == "FULLY_CONNECTED" and len(out.shape) == len(shapes[1]) == 2:
        return (math.prod(shapes[0]) // max(shapes[1][1], 1), shapes[1][0])
    if op.kind in ALIKE:
        try:
            made = np.broadcast_shapes(*shapes)
        except ValueError:
            return None
        return made if len(made) == len(out.shape) else None
    return _window(op, shapes) if op.kind in WINDOWS else _moved(op, out, shapes, tensors)


def _window(op: Operator, shapes: Sequence[Shape]) -> Shape | None:
    """Of a convolution or a pooling of an image."""
    if any(len(shape) != 4 for shape in shapes[:2]):
        return None
    pooling = "FilterHeight" in op.options
    kernel = (op.options["FilterHeight"], op.options["FilterWidth"]) if pooling else shapes[1][1:3]
    dims = []
    for size, k, side in zip(shapes[0][1:3], kernel, ("H", "W"), strict=True):
        reach = (k - 1) * int(op.options.get(f"Dilation{side}Factor", 1))
        less = 0 if op.options["Padding"] == SAME else reach
        dims.append(-(-(size - less) // max(int(op.options[f"Stride{side}"]), 1)))
    c = shapes[0][3] if pooling else shapes[1][3 if op.kind.startswith("DEPTHWISE") else 0]
    return (shapes[0][0], *dims, c) if min(dims) > 0 else None


def _viewed(shape: Shape, wanted: np.ndarray | None) -> Shape | None:
    if wanted is None or not wanted.size or np.sum(wanted < 0) > 1:
        return None
    known = math.prod(int(n) for n in wanted.ravel() if n >= 0)
    sizes = tuple(math.prod(shape) // known if n < 0 and known else int(n) for n in wanted.ravel())
    return sizes if math.prod(sizes) == math.prod(shape) and min(sizes) > 0 else None


def _moved(op: Operator, out: Stored, shapes: Sequence[Shape], tensors: Sequence[Stored]) -> Shape | None:
    """Of operators that move axes, make some or let some go."""
    shape = shapes[0]
    rank = len(shape)
    given = tensors[op.inputs[1]].data if len(shapes) > 1 else None
    numbers = [] if given is None else [int(n) for n in np.ravel(given)]
    if op.kind == "PACK":
        axis = _axis(op) % (rank + 1)
        return (*shape[:axis], len(op.inputs), *shape[axis:])
    if op.kind == "CONCATENATION" and len({len(s) for s in shapes}) == 1:
        axis = _axis(op) % rank
        return (*shape[:axis], sum(s[axis] for s in shapes), *shape[axis + 1 :])
    if op.kind == "TRANSPOSE" and sorted(numbers) == list(range(rank)):
        return tuple(shape[n] for n in numbers)
    if op.kind == "TILE" and len(numbers) == rank:
        return tuple(d * n for d, n in zip(shape, numbers, strict=True))
    if op.kind == "EXPAND_DIMS" and len(numbers) == 1:
        axis = numbers[0] % (rank + 1)
        return (*shape[:axis], 1, *shape[axis:])
    if op.kind in REDUCES and numbers:
        gone, keep = {n % rank for n in numbers}, len(out.shape) == rank
        return tuple(1 if i in gone else d for i, d in enumerate(shape) if keep or i not in gone)
    return None
