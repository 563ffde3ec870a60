"""TFLite's layers as calls of aten ops: convolutions, linear layers, poolings, sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import FACTOR, ONCE, ConvertError
from microtrain.convert.nearest import no_matrix, unsupported
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.curves import MIRRORED
from microtrain.convert.ops.functions import CLIP
from microtrain.convert.ops.tokens import places

from ..aten.rules import lower
from .file import Operator
from .tokens import as_they_are, each_once, in_order, places_as, places_of, seen, together, unlike
from .values import Walker, channels_first, channelwise, held, side_of
from .windows import Sides

FLOATS = ("<f4", "<f2")
MOST_FILLED = 1 << 16  # numbers


def conv(walk: Walker, op: Operator, name: str) -> Any:
    x, turned = walk.image(op, name)
    stored = walk.file.tensors[op.inputs[1]]
    weight = walk.value(op.inputs[1])
    if not isinstance(weight, Param) or weight.value.ndim != 4:
        raise ConvertError(f"layer {name}: the weights of {op.kind} must be a constant of four dimensions")
    depthwise = op.kind.startswith("DEPTHWISE")
    order = (3, 0, 1, 2) if depthwise else (0, 3, 1, 2)
    values = weight.value.transpose(order)
    read = walk.file.tensors[op.inputs[0]].shape
    window = Sides(op, read, values.shape[2:], turned, "DilationHFactor", "DilationWFactor")
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
    shape = bias.value.shape  # of one number a channel, whatever axes of 1 stand before them
    flat = bias.value.ravel() if bias.value.size == shape[-1] else bias.value
    return walk.at_home(op, place, f"{name}.bias", flat, lambda b: b.reshape(shape))


def linear(walk: Walker, op: Operator, name: str) -> Any:
    """Columns of the weights go over a map in the order HWC; the rule expects CHW."""
    x, weight = walk.whole(op, name), walk.value(op.inputs[1])
    if op.options.get("WeightsFormat", 0):
        raise ConvertError(f"layer {name}: shuffled weights are not supported; convert the model without")
    if isinstance(x, Param) and isinstance(weight, Param) and x.value.shape[-1:] == weight.value.shape[1:]:
        made, bias = x.value @ weight.value.T, biases(walk, op, name)
        return Param(name, made if bias is None else made + bias.value, computed=True)
    if not isinstance(x, Act) or not isinstance(weight, Param) or weight.value.ndim != 2:
        raise no_matrix(Call(op.kind, name, True, {}), both=isinstance(weight, Act))
    features = weight.value.shape[1]
    if x.order is not None and (features != math.prod(walk.low.shape(x)) or not each_once(walk.low, x)):
        return of_view(walk, op, name, weight.value)
    whole = math.prod(x.dims) == math.prod(walk.low.shape(x))  # else it is a part, a vector
    h, w, c = walk.low.shape(x) if whole else (1, 1, math.prod(x.dims))
    if features == c and h * w > 1:
        return each_pixel(walk, op, name, x, weight.value)
    if features != h * w * c and walk.file.tensors[op.inputs[0]].shape[-1] == features:
        return of_view(walk, op, name, weight.value)
    if features != h * w * c:
        raise ConvertError(f"layer {name} wants {features} features and gets {h * w * c}")
    columns = np.arange(features).reshape(h, w, c).transpose(2, 0, 1).ravel()  # of CHW, in memory
    if x.order is not None:
        columns = np.argsort(places_of(walk, op, name)[1].ravel())[columns]
    back = np.argsort(columns)
    args = {
        "input": replace(x, dims=(walk.low.batch, features), order=None),
        "weight": walk.at_home(op, 1, f"{name}.weight", weight.value[:, columns], lambda m: m[:, back]),
        "bias": biases(walk, op, name),
    }
    made = lower(walk.low, Call("linear", name, True, args))
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]], ONCE)
    return replace(made, dims=channels_first(walk.file.tensors[op.outputs[0]].shape))


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
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]], ONCE)
    return replace(made, dims=channels_first(walk.file.tensors[op.outputs[0]].shape))


def of_view(walk: Walker, op: Operator, name: str, weight: np.ndarray) -> Any:
    """A linear layer over the last axis of a view, as of tokens or of patches."""
    home = walk.at_home(op, 1, f"{name}.weight", weight, lambda m: m)
    args = {"input": seen(walk, op, name), "weight": home, "bias": biases(walk, op, name)}
    made = in_order(walk, "linear", name, **args)
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]], ONCE)
    shape = walk.file.tensors[op.outputs[0]].shape
    if made.order is None:
        return replace(made, dims=channels_first(shape))
    at = places(walk.low, made)
    at = np.moveaxis(at, 1, -1) if at.ndim > 2 else at
    return held(walk.low, made.tensor, at.reshape(shape), made.factor)


def pool(walk: Walker, op: Operator, name: str) -> Any:
    x, turned = walk.image(op, name)
    kernel = (op.options["FilterHeight"], op.options["FilterWidth"])
    window = Sides(op, walk.file.tensors[op.inputs[0]].shape, kernel, turned)
    word = "avg_pool2d" if op.kind.startswith("AVERAGE") else "max_pool2d"
    args = {"self": x, "kernel_size": window.kernel, "stride": window.stride, "padding": window.padding}
    return lower(walk.low, Call(word, name, True, {**args, "count_include_pad": False}))


def arithmetic(walk: Walker, op: Operator, name: str) -> Any:
    """A sum or product of two activations, or of one and a constant, a number or one a channel."""
    known = len(walk.low.nodes)
    made = walk.multiplied(op, name, _combined(walk, op, name))
    if len(walk.low.nodes) == known + 1:
        walk.keep_codes(op, made)
    if op.kind in ("MAXIMUM", "MINIMUM"):
        _keep_difference(walk, op, known)
    return made


def _keep_difference(walk: Walker, op: Operator, known: int) -> None:
    """The larger of two maps of one scale is the first and what the second has more: a whole number of it.

    known  nodes before those of the operator
    """
    sides = {side_of(walk.file.tensors[t]) for t in op.inputs[:2]}
    side = sides.pop()
    if side is None or sides:
        return
    for node in walk.low.nodes[known:]:
        if node.op == "relu":
            for name in (*node.inputs, *node.outputs):
                made = walk.low.tensors[name]
                walk.low.tensors[name] = replace(made, given=made.given or (side[0], -128))


def _combined(walk: Walker, op: Operator, name: str) -> Any:
    a, b = (_whole(walk, op, name, t) for t in op.inputs[:2])
    if isinstance(a, Scores) or isinstance(b, Scores):
        return lower(walk.low, Call(op.kind.lower(), name, True, {"self": a, "other": b}))
    if (made := _of_channels(walk, op, name, a, b)) is not None:
        return made
    acts = [v for v in (a, b) if isinstance(v, Act)]
    _check_axes(walk, op, name, acts)
    if len(acts) == 2 and not as_they_are(walk, acts):
        return together(walk, op, op.kind.lower(), name, self=0, other=1)
    beside = len(acts) == 1 and any(isinstance(v, Param) for v in (a, b))
    if beside and acts[0].order is not None and len(acts[0].dims) == 4:  # NCHW, as its constant is
        sides = [seen(walk, op, name, place) for place in (0, 1)]
        return in_order(walk, op.kind.lower(), name, self=sides[0], other=sides[1])
    rank = len(walk.file.tensors[op.outputs[0]].shape)
    sides = [channelwise(v, rank) if isinstance(v, Param) else along(walk, v, rank) for v in (a, b)]
    for place, (given, value) in enumerate(zip((a, b), sides, strict=True)):
        if op.kind == "ADD" and isinstance(given, Param) and isinstance(value, Param) and not given.computed:
            sides[place] = _bias_of_its_own(walk, op, name, place, given, value)
    return walk.made(op.kind.lower(), name, self=sides[0], other=sides[1])


def _check_axes(walk: Walker, op: Operator, name: str, acts: Sequence[Act]) -> None:
    """ConvertError for two activations of different ranks where a first axis is not the batch's."""
    a, b = (walk.file.tensors[t].shape for t in op.inputs[:2])
    other = any(len(shape) > 2 and shape[0] != walk.low.batch for shape in (a, b))
    if len(acts) == 2 and len(a) != len(b) and other:
        raise ConvertError(
            f"layer {name}: {op.kind} of {list(a)} and {list(b)} is not supported; the nearest that is: of "
            "tensors of as many axes, the batch first"
        )


