"""TFLite's means, sums, maxima and minima over axes as calls of aten ops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import MEAN, WINDOW_MOST, ConvertError, Layer, Source, Window
from microtrain.convert.ops.aten.pool import of_rows
from microtrain.convert.ops.aten.squares import Piece
from microtrain.convert.ops.aten.stack import Stacked
from microtrain.convert.ops.conv import DENSE, DEPTHWISE
from microtrain.convert.ops.functions import CLIP

from ..aten.rules import lower
from ..clean.averages import of_shares
from .file import Operator
from .names import axis_first
from .tokens import in_order, reshaped, seen
from .values import Walker, channels_first, held, side_of

REDUCED = {"MEAN": "mean", "SUM": "sum", "REDUCE_MAX": "amax", "REDUCE_MIN": "amin"}


def reduced(walk: Walker, op: Operator, name: str) -> Any:
    """The mean, sum, maximum or minimum over the map, one of its sides, or the channels of each pixel."""
    x, axes = walk.whole(op, name), walk.value(op.inputs[1])
    shape = walk.file.tensors[op.inputs[0]].shape
    if isinstance(x, Stacked) and isinstance(axes, Param):
        return walk.made(REDUCED[op.kind], name, self=x, dim=[int(a) for a in np.ravel(axes.value)])
    if isinstance(x, Piece) and isinstance(axes, Param):
        dim = [axis_first(int(a), len(shape)) for a in np.ravel(axes.value)]
        keep = len(walk.file.tensors[op.outputs[0]].shape) == len(shape)
        return walk.call(REDUCED[op.kind], op, name, dim=dim, keepdim=keep)
    if not isinstance(x, Act) or not isinstance(axes, Param):
        raise ConvertError(f"layer {name}: the axes of {op.kind} must be constants")
    over, word = {int(a) % max(len(shape), 1) for a in np.ravel(axes.value)}, REDUCED[op.kind]
    left = walk.file.tensors[op.outputs[0]].shape
    if 0 in over and len(over) > 1 and shape[0] == 1:  # one sample stays one
        over, left = over - {0}, left if len(left) == len(shape) else (1, *left)
    if all(shape[a] == 1 for a in over):
        return _in_units(walk, op, name, reshaped(walk, op, name, left))
    h, w, c = walk.low.shape(x)
    one_side = len(shape) == 4 and over in ({1}, {2})
    as_channels = len(shape) > 2 and shape[-1] != c  # numbers over time, which are a vector
    if x.order is not None or as_channels or (one_side and shape[1:3] != (h, w)):
        keep = len(left) == len(shape)
        return in_order(walk, word, name, self=seen(walk, op, name), dim=sorted(over), keepdim=keep)
    spatial = set(range(1, len(shape) - 1))
    if not (one_side or over in (spatial, {len(shape) - 1})) or not spatial:
        raise ConvertError(
            f"layer {name}: {op.kind} of {list(shape)} over {sorted(over)} is not supported; the nearest "
            "that is: over height, width or both, over time, or over the channels"
        )
    dims = channels_first(left)
    image = replace(x, dims=(walk.low.batch, c, h, w))
    before, sides = walk.given(op.inputs[0]), (h, w) if over == spatial else (h, 1) if over == {1} else (1, w)
    stored = before is not None and side_of(walk.file.tensors[op.outputs[0]]) is not None
    if word == "mean" and stored and (one_side or over == spatial) and max(sides) <= WINDOW_MOST:
        return replace(_mean_by_a_multiplier(walk, name, image, sides), dims=dims)
    if word == "mean" and stored and over == {len(shape) - 1} and len(left) == len(shape):
        return replace(_mean_of_channels(walk, name, image), dims=dims)
    dim = [2, 3] if over == spatial else [min(over) + 1] if one_side else [1]
    args = {"self": image, "dim": dim, "keepdim": not one_side or len(dims) == 4}
    call = Call(word, name, True, args)
    made = lower(walk.low, call)
    if over == {len(shape) - 1} and len(left) > 2 and min(h, w) > 1 and left[-1] > 1:  # columns come last
        return held(walk.low, made.tensor, np.arange(h * w).reshape(left))
    return replace(of_rows(walk.low, call, made) if made.half else made, dims=dims)


def _in_units(walk: Walker, op: Operator, name: str, x: Act) -> Any:
    """A view in the scale that the file says, which is another one than that of what it is of."""
    before, after = walk.given(op.inputs[0]), side_of(walk.file.tensors[op.outputs[0]])
    if before is None or after in (None, before):
        return x
    return walk.made(CLIP, name, self=x)


def _mean_by_a_multiplier(walk: Walker, name: str, x: Act, sides: tuple[int, int]) -> Act:
    """The mean over a map as MEAN rounds it, which AVERAGE_POOL_2D does otherwise: a sum and a multiplier.

    sides  of the map, or of one row or column of it
    """
    h, w, c = walk.low.shape(x)
    layer, window = f"{name}.share", Window(*sides, *sides)
    walk.low.layers[layer] = of_shares(c, sides, 1.0 / (sides[0] * sides[1]), MEAN)
    call, made = Call("mean", name, True, {}), (*window.outputs(h, w), c)
    return walk.low.emit(call, DEPTHWISE, (x,), made, layer=layer, window=window)


def _mean_of_channels(walk: Walker, name: str, x: Act) -> Act:
    """The same of the channels of each pixel."""
    h, w, c = walk.low.shape(x)
    layer, share = f"{name}.share", np.full((1, 1, 1, c), 1.0 / c, np.float32)
    walk.low.layers[layer] = Layer(share, np.zeros(1, np.float32), Source(""), share.ravel()[:1], sums=MEAN)
    call = Call("mean", name, True, {})
    return walk.low.emit(call, DENSE, (x,), (h, w, 1), layer=layer, window=Window(1, 1))
