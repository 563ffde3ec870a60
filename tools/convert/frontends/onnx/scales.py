"""Activations of ONNX with limits, and what QuantizeLinear and DequantizeLinear say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import NORM
from microtrain.convert.nearest import NO_CHANCE, unsupported
from microtrain.convert.ops.curves import MIRRORED
from microtrain.convert.ops.functions import CLIP, SELU

from ..clean.fold import TAKES_RELU, folds
from .file import BFLOAT16, BYTES, DOUBLE, FLOAT, HALF, INT8, UINT8, Step
from .layers import of_several
from .values import WEIGHTED, Quantized, Turned, Value, Walker, channels_first, one_a_channel

REAL = (FLOAT, HALF, DOUBLE, BFLOAT16)
COMPARISONS = {"Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}


def clip(walk: Walker, step: Step) -> Value:
    limits = [walk.optional(step, i) for i in (1, 2)]
    if any(isinstance(v, Act | Turned) for v in limits):
        raise ConvertError(
            f"layer {step.name}: Clip by limits that are computed of the input is not supported; the nearest "
            "that is: constants, or Min and Max of two maps"
        )
    least, most = (float(np.ravel(v.value)[0]) if isinstance(v, Param) else None for v in limits)
    return walk.unary(step, "clamp", min=least, max=most)


def bound(walk: Walker, step: Step) -> Value:
    """Max and Min of an activation and one number, which is a limit of it; of one and a constant of several
    numbers; or of several maps."""
    values = [walk.value(name) for name in step.inputs]
    places = [place for place, v in enumerate(values) if isinstance(v, Act | Turned)]
    numbers = [v.value for v in values if isinstance(v, Param) and v.value.size == 1]
    if len(values) == 2 and len(places) == 1 and not numbers and isinstance(values[places[0]], Act):
        word, other = "maximum" if step.op == "Max" else "minimum", values[1 - places[0]]
        if isinstance(other, Param):
            return walk.made(step, word, self=values[places[0]], other=other)
    if (len(places), len(numbers), len(values)) != (1, 1, 2):
        return of_several(walk, step)
    limit = {"min" if step.op == "Max" else "max": float(np.ravel(numbers[0])[0])}
    return walk.like(step, walk.call(step, "clamp", self=walk.act(step, places[0]), **limit), places[0])


def dropout(walk: Walker, step: Step) -> Value:
    training = walk.optional(step, 2)
    if training is not None and not (isinstance(training, Param) and not np.any(training.value)):
        raise ConvertError(
            f"layer {step.name}: Dropout in training mode is not supported; the nearest that is: {NO_CHANCE}"
        )
    return walk.value(step.inputs[0])


def prelu(walk: Walker, step: Step) -> Value:
    value, slope = (walk.value(step.inputs[place]) for place in range(2))
    if isinstance(slope, Param) and slope.value.size > 1:
        alike = one_a_channel(slope, value)
        slope = replace(slope, value=slope.value.ravel()) if alike else _of_places(walk, step, value, slope)
    return walk.unary(step, "prelu", weight=slope)


def _of_places(walk: Walker, step: Step, value: Value, slope: Param) -> Param:
    """Slopes for each place of a map, in PyTorch's order of axes. ConvertError where they are others."""
    rank = len(walk.act(step).dims)
    full = slope.value.reshape((1,) * (rank - slope.value.ndim) + slope.value.shape)
    full = full.transpose(channels_first(rank)) if isinstance(value, Turned) and rank > 2 else full
    if rank != 4 or full.shape[0] != 1:
        raise unsupported(Call("prelu", step.name, True, {}))
    return replace(slope, value=full[0])


def selu(walk: Walker, step: Step) -> Value:
    """As PyTorch has it, where the node says nothing else."""
    if "alpha" not in step.attributes and "gamma" not in step.attributes:
        return walk.unary(step, "selu")
    args = {"alpha": walk.at(step, "alpha", SELU[0]), "scale": walk.at(step, "gamma", SELU[1])}
    return walk.unary(step, "elu", **args)


def cast(walk: Walker, step: Step) -> Value:
    """Between types of real numbers nothing changes. CastLike: to the type of another tensor."""
    value = walk.value(step.inputs[0])
    like = walk.value(step.inputs[1]) if step.op == "CastLike" else None
    if isinstance(value, Param) and not isinstance(like, Param):
        return Param(value.name, value.value.astype(np.float32))
    real = like.value.dtype.kind == "f" if isinstance(like, Param) else walk.at(step, "to", FLOAT) in REAL
    if isinstance(value, Act | Turned) and not real:
        raise ConvertError(
            f"layer {step.name}: {step.op} of activations to whole numbers or to truth values is not "
            "supported; the nearest that is: to a type of real numbers, which changes nothing"
        )
    return value


def hard_sigmoid(walk: Walker, step: Step) -> Value:
    """That of PyTorch, or of other slopes, as older Kerases have it."""
    alpha, beta = walk.at(step, "alpha", 0.2), walk.at(step, "beta", 0.5)
    if abs(alpha - 1 / 6) > 1e-4 or beta != 0.5:
        return walk.unary(step, "hard_sigmoid", alpha=alpha, beta=beta)
    return walk.unary(step, "hardsigmoid")


def shrink(walk: Walker, step: Step) -> Value:
    """PyTorch's hardshrink and softshrink, of one lambd each."""
    lambd, bias = walk.at(step, "lambd", 0.5), walk.at(step, "bias", 0.0)
    if bias not in (0.0, lambd):
        raise ConvertError(
            f"layer {step.name}: a Shrink of lambd {lambd:g} and bias {bias:g} is not supported; the nearest "
            "that is: a bias of 0, or of lambd"
        )
    return walk.unary(step, "softshrink" if bias else "hardshrink", lambd=lambd)


