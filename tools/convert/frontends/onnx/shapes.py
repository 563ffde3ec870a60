"""Views, transpositions, padding, concatenation and cuts of ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.nearest import unsupported
from microtrain.convert.ops.aten import blocks as blocks_aten
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.pool import of_rows
from microtrain.convert.ops.aten.resample import WAYS, settled
from microtrain.convert.ops.aten.stack import Stacked, of_stacked
from microtrain.convert.ops.aten.token_images import is_row
from microtrain.convert.ops.aten.upsample import ROUNDINGS, of_onnx
from microtrain.convert.ops.tokens import places, turnable, view_of, whole

from .file import Step
from .tokens import as_seen, has_places, of_tokens, seen
from .values import Parts, Turned, Value, Walker, as_last, axis_map, channels_first, channels_last


def view(walk: Walker, step: Step) -> Value:
    value = walk.value(step.inputs[0])
    if isinstance(value, Scores):
        return walk.made(step, "view", self=value, size=list(new_dims(walk, step, value.dims)))
    x = walk.act(step)
    turned = isinstance(value, Turned)
    dims = as_last(x.dims) if turned else x.dims
    new = new_dims(walk, step, dims)
    if math.prod(new) != math.prod(dims):
        batch = (walk.file.sizes.get(walk.file.inputs[0]) or (1,))[0]
        many = f"; the file is for batches of {batch}: export it for one sample" if (batch or 1) > 1 else ""
        raise ConvertError(f"layer {step.name}: cannot view {list(dims)} as {list(new)}{many}")
    if x.pad is not None and turned:
        row = _row(walk, x, tuple(new[i] for i in channels_first(len(new))))
        if row is not None:
            return Turned(row)
        x = settled(walk.low, Call("view", step.name, False, {"self": x})).x
        value = Turned(x)
    if x.pad is not None and not turned:
        return _row(walk, x, new) or walk.made(step, "view", self=x, size=list(new))
    vector = len([d for d in new if d != 1]) <= 1
    straight = vector and (len(new) < 3 or not has_places(walk, x))
    if (turned and not straight) or of_tokens(walk, (x,)):
        return walk.made(step, "view", self=seen(walk, step, value), size=list(new))
    if not turned and new[:1] == dims[:1] and _is_input(walk, step, x, len(new)):
        given = walk.low.tensors["input"].given
        made = walk.low.input((1, *new[1:]))
        if given:
            walk.low.give(made, *given)
        return made
    whole = None if turned else blocks_aten.joined(walk.low, Call("view", step.name, True, {}), x, new)
    made = whole or replace(x, dims=new)
    return Turned(made) if turned and has_places(walk, x) else made


def _row(walk: Walker, x: Act, new: tuple[int, ...]) -> Act | None:
    """A view of what has zeros around it, as a series that is one row of a map: they lie beside it."""
    h, _, c = walk.low.shape(x)
    if x.pad is not None and h == 1 and len(x.dims) == 3 and new == (walk.low.batch, c, 1, x.dims[2]):
        before, _, behind, _ = x.pad
        return replace(x, dims=new, pad=(0, before, 0, behind))
    return None


def _is_input(walk: Walker, step: Step, x: Act, rank: int) -> bool:
    """Whether a view of the input is what the network reads: an image, or a series that is convolved."""
    if x.tensor != "input" or walk.low.nodes or isinstance(walk.env[walk.file.inputs[0]], Turned):
        return False
    readers = [s.op for s in walk.file.steps if step.outputs[0] in s.inputs]
    return rank == 4 or (rank == 3 and (len(x.dims) != 4 or "Conv" in readers))


def new_dims(walk: Walker, step: Step, dims: Sequence[int]) -> tuple[int, ...]:
    """Dimensions behind a step that only changes the shape."""
    rank = len(dims)
    if step.op == "Flatten":
        axis = walk.at(step, "axis", 1)
        axis += rank if axis < 0 else 0
        return (math.prod(dims[:axis]), math.prod(dims[axis:]))
    axes = walk.numbers(step, 1, "axes")
    if step.op == "Squeeze":
        gone = {a % rank for a in axes} if axes is not None else {i for i in range(rank) if dims[i] == 1}
        return tuple(d for i, d in enumerate(dims) if i not in gone)
    if step.op == "Unsqueeze":
        left, total = list(dims), rank + len(axes or [])
        for a in sorted(a % total for a in axes or []):
            left.insert(a, 1)
        return tuple(left)
    wanted = walk.numbers(step, 1, "shape") or []
    wanted = [dims[i] if d == 0 and i < rank else d for i, d in enumerate(wanted)]
    known = math.prod(d for d in wanted if d != -1)
    return tuple(math.prod(dims) // known if d == -1 and known else d for d in wanted)


def transpose(walk: Walker, step: Step) -> Value:
    value = walk.value(step.inputs[0])
    x = walk.act(step)
    rank = len(x.dims)
    perm = list(walk.at(step, "perm", range(rank)[::-1]))
    if perm == list(range(rank)):
        return value
    if isinstance(value, Turned) and perm == channels_first(rank):
        return x
    x = of_rows(walk.low, Call("mean", step.name, True, {}), x) if x.half else x
    if isinstance(value, Act) and perm == channels_last(rank) and x.dims[1:] == (walk.low.shape(x)[2], 1, 1):
        return Turned(x)
    if isinstance(value, Act) and x.order is None and len([d for d in x.dims if d != 1]) < 2:
        return replace(x, dims=tuple(x.dims[axis] for axis in perm))  # a vector: its numbers stay in order
    vector = walk.low.shape(x) == (1, 1, math.prod(x.dims))  # whose views have no channels to turn
    if isinstance(value, Act) and perm == channels_last(rank) and not vector and _is_map(walk, x):
        return Turned(x)
    if isinstance(value, Act) and rank > 4:
        return walk.unary(step, "permute", dims=perm)
    return walk.made(step, "permute", self=seen(walk, step, value), dims=perm)


def _is_map(walk: Walker, x: Act) -> bool:
    """Whether the second axis of a view is the channels of its map, and the others are its places."""
    h, w, c = walk.low.shape(x)
    plain = x.half or walk.low.is_stand_in(x) or is_row(walk.low, x)
    whole = x.dims[:2] == (walk.low.batch, c) and (len(x.dims) == 3 or x.dims[2:] == (h, w))
    return (plain or whole) and not of_tokens(walk, (x,))


def pad(walk: Walker, step: Step) -> Value:
    pads, fill = walk.numbers(step, 1, "pads") or [], walk.optional(step, 2)
    x = walk.act(step)
    rank = len(x.dims)
    axes = [_axis(walk, step, axis) for axis in walk.numbers(step, 3, "axes") or range(rank)]
    if len(pads) != 2 * len(axes):
        raise ConvertError(
            f"layer {step.name}: its pads are computed, or not two for each axis; they must be constants"
        )
    sides = dict(zip(axes, zip(pads, pads[len(axes) :], strict=False), strict=True))
    widths = [w for axis in range(rank - 1, -1, -1) for w in sides.get(axis, (0, 0))]
    value = float(np.ravel(fill.value)[0]) if isinstance(fill, Param) and fill.value.size else 0.0
    mode = walk.at(step, "mode", "constant")
    mode = {"edge": "replicate", "wrap": "circular"}.get(mode, mode)
    return walk.like(step, walk.call(step, "pad", self=x, pad=widths, mode=mode, value=value))


def resize(walk: Walker, step: Step) -> Value:
    """Lines between pixels, or nearest neighbours."""
    middle, sizes = walk.at(step, "coordinate_transformation_mode", "half_pixel"), _sizes(walk, step)
    args: dict[str, Any] = {"self": walk.act(step), **sizes}
    mode, rounding = walk.at(step, "mode", "nearest"), walk.at(step, "nearest_mode", "round_prefer_floor")
    fits = mode in ("nearest", "linear") and middle in WAYS and rounding in ROUNDINGS
    fits = fits and walk.at(step, "keep_aspect_ratio_policy", "stretch") == "stretch"
    word = "upsample_bilinear2d" if mode == "linear" else "upsample_nearest2d"
    args |= {"way": middle} if mode == "linear" else {"places": of_onnx(middle, rounding)}
    if not fits or not sizes or walk.at(step, "antialias", 0):
        raise unsupported(Call("resize", step.name, True, {}))
    return walk.like(step, walk.call(step, word, **args))


def tile(walk: Walker, step: Step) -> Value:
    """Rows or columns that stand several times side by side: of an axis of one behind that of theirs. What
    has one row, column or channel, and stands many times, is noted."""
    times, call = walk.numbers(step, 1, "repeats") or [], Call("tile", step.name, True, {})
    x = turnable(walk.low, call, as_seen(walk, step))
    axes = [axis for axis, n in enumerate(times) if n != 1]
    if not axes:
        return walk.value(step.inputs[0])
    at, (h, w, c) = places(walk.low, x), walk.low.shape(x)
    rows, columns, many = at // c // w, at // c % w, times[axes[0]]
    moved = [np.diff(v, axis=axes[0] - 1).any() for v in (rows, columns)]
    if x.order is None and all(x.dims[axis] == 1 for axis in axes) and sum(moved) != 1:
        return walk.made(step, "repeat", self=x, repeats=times)
    if len(axes) > 1 or not axes[0] or x.dims[axes[0]] != 1 or sum(moved) != 1:
        return walk.made(step, "repeat", self=x, repeats=times)
    copies = np.arange(many).reshape([many if axis == axes[0] else 1 for axis in range(len(times))])
    size = [h * many, w] if moved[0] else [h, w * many]
    args = {"output_size": size, "places": of_onnx("asymmetric", "floor")}
    made: Act = walk.call(step, "upsample_nearest2d", self=whole(walk.low, x), **args)
    rows, columns = (rows * many + copies, columns) if moved[0] else (rows, columns * many + copies)
    return view_of(walk.low, made.tensor, (rows * size[1] + columns) * c + at % c)


def _sizes(walk: Walker, step: Step) -> dict[str, Any]:
    """What rows and columns become, as factors or as sizes; nothing where other axes change."""
    dims = walk.act(step).dims
    axes = [_axis(walk, step, int(a)) for a in walk.at(step, "axes", range(len(dims)))]
    for place, name, same in ((2, "scale_factors", (1, 1)), (3, "output_size", dims[:2])):
        given = walk.optional(step, place)
        if isinstance(given, Param) and given.value.size == len(axes) > 0:
            found = {**dict(enumerate(same)), **dict(zip(axes, np.ravel(given.value).tolist(), strict=True))}
            if len(dims) > 2 and sorted(found) == [*range(len(dims))] and (found[0], found[1]) == same:
                return _with_size(dims, {name: [found[a] for a in range(2, len(dims))]})
    return {}


def _with_size(dims: Sequence[int], given: dict[str, Any]) -> dict[str, Any]:
    """Factors with the sizes that they give, rounded down in float32 as ONNX's runtimes do."""
    factors = given.get("scale_factors", [])
    sizes = [int(np.float32(d) * np.float32(f)) for d, f in zip(dims[2:], factors, strict=False)]
    return given | ({"output_size": sizes} if factors else {})


