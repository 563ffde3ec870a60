"""ConvTranspose of ONNX."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from microtrain.base.mirrored import mirrored
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError

from ..aten.rules import lower
from .file import Step
from .layers import keep_scale
from .tokens import as_seen
from .values import Quantized, Value, Walker, named, two

Sides = tuple[int, int]


def conv_transpose(walk: Walker, step: Step) -> Value:
    x, given = as_seen(walk, step), walk.value(step.inputs[1])
    weight, bias, groups = (
        named(walk, step, given, "weight"),
        walk.optional(step, 2),
        walk.at(step, "group", 1),
    )
    rank = weight.value.ndim - 2
    if rank not in (1, 2) or groups < 1 or len(weight.value) % groups:
        raise ConvertError(
            f"layer {step.name}: weights of shape {list(weight.value.shape)} in {groups} groups"
        )
    given = _of_rows(given, groups)
    values = weight.value.reshape(*weight.value.shape, *[1] * (2 - rank))

    def back(w: np.ndarray) -> np.ndarray:
        return mirrored(w, groups).reshape(-1, *weight.value.shape[1:])

    straight = Param(weight.name, mirrored(values, groups))
    pads = _sides(walk, step, x, values.shape[2:])
    args = {
        "input": x,
        "weight": walk.at_home(step, 1, straight, given, back),
        "straight": True,
        "bias": None if bias is None else walk.at_home(step, 2, named(walk, step, bias, "bias"), bias),
        "stride": two(walk.at(step, "strides", [1] * rank)),
        "padding": [*(before for before, _ in pads), *(behind for _, behind in pads)],
        "dilation": two(walk.at(step, "dilations", [1] * rank)),
        "groups": groups,
    }
    made: Act = lower(walk.low, Call("conv_transpose2d", step.name, True, args))
    keep_scale(walk, given, walk.low.nodes[-1].layer or "")
    return replace(made, dims=made.dims[: 2 + rank])


def _of_rows(given: Value, groups: int) -> Value:
    """A weight whose integers have a scale for each output channel of a group: for each of them all."""
    if not isinstance(given, Quantized) or given.scale.size == 1:
        return given
    if given.scale.shape[1:2] != (given.scale.size,):  # along another axis than that of output channels
        return Param(given.name, given.value)
    return replace(given, scale=np.tile(given.scale.reshape(-1), groups))


def _sides(walk: Walker, step: Step, x: Act, kernel: tuple[int, ...]) -> list[Sides]:
    """What is left out of the result at both ends of its height and of its width; fewer than none: zeros."""
    rank = max(len(x.dims) - 2, 1)
    auto = walk.at(step, "auto_pad", "NOTSET")
    more = [*walk.at(step, "output_padding", [0] * rank), 0][:2]
    pads = walk.at(step, "pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
    if len(pads) != 2 * rank:
        raise ConvertError(f"layer {step.name}: pads of {len(pads)} numbers; {2 * rank} belong there")
    strides, spread = (two(walk.at(step, key, [1] * rank)) for key in ("strides", "dilations"))
    wanted = walk.at(step, "output_shape", [])[-rank:]
    least = -math.inf
    if not wanted and auto.startswith("SAME"):  # never more than the windows reach
        wanted, least = [size * stride for size, stride in zip(x.dims[2:], strides, strict=False)], 0
    found = []
    for i, k in enumerate(kernel):
        before, behind = (pads[i], pads[i + rank]) if i < rank else (0, 0)
        if i < len(wanted):
            total = strides[i] * (x.dims[2 + i] - 1) + more[i] + (k - 1) * spread[i] + 1 - wanted[i]
            before, behind = _halves(step, int(max(total, least)), auto == "SAME_UPPER")
        found.append((before, behind - more[i]))
    return found


def _halves(step: Step, total: int, upper: bool) -> Sides:
    """What is left out at both ends, as ONNX has it since opset 11."""
    if total % 2 and total > 0:
        warnings.warn(
            f"layer {step.name}: its output_shape or auto_pad leaves out {total} pixels, an odd number, and "
            "runtimes do not agree at which end there is one more; taken as ONNX says it: write pads in its "
            "place",
            stacklevel=2,
        )
    half = max(total, 0) // 2
    return (half, total - half) if upper or total < 0 else (total - half, half)
