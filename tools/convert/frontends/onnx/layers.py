"""Layers, arithmetic and pooling of ONNX as calls of aten ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError, Shape
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.aten.columns import Columns
from microtrain.convert.ops.aten.expanded import Expanded
from microtrain.convert.ops.aten.neighbours import Volume
from microtrain.convert.ops.aten.pool import of_rows
from microtrain.convert.ops.aten.stack import Stacked
from microtrain.convert.ops.tokens import numbers, viewed

from ..aten.rules import lower
from .file import Step
from .tokens import as_seen, is_flat, is_map, is_whole, of_tokens, product, seen
from .values import (
    Quantized,
    Turned,
    Value,
    Walker,
    as_last,
    axis_map,
    channelwise,
    in_file,
    named,
    one_a_channel,
    two,
)

REDUCES = {  # what PyTorch calls them
    **dict.fromkeys(("GlobalAveragePool", "ReduceMean"), "mean"),
    **dict.fromkeys(("GlobalMaxPool", "ReduceMax"), "amax"),
    "ReduceMin": "amin",
    "ReduceSum": "sum",
    "ReduceLogSumExp": "logsumexp",
}


def keep_scale(walk: Walker, weight: Value, layer: str, turned: bool = False) -> None:
    """Keep the file's scales for the weights of a layer, which were int8 or uint8."""
    if isinstance(weight, Quantized) and layer in walk.low.layers:
        made = walk.low.layers[layer]
        channels = len(made.weight)
        if weight.scale.size in (1, channels):
            scale = np.broadcast_to(weight.scale.reshape(-1), (channels,)).astype(np.float64)
            walk.low.layers[layer] = replace(made, weight_scale=scale)


def conv(walk: Walker, step: Step) -> Value:
    x, given = as_seen(walk, step), walk.value(step.inputs[1])
    weight = named(walk, step, given, "weight")
    bias = walk.optional(step, 2)
    rank = weight.value.ndim - 2
    values = weight.value.reshape(*weight.value.shape, *[1] * (2 - rank)) if rank == 1 else weight.value

    def back(w: np.ndarray) -> np.ndarray:
        return w.reshape(w.shape[: 2 + rank])

    args = {
        "input": x,
        "weight": walk.at_home(step, 1, Param(weight.name, values), given, back),
        "bias": None if bias is None else walk.at_home(step, 2, named(walk, step, bias, "bias"), bias),
        "stride": two(walk.at(step, "strides", [1] * rank)),
        "padding": padding(walk, step, x, values.shape[2:]),
        "dilation": two(walk.at(step, "dilations", [1] * rank)),
        "groups": walk.at(step, "group", 1),
    }
    made = lower(walk.low, Call("conv2d", step.name, True, args))
    keep_scale(walk, given, walk.low.nodes[-1].layer or "")
    series: Act = replace(made, dims=made.dims[: 2 + rank])
    return series


