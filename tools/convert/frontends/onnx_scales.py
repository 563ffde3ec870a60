"""Activations of ONNX with limits, and what QuantizeLinear and DequantizeLinear say."""

from __future__ import annotations

import numpy as np

from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Param
from microtrain.convert.ops.functions import CLIP

from .onnx_file import Step
from .onnx_values import (
    Quantized,
    Value,
    Walker,
)


def clip(walk: Walker, step: Step) -> Value:
    limits = [walk.optional(step, i) for i in (1, 2)]
    least, most = (float(np.ravel(v.value)[0]) if isinstance(v, Param) else None for v in limits)
    return walk.unary(step, "clamp", min=least, max=most)


def prelu(walk: Walker, step: Step) -> Value:
    return walk.unary(step, "prelu", weight=walk.value(step.inputs[1]))


def hard_sigmoid(walk: Walker, step: Step) -> Value:
    alpha, beta = walk.at(step, "alpha", 0.2), walk.at(step, "beta", 0.5)
    if abs(alpha - 1 / 6) > 1e-4 or beta != 0.5:
        raise ConvertError(
            f"layer {step.name}: a HardSigmoid of {alpha:g} x + {beta:g} is not supported; the nearest that "
            "is: that of PyTorch, x / 6 + 0.5"
        )
    return walk.unary(step, "hardsigmoid")


def scale(walk: Walker, step: Step) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of a QuantizeLinear or DequantizeLinear; zeros as of int8."""
    scale, zero = walk.value(step.inputs[1]), walk.optional(step, 2)
    if not isinstance(scale, Param) or not (zero is None or isinstance(zero, Param)):
        raise ConvertError(
            f"layer {step.name}: scales that are computed are not supported; make them constants"
        )
    scales = np.ravel(scale.value).astype(np.float64)
    zeros = np.zeros(scales.shape, np.int64) if zero is None else np.ravel(zero.value).astype(np.int64)
    if not (np.isfinite(scales) & (scales > 0)).all() or len(zeros) != len(scales) or not len(scales):
        raise ConvertError(f"layer {step.name}: its scales are not positive numbers")
    if zero is None or zero.value.dtype == np.uint8:
        zeros = zeros - 128
    return scales, zeros


def quantize(walk: Walker, step: Step) -> Value:
    """Of an activation: the scale and zero that it has from here on. Of a constant: its integers."""
    value = walk.value(step.inputs[0])
    if isinstance(value, Param):
        return value  # a DequantizeLinear follows, which rounds it
    scales, zeros = scale(walk, step)
    if len(scales) != 1 or not -128 <= zeros[0] <= 127:
        raise ConvertError(f"layer {step.name}: one scale and an int8 zero point are supported for a tensor")
    act = walk.act(step)
    given = (float(np.float32(scales[0])), int(zeros[0]))
    own = walk.low.tensors[walk.low.tensor_of(act)].given
    if own is not None and own != given:
        act = walk.call(step, CLIP, self=act)
    walk.low.give(act, *given)
    return walk.like(step, act)


def dequantize(walk: Walker, step: Step) -> Value:
    """Of an activation: nothing. Of a constant: real numbers, and their scales where they are symmetric."""
    value = walk.value(step.inputs[0])
    if not isinstance(value, Param):
        return value
    scale, zero = walk.value(step.inputs[1]), walk.optional(step, 2)
    if not isinstance(scale, Param):
        raise ConvertError(
            f"layer {step.name}: scales that are computed are not supported; make them constants"
        )
    shape = [1] * value.value.ndim
    if scale.value.size > 1:
        shape[walk.at(step, "axis", 1)] = scale.value.size
    scales = scale.value.astype(np.float64).reshape(shape)
    zeros = (
        zero.value.astype(np.int64).reshape(shape) if isinstance(zero, Param) else np.zeros(shape, np.int64)
    )
    stored = value.value
    if stored.dtype.kind == "f":
        unsigned = isinstance(zero, Param) and zero.value.dtype == np.uint8
        least, most = (0, 255) if unsigned else (-128, 127)
        stored = np.clip(np.rint(stored / scales) + zeros, least, most)
    real = ((stored.astype(np.float64) - zeros) * scales).astype(np.float32)
    symmetric = not zeros.any() and np.abs(stored.astype(np.float64)).max(initial=0) <= 128
    return Quantized(value.name, real, scale=scales) if symmetric else Param(value.name, real)
