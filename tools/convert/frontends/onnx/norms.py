"""Normalisations of ONNX: of a batch, of groups, of instances, of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.aten.columns import Columns, refused
from microtrain.convert.ops.aten.lengths import WHOLE
from microtrain.convert.ops.aten.normalise import normalised
from microtrain.convert.ops.aten.squares import Piece

from .file import Step
from .tokens import as_seen, is_whole, seen
from .values import Turned, Value, Walker, as_last, axis_map, named


def batch(walk: Walker, step: Step) -> Value:
    params = _params(walk, step, ("weight", "bias", "running_mean", "running_var"))
    about = {"eps": walk.at(step, "epsilon", 1e-5), "training": bool(walk.at(step, "training_mode", 0))}
    made = walk.made(step, "batch_norm", input=as_seen(walk, step), **params, **about)
    if isinstance(made, Columns) and isinstance(walk.value(step.inputs[0]), Turned):
        raise refused(Call("batch_norm", step.name, True, {}))  # its numbers stand in another order
    return made


def instance(walk: Walker, step: Step) -> Value:
    """PyTorch's export has a group norm as one of the view [n, groups, rest], whose scale is then 1."""
    params, x = _params(walk, step, ("weight", "bias")), as_seen(walk, step)
    channels = walk.low.shape(x)[2]
    if params["weight"].value.size != channels and _is_plain(params):
        params = {"weight": Param(params["weight"].name, np.ones(channels, np.float32))}
    return walk.made(step, "instance_norm", input=x, **params, eps=walk.at(step, "epsilon", 1e-5))


def group(walk: Walker, step: Step) -> Value:
    """Up to opset 20 its scale and bias are one a group."""
    params, groups = _params(walk, step, ("weight", "bias")), int(walk.at(step, "num_groups", 1))
    x = as_seen(walk, step)
    c = x.dims[1] if len(x.dims) > 1 else 1
    if groups > 0 and params["weight"].value.size == groups != c and not _is_plain(params):
        raise ConvertError(
            f"layer {step.name}: a group norm with a scale for each group is not supported; the nearest that "
            "is: one for each channel, as from opset 21 on"
        )
    params = {} if params["weight"].value.size != c else params
    about = {"num_groups": groups, "eps": walk.at(step, "epsilon", 1e-5)}
    return walk.made(step, "group_norm", input=x, **params, **about)


def layer(walk: Walker, step: Step) -> Value:
    """Over all but the batch; over the channels of each place, where they come last."""
    value, x = walk.value(step.inputs[0]), walk.act(step)
    rank, turned = len(x.dims), isinstance(value, Turned)
    axis = int(walk.at(step, "axis", -1)) % rank
    eps = walk.at(step, "epsilon", 1e-5)
    over = (as_last(x.dims) if turned else x.dims)[axis:]
    params = {kind: _spread(p, over) for kind, p in _params(walk, step, ("weight", "bias")).items()}
    if axis == rank - 1 and (
        (turned and rank > 2) or (rank == 2 and x.order is None and walk.low.tensors[x.tensor].pixels == 1)
    ):
        args = {"input": x, **params, "eps": eps}
        return walk.like(step, normalised(walk.low, Call("layer_norm", step.name, True, args), 1, apart=True))
    if turned and math.prod(over) == math.prod(x.dims[1:]):  # of all: what stands where does not matter
        h, w, c = walk.low.shape(x)
        for kind, p in params.items():
            params[kind] = replace(p, value=p.value.reshape(h, w, c).transpose(2, 0, 1))
        over = x.dims[1:]
    elif turned:
        x, turned = as_seen(walk, step), False
    made = walk.call(step, "layer_norm", input=x, normalized_shape=list(over), **params, eps=eps)
    return Turned(made) if turned else made


def _spread(param: Param, over: Sequence[int]) -> Param:
    """A constant beside the axes that a norm is over, as one number for each place of them."""
    shape = tuple(over)
    if param.value.shape == shape or math.prod(np.broadcast_shapes(param.value.shape, shape)) != math.prod(
        over
    ):
        return param
    return replace(param, value=np.broadcast_to(param.value, shape), computed=True)