def _whole(walk: Walker, op: Operator, name: str, tensor: int) -> Any:
    """What a sum or product reads; tokens without an axis for their sample as the result has them."""
    x, (own, made) = walk.value(tensor), (walk.file.tensors[t].shape for t in (tensor, op.outputs[0]))
    if isinstance(x, Scores) and made == (1, *own):
        return lower(walk.low, Call("reshape", name, False, {"self": x, "shape": made}))
    if not isinstance(x, Act) or x.pad is not None or len(own) < 2 or made != (1, *own):
        return x
    act, at = places_as(walk, op, name, x, own)
    return held(walk.low, act.tensor, at.reshape(made), act.factor)


def _of_channels(walk: Walker, op: Operator, name: str, a: Any, b: Any) -> Any:
    """Pixels of a map as tokens, and one constant for each of its channels; None: it is something else."""
    x, made = a if isinstance(a, Act) else b, walk.file.tensors[op.outputs[0]].shape
    constant = b if x is a else a
    if not isinstance(x, Act) or not isinstance(constant, Param) or x.order is not None or x.pad or x.half:
        return None
    h, w, c = walk.low.shape(x)
    each = constant.value.shape[-1:] == (constant.value.size,)
    if len(made) != 3 or min(h, w) < 2 or made[-1] != c or not each:
        return None
    image = replace(x, dims=(walk.low.batch, c, h, w))
    first, second = (image if value is x else channelwise(constant, 4) for value in (a, b))
    found = lower(walk.low, Call(op.kind.lower(), name, True, {"self": first, "other": second}))
    return replace(found, dims=channels_first(made))


