"""TFLite's layers as calls of aten ops: convolutions, linear layers, poolings, sums and products."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Act, Call, Param
from microtrain.convert.nearest import no_matrix, unsupported
from microtrain.convert.ops.curves import MIRRORED
from microtrain.convert.ops.functions import CLIP
from microtrain.convert.ops.pool_aten import of_rows

from .aten import lower
from .tflite_file import Operator
from .tflite_values import Walker, channels_first
from .tflite_windows import Sides


def conv(walk: Walker, op: Operator, name: str) -> Any:
    x, turned = walk.image(op, name)
    stored = walk.file.tensors[op.inputs[1]]
    weight = walk.value(op.inputs[1])
    if not isinstance(weight, Param) or weight.value.ndim != 4:
        raise ConvertError(f"layer {name}: the weights of {op.kind} must be a constant of four dimensions")
    depthwise = op.kind.startswith("DEPTHWISE")
    order = (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)
    values = weight.value.transpose(order)
    window = Sides(op, walk.low.shape(x), values.shape[2:], turned, "DilationHFactor", "DilationWFactor")
    order = (*order[:2], order[3], order[2]) if turned else order
    args = {
        "input": x,
        "weight": walk.at_home(
            op,
            1,
            f"{name}.weight",
            weight.value.transpose(order),
            lambda w: w.transpose(np.argsort(order)),
        ),
        "bias": biases(walk, op, name),
        "stride": window.stride,
        "padding": window.padding,
        "dilation": window.dilation,
        "groups": x.dims[1] if depthwise else x.dims[1] // max(values.shape[1], 1),
    }
    made = lower(walk.low, Call("conv2d", name, True, args))
    walk.keep_scale(name, stored)
    return made


def biases(walk: Walker, op: Operator, name: str, place: int = 2) -> Param | None:
    """The biases, in real numbers. place: of the operator's inputs"""
    bias = walk.value(op.inputs[place]) if len(op.inputs) > place else None
    if bias is None:
        return None
    if not isinstance(bias, Param):
        raise ConvertError(f"layer {name}: its biases are computed; they must be a constant of the file")
    return walk.at_home(op, place, f"{name}.bias", bias.value, lambda b: b)


def linear(walk: Walker, op: Operator, name: str) -> Any:
    """Columns of the weights go over a map in the order HWC; the rule expects CHW."""
    x, weight = walk.value(op.inputs[0]), walk.value(op.inputs[1])
    if op.options.get("WeightsFormat", 0):
        raise ConvertError(f"layer {name}: shuffled weights are not supported; convert the model without")
    if not isinstance(x, Act) or not isinstance(weight, Param) or weight.value.ndim != 2:
        raise no_matrix(Call(op.kind, name, True, {}), both=isinstance(weight, Act))
    whole = math.prod(x.dims) == math.prod(walk.low.shape(x))  # else it is a part, a vector
    h, w, c = walk.low.shape(x) if whole else (1, 1, math.prod(x.dims))
    classes, features = weight.value.shape
    if features == c and h * w > 1:
        return each_pixel(walk, op, name, x, weight.value)
    if features != h * w * c:
        raise ConvertError(f"layer {name} wants {features} features and gets {h * w * c}")
    values = weight.value.reshape(classes, h, w, c).transpose(0, 3, 1, 2).reshape(classes, -1)
    flat = replace(x, dims=(walk.low.batch, features))

    def back(m: np.ndarray) -> np.ndarray:
        return m.reshape(-1, c, h, w).transpose(0, 2, 3, 1).reshape(len(m), -1)

    args = {
        "input": flat,
        "weight": walk.at_home(op, 1, f"{name}.weight", values, back),
        "bias": biases(walk, op, name),
    }
    made = lower(walk.low, Call("linear", name, True, args))
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]])
    return made


def each_pixel(walk: Walker, op: Operator, name: str, x: Act, weight: np.ndarray) -> Any:
    """A linear layer over the channels of each pixel, or each step in time."""
    h, w, c = walk.low.shape(x)
    home = walk.at_home(op, 1, f"{name}.weight", weight[..., None, None], lambda m: m[..., 0, 0])
    args = {
        "input": Act(x.tensor, (walk.low.batch, c, h, w)),
        "weight": home,
        "bias": biases(walk, op, name),
    }
    made = lower(walk.low, Call("conv2d", name, True, args))
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]])
    return replace(made, dims=channels_first(walk.file.tensors[op.outputs[0]].shape))


def pool(walk: Walker, op: Operator, name: str) -> Any:
    x, turned = walk.image(op, name)
    kernel = (op.options["FilterHeight"], op.options["FilterWidth"])
    window = Sides(op, walk.low.shape(x), kernel, turned)
    word = "avg_pool2d" if op.kind.startswith("AVERAGE") else "max_pool2d"
    args = {"self": x, "kernel_size": window.kernel, "stride": window.stride, "padding": window.padding}
    return lower(walk.low, Call(word, name, True, {**args, "count_include_pad": False}))


