"""Parts of TFLite's tensors: cuts, splits, lists of places, and tensors side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.tokens import places

from ..aten.rules import lower
from .cuts import spans
from .file import Operator
from .names import axis_first
from .recurrent import renamed
from .tokens import as_they_are, in_order, places_as, seen, unlike
from .values import Walker, channels_first, held


def cut(walk: Walker, op: Operator, name: str) -> Any:
    """SLICE and STRIDED_SLICE. Where an axis goes, what is left is a view: it has other channels mostly."""
    shape = list(walk.file.tensors[op.inputs[0]].shape)
    given = [walk.value(t) for t in op.inputs[1:]]
    numbers = [[int(n) for n in np.ravel(v.value)] for v in given if isinstance(v, Param)]
    x, found = walk.value(op.inputs[0]), spans(op, name, shape, numbers)
    plain = not isinstance(x, Act) or not _in_other_order(walk, op, 0)
    for span in [span for span in found if plain and not span.alone]:
        by = {"start": span.taken.start, "end": span.taken.stop, "step": span.taken.step}
        args = {"self": x, "dim": axis_first(span.axis, len(shape)), **by}
        x = lower(walk.low, Call("slice", name, True, args))
        shape[span.axis] = len(range(shape[span.axis])[span.taken])
    left = [span for span in found if span.alone or not plain]
    if not left or not isinstance(x, Act):
        return x
    x, at = places_as(walk, op, name, x, tuple(shape))
    for span in left:
        at = at[(slice(None),) * span.axis + (span.taken.start if span.alone else span.taken,)]
    return held(walk.low, x.tensor, at, x.factor)


def split(walk: Walker, op: Operator, name: str) -> list[Any]:
    """Into equal parts, or into the sizes that SPLIT_V says."""
    sized = op.kind == "SPLIT_V"
    place = 0 if sized else 1  # of what is split
    shape = walk.file.tensors[op.inputs[place]].shape
    at = _constant(walk, op, name, 2 if sized else 0, "the axis")[0] % max(len(shape), 1)
    size: Any = -(-shape[at] // len(op.outputs))
    if sized:
        size = _constant(walk, op, name, 1, "the sizes")
        size = [shape[at] - sum(n for n in size if n > 0) if n < 0 else n for n in size]
    made = _along(walk, op, name, place, "split", at, split_size=size)
    if len(made) != len(op.outputs):
        raise ConvertError(f"layer {name}: a split into {len(made)} parts has {len(op.outputs)} results")
    return list(made)


def unpack(walk: Walker, op: Operator, name: str) -> list[Any]:
    """Each place of an axis by itself."""
    return list(_along(walk, op, name, 0, "unbind", int(op.options.get("Axis", 0))))


def gather(walk: Walker, op: Operator, name: str) -> Any:
    """A list of places along an axis, or one place, and the axis is gone."""
    at, axis = walk.value(op.inputs[1]), int(op.options.get("Axis", 0))
    if isinstance(walk.value(op.inputs[0]), Param):
        raise unsupported(Call("embedding", name, True, {}))
    if not isinstance(at, Param) or at.value.ndim > 1 or op.options.get("BatchDims"):
        raise ConvertError(
            f"layer {name}: {op.kind} at places that are computed, or in several rows, is not supported; the "
            "nearest that is: at one place or a list of them, which are constants"
        )
    if at.value.ndim == 0:
        return _along(walk, op, name, 0, "select", axis, index=int(at.value))
    return _along(walk, op, name, 0, "index_select", axis, index=at)


def reverse(walk: Walker, op: Operator, name: str) -> Any:
    rank = len(walk.file.tensors[op.inputs[0]].shape)
    axes = _constant(walk, op, name, 1, "the axes")
    dims = [axis_first(a, rank) for a in axes]
    renamed(walk, op)
    x = walk.value(op.inputs[0])
    if isinstance(x, Act) and x.order is None and _in_other_order(walk, op, 0):
        return in_order(walk, "flip", name, self=seen(walk, op, name), dims=axes)
    return walk.call("flip", op, name, dims=dims)


def pack(walk: Walker, op: Operator, name: str) -> Any:
    """Tensors of one shape along an axis of their own, which is the file's and no other's."""
    values = [walk.value(t) for t in op.inputs]
    if not as_they_are(walk, values):
        raise unlike(op, name)
    args = {"tensors": values, "dim": int(op.options.get("Axis", 0))}
    return lower(walk.low, Call("stack", name, True, args))


def concatenation(walk: Walker, op: Operator, name: str) -> Any:
    rank = len(walk.file.tensors[op.outputs[0]].shape)
    values = [walk.straight(op, name, _as_said(walk, t)) for t in op.inputs]
    if all(isinstance(v, Param) for v in values):
        every = [v.value for v in values if isinstance(v, Param)]
        return Param(name, np.concatenate(every, op.options["Axis"]), computed=True)
    acts = [v for v in values if isinstance(v, Act)]
    if rank == 2 and len(acts) == len(values) and any(walk.low.shape(v)[:2] != (1, 1) for v in acts):
        return _flattened(walk, op, name, acts)
    if any(isinstance(v, Param) for v in values) or not as_they_are(walk, values):
        every = [seen(walk, op, name, place) for place in range(len(values))]
        return in_order(walk, "cat", name, tensors=every, dim=op.options["Axis"] % rank)
    dim = axis_first(op.options["Axis"], rank)
    return walk.made("cat", name, tensors=values, dim=dim)


def _flattened(walk: Walker, op: Operator, name: str, maps: list[Act]) -> Any:
    """Vectors side by side, of which some are maps: a rule of PyTorch's takes these channel by channel."""
    shapes = [walk.low.shape(v) for v in maps]
    sizes = [math.prod(shape) for shape in shapes]
    if any(v.order is not None or v.dims != (1, n) for v, n in zip(maps, sizes, strict=True)):
        every = [seen(walk, op, name, place) for place in range(len(maps))]
        return in_order(walk, "cat", name, tensors=every, dim=op.options["Axis"] % 2)
    made = lower(walk.low, Call("cat", name, True, {"tensors": maps, "dim": op.options["Axis"] % 2}))
    begins = np.cumsum([0, *sizes])
    order = [
        n + np.arange(h * w * c).reshape(c, -1).T.ravel()
        for n, (h, w, c) in zip(begins, shapes, strict=False)
    ]
    return held(walk.low, made.tensor, places(walk.low, made)[:, np.concatenate(order)])