def difference_squared(walk: Walker, op: Operator, name: str) -> Any:
    made = arithmetic(walk, replace(op, kind="SUB"), f"{name}.difference")
    return walk.made("square", name, self=made)


def of_length_one(walk: Walker, op: Operator, name: str) -> Any:
    """A vector, or the channels of each pixel, over their Euclidean length."""
    x, shape = walk.whole(op, name), walk.file.tensors[op.inputs[0]].shape
    h, w, c = walk.low.shape(x) if isinstance(x, Act) else (1, 1, shape[-1])
    if isinstance(x, Act) and (x.order is not None or shape[-1] != c or (len(shape) == 2 and h * w > 1)):
        x = seen(walk, op, name)
        args = {"self": x, "ord": 2, "dim": [-1], "keepdim": True}
        length = lower(walk.low, Call("linalg_vector_norm", f"{name}.length", True, args))
        return in_order(walk, "div", name, self=x, other=length)
    if len(shape) == 2:
        return walk.call("l2_normalize", op, name)
    args = {"self": x, "ord": 2, "dim": [1], "keepdim": True}
    length = lower(walk.low, Call("linalg_vector_norm", f"{name}.length", True, args))
    return lower(walk.low, Call("div", name, True, {"self": x, "other": length}))


def summed(walk: Walker, op: Operator, name: str) -> Any:
    """Several maps of one shape."""
    values = [walk.value(tensor) for tensor in op.inputs]
    if not as_they_are(walk, values):
        raise unlike(op, name)
    total = values[0]
    for value in values[1:]:
        total = walk.made("add", name, self=total, other=value)
    return total


def power(walk: Walker, op: Operator, name: str) -> Any:
    return walk.call("pow", op, name, exponent=walk.value(op.inputs[1]))


