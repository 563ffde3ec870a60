"""Tokens in ONNX: what reads a map in another order than NCHW or NHWC, and the scores of attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.resample import settled
from microtrain.convert.ops.tokens import numbers, turnable, viewed

from .file import Step
from .values import Parts, Turned, Value, Walker, axis_map, channels_last, named

OF_SCORES = {"MatMul": "matmul", "Cast": "to", "Where": "where"}  # others are called as in PyTorch


def seen(walk: Walker, step: Step, value: Value) -> Any:
    """A value as a view in its own order: a map that was turned is one whose numbers are."""
    if not isinstance(value, Turned):
        return value
    call = Call(step.op.lower(), step.name, True, {"self": value.act})
    act = turnable(walk.low, call, settled(walk.low, call).x)
    if is_flat(walk, value):
        h, w, c = walk.low.shape(act)
        return viewed(
            walk.low, act, np.arange(h * w * c).reshape(c, h, w).transpose(1, 2, 0).reshape(act.dims)
        )
    axes = channels_last(len(act.dims)) if len(act.dims) > 2 else list(range(len(act.dims)))
    return viewed(walk.low, act, numbers(walk.low, act).transpose(axes))


def as_seen(walk: Walker, step: Step) -> Act:
    """The first input of a step that tells its axes apart: an activation in the order that the step sees."""
    x = seen(walk, step, walk.value(step.inputs[0]))
    return x if isinstance(x, Act) else walk.act(step)


def is_flat(walk: Walker, value: Value) -> bool:
    """Whether a value is a map that was flattened with its channels last: a vector in another order."""
    return isinstance(value, Turned) and len(value.act.dims) < 3 and has_places(walk, value.act)


def has_places(walk: Walker, act: Act) -> bool:
    """Whether the map behind a view has more than one place."""
    h, w, _ = walk.low.shape(act)
    return h * w > 1


def is_map(walk: Walker, value: Value) -> bool:
    """Whether a turned value has places to tell apart."""
    return isinstance(value, Turned) and len(value.act.dims) > 2 and has_places(walk, value.act)


def is_whole(walk: Walker, value: Turned) -> bool:
    """Whether what has its channels last is an image or a series, and no image whose pixels are tokens."""
    return len(value.act.dims) != 3 or walk.low.shape(value.act)[1] == 1


def of_tokens(walk: Walker, values: Sequence[Value]) -> bool:
    """Whether one of the values is a view whose numbers are turned, which a turned map then is too."""
    acts = [v for v in values if isinstance(v, Act)]
    return any(a.order is not None or a.tensor in walk.low.last for a in acts)


def of_scores(walk: Walker, step: Step) -> Value:
    """A step that reads products of queries and keys."""
    values = [seen(walk, step, walk.value(i)) for i in step.inputs]
    if step.op == "Einsum":
        return einsum(walk, step)
    if step.op == "Softmax":
        return softmax(walk, step)
    if step.op == "IsNaN":  # of shares, where a mask may hide all keys: none does
        return Param(step.name, np.zeros(1, bool), computed=True)
    if step.op == "Where" and isinstance(values[0], Param) and not values[0].value.any():
        return walk.value(step.inputs[2])
    args = dict(zip(("self", "other"), values, strict=False))
    if step.op == "Transpose":
        args["dims"] = walk.at(step, "perm", None) or list(range(len(values[0].dims)))[::-1]
    return walk.made(step, OF_SCORES.get(step.op, step.op.lower()), **args)


def softmax(walk: Walker, step: Step) -> Value:
    """Of scores over one of their axes; else the end of a network. Its logarithm is the same there."""
    value, op = walk.value(step.inputs[0]), {"LogSoftmax": "log_softmax"}.get(step.op, "softmax")
    if isinstance(value, Scores):
        return walk.made(step, "softmax", self=value, dim=walk.at(step, "axis", -1))
    x, axis = walk.act(step), walk.at(step, "axis", -1)
    if len(x.dims) > 1 and axis % len(x.dims) == 0:
        raise ConvertError(
            f"layer {step.name}: {step.op} over the batch is not supported; the nearest that is: over the "
            "classes, axis=-1"
        )
    axis = axis_map(len(x.dims))[axis % len(x.dims)] if isinstance(value, Turned) else axis
    return walk.like(step, walk.call(step, op, self=x, dim=axis))


def product(walk: Walker, step: Step) -> Value:
    """MatMul of two activations, or of a matrix and an activation."""
    a, b = (seen(walk, step, walk.value(i)) for i in step.inputs[:2])
    if isinstance(a, Param) and a.value.ndim == 2:
        a = walk.at_home(step, 0, named(walk, step, a, "weight"), a)
    return walk.made(step, "matmul", self=a, other=b)


def einsum(walk: Walker, step: Step) -> Value:
    """Two products of attention, or a linear layer whose weights have an axis for each head."""
    values = [seen(walk, step, walk.value(i)) for i in step.inputs]
    text = walk.at(step, "equation", "")
    given = [i for i, v in enumerate(values) if isinstance(v, Param)]
    if len(values) == 2 and len(given) == 1:
        values[given[0]] = _weights(walk, step, given[0], text)
    return walk.made(step, "einsum", equation=text, tensors=values)


def _weights(walk: Walker, step: Step, place: int, equation: str) -> Param:
    """The weights of an einsum, at home where their axes stand as a matrix has them."""
    given = walk.value(step.inputs[place])
    weight = named(walk, step, given, "weight")
    left, _, out = equation.replace(" ", "").partition("->")
    letters, shape = left.split(",")[place], weight.value.shape
    inner = "".join(c for c in letters if c not in out)
    made = "".join(c for c in letters if c in out)
    if not inner or letters not in (inner + made, made + inner) or "." in letters:
        return weight
    first = inner if letters == inner + made else made
    flat = weight.value.reshape(int(np.prod(shape[: len(first)], dtype=np.int64)), -1)
    if first is inner:
        home = Param(weight.name, flat.T)
        home = walk.at_home(step, place, home, given, lambda w: w.T.reshape(shape))
    else:
        home = walk.at_home(step, place, Param(weight.name, flat), given, lambda w: w.reshape(shape))
    return replace(home, value=weight.value)


def gather(walk: Walker, step: Step) -> Value:
    """One part along an axis, or parts that follow one another."""
    at, given = walk.optional(step, 1), walk.value(step.inputs[0])
    if isinstance(given, Parts):
        if isinstance(at, Param) and at.value.ndim == 0:
            part, place = _part(step, given, int(at.value))
            return walk.made(step, "select", self=part, dim=given.axis, index=place)
        given = walk.made(step, "cat", tensors=list(given.acts), dim=given.axis)
    x = seen(walk, step, given)
    axis = int(walk.at(step, "axis", 0))
    if not isinstance(at, Param) or not isinstance(x, Act):
        if isinstance(given, Param):
            raise unsupported(Call("embedding", step.name, True, {}))
        raise ConvertError(f"layer {step.name}: Gather is supported of activations, at constant places")
    places = [int(i) for i in np.ravel(at.value)]
    if at.value.ndim == 0:
        return walk.made(step, "select", self=x, dim=axis, index=places[0])
    if at.value.ndim > 1 and x.dims == (len(places),) and places == list(range(len(places))):
        return walk.made(step, "view", self=x, size=list(at.value.shape))  # aten's as_strided, of all
    if at.value.ndim > 1:
        raise ConvertError(
            f"layer {step.name}: Gather of places {places[:8]} in several rows is not supported; the nearest "
            "that is: of one row of them"
        )
    return _listed(walk, step, x, axis, places)


def gather_nd(walk: Walker, step: Step) -> Value:
    """Parts along the first axis, or along the one that `onnx_places` has found."""
    x, at = seen(walk, step, walk.value(step.inputs[0])), walk.optional(step, 1)
    one_row = isinstance(at, Param) and at.value.ndim == 2 and at.value.shape[1] == 1
    if not one_row or not isinstance(at, Param) or not isinstance(x, Act) or walk.at(step, "batch_dims", 0):
        raise ConvertError(
            f"layer {step.name}: GatherND of places that are computed, or of several axes, is not supported; "
            "the nearest that is: of a list of places along one axis"
        )
    return _listed(walk, step, x, walk.at(step, "axis", 0), [int(i) for i in np.ravel(at.value)])


def _listed(walk: Walker, step: Step, x: Act, axis: int, places: list[int]) -> Value:
    """The parts at these places along an axis, one behind the other."""
    size = x.dims[axis]
    if not places or not all(-size <= p < size for p in places):
        raise ConvertError(f"layer {step.name}: {step.op} of places {places[:8]} of {size}")
    places = [p % size for p in places]
    first, behind = places[0], places[0] + len(places)
    if places == list(range(first, behind)):
        return walk.made(step, "slice", self=x, dim=axis, start=first, end=behind, step=1)
    index = Param(f"{step.name}.places", np.array(places, np.int64))
    return walk.made(step, "index_select", self=x, dim=axis, index=index)


def _part(step: Step, given: Parts, place: int) -> tuple[Act, int]:
    """The activation that holds a place, and which of its own that is."""
    owners = [(act, own) for act in given.acts for own in range(act.dims[given.axis])]
    if not -len(owners) <= place < len(owners):
        raise ConvertError(f"layer {step.name}: Gather of place {place} of {len(owners)}")
    return owners[place]


def expand(walk: Walker, step: Step) -> Value:
    x = seen(walk, step, walk.value(step.inputs[0]))
    size = walk.numbers(step, 1, "shape") or []
    size = [*[1] * (len(getattr(x, "dims", ())) - len(size)), *size]
    return walk.made(step, "expand", self=x, size=[-1 if d == 1 else d for d in size])


RULES: dict[str, Callable[[Walker, Step], Value]] = {
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
    "Einsum": einsum,
    "Gather": gather,
    "GatherND": gather_nd,
    "Expand": expand,
}
