"""Trained integers back into the parameters that they came from, as a state dict of PyTorch has them.

At conversion batch norm was folded into the convolution before it (Jacob et al. 2018, section 3.2):

    W_fold[o] = W[o] * g[o], b_fold = (b - mean) * g + beta, g = gamma / sqrt(var + eps)

and stored as w = W_fold / s_w, b = b_fold / (s_x * s_w). Here it is un-folded: the statistics of
the batch norm stay, its beta takes the trained bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from microtrain.base import weight_norm
from microtrain.base.mirrored import mirrored
from microtrain.base.plan import Plan, block_of
from microtrain.base.rows import by_channels, by_pixels
from microtrain.base.trained import HWC, MIRRORED, STATISTICS, TURNED, Trained

from .errors import DeviceError
from .weights import Arrays
from .whole import DEPTHWISE_RANK, whole

State = dict[str, np.ndarray]  # by their names in the model
FRACTION_BITS = {"s8": 8, "u4": 4}


@dataclass(frozen=True, eq=False)
class Folding:
    """What batch norm did to one convolution, float64 [c_out]. gain: g; shift: beta - mean * g (+ b * g).

    dead: channels that conversion folded into constants; they are never trained
    """

    gain: np.ndarray
    shift: np.ndarray
    dead: np.ndarray


def merge(plan: Plan, arrays: Arrays, state: State) -> tuple[State, list[str]]:
    """The parameters that were trained, float64 or float32, and remarks on what changed its shape.

    state    all parameters of the model
    Errors   DeviceError where it lacks a name of the plan or has another shape
    """
    merged: State = {}
    notes: list[str] = []
    plan, arrays = whole(plan, arrays)
    lengths = _lengths_of(plan, state)
    state = state | {v: weight_norm.weight(state[v], g) for v, (_, g) in lengths.items()}
    ways = {t.source.weight: way for t in plan.trainables.tensors if (way := _straightened(t, state))}
    rows = {name: t.source.rows for t in plan.trainables.tensors for name in _by_rows(t) if t.source.rows}
    flat = {t.source.weight for t in plan.trainables.tensors if _is_of_channels(t, state)}
    shapes = {name: np.shape(state[name]) for name in flat}
    state = state | {name: np.ravel(state[name]) for name in flat}
    state = {name: ways.get(name, np.asarray)(values) for name, values in state.items()}
    state |= {name: by_pixels(state[name], shape) for name, shape in rows.items() if name in state}
    for t in plan.trainables.tensors:
        if t.kind in STATISTICS:  # no parameter
            continue
        if not t.source.weight:
            raise DeviceError(
                f"forward() computes the weights of {t.layer}, so the model has no place for what they "
                "learned: keep it as .npz, by -o alone."
            )
        lookup(state, t.source.weight, plan)
        if t.kind == "weight":
            merge_weight(plan, t, arrays, state, merged)
        elif t.kind == "bias":
            notes += merge_bias(plan, t, arrays, state, merged)
        elif t.kind in ("head_weight", "head_bias"):
            notes += merge_head(plan, t, arrays[t.name], state, merged)
    merged |= {name: by_channels(merged[name], shape) for name, shape in rows.items() if name in merged}
    merged = {name: ways.get(name, np.asarray)(values) for name, values in merged.items()}
    merged |= {name: merged[name].reshape(shape) for name, shape in shapes.items() if name in merged}
    own = {g: weight_norm.lengths(merged[v], old) for v, (g, old) in lengths.items() if v in merged}
    return merged | own, notes


def _lengths_of(plan: Plan, state: State) -> dict[str, tuple[str, np.ndarray]]:
    """Of layers with weight normalisation: the name of the directions -> that of the lengths, and these."""
    pairs = {t.source.weight: weight_norm.beside(t.source.weight) for t in plan.trainables.tensors}
    return {v: (g, np.asarray(state[g])) for v, g in pairs.items() if v in state and g in state}


def _straightened(t: Trained, state: State) -> Callable[[np.ndarray], np.ndarray] | None:
    """What brings a layer's weights into the order of the others, and back; None where they have it."""
    old = state.get(t.source.weight)
    if old is None or t.source.columns not in (TURNED, MIRRORED):
        return None
    if t.source.columns == TURNED:
        return np.transpose
    depthwise = t.kind == "weight" and len(t.shape) == DEPTHWISE_RANK
    c_out = len(old) if depthwise else t.shape[0]
    return partial(mirrored, groups=max(c_out // old.shape[1], 1))


def _is_of_channels(t: Trained, state: State) -> bool:
    """Whether weights are one number a channel, in a shape like [1, c, 1, 1]."""
    shape = np.shape(state.get(t.source.weight, ()))
    single = t.kind == "weight" and len(t.shape) == DEPTHWISE_RANK and tuple(t.shape[1:]) == (1, 1)
    return single and len(shape) > 1 and max(shape) == math.prod(shape) != shape[0]


def _by_rows(t: Trained) -> tuple[str, ...]:
    """Names of all that has a number, or a row of them, for each output channel of a layer."""
    norm = [f"{t.source.bn}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    return (t.source.weight, bias_name(t), *(norm if t.source.bn else []))


def of_modules(plan: Plan, state: State) -> State:
    """Weights of modules that conversion has put beside blocks of the model, still without values."""
    own = (t for t in plan.trainables.tensors if block_of(t.layer) and t.kind == "weight")
    shapes = {t.source.weight: t.shape if len(t.shape) == 4 else (*t.shape, 1) for t in own}
    return {
        name: np.zeros((out, each, down, across))
        for name, (out, down, across, each) in shapes.items()
        if name not in state
    }


def merge_weight(plan: Plan, t: Trained, arrays: Arrays, state: State, merged: State) -> None:
    """W[:, channels] = w * s_w / g; depthwise W[channels]. Dead channels stay as they are."""
    original = weight_4d(plan, t, state)
    fold = folding(plan, t, state)
    stored = real_integers(plan, t, arrays)
    result = original.copy()
    depthwise = stored.ndim == 3
    if depthwise:
        channels = np.array(t.channels if t.channels is not None else range(stored.shape[0]))
        unit = per_channel(t, channels, original.shape[0]) / gain_or_one(fold)[channels]
        values = np.where(
            fold.dead[channels, None, None], original[channels, 0], stored * unit[:, None, None]
        )
        result[channels, 0] = values
    else:
        columns = np.array(t.channels if t.channels is not None else range(stored.shape[3]))
        unit = per_channel(t, np.arange(original.shape[0]), original.shape[0]) / gain_or_one(fold)
        values = stored.transpose(0, 3, 1, 2) * unit[:, None, None, None]
        result[:, columns] = np.where(fold.dead[:, None, None, None], original[:, columns], values)
    merged[t.source.weight] = restore_shape(t, result, state)


def merge_bias(plan: Plan, t: Trained, arrays: Arrays, state: State, merged: State) -> list[str]:
    """The real bias into bn.bias (beta' = b_real - (b - mean) * g), the convolution's, or bn's mean.

    Returns a remark where the model has no such parameter.
    """
    assert t.scale is not None
    fold = folding(plan, t, state)
    base = 0.0 if t.base is None else np.array(t.base)
    real = arrays[t.name].astype(np.float64) * np.array(t.scale) + base
    name, value = bias_home(plan, t, state, fold, real)
    old = np.asarray(state.get(name, real))
    merged[name] = np.where(fold.dead, old.ravel(), value).reshape(old.shape)
    return [] if name in state else [f"{name} is new: {t.layer} had no bias; bias=True makes room for it."]


def bias_home(
    plan: Plan, t: Trained, state: State, fold: Folding, real: np.ndarray
) -> tuple[str, np.ndarray]:
    """Which parameter takes a trained bias, and the value that makes the folded bias `real`."""
    bn, conv_bias = t.source.bn, t.source.bias
    if bn is not None and f"{bn}.bias" in state:
        beta = lookup(state, f"{bn}.bias", plan)
        return f"{bn}.bias", real - (fold.shift - beta)
    if conv_bias is not None:
        old = lookup(state, conv_bias, plan).ravel()
        return conv_bias, old + (real - fold.shift) / gain_or_one(fold)
    if bn is not None:
        mean = lookup(state, f"{bn}.running_mean", plan)
        return f"{bn}.running_mean", mean - (real - fold.shift) / gain_or_one(fold)
    return bias_name(t), real


def bias_name(t: Trained) -> str:
    """Of a layer's biases, which the model may not have."""
    return t.source.bias or weight_norm.plain(t.source.weight).removesuffix("weight") + "bias"


def merge_head(plan: Plan, t: Trained, array: np.ndarray, state: State, merged: State) -> list[str]:
    """The classifier as trained; its class count may differ from the original's."""
    if t.kind == "head_bias":
        name = bias_name(t)
        merged[name] = array
        return [] if name in state else [f"{name} is new: the model's classifier had no bias."]
    old = state[t.source.weight]
    matrix = array.reshape(array.shape[0], -1)
    h, w, c = flattened(plan, t, matrix.shape[1])
    if t.source.columns != HWC:
        matrix = matrix.reshape(-1, h, w, c).transpose(0, 3, 1, 2).reshape(matrix.shape[0], -1)
    if old.ndim > 2 and int(np.prod(old.shape[1:])) == matrix.shape[1]:  # a convolution of the whole map
        matrix = matrix.reshape(-1, *old.shape[1:])
    if tuple(old.shape)[1:] != matrix.shape[1:]:
        raise DeviceError(
            f"{t.source.weight} has shape {tuple(old.shape)} in the model, {matrix.shape} on the device: "
            "give the --model that was converted."
        )
    merged[t.source.weight] = matrix
    if old.shape[0] == matrix.shape[0]:
        return []
    return [f"{t.source.weight} has {matrix.shape[0]} classes now, {old.shape[0]} in the original model."]


def folding(plan: Plan, t: Trained, state: State) -> Folding:
    """g and the folded bias of the layer that `t` belongs to, from the original state dict."""
    weight = lookup(state, t.source.weight, plan)
    c_out = weight.shape[0]
    bias = lookup(state, t.source.bias, plan).ravel() if t.source.bias else np.zeros(c_out)
    gain, shift = np.ones(c_out), bias
    if t.source.bn is not None:
        bn = t.source.bn
        if t.source.eps is None and f"{bn}.running_var" not in state:
            raise DeviceError(
                f"{t.source.weight} was scaled by the constant {bn}, or that was added to it, which cannot "
                "be taken out of trained weights: keep what was learned as .npz, by -o alone, or train other "
                "layers."
            )
        gamma = lookup(state, f"{bn}.weight", plan) if f"{bn}.weight" in state else np.ones(c_out)
        beta = lookup(state, f"{bn}.bias", plan) if f"{bn}.bias" in state else np.zeros(c_out)
        gain = gamma / np.sqrt(lookup(state, f"{bn}.running_var", plan) + eps_of(plan, t))
        shift = (bias - lookup(state, f"{bn}.running_mean", plan)) * gain + beta
    dead = np.isin(np.arange(c_out), t.dead)
    return Folding(gain, shift, dead)


def eps_of(plan: Plan, t: Trained) -> float:
    """eps of the batch norm behind a layer, as conversion read it from the model."""
    if t.source.eps is None:
        raise DeviceError(
            f"{plan.path} does not say the eps of {t.source.bn}, since an older microtrain convert wrote it: "
            "convert again."
        )
    return t.source.eps


def gain_or_one(fold: Folding) -> np.ndarray:
    """g, with 1 in dead channels, where g may be 0 and the quotient is not used."""
    return np.where(fold.dead, 1.0, fold.gain)


def real_integers(plan: Plan, t: Trained, arrays: Arrays) -> np.ndarray:
    """Stored weights in units of s_w, with their fraction where the scheme keeps one."""
    fraction = plan.find(t.layer, "fraction")
    whole = arrays[t.name].astype(np.float64)
    if fraction is None:
        return whole
    part = arrays[fraction.name].astype(np.float64).reshape(whole.shape)
    return np.asarray(whole + part / 2.0 ** FRACTION_BITS[fraction.dtype])


def per_channel(t: Trained, channels: np.ndarray, c_out: int) -> np.ndarray:
    """s_w of the given output channels; the plan lists all of them, or the trained ones only."""
    assert t.scale is not None
    scale = np.array(t.scale, np.float64)
    return scale[channels] if len(scale) == c_out else scale


def weight_4d(plan: Plan, t: Trained, state: State) -> np.ndarray:
    """The original weight as (o, i, kh, kw); a hidden linear layer is a convolution over its whole map."""
    weight = lookup(state, t.source.weight, plan)
    if weight.ndim > 2 and weight[0, 0].size == 1 and len(t.shape) == 4 and t.shape[1] > 1:
        return weight.reshape(-1, 1, t.shape[1], 1)  # of one pixel, across the tokens that are its channels
    if weight.ndim == 4:
        return weight
    if weight.ndim == 1:  # the scale of a group norm
        return weight[:, None, None, None]
    if weight.ndim == 3:  # of a series, whose steps in time are rows
        return weight[..., None]
    h, w, c = flattened(plan, t, weight.shape[1])
    if t.source.columns == HWC:
        return weight.reshape(-1, h, w, c).transpose(0, 3, 1, 2)
    return weight.reshape(-1, c, h, w)


def restore_shape(t: Trained, weight: np.ndarray, state: State) -> np.ndarray:
    """The inverse of weight_4d."""
    if t.source.columns == HWC:
        weight = weight.transpose(0, 2, 3, 1)
    return weight.reshape(tuple(state[t.source.weight].shape))


def flattened(plan: Plan, t: Trained, features: int) -> tuple[int, int, int]:
    """(h, w, c) that a linear layer reads: a token, a patch or all of its input, or the layer before."""
    names = [row.layer for row in plan.layers]
    at = names.index(t.layer) if t.layer in names else len(names)
    own, made = (plan.layers[at].input, plan.layers[at].output) if at < len(names) else ((1, 1, 0), (1, 1, 0))
    each = (own[0] // made[0], own[1] // made[1], own[2])
    before = plan.layers[at - 1].output if at else (1, 1, 0)
    if own[0] * own[1] > 1 and int(np.prod(each)) == features:
        return each
    return before if int(np.prod(before)) == features else (1, 1, features)


def lookup(state: State, name: str | None, plan: Plan) -> np.ndarray:
    if name is None or name not in state:
        raise DeviceError(
            f"the model has no {name}, which {plan.path} names: give the --model that was converted."
        )
    return np.asarray(state[name], np.float64)