def cast(walk: Walker, op: Operator, name: str) -> Any:
    """A comparison is 1 or 0 already; to whole numbers nothing is cast."""
    if walk.file.tensors[op.outputs[0]].dtype not in FLOATS:
        raise ConvertError(
            f"layer {name}: {op.kind} to another type than floats is not supported; leave it out"
        )
    return walk.value(op.inputs[0])


def zeros(walk: Walker, op: Operator, name: str) -> Param:
    return Param(name, np.zeros(1, np.float32), computed=True)


def filled(walk: Walker, op: Operator, name: str) -> Param:
    """A constant of one number, as a recurrent layer begins with."""
    shape, value = walk.file.tensors[op.outputs[0]].shape, walk.value(op.inputs[1])
    if not isinstance(value, Param) or math.prod(shape) > MOST_FILLED:
        raise unsupported(Call("fill", name, True, {}))
    return Param(name, np.full(shape, value.value.ravel()[0], np.float32), computed=True)


def both(walk: Walker, op: Operator, name: str) -> Any:
    """Of two comparisons, which are 1 or 0."""
    return together(walk, op, "mul", name, self=0, other=1)


def _bias_of_its_own(walk: Walker, op: Operator, name: str, place: int, given: Param, value: Param) -> Param:
    """What is added, which is the bias of a layer that has none. given: as the file has it"""
    own, shape = f"{name}.bias" if given.name in walk.homes else given.name, given.value.shape
    made = walk.at_home(op, place, own, given.value.ravel(), lambda v: v.reshape(shape), step=walk.place)
    return replace(value, name=own, origin=made.origin)


def compared(walk: Walker, op: Operator, name: str) -> Any:
    """1 where an activation is more, or less, than one number or another activation, and else 0."""
    word, (a, b) = op.kind.lower(), (walk.value(t) for t in op.inputs[:2])
    if isinstance(a, Act) and isinstance(b, Act):
        made = arithmetic(walk, replace(op, kind="SUB"), f"{name}.difference")
        return walk.made(word, name, self=made, other=0.0)
    if not isinstance(a, Act):
        word, a, b = MIRRORED[word], b, a
    return walk.made(word, name, self=a, other=b)


def chosen(walk: Walker, op: Operator, name: str) -> Any:
    """Of two maps or numbers, by what a comparison has made."""
    return together(walk, op, "where", name, condition=0, self=1, other=2)


def prelu(walk: Walker, op: Operator, name: str) -> Any:
    slope = walk.value(op.inputs[1])
    side = walk.given(op.inputs[0])
    if isinstance(slope, Param) and slope.value.shape[-1:] == (slope.value.size,):
        slope = replace(slope, value=slope.value.ravel())
    elif isinstance(slope, Param) and slope.value.size > 1:  # of each place
        full = channelwise(slope, 4).value
        if len(walk.file.tensors[op.inputs[0]].shape) != 4 or full.shape[0] != 1:
            raise unsupported(Call("prelu", name, True, {}))
        slope = replace(slope, value=full[0])
    if side is None or not isinstance(slope, Param) or slope.value.size < 2:
        return walk.call("prelu", op, name, weight=slope)
    return _prelu_of_int8(walk, op, name, slope, side)


def _prelu_of_int8(walk: Walker, op: Operator, name: str, slope: Param, side: tuple[float, int]) -> Any:
    """What is above 0, and what is below times its slopes: of their sum one is always 0."""
    behind = walk.file.tensors[op.outputs[0]]
    above, below = (walk.call("clamp", op, f"{name}.{key}", **{key: 0.0}) for key in ("min", "max"))
    walk.give(above, behind)
    walk.low.give(below, side[0], 127)
    alike = slope.value.ndim == 1
    args = {"self": below, "other": channelwise(slope, len(behind.shape)) if alike else slope}
    times = lower(walk.low, Call("mul", f"{name}.slopes", True, args))
    if alike:
        walk.keep_codes(replace(op, kind=FACTOR), times)
    walk.give(times, behind)
    return walk.made("add", name, self=above, other=times)


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
    return x if side_of(after) in (None, before) else walk.call(CLIP, op, name)
