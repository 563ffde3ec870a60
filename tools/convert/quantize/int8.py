"""Post-training quantization: float graph and ranges in, int8 graph out.

Activations int8, one scale and zero per tensor; weights int8, symmetric, one scale per channel; biases int32
in units of s_x * s_w; the head stays float. Every activation scale is a float32 number, since C computes with
it; all other scales are derived in double precision from those.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from microtrain.convert.ir import ConvertError, Graph, Input, Layer, Tensor
from microtrain.convert.limits import DEAD_SCALE, bias_room, prove
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.bounds import INT32_MAX, reach
from microtrain.convert.ops.outputs import Output, float32, scale_and_zero
from microtrain.convert.ops.table import Learns
from microtrain.convert.reference.biases import DEAD_MULTIPLIER

QuantizeLayer = Callable[[str, Layer, Tensor, Tensor], Layer]  # name, float layer, its input and its output


def quantize(
    graph: Graph, ranges: Mapping[str, tuple[float, float]], weights: QuantizeLayer | None = None
) -> Graph:
    """Quantize a float graph by the ranges (least, greatest) of its tensors.

    weights  what quantizes a layer, in place of quantize_layer()
    Channels too small to train are folded into constants, those of which a file has nine bits are rounded; a
    UserWarning each counts them.
    Raises ConvertError where a tensor has no range or a layer's sums cannot stay inside int32.
    """
    entry, first = quantize_input(graph)
    tensors = {first.name: first}
    layers: dict[str, Layer] = {}
    for node in graph.nodes:
        op = forward_op(node)
        y = op.output(Output(node, graph.tensors[node.outputs[0]], tensors[node.inputs[0]], ranges))
        tensors[y.name] = y
        if op.learns is Learns.COLUMNS:
            name = node.layer or ""
            made = weights or quantize_layer
            layers[name] = made(name, graph.layers[name], tensors[node.inputs[0]], y)
        elif node.layer:
            layers[node.layer] = graph.layers[node.layer]
    warn_dead(graph.name, layers)
    _warn_rounded(graph, layers)
    return graph.replace(input=entry, tensors=tensors, layers=layers)


def quantize_input(graph: Graph) -> tuple[Input, Tensor]:
    """How pixels are stored, from the float graph's own gain and offset.

    One mean and std for all channels, mean in [0, 1]: the stored value is pixel - 128, its scale that of one
    pixel step and its zero the pixel nearest the mean; so no image loses a bit, and real values are right to
    half a pixel step. Otherwise all channels are scaled into the one range that holds every normalised pixel.
    A file that says how its first layers round has a table, and what that makes.
    """
    old = graph.tensors[graph.input.tensor]
    gain, offset = np.array(graph.input.gain), np.array(graph.input.offset)
    if graph.input.table:
        scale, at = graph.input.stored
        return graph.input, replace(old, dtype="s8", scale=float32(scale), zero=at, given=None)
    zero = np.rint(-offset[0] / gain[0]) - 128.0
    alike = (gain == gain[0]).all() and (offset == offset[0]).all()
    if alike and gain[0] > 0 and -128.0 <= zero <= 127.0:
        tensor = replace(old, dtype="s8", scale=float32(gain[0]), zero=int(zero), given=None)
        return Input(old.name, (1.0,) * len(gain), (-128.0,) * len(gain)), tensor
    ends = np.concatenate([offset, offset + 255.0 * gain])
    scale, at = scale_and_zero(float(ends.min()), float(ends.max()))
    gains = tuple(float32(g / scale) for g in gain)
    offsets = tuple(float32(o / scale + at) for o in offset)
    return Input(old.name, gains, offsets), replace(old, dtype="s8", scale=scale, zero=at)


def quantize_layer(name: str, layer: Layer, x: Tensor, y: Tensor) -> Layer:
    """Quantize a convolution between the int8 tensors x and y.

    Weight scales are those of the model's file if it gives any, else max |w| / 127, larger only where a bias
    would not fit its integer otherwise. A channel that is dead, or whose weights would all round to zero
    beside its bias, gets weights 0, the bias that gives the same constant output, and a harmless scale.
    """
    if layer.weight_scale is not None:
        return _as_given(name, layer, layer.weight_scale, x, y)
    channels = len(layer.weight)
    taps = layer.weight.size // channels
    room = bias_room(taps)
    if room < 2**24:
        raise ConvertError(
            f"layer {name} sums {taps} products per output, too many for int32; 65000 are the most"
        )
    weight = layer.weight.astype(np.float64).reshape(channels, taps)
    bias = layer.bias.astype(np.float64)
    peak = np.abs(weight).max(axis=1)
    scale = np.maximum(peak / 127.0, np.abs(bias) / (x.scale * room))
    dead = (peak / 127.0 < DEAD_SCALE) | (peak < 0.5 * scale)
    scale[dead] = DEAD_MULTIPLIER * y.scale / x.scale
    stored = np.clip(np.rint(weight / scale[:, None]), -127, 127)
    stored[dead] = 0
    biases = np.clip(np.rint(bias / (x.scale * scale)), -room, room).astype(np.int64)
    prove(name, stored, biases, scale, x, y)
    return replace(
        layer,
        weight=stored.astype(np.int8).reshape(layer.weight.shape),
        bias=biases.astype(np.int32),
        weight_scale=scale,
        dead=dead,
    )


def _as_given(name: str, layer: Layer, scale: np.ndarray, x: Tensor, y: Tensor) -> Layer:
    """A layer that the file has quantized itself: the integers that its real numbers were made of.

    Bytes less a zero point take nine bits: channels in which int8 does not hold them get a larger scale.
    Channels with a scale below DEAD_SCALE are not trained; those that cannot move their output by half a
    unit, or whose sums could leave int32, become constants.
    """
    channels = len(layer.weight)
    real = layer.weight.astype(np.float64).reshape(channels, -1)
    stored = np.rint(real / scale[:, None])
    wide = (stored.min(axis=1) < -128) | (stored.max(axis=1) > 127)
    scale = np.where(wide, np.abs(real).max(axis=1) / 127, scale)
    stored[wide] = np.rint(real[wide] / scale[wide, None])
    biases = np.rint(layer.bias.astype(np.float64) / (x.scale * scale))
    dead = scale < DEAD_SCALE
    most = np.abs(stored).sum(axis=1) * reach(x)
    room = bias_room(stored.shape[1])
    still = dead & ((most * (x.scale * scale / y.scale) < 0.5) | (most + np.abs(biases) > INT32_MAX))
    value = np.rint(np.clip(layer.bias.astype(np.float64) / y.scale, -512, 512))
    stored[still], scale[still] = 0, DEAD_MULTIPLIER * y.scale / x.scale
    biases = np.where(still, value / DEAD_MULTIPLIER, np.clip(biases, -room, room)).astype(np.int64)
    prove(name, stored, biases, scale, x, y)
    return replace(
        layer,
        weight=stored.astype(np.int8).reshape(layer.weight.shape),
        bias=biases.astype(np.int32),
        weight_scale=scale,
        dead=dead,
    )


def warn_dead(name: str, layers: Mapping[str, Layer]) -> None:
    """One warning for all channels that were folded into constants."""
    counts = {
        n: int(layer.dead.sum()) for n, layer in layers.items() if layer.dead is not None and layer.dead.any()
    }
    if counts:
        warnings.warn(
            f"{name}: {sum(counts.values())} channels have weights too small to matter and became constants "
            f"({', '.join(f'{n}: {count}' for n, count in counts.items())})",
            stacklevel=3,
        )


def _warn_rounded(graph: Graph, layers: Mapping[str, Layer]) -> None:
    """One warning for all channels whose scale is no more the file's, as int8 does not hold their weights."""
    counts = {}
    for name, layer in layers.items():
        given = graph.layers[name].weight_scale
        if given is not None and layer.weight_scale is not None and layer.dead is not None:
            counts[name] = int(((layer.weight_scale > given) & ~layer.dead).sum())
    if any(counts.values()):
        warnings.warn(
            f"{graph.name}: {sum(counts.values())} channels in {sum(map(bool, counts.values()))} layers have "
            "weights of nine bits, as bytes less a zero point; they are rounded to int8, and logits may be a "
            "few units off the file's",
            stacklevel=2,
        )