def reduced(walk: Walker, op: Operator, name: str) -> Any:
    """The mean, the sum or the maximum over the map, one of its sides, or the channels of each pixel."""
    x, axes = walk.value(op.inputs[0]), walk.value(op.inputs[1])
    shape = walk.file.tensors[op.inputs[0]].shape
    if not isinstance(x, Act) or not isinstance(axes, Param):
        raise ConvertError(f"layer {name}: the axes of {op.kind} must be constants")
    over = {int(a) % max(len(shape), 1) for a in np.ravel(axes.value)}
    spatial = set(range(1, len(shape) - 1))
    h, w, c = walk.low.shape(x)
    one_side = len(shape) == 4 and over in ({1}, {2})
    if not (one_side or over in (spatial, {len(shape) - 1})) or not spatial:
        raise ConvertError(
            f"layer {name}: {op.kind} of {list(shape)} over {sorted(over)} is not supported; the nearest "
            "that is: over height, width or both, over time, or over the channels"
        )
    dims = channels_first(walk.file.tensors[op.outputs[0]].shape)
    image = replace(x, dims=(walk.low.batch, c, h, w))
    dim = [2, 3] if over == spatial else [min(over) + 1] if one_side else [1]
    args = {"self": image, "dim": dim, "keepdim": not one_side or len(dims) == 4}
    call = Call({"MEAN": "mean", "SUM": "sum"}.get(op.kind, "amax"), name, True, args)
    made = lower(walk.low, call)
    return replace(of_rows(walk.low, call, made) if made.half else made, dims=dims)


def arithmetic(walk: Walker, op: Operator, name: str) -> Any:
    """A sum or product of two activations, or of one and a constant, a number or one a channel."""
    a, b = (walk.value(t) for t in op.inputs[:2])
    rank = len(walk.file.tensors[op.outputs[0]].shape)
    sides = [channelwise(v, rank) if isinstance(v, Param) else along(walk, v, rank) for v in (a, b)]
    return lower(walk.low, Call(op.kind.lower(), name, True, {"self": sides[0], "other": sides[1]}))


def compared(walk: Walker, op: Operator, name: str) -> Any:
    """1 where an activation is more, or less, than one number, and else 0."""
    word, (a, b) = op.kind.lower(), (walk.value(t) for t in op.inputs[:2])
    if not isinstance(a, Act):
        word, a, b = MIRRORED[word], b, a
    return lower(walk.low, Call(word, name, True, {"self": a, "other": b}))


def chosen(walk: Walker, op: Operator, name: str) -> Any:
    """Of two maps or numbers, by what a comparison has made."""
    values = dict(zip(("condition", "self", "other"), (walk.value(t) for t in op.inputs), strict=False))
    return lower(walk.low, Call("where", name, True, values))


def channelwise(value: Param, rank: int) -> Param:
    """A constant [..., c] as [1, c, 1, 1], one of rows or columns too as NCHW has it; a number stays.

    rank  of what it is beside
    """
    array = value.value
    if array.size == 1:
        return value
    if array.size == array.shape[-1]:
        return Param(value.name, array.reshape(1, -1, 1, 1))
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return Param(value.name, np.moveaxis(full, -1, 1)) if full.ndim > 2 else value


def prelu(walk: Walker, op: Operator, name: str) -> Any:
    slope = walk.value(op.inputs[1])
    if isinstance(slope, Param) and slope.value.size != slope.value.shape[-1]:
        raise unsupported(Call("prelu", name, True, {}))
    return walk.call("prelu", op, name, weight=slope)


def along(walk: Walker, value: Any, rank: int) -> Any:
    """A vector beside a map, whose last axis is that of the channels: one number for each of them."""
    if not isinstance(value, Act) or len(value.dims) >= rank or walk.low.shape(value)[:2] != (1, 1):
        return value
    return replace(value, dims=(walk.low.batch, walk.low.shape(value)[2], *(1,) * (rank - 2)))


def quantize(walk: Walker, op: Operator, name: str) -> Any:
    """A change of number type changes nothing; a change of scale is an op of its own."""
    x, after = walk.value(op.inputs[0]), walk.file.tensors[op.outputs[0]]
    before = walk.given(op.inputs[0])
    if not isinstance(x, Act) or op.kind == "DEQUANTIZE" or before is None:
        return x
    found = after.quantized
    zero = int(found.zero[0]) - (128 if after.dtype == "u1" else 0) if found else 0
    if found is None or before == (float(found.scale[0]), zero):
        return x
    return walk.call(CLIP, op, name)