def blocks(walk: Walker, step: Step) -> Value:
    """Channels that become blocks of pixels, and blocks that become channels."""
    up = step.op == "DepthToSpace"
    first = not up or walk.at(step, "mode", "DCR") == "DCR"
    side = {"upscale_factor" if up else "downscale_factor": walk.at(step, "blocksize", 0)}
    args = {"self": as_seen(walk, step), "blocks_first": first, **side}
    return walk.made(step, "pixel_shuffle" if up else "pixel_unshuffle", **args)


def concat(walk: Walker, step: Step) -> Value:
    values = [walk.value(i) for i in step.inputs]
    if parts := _parts(walk, step, values):
        return parts
    turned = all(isinstance(v, Turned) for v in values)
    mixed = any(isinstance(v, Param) or (isinstance(v, Turned) and not turned) for v in values)
    if mixed or of_tokens(walk, values):
        tokens = [seen(walk, step, v) for v in values]
        return walk.made(step, "cat", tensors=tokens, dim=walk.at(step, "axis", 1))
    acts = [walk.plain(v) for v in values if isinstance(v, Act | Turned)]
    rank = len(acts[0].dims)
    axis = walk.at(step, "axis", 1) % rank
    axis = axis_map(rank)[axis] if turned else axis
    made = walk.call(step, "cat", tensors=acts, dim=axis)
    if turned and isinstance(made, Stacked):
        raise ConvertError(f"layer {step.name}: {of_stacked('Concat')}")
    return Turned(made) if turned else made