def compared(walk: Walker, step: Step) -> Value:
    """1 where an activation is more, or less, than one number, and else 0."""
    word = COMPARISONS[step.op]
    places = [place for place in (0, 1) if isinstance(walk.value(step.inputs[place]), Act | Turned)]
    if len(places) != 1:
        raise unsupported(Call(word, step.name, True, {}))
    word = MIRRORED[word] if places == [1] else word
    number, x = walk.value(step.inputs[1 - places[0]]), walk.act(step, places[0])
    return walk.like(step, walk.call(step, word, self=x, other=number), places[0])


def chosen(walk: Walker, step: Step) -> Value:
    """Where: of two maps or numbers, by what a comparison has made."""
    values = [walk.value(name) for name in step.inputs]
    maps = [v for v in values if isinstance(v, Act | Turned)]
    numbers = all(v.value.size == 1 for v in values if isinstance(v, Param))
    if len({type(v) for v in maps}) != 1 or not (numbers or isinstance(maps[0], Act)):
        raise unsupported(Call("where", step.name, True, {}))
    mask, a, b = (walk.plain(v) if isinstance(v, Act | Turned) else v for v in values)
    made = walk.call(step, "where", condition=mask, self=a, other=b)
    return Turned(made) if isinstance(maps[0], Turned) else made


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
    kind = walk.at(step, "output_dtype", UINT8)  # where no zero point says it
    if kind not in (UINT8, INT8) or walk.at(step, "block_size", 0):
        raise ConvertError(f"layer {step.name}: {BYTES}")
    unsigned = kind == UINT8 if zero is None else zero.value.dtype == np.uint8
    return scales, zeros - 128 if unsigned else zeros


def quantize(walk: Walker, step: Step) -> Value:
    """Of an activation: the scale and zero that it has from here on. Of a constant: its integers."""
    value = walk.value(step.inputs[0])
    if isinstance(value, Param):
        return value  # a DequantizeLinear follows, which rounds it
    act, said = walk.act(step), given(walk, step)
    own = walk.low.tensors[walk.low.tensor_of(act)].given
    if own is not None and own != said:
        act = walk.call(step, CLIP, self=act)
    elif own is None and said[1] == -128 and _is_cut(walk, step, act):
        act = _cut(walk, step, act, said)
    walk.low.give(act, *said)
    return walk.like(step, act)


def given(walk: Walker, step: Step) -> tuple[float, int]:
    """The one scale and zero that a step has for a tensor, as of int8."""
    scales, zeros = scale(walk, step)
    if len(scales) != 1 or not -128 <= zeros[0] <= 127:
        raise ConvertError(f"layer {step.name}: one scale and an int8 zero point are supported for a tensor")
    return float(np.float32(scales[0])), int(zeros[0])


def _cut(walk: Walker, step: Step, act: Act, said: tuple[float, int]) -> Act:
    """An activation behind the ReLU, or the clip from 0 to 6, that its integers are; once for all readers."""
    low, (scale, _) = walk.low, said
    op = "relu6" if abs(255 * scale - 6.0) <= 0.5 * scale else "relu"
    alike = (n for n in low.nodes if n.op == op and n.inputs == (low.tensor_of(act),))
    known = next((n.outputs[0] for n in alike if low.tensors[n.outputs[0]].given == said), None)
    made: Act = walk.call(step, op, self=act) if known is None else replace(act, tensor=known)
    return made


def _is_cut(walk: Walker, step: Step, act: Act) -> bool:
    """Whether a layer's results below zero are lost in the integers, which have none there.

    ONNX Runtime leaves out a ReLU or a clip from 0 to 6 that these make anyway. A gradient goes through them
    as it did. What makes the logits stays as it is.
    """
    makers = (node for node in walk.low.nodes if act.tensor in node.outputs)
    takes = any(node.op == NORM or folds(node) in TAKES_RELU for node in makers)
    return takes and not walk.low.is_input(act) and walk.goes_on(step, WEIGHTED)


def dequantize(walk: Walker, step: Step) -> Value:
    """Of an activation: its scale, where nothing has said it, as of an input that arrives in integers. Of a
    constant: real numbers, and their scales where they take 8 bits."""
    value = walk.value(step.inputs[0])
    if (
        isinstance(value, Act | Turned)
        and walk.low.tensors[walk.low.tensor_of(walk.plain(value))].given is None
    ):
        walk.low.give(walk.plain(value), *given(walk, step))
    if not isinstance(value, Param):
        return value
    scale, zero = walk.value(step.inputs[1]), walk.optional(step, 2)
    if not isinstance(scale, Param):
        raise ConvertError(
            f"layer {step.name}: scales that are computed are not supported; make them constants"
        )
    if walk.at(step, "block_size", 0) or scale.value.ndim > 1:
        raise ConvertError(f"layer {step.name}: {BYTES}")
    shape = [1] * value.value.ndim
    if scale.value.size > 1:
        shape[walk.at(step, "axis", 1)] = scale.value.size
    scales = scale.value.astype(np.float64).reshape(shape)
    zeros = (
        zero.value.astype(np.int64).reshape(shape) if isinstance(zero, Param) else np.zeros(shape, np.int64)
    )
    stored, bits = value.value, 8 * value.value.dtype.itemsize
    if stored.dtype.kind == "f":
        unsigned = isinstance(zero, Param) and zero.value.dtype == np.uint8
        least, most = (0, 255) if unsigned else (-128, 127)
        stored, bits = np.clip(np.rint(stored / scales) + zeros, least, most), 8
    real = ((stored.astype(np.float64) - zeros) * scales).astype(np.float32)
    return Quantized(value.name, real, scale=scales) if bits == 8 else Param(value.name, real)