def _as_said(walk: Walker, tensor: int) -> Any:
    """What an operator reads; tokens without an axis of 1 that the file says they have with it."""
    x, shape = walk.value(tensor), walk.file.tensors[tensor].shape
    if not isinstance(x, Act) or x.order is not None or x.pad or len(x.dims) == len(shape):
        return x
    return replace(x, dims=channels_first(shape))


def _along(walk: Walker, op: Operator, name: str, place: int, word: str, axis: int, **args: Any) -> Any:
    """What a call makes of an operator's input along one of its axes; of all places apart, views."""
    x, rank = walk.value(op.inputs[place]), len(walk.file.tensors[op.inputs[place]].shape)
    apart = _in_other_order(walk, op, place) or word in ("unbind", "select")
    if isinstance(x, Act) and apart:
        view = seen(walk, op, name, place)
        return in_order(walk, word, name, self=view, dim=axis % max(rank, 1), **args)
    return lower(walk.low, Call(word, name, True, {"self": x, "dim": axis_first(axis, rank), **args}))


def _in_other_order(walk: Walker, op: Operator, place: int) -> bool:
    """Whether a rule of images would take other axes of what is read for its channels, rows and columns, or a
    vector's numbers for those of a map that is flattened channel by channel."""
    x, shape = walk.value(op.inputs[place]), walk.file.tensors[op.inputs[place]].shape
    if not isinstance(x, Act):
        return False
    h, w, c = walk.low.shape(x)
    flat = len(shape) == 2 and h * w > 1 and c > 1
    as_column = len(shape) == 4 and x.dims == (walk.low.batch, c, h, w) != channels_first(shape)  # one row
    return x.order is not None or flat or as_column or (len(shape) > 1 and shape[0] != walk.low.batch)


def _constant(walk: Walker, op: Operator, name: str, place: int, what: str) -> Sequence[int]:
    found = walk.value(op.inputs[place])
    if not isinstance(found, Param) or not found.value.size:
        raise ConvertError(f"layer {name}: {what} of {op.kind} must be a constant")
    return [int(n) for n in np.ravel(found.value)]