def _params(walk: Walker, step: Step, kinds: Sequence[str]) -> dict[str, Param]:
    found = {}
    for place, kind in enumerate(kinds, 1):
        given = walk.optional(step, place)
        if given is not None:
            found[kind] = walk.at_home(step, place, named(walk, step, given, kind), given)
    return found


def _is_plain(params: dict[str, Param]) -> bool:
    """Whether a scale and a shift change nothing."""
    shift = params.get("bias")
    return bool((params["weight"].value == 1).all() and (shift is None or not np.any(shift.value)))


LENGTHS = {"ReduceL2": "linalg_vector_norm", "LpNormalization": WHOLE}
SUMS = {"ReduceMean": "mean", "ReduceSum": "sum"}


def length(walk: Walker, step: Step) -> Value:
    """A step that makes the Euclidean length of a vector, or reads one."""
    first, *rest = _plain(walk, step)
    if step.op == "LpNormalization":
        over = _axes(walk, step, first, [walk.at(step, "axis", -1)])
        return _in_order(walk, step, walk.made(step, WHOLE, self=first, dim=over, p=walk.at(step, "p", 2)))
    if step.op == "ReduceL2":
        axes, keep = _axes(walk, step, first, walk.numbers(step, 1, "axes")), walk.at(step, "keepdims", 1)
        args = {"self": first, "dim": axes, "keepdim": bool(keep)}
        return _in_order(walk, step, walk.made(step, LENGTHS[step.op], **args))
    return _in_order(walk, step, _as_in_pytorch(walk, step, first, rest))


def written_out(walk: Walker, step: Step) -> Value:
    """A step of a normalisation that the graph writes out: a square, or what is made of that."""
    first, *rest = _plain(walk, step)
    if step.op in SUMS:
        axes, keep = walk.numbers(step, 1, "axes"), bool(walk.at(step, "keepdims", 1))
        args = {"self": first, "dim": _axes(walk, step, first, axes), "keepdim": keep}
        return _in_order(walk, step, walk.made(step, SUMS[step.op], **args))
    return _in_order(walk, step, _as_in_pytorch(walk, step, first, rest))


def _has_last(walk: Walker, step: Step) -> bool:
    """Whether a step reads what has its channels last."""
    values = [walk.value(i) for i in step.inputs]
    return any(
        is_whole(walk, v) if isinstance(v, Turned) else isinstance(v, Piece) and v.last for v in values
    )


def _axes(walk: Walker, step: Step, first: Value, axes: Sequence[int] | None) -> list[int] | None:
    """Axes of what a step reads first, in PyTorch's order."""
    if axes is None or not _has_last(walk, step) or not isinstance(first, Act | Piece):
        return None if axes is None else list(axes)
    rank = len(first.dims)
    return [axis_map(rank)[a % rank] for a in axes]


def _in_order(walk: Walker, step: Step, made: Value) -> Value:
    """What was made in PyTorch's order of axes, in that of the file."""
    if not _has_last(walk, step):
        return made
    return (
        replace(made, last=True)
        if isinstance(made, Piece)
        else Turned(made)
        if isinstance(made, Act)
        else made
    )


def _plain(walk: Walker, step: Step) -> list[Value]:
    """What a step reads, images and series in PyTorch's order of axes."""
    values = [walk.value(i) for i in step.inputs]
    values = [v if not isinstance(v, Turned) or is_whole(walk, v) else seen(walk, step, v) for v in values]
    return [walk.plain(v) if isinstance(v, Act | Turned) else v for v in values]


def _as_in_pytorch(walk: Walker, step: Step, first: Value, rest: list[Value]) -> Value:
    """A step that reads a part of a normalisation, by the name that PyTorch has for it."""
    if step.op == "Clip":
        return walk.made(step, "clamp", self=first, **dict(zip(("min", "max"), rest, strict=False)))
    key = "exponent" if step.op == "Pow" else "other"
    other = {key: rest[0]} if rest and step.op != "Expand" else {}
    return walk.made(step, "maximum" if step.op == "Max" else step.op.lower(), self=first, **other)
