"""Front-end rules of calls on tokens that read an image: as the image that they are, or turned into one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param, pair
from microtrain.convert.lowering import Lowering

from ..calls import Natural
from ..tokens import as_map, numbers, places, settled, turnable, view_of, viewed, whole
from . import across, blocks
from .resample import padded
from .unflatten import is_last

CONVOLUTIONS = ("conv1d", "conv2d", "convolution", "_convolution")


def as_image(low: Lowering, call: Call, natural: Natural) -> Any:
    """Any other call reads an image; tokens are turned into one, or the call is refused."""
    seen = {key: _seen(low, call, v) if isinstance(v, Act) else v for key, v in call.args.items()}
    acts = [v for v in seen.values() if isinstance(v, Act)]
    if not all(is_image(low, v) for v in acts):
        pointwise = _pointwise(low, call, natural)
        if pointwise is not None:
            return pointwise
        seen = {
            key: across.as_image(low, call, settled(low, call, v))
            if isinstance(v, Act) and not is_image(low, v)
            else v
            for key, v in seen.items()
        }
        acts = [v for v in seen.values() if isinstance(v, Act)]
    if acts and all(is_image(low, v) for v in acts):
        return natural(low, replace(call, args=seen))
    dims = ", ".join(str(list(v.dims)) for v in acts) or "tokens"
    raise call.error(
        f"the op {call.op} of tokens {dims} is not supported; the nearest that is: linear, layer_norm, "
        "attention, add and activations of tokens, and convolutions of maps [n, c, h, w]"
    )


def _seen(low: Lowering, call: Call, x: Act) -> Act:
    """A view as the image that it is of already; others as they are."""
    return blocks.seen(low, call, as_map(low, _as_stored(low, x)))


def is_image(low: Lowering, x: Act) -> bool:
    vector = is_last(x) and low.shape(x)[:2] == (1, 1)
    return x.order is None and x.factor == 1 and not (vector or is_sequence(low, x) or is_other(low, x))


def is_sequence(low: Lowering, act: Act) -> bool:
    return act.tensor in low.last and act != whole(low, act)


def is_row(low: Lowering, act: Act) -> bool:
    """Whether a view is of a line of pixels, seen along the other axis: [n, c, w] or [n, c, w, h]."""
    h, w, c = low.shape(act)
    if min(h, w) > 1 or h == w or low.is_input(act) or low.is_stand_in(act) or act.half:
        return False
    return act.dims == (low.batch, c, w, h) or (h == 1 and act.dims == (low.batch, c, w))


def is_other(low: Lowering, act: Act) -> bool:
    """Whether a view is an image of other sides and channels than the map that it is of."""
    if len(act.dims) not in (3, 4) or act.dims[0] != low.batch or low.is_stand_in(act) or act.half:
        return False
    low.declare_anew(act)
    h, w, c = low.shape(act)
    return act.dims != (low.batch, c, h, w) and not (w == 1 and act.dims == (low.batch, c, h)) and h * w > 1


def pad(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of an image [n, h, w, c], whose channels are last: around it; of others as an image"""
    x = turnable(low, call, call.x)
    widths = [int(p) for p in call.get("pad", None) or call.args["padding"]]
    h, w, c = low.shape(x)
    last = x.dims[1:] == (h, w, c) and np.array_equal(places(low, x).ravel(), np.arange(h * w * c))
    if not last or any(widths[:2]) or any(widths[6:]) or x.factor != 1:
        return as_image(low, call, natural)
    if call.get("mode", "constant") != "constant" or call.get("value", None) not in (None, 0, 0.0):
        return as_image(low, call, natural)
    left, right, top, bottom = (*widths[2:6], 0, 0)[:4]
    made = padded(low, call, whole(low, x), (top, left, bottom, right), "constant")
    sizes = (x.dims[0], *low.shape(made))
    return view_of(low, made.tensor, np.arange(math.prod(sizes)).reshape(sizes))


def _pointwise(low: Lowering, call: Call, natural: Natural) -> Act | None:
    """A convolution of one pixel over tokens, in the order in which they lie; None where it is another call.

    Of tokens [n, tokens, features] it is a linear layer over the tokens, as some have MLP-Mixer.
    """
    x, weight = call.x, call.args.get("weight")
    if call.op not in CONVOLUTIONS or not isinstance(weight, Param) or len(x.dims) not in (3, 4):
        return None
    around = call.get("padding", 0)
    around = 0 if isinstance(around, str) else around  # "same" and "valid" are alike for one pixel
    sizes = [(call.get("groups", 1), 1), (call.get("stride", 1), 1), (around, 0)]
    plain = all(pair(value) == (least, least) for value, least in sizes) and not call.get("transposed", False)
    if not plain or {*weight.value.shape[2:]} != {1}:
        return None
    moved = viewed(low, x, np.moveaxis(numbers(low, x), 1, -1))
    if x.factor != 1 or across.spread(low, moved) is None:
        return None
    matrix = replace(weight, value=weight.value.reshape(weight.value.shape[:2]))
    args = {"input": moved, "weight": matrix, "bias": call.args.get("bias")}
    made = natural(low, replace(call, op="linear", args=args))
    return viewed(low, made, np.moveaxis(numbers(low, made), -1, 1))


def _as_stored(low: Lowering, x: Act) -> Act:
    """The input as an image of other sides, where a view of it is one in the order of the samples.

    Of a series x.transpose(1, 2).unsqueeze(1) is one: a pixel for each number, sensors side by side.
    """
    if len(x.dims) != 4 or x.factor != 1 or x.tensor in low.last or low.fixed or not low.is_input(x):
        return x
    at, (_, c, h, w) = places(low, x), x.dims
    stored = np.array_equal(at.transpose(0, 2, 3, 1).ravel(), np.arange(math.prod(low.shape(x))))
    if not stored or not low.redeclare((h, w, c)):
        return x
    low.reshaped = True
    return Act(x.tensor, x.dims)