def padding(walk: Walker, step: Step, x: Act, kernel: Sequence[int]) -> list[int]:
    """Top, left, bottom, right."""
    rank = max(len(x.dims) - 2, 1)
    auto = walk.at(step, "auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = walk.at(step, "pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        if len(pads) not in (2, 4):
            raise ConvertError(f"layer {step.name}: pads of {len(pads)} numbers; a convolution has 2 or 4")
        return [pads[0], 0, pads[1], 0] if len(pads) == 2 else list(pads)
    strides, spread = (two(walk.at(step, key, [1] * rank)) for key in ("strides", "dilations"))
    sizes = [*x.dims[2:], 1][:2]
    sides = []
    for size, k, stride, more in zip(sizes, kernel, strides, spread, strict=True):
        total = max((-(-size // max(stride, 1)) - 1) * stride + (k - 1) * more + 1 - size, 0)
        small, large = total // 2, total - total // 2
        sides.append((large, small) if auto == "SAME_LOWER" else (small, large))
    return [sides[0][0], sides[1][0], sides[0][1], sides[1][1]]


def gemm(walk: Walker, step: Step) -> Value:
    given, bias = walk.value(step.inputs[1]), walk.optional(step, 2)
    weight = named(walk, step, given, "weight")
    if walk.at(step, "transA", 0):
        raise ConvertError(
            f"layer {step.name}: Gemm with transA is not supported; the nearest that is: without"
        )
    straight, alpha, beta = (walk.at(step, k, d) for k, d in (("transB", 0), ("alpha", 1.0), ("beta", 1.0)))
    values = weight.value if straight else weight.value.T
    offset = None
    if bias is not None and beta:
        offset = named(walk, step, bias, "bias")
        alike = offset.value.size == 1 < len(values)  # one number for all: no bias that learns
        numbers = np.full(len(values), offset.value) if alike else np.ravel(offset.value)
        offset = Param(offset.name, np.float32(beta) * numbers, computed=alike)
        if not alike:
            offset = walk.at_home(step, 2, offset, bias, lambda b: b / beta)

    def back(w: np.ndarray) -> np.ndarray:
        return np.asarray(w if straight else w.T) / float(alpha)

    return linear(walk, step, given, Param(weight.name, values * np.float32(alpha)), offset, back)


def matmul(walk: Walker, step: Step) -> Value:
    given = walk.value(step.inputs[1])
    if not isinstance(given, Param):
        return product(walk, step)
    weight, shape = named(walk, step, given, "weight"), given.value.shape
    if (
        len(shape) > 2
        and set(shape[:-2]) == {1}
        and len(shape) <= len(in_file(walk.value(step.inputs[0])) or ())
    ):
        weight = Param(weight.name, weight.value.reshape(shape[-2:]))
    return linear(
        walk,
        step,
        given,
        Param(weight.name, weight.value.T),
        None,
        lambda w: w.T.reshape(*shape[:-2], *w.T.shape),
    )


def linear(
    walk: Walker,
    step: Step,
    given: Value,
    weight: Param,
    bias: Param | None,
    back: Callable[[np.ndarray], np.ndarray],
) -> Value:
    """Over a map that was flattened as HWC, the columns of the weights go back to CHW.

    back  turns weights as they are here into those of the file
    """
    value = walk.value(step.inputs[0])
    if isinstance(value, Columns):
        return walk.made(step, "linear", input=value, weight=weight, bias=bias)
    x = walk.act(step)
    if weight.value.ndim != 2:
        raise ConvertError(
            f"layer {step.name}: weights of shape {list(weight.value.shape)} are not supported; the nearest "
            "that is: a matrix, of two axes"
        )
    h, w, c = walk.low.shape(x)
    series = len(x.dims) == 2 and x.dims[0] > walk.low.batch == 1 and not of_tokens(walk, (x,))
    x = replace(x, dims=(1, *x.dims)) if series else x  # tf2onnx takes its moments for a batch
    if isinstance(value, Turned) and weight.value.shape[1] == h * w * c:
        turned = weight.value.reshape(-1, h, w, c).transpose(0, 3, 1, 2).reshape(len(weight.value), -1)
        weight = Param(weight.name, turned)
        weight = walk.at_home(step, 1, weight, given, lambda m: back(_as_hwc(m, (h, w, c))))
    else:
        weight = walk.at_home(step, 1, weight, given, back)
        x = seen(walk, step, value) if is_map(walk, value) else x
    made: Act = walk.call(step, "linear", input=x, weight=weight, bias=bias)
    keep_scale(walk, given, walk.low.nodes[-1].layer or "")
    return viewed(walk.low, made, numbers(walk.low, made)[0]) if series else made


def _as_hwc(weight: np.ndarray, shape: Shape) -> np.ndarray:
    """Columns over a flattened map, from CHW to HWC. shape: (h, w, c)"""
    h, w, c = shape
    return weight.reshape(-1, c, h, w).transpose(0, 2, 3, 1).reshape(len(weight), -1)


def arithmetic(walk: Walker, step: Step) -> Value:
    """Of two activations; of one and a constant, one number or one a channel."""
    a, b = (walk.value(step.inputs[i]) for i in range(2))
    tokens = of_tokens(walk, (a, b)) or any(
        isinstance(x, Turned)
        and isinstance(y, Param | Expanded)
        and not (is_whole(walk, x) and (isinstance(y, Expanded) or one_a_channel(y, x)))
        for x, y in ((a, b), (b, a))
    )
    tokens = tokens or any(one_a_token(x, y) or in_two_orders(walk, x, y) for x, y in ((a, b), (b, a)))
    tokens = tokens or any(is_flat(walk, x) and not _in_any_order(walk, y) for x, y in ((a, b), (b, a)))
    if tokens:
        a, b = (seen(walk, step, value) for value in (a, b))
    a, b = _factors(walk, a, b), _factors(walk, b, a)
    turned = isinstance(a, Turned) or isinstance(b, Turned)
    sides: list[Any] = []
    for place, (value, other) in enumerate(((a, b), (b, a))):
        if isinstance(value, Param):
            sides.append(value if tokens and value.value.size > 1 else channelwise(value, other))
            constant_at_home(walk, step, place, value)
        else:
            sides.append(walk.plain(value) if isinstance(value, Act | Turned) else value)
    rows = as_rows(walk, sides)
    made = walk.call(step, step.op.lower(), self=rows[0], other=rows[1])
    made = replace(made, dims=(*made.dims[:2], made.dims[3])) if rows != sides else made
    return spread_alike(walk, step, Turned(made) if turned else made)


def spread_alike(walk: Walker, step: Step, made: Value) -> Value:
    """A result, if it has the dimensions that ONNX makes of those that a step reads: their last axes belong
    together, so that of [1, c, 1] and [1, c, 1, 1] there are c * c numbers."""
    values = [walk.value(name) for name in step.inputs]
    dims = [v.value.shape if isinstance(v, Param) else in_file(v) for v in values]
    shape = in_file(made)
    if shape is None or walk.low.batch != 1 or any(d is None for d in dims):
        return made
    wanted = np.broadcast_shapes(*(d for d in dims if d is not None))
    if math.prod(wanted) != math.prod(shape):
        given = " and ".join(str(list(d)) for d in dims if d is not None)
        raise ConvertError(
            f"layer {step.name}: {step.op} of {given}, whose last axes belong together in ONNX and make "
            f"{list(wanted)}, is not supported; the nearest that is: of tensors of as many axes"
        )
    return made


def one_a_token(value: Value, other: Value) -> bool:
    """Whether a view [n, time, 1] stands beside a series that has its channels last."""
    if not isinstance(value, Act) or not isinstance(other, Turned) or len(value.dims) < 3:
        return False
    return value.dims == (*as_last(other.act.dims)[:-1], 1) and math.prod(value.dims[1:]) > 1


def in_two_orders(walk: Walker, value: Value, other: Value) -> bool:
    """Whether a map stands beside what has its channels last, so that their axes are not the same."""
    if not isinstance(value, Act) or len(value.dims) < 3 or not isinstance(other, Turned):
        return False
    return len(other.act.dims) > 2 and math.prod(walk.low.shape(value)[:2]) > 1


def _in_any_order(walk: Walker, other: Value) -> bool:
    """Whether what stands beside a flattened map is alike in its order and in PyTorch's."""
    return is_flat(walk, other) or (isinstance(other, Param) and other.value.size == 1)


SEVERAL = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}


def of_several(walk: Walker, step: Step) -> Value:
    """The sum, the mean, the largest or the smallest of any number of maps of one order."""
    values = [walk.value(name) for name in step.inputs]
    acts = [walk.plain(v) for v in values if isinstance(v, Act | Turned)]
    if len(acts) < len(values) or len({type(v) for v in values}) > 1 or of_tokens(walk, values):
        raise unsupported(Call(f"{step.op.lower()} of several", step.name, True, {}))
    made: Any = acts[0]
    for other in acts[1:]:
        made = walk.call(step, SEVERAL[step.op], self=made, other=other)
    if step.op == "Mean" and len(acts) > 1:
        made = walk.call(step, "mul", self=made, other=1.0 / len(acts))
    return spread_alike(walk, step, walk.like(step, made))


def as_rows(walk: Walker, values: list[Any]) -> list[Any]:
    """Series that are one row of a map, as Keras convolves them, as these maps; tokens as they are."""
    constants = [v for v in values if isinstance(v, Param)]
    found = [as_row(walk, v) for v in values]
    mixed = any(a is b and len(a.dims) == 3 for a, b in zip(values, found, strict=True) if isinstance(a, Act))
    by_feature = any(v.value.size > 1 and v.value.ndim != 4 for v in constants)
    return values if mixed or by_feature else found


def as_row(walk: Walker, value: Any) -> Any:
    if not isinstance(value, Act) or len(value.dims) != 3 or value.order is not None:
        return value
    h, w, c = walk.low.shape(value)
    return replace(value, dims=(1, c, 1, w)) if w > 1 == h and value.dims == (1, c, w) else value


def _factors(walk: Walker, value: Value, other: Value) -> Value:
    """A vector [1, c] or [1, 1, 1, c] beside a map that has its channels last: one number for each."""
    if not isinstance(value, Act) or not isinstance(other, Turned) or value.order is not None:
        return value
    c, rank = walk.low.shape(other.act)[2], len(other.act.dims)
    alike = value.dims[-1] == c == math.prod(value.dims) and walk.low.shape(value) == (1, 1, c)
    return Turned(replace(value, dims=(1, c) + (1,) * (rank - 2))) if alike else value


def constant_at_home(walk: Walker, step: Step, place: int, value: Param) -> None:
    """A constant, one number a channel: a bias of the layer before, where it is added, or its scale."""
    if step.op in ("Add", "Mul"):
        one = value.value.size == max(value.value.shape, default=0)  # axis, whose size may change
        shape = [-1 if one and d > 1 else d for d in value.value.shape]
        flat = Param(value.name, np.ravel(value.value))
        walk.at_home(step, place, flat, value, lambda b: b.reshape(shape))


def pool(walk: Walker, step: Step) -> Value:
    value, kernel = walk.value(step.inputs[0]), walk.at(step, "kernel_shape", [])
    if isinstance(value, Volume) and step.op == "AveragePool":
        about = {"kernel_size": kernel, "stride": walk.at(step, "strides", [1] * len(kernel))}
        same = walk.at(step, "auto_pad", "NOTSET").startswith("SAME")
        return walk.made(step, "avg_pool3d", self=value, **about, padding=same or walk.at(step, "pads", 0))
    x = as_seen(walk, step)
    if two(walk.at(step, "dilations", [1] * len(kernel))) != [1, 1]:
        raise ConvertError(
            f"layer {step.name}: dilation is not supported; the nearest that is: a pooling without"
        )
    args = {
        "self": x,
        "kernel_size": two(kernel),
        "stride": two(walk.at(step, "strides", [1] * len(kernel))),
        "padding": padding(walk, step, x, two(kernel)),
        "ceil_mode": bool(walk.at(step, "ceil_mode", 0)),
    }
    if step.op == "AveragePool":
        args["count_include_pad"] = bool(walk.at(step, "count_include_pad", 0))
    made: Act = walk.call(step, "max_pool2d" if step.op == "MaxPool" else "avg_pool2d", **args)
    return replace(made, dims=made.dims[: len(x.dims)])


def response(walk: Walker, step: Step) -> Value:
    """LRN. Of an even number of channels more stand behind than before; in PyTorch it is the other way."""
    about = {"alpha": walk.at(step, "alpha", 1e-4), "beta": walk.at(step, "beta", 0.75)}
    size, shift = walk.at(step, "size", 1), walk.at(step, "bias", 1.0)
    x, before = as_seen(walk, step), (size - 1) // 2
    return walk.made(step, "local_response_norm", self=x, size=size, before=before, k=shift, **about)


def averages(walk: Walker, step: Step) -> Value:
    """Over windows of different sizes, which `onnx_windows` has found; of a series seen as a row too."""
    x, sizes, perm = as_seen(walk, step), list(step.attributes["output_size"]), step.attributes["perm"]
    x = x if perm == [0, 1, 2, 3] else walk.call(step, "permute", self=x, dims=perm)
    h, w, c = walk.low.shape(x)
    if x.order is not None or w > 1 or h == 1 or x.dims[1:] != (c, 1, h) or sizes[0] > 1:
        return walk.made(step, "adaptive_avg_pool2d", self=x, output_size=sizes)
    x = replace(x, dims=(x.dims[0], c, h, 1))
    made: Act = walk.call(step, "adaptive_avg_pool2d", self=x, output_size=sizes[::-1])
    return replace(made, dims=(x.dims[0], c, *sizes))


def side_by_side(walk: Walker, step: Step) -> Value:
    """What each window of an image sees, which `onnx_windows` has found."""
    return walk.made(step, "im2col", self=as_seen(walk, step), padding=0, **step.attributes)


def scaler(walk: Walker, step: Step) -> Value:
    """(x - offset) * scale, a number for all or one a feature, as scikit-learn's scalers are written."""
    x: Any = walk.act(step)
    for op, kind in (("sub", "offset"), ("mul", "scale")):
        numbers = np.array(walk.at(step, kind, []), np.float32)
        if numbers.size:
            flat = numbers.reshape(1, -1) if numbers.size > 1 else numbers.reshape(())
            x = walk.call(step, op, self=x, other=Param(f"{step.name}.{kind}", flat))
    return walk.like(step, x)


def reduced(walk: Walker, step: Step) -> Value:
    """The mean, the sum or the maximum over some axes, or over a whole map."""
    value, word = walk.value(step.inputs[0]), REDUCES[step.op]
    keep = bool(walk.at(step, "keepdims", 1))
    if isinstance(value, Stacked):
        return walk.made(step, word, self=value, dim=walk.numbers(step, 1, "axes"), keepdim=keep)
    x = walk.act(step)
    if of_tokens(walk, (value,)) or (isinstance(value, Turned) and not is_whole(walk, value)):
        x, value = seen(walk, step, value), None
    rank = len(x.dims)
    over = walk.numbers(step, 1, "axes") if not step.op.startswith("Global") else list(range(2, rank))
    if not over and walk.at(step, "noop_with_empty_axes", 0):
        return walk.value(step.inputs[0])
    over = [a % rank for a in over or range(rank)]
    turned = isinstance(value, Turned)
    if turned:
        over = [axis_map(rank)[a] for a in over]
    made: Act = walk.call(step, word, self=x, dim=sorted(over), keepdim=keep)
    if not turned or not (keep or (1 not in over and len(over) < rank - 2)):
        return made
    call = Call(word, step.name, True, {})
    return Turned(of_rows(walk.low, call, made) if made.half else made)
