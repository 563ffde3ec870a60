"""Bias correction: what rounding and saturation shift a channel's mean by goes back into its bias.

Nagel et al. 2019 (arXiv 1906.04721), the empirical form of section 4.2: layer by layer, the int8 network as
corrected so far against the float one, on the same images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.execute.batched import (
    activate,
    batches,
    float_node,
    int8_node,
    real_pixels,
    stored_pixels,
)
from microtrain.convert.ir import Graph, Layer, Node
from microtrain.convert.limits import bias_room, prove
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.conv_runs import sums
from microtrain.convert.ops.table import Learns

MOST_IMAGES = 256
MOST_BYTES = 256 << 20  # of tensors alive between two layers, both networks


@dataclass(eq=False)
class Pair:
    """A batch of images on its way through both networks: tensors that are alive, by name."""

    real: dict[str, np.ndarray]
    stored: dict[str, np.ndarray]


def correct_biases(graph: Graph, quantized: Graph, images: np.ndarray) -> Graph:
    """The quantized graph with other biases.

    graph   float, of which `quantized` was made
    images  uint8 [N, h, w, c]; of more than fit MOST_BYTES some, evenly spaced
    """
    entry = graph.input.tensor
    chosen = images[np.linspace(0, len(images) - 1, count_images(graph, len(images))).astype(int)]
    pairs = [
        Pair({entry: real_pixels(graph, batch)}, {entry: stored_pixels(quantized, batch)})
        for batch in batches(graph, chosen, "correcting biases")
    ]
    for step, node in enumerate(graph.nodes[:-1]):
        if forward_op(node).learns is Learns.COLUMNS:
            name = node.layer or ""
            layer = corrected(graph, quantized, node, pairs)
            quantized = quantized.replace(layers={**quantized.layers, name: layer})
        alive = {t for n in graph.nodes[step + 1 :] for t in n.inputs}
        for pair in pairs:
            advance(graph, quantized, node, pair, alive)
    return quantized


def count_images(graph: Graph, images: int) -> int:
    """How many of so many images, so that what is alive between two layers fits MOST_BYTES."""
    return max(1, min(images, MOST_IMAGES, MOST_BYTES // (5 * most_alive(graph))))


def most_alive(graph: Graph) -> int:
    """The most elements of an image's tensors that are alive at once."""
    most, written = 1, {graph.input.tensor}
    for step, node in enumerate(graph.nodes):
        written |= set(node.outputs)
        alive = {t for n in graph.nodes[step:] for t in (*n.inputs, *n.outputs) if t in written}
        most = max(most, sum(graph.tensors[t].elements for t in alive))
    return most


def corrected(graph: Graph, quantized: Graph, node: Node, pairs: Sequence[Pair]) -> Layer:
    """A layer whose sums have the float layer's mean, channel by channel."""
    layer = quantized.layers[node.layer or ""]
    x, y = quantized.tensors[node.inputs[0]], quantized.tensors[node.outputs[0]]
    assert layer.weight_scale is not None and layer.dead is not None
    unit = x.scale * layer.weight_scale
    shift, count = np.zeros(len(unit)), 0
    for pair in pairs:
        real = float_node(graph, node, pair.real)
        integer = sums(quantized, node, pair.stored[node.inputs[0]])
        shift += np.sum(integer - real / unit, axis=(0, 1, 2))
        count += real.size // len(unit)
    stored = layer.weight.reshape(len(unit), -1)
    room = bias_room(stored.shape[1])
    wanted = np.clip(np.rint(layer.bias - shift / count), -room, room).astype(np.int32)
    bias = np.where(layer.dead, layer.bias, wanted)
    prove(node.layer or "", stored, bias.astype(np.int64), layer.weight_scale, x, y)
    return replace(layer, bias=bias)


def advance(graph: Graph, quantized: Graph, node: Node, pair: Pair, alive: set[str]) -> None:
    """Run a node in both networks and forget what nothing reads any more."""
    y = node.outputs[0]
    pair.real[y] = activate(float_node(graph, node, pair.real), node.act)
    pair.stored[y] = int8_node(quantized, node, pair.stored)
    for values in (pair.real, pair.stored):
        for name in [n for n in values if n not in alive]:
            del values[name]
