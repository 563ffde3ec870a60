"""TRANSPOSE_CONV of TFLite."""

from __future__ import annotations

from typing import Any

import numpy as np

from microtrain.base.mirrored import mirrored
from microtrain.convert.aten_call import Call, Param
from microtrain.convert.ir import ConvertError

from ..aten.rules import lower
from .file import Operator
from .layers import biases
from .shapes import one_row
from .values import Walker
from .windows import SAME, same, sides_of

WEIGHTS, INPUT, BIASES = 1, 2, 3  # places of its inputs; the first is the shape of the result


def conv_transpose(walk: Walker, op: Operator, name: str) -> Any:
    """Weights are [c_out, kh, kw, c_in], the first tap first."""
    if len(op.inputs) <= INPUT:
        raise ConvertError(f"layer {name}: {op.kind} lacks an input")
    x, turned = walk.image(op, name, INPUT)
    stored, weight = walk.file.tensors[op.inputs[WEIGHTS]], walk.value(op.inputs[WEIGHTS])
    if not isinstance(weight, Param) or weight.value.ndim != 4:
        raise ConvertError(f"layer {name}: the weights of {op.kind} must be a constant of four dimensions")
    order = (3, 0, 2, 1) if turned else (3, 0, 1, 2)  # as PyTorch has them
    values = mirrored(weight.value.transpose(order), 1)

    def back(w: np.ndarray) -> np.ndarray:
        return mirrored(w, 1).transpose(np.argsort(order))

    sizes = walk.file.tensors[op.outputs[0]].shape
    one_row(op, name, turned and sizes[1] > 1)
    strides, made = [op.options["StrideH"], op.options["StrideW"]], list(sizes[1:3])
    strides, made = (strides[::-1], made[::-1]) if turned else (strides, made)
    pads = []
    read = sides_of(walk.file.tensors[op.inputs[INPUT]].shape, turned)
    for size, out, stride, k in zip(read, made, strides, values.shape[2:], strict=True):
        before = same(out, k, stride, 1)[0] if op.options["Padding"] == SAME else 0
        pads.append((before, (size - 1) * stride + k - before - out))
    args = {
        "input": x,
        "weight": walk.at_home(op, WEIGHTS, f"{name}.weight", values, back),
        "straight": True,
        "bias": biases(walk, op, name, BIASES),
        "stride": strides,
        "padding": [*(before for before, _ in pads), *(behind for _, behind in pads)],
    }
    value = lower(walk.low, Call("conv_transpose2d", name, True, args))
    walk.keep_scale(name, stored)
    return value
