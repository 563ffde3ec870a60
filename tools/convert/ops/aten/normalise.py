"""Normalisations of PyTorch that do not depend on the batch: of groups, of layers, of instances."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import Layer, Source, Window
from microtrain.convert.lowering import Lowering

from .. import position, scale_values
from ..table import Aten
from .conv import conv2d

GROUP_NORM = "normalise"
NO_ELEMENTS = (
    "a scale and a shift for each channel, for each place, or none: elementwise_affine=False, or "
    "nn.GroupNorm(1, channels)"
)


def group_norm(low: Lowering, call: Call) -> Act:
    _one_batch(low, call)
    return normalised(low, call, int(call.get("num_groups", call.args.get("group", 1))))


def _one_batch(low: Lowering, call: Call) -> None:
    """ConvertError for a view whose first axis is not the batch: along that its norms are apart, too."""
    x = low.activation(call, call.x)
    if x.dims[0] != low.batch and not low.is_stand_in(x):
        raise call.error(
            f"{call.op} of {list(x.dims)}, a batch of {x.dims[0]}, is not supported; the nearest that is: a "
            f"batch of {low.batch}"
        )


def instance_norm(low: Lowering, call: Call) -> Act:
    """A group a channel; of a view [n, groups, rest] of an image, a group for each of its rows."""
    x = low.activation(call, call.x)
    _one_batch(low, call)
    if not call.get("use_input_stats", True):
        raise call.error("an instance norm with running statistics is a batch norm: use nn.BatchNorm2d")
    return normalised(low, call, x.dims[1] if len(x.dims) > 2 else low.shape(x)[2])


def layer_norm(low: Lowering, call: Call) -> Act:
    """Over all but the batch, over the channels of a vector, or of a view [n, groups, rest] over the rest."""
    x = low.activation(call, call.x)
    over = [int(d) for d in call.args["normalized_shape"]]
    plain = x.order is None and call.args.get("weight") is None and call.args.get("bias") is None
    if plain and over == list(x.dims[2:]) and x.dims[0] == low.batch and low.shape(x)[2] % x.dims[1] == 0:
        return normalised(low, call, x.dims[1])
    if math.prod(over) * low.batch != math.prod(x.dims):
        raise call.error(
            f"a layer norm over the last {len(over)} of the dimensions {list(x.dims)} is not supported; the "
            "nearest that is: one over all but the batch, or nn.GroupNorm(1, channels)"
        )
    return normalised(low, call, 1)


def normalised(low: Lowering, call: Call, groups: int, apart: bool = False) -> Act:
    """The op, and behind it a depthwise layer with the scale and shift of each channel, if there are any."""
    x = low.activation(call, call.x)
    h, w, c = low.shape(x)
    if groups < 1 or c % groups:
        raise call.error(f"{c} channels do not fall into {groups} groups of one size")
    factors = (float(call.get("eps", 1e-5)), float(groups), float(apart))
    made = low.emit(call, GROUP_NORM, (x,), (h, w, c), factors=factors)
    made = _times(low, call, made, float(call.get("gain", 1.0)))
    scale, shift = call.args.get("weight"), call.args.get("bias")
    if any(isinstance(p, Param) and p.value.shape == x.dims[1:] and p.value.size > c for p in (scale, shift)):
        return _of_places(low, call, replace(made, dims=x.dims), scale, shift)
    if scale is not None or shift is not None:
        own = _of_channels(low, call, scale, "weight", c)
        args = {
            "input": made,
            "weight": replace(own, value=own.value.reshape(c, 1, 1, 1)),
            "bias": None if shift is None else _of_channels(low, call, shift, "bias", c),
            "groups": c,
        }
        made = conv2d(low, replace(call, args=args))
    return replace(made, dims=x.dims)


def _times(low: Lowering, call: Call, made: Act, gain: float) -> Act:
    """All of it times a number: a layer that stays as it is, beside one that learns behind it."""
    if gain == 1.0:
        return made
    shape, name = low.shape(made), f"{call.node_name('gain')}{len(low.nodes)}".strip("/").replace("/", ".")
    c = shape[2]
    weight = np.full((c, 1, 1) if c > 1 else (1, 1, 1, 1), gain, np.float32)
    low.layers[name] = Layer(weight, np.zeros(c, np.float32), Source(""))
    op = "dwconv2d" if c > 1 else "conv2d"
    return low.emit(call, op, (made,), shape, layer=name, window=Window(1, 1))


def _of_places(low: Lowering, call: Call, made: Act, scale: Any, shift: Any) -> Act:
    """Times a constant for each number of a map [n, c, ...], plus another one, which stay frozen."""
    apart, (h, w, c) = replace(call, builtin=False), low.shape(made)
    for kind, given in (("weight", scale), ("bias", shift)):
        if given is None:
            continue
        param = low.constant(call, given, kind)
        table = np.moveaxis(np.broadcast_to(param.value, made.dims[1:]).reshape(c, h, w), 0, -1)
        if kind == "weight":
            made = scale_values.scaled(low, apart, made, table)
        else:
            added = position.added(low, apart, made, param.name, table.ravel())
            made = replace(added, dims=made.dims)
    return made


def _of_channels(low: Lowering, call: Call, given: Any, kind: str, c: int) -> Param:
    """A constant of one number a channel, which may stand at each place; a scale that is missing is 1."""
    if given is None:
        return Param(f"{call.module}.{kind}", np.ones(c, np.float32), computed=True)
    param = low.constant(call, given, kind)
    by_channel = param.value.reshape(c, -1) if param.value.size % c == 0 else param.value.reshape(1, -1)
    if len(by_channel) != c or np.ptp(by_channel, axis=1).any():
        raise call.error(
            f"{param.name} has {param.value.size} numbers for {c} channels, one for each place of the map; "
            f"the nearest that is supported: {NO_ELEMENTS}"
        )
    return replace(param, value=np.ascontiguousarray(by_channel[:, 0]))


_GROUPS = "input num_groups weight bias eps"
ATEN: Mapping[str, Aten] = {
    "group_norm": Aten(_GROUPS, group_norm),
    "layer_norm": Aten("input normalized_shape weight bias eps", layer_norm),
    "instance_norm": Aten(
        "input weight bias running_mean running_var use_input_stats momentum eps", instance_norm
    ),
}