def _parts(walk: Walker, step: Step, values: Sequence[Value]) -> Parts | None:
    """What lies one behind the other only to be gathered again, as PyTorch has the last states of each layer
    of cells; None where it is read in another way."""
    out, acts = step.outputs[0], tuple(v for v in values if isinstance(v, Act))
    readers = [s for s in walk.file.steps if out in s.inputs]
    if out in walk.file.outputs or len(acts) < len(values) or not readers:
        return None
    axis = walk.at(step, "axis", 0) % len(acts[0].dims)
    gathered = all(s.op == "Gather" and walk.at(s, "axis", 0) == axis for s in readers)
    return Parts(acts, axis) if gathered and len(acts) > 1 else None


def split(walk: Walker, step: Step) -> list[Value]:
    """Into the sizes that are given, else into equal parts, the last of which may be smaller."""
    axis = _axis(walk, step, walk.at(step, "axis", 0))
    sizes, parts = walk.numbers(step, 1, "split"), len(step.outputs)
    size = -(-walk.act(step).dims[axis] // max(parts, 1))
    made = walk.call(step, "split", self=walk.act(step), split_size=sizes or size, dim=axis)
    if len(made) != parts:
        raise ConvertError(f"layer {step.name}: a split into {len(made)} parts has {parts} results")
    return [walk.like(step, part) for part in made]


def cut(walk: Walker, step: Step) -> Value:
    """Slice, of one axis or of several."""
    starts, ends = (walk.numbers(step, i, name) for i, name in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        raise ConvertError(f"layer {step.name}: where the slice begins and ends is computed")
    axes = walk.numbers(step, 3, "axes") or list(range(len(starts)))
    steps = walk.numbers(step, 4, "steps") or [1] * len(starts)
    x = walk.act(step)
    b, c, t = (*x.dims, 0, 0)[:3]
    is_row = len(x.dims) == 3 and x.order is None and walk.low.shape(x) == (1, t, c) and t > 1
    x = replace(x, dims=(b, c, 1, t)) if is_row else x  # a series that is one row of a map
    for axis, start, end, by in zip(axes, starts, ends, steps, strict=True):
        at, span = _axis(walk, step, axis), {"start": start, "end": end, "step": by}
        x = walk.call(step, "slice", self=x, dim=at + (is_row and at == 2), **span)
    return walk.like(step, replace(x, dims=(*x.dims[:2], x.dims[3])) if is_row else x)


def _axis(walk: Walker, step: Step, axis: int) -> int:
    """An axis of the first input, as NCHW has it."""
    rank = len(walk.act(step).dims)
    turned = isinstance(walk.value(step.inputs[0]), Turned)
    return axis_map(rank)[axis % rank] if turned else axis % rank
