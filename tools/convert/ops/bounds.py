"""How large the integers of each kernel can become: the exact bounds behind its arithmetic.

An op's entry in the table yields one `Accumulator` for each sum, packed value, field and index that its
kernel keeps in an integer, from the shapes, zero points and weights of the layer at hand; `accumulators.py`
compares them with what their types hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from microtrain.convert.ir import SIDE_MOST, WINDOW_MOST, Graph, Layer, Node, Shape, Tensor, Window

INT32_MAX, INT16_MAX = 2**31 - 1, 2**15 - 1
ERROR, STORED, WEIGHT = 127, 128, 128  # largest magnitudes of an int8 error, activation and weight


@dataclass(frozen=True)
class Accumulator:
    """An integer of a kernel.

    name     what it is, for messages: it stands in front of "can reach"
    most     the largest magnitude it can reach, whatever the image, the errors and the training
    limit    what its type holds
    way_out  what the user can change if that is too little
    """

    name: str
    most: int
    limit: int
    way_out: str


Bounds = Callable[[Graph, Node], Iterator[Accumulator]]

SMALLER = "make the layer or the input smaller"
FEWER_PIXELS = "freeze this layer's weights, or give the network a smaller input"


def no_integers(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """For ops that compute in float32 alone."""
    yield from ()


def forward_of(graph: Graph, node: Node) -> Node:
    """The forward node of the layer that a backward node belongs to."""
    return graph.forward_of[node.layer or ""]


def geometry(graph: Graph, node: Node) -> tuple[Tensor, Tensor, Window]:
    """Input, output and window of the layer's forward node."""
    forward = forward_of(graph, node)
    assert forward.window is not None, forward.name
    return graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]], forward.window


def reach(x: Tensor) -> int:
    """The largest magnitude of a stored value less its zero point."""
    return max(127 - x.zero, x.zero + 128)


def taps_at_a_pixel(x: Shape, y: Shape, k: Window) -> int:
    """The most outputs that read one input pixel: as many errors of a channel meet in its gradient."""
    rows = _outputs_at_a_pixel(x[0], y[0], k.kh, k.stride_h, k.pad_h)
    return rows * _outputs_at_a_pixel(x[1], y[1], k.kw, k.stride_w, k.pad_w)


@cache
def _outputs_at_a_pixel(size: int, outputs: int, kernel: int, stride: int, pad: int) -> int:
    """The most outputs along one axis that read the same input."""
    padded = np.arange(size) + pad
    first = np.maximum(-((kernel - 1 - padded) // stride), 0)
    last = np.minimum(padded // stride, outputs - 1)
    return max(0, int((last - first).max()) + 1)


def guard_bits(x: Shape, y: Shape, window: Window) -> int:
    """Fraction bits of aligned errors in bwd_x: the most, up to 8, that keep every sum inside int32."""
    return _guard_of(y[2] * taps_at_a_pixel(x, y, window))


def errors_at_a_pixel(graph: Graph, node: Node) -> int:
    """The most errors that meet in the gradient of one input: those of its group through the layer's taps."""
    x, y, k = geometry(graph, node)
    layer = graph.layers[node.layer or ""]
    taps = taps_at_a_pixel(x.shape, y.shape, k)
    if layer.depthwise:
        return y.channels * taps
    _, kh, kw, inputs = map(int, layer.weight.shape)
    return y.channels * inputs // x.channels * min(taps, kh * kw)


def layer_guard(graph: Graph, node: Node) -> int:
    """guard_bits() of a layer, whose channels may fall into groups and whose taps may lie apart."""
    return _guard_of(errors_at_a_pixel(graph, node))


def _guard_of(meeting: int) -> int:
    return max(g for g in range(9) if g == 0 or meeting * ERROR * WEIGHT << g <= INT32_MAX)


def bias_limit(layer: Layer) -> int:
    """|b| up to which no sum of the layer can leave int32, whatever the weights and inputs."""
    taps = int(layer.weight.size) // len(layer.weight)
    return INT32_MAX - taps * 255 * WEIGHT


def fields(x: Shape, y: Shape, k: Window) -> Iterator[Accumulator]:
    """Sizes as the kernels' parameter structs hold them: uint16, and of windows uint8."""
    image, window = max(*x, *y), max(k.kh, k.kw, k.stride_h, k.stride_w, k.pad_h, k.pad_w)
    yield Accumulator("a height, width or number of channels", image, SIDE_MOST, SMALLER)
    yield Accumulator("a side, stride or padding of the window", window, WINDOW_MOST, "use a smaller window")


def conv_forward(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """int32 sums that begin at the bias, and what they are made of."""
    x, y, k = geometry(graph, node)
    layer = graph.layers[node.layer or ""]
    yield from fields(x.shape, y.shape, k)
    yield Accumulator("an input less its zero point", reach(x), INT16_MAX, SMALLER)
    way_out = "give the layer fewer inputs or a smaller kernel"
    yield Accumulator("a sum of the forward pass", _largest_sum(layer, reach(x)), INT32_MAX, way_out)
    if layer.bias_trained:
        bias = int(np.abs(layer.bias.astype(np.int64)).max(initial=0))
        yield Accumulator("a bias before training", bias, max(0, bias_limit(layer)), way_out)


def _largest_sum(layer: Layer, most: int) -> int:
    """max |b| + sum |x| |w| over the channels, with trained weights and biases as large as they can be."""
    weight = np.abs(layer.weight.astype(np.int16))
    if layer.trained:
        trained = list(layer.trained)
        at = (trained,) if layer.depthwise else (..., trained)
        weight[at] = np.maximum(weight[at], ERROR)
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int64) * most
    if layer.bias_trained:
        return int(sums.max(initial=0)) + max(0, bias_limit(layer))
    return int((sums + np.abs(layer.bias.astype(np.int64))).max(initial=0))


def conv_input_gradient(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Errors of all output channels, or of a group's, aligned by factors up to 2^guard."""
    guard = layer_guard(graph, node)
    yield Accumulator("an aligned weight", WEIGHT << guard, INT16_MAX + 1, SMALLER)
    most = errors_at_a_pixel(graph, node) * ERROR * WEIGHT << guard
    way_out = "give the layer fewer output channels or a smaller kernel, or train only what comes after it"
    yield Accumulator("a sum of the gradient to its input", most, INT32_MAX, way_out)


def depthwise_input_gradient(graph: Graph, node: Node) -> Iterator[Accumulator]:
    x, y, k = geometry(graph, node)
    most = taps_at_a_pixel(x.shape, y.shape, k) * ERROR * WEIGHT
    yield Accumulator("a sum of the gradient to its input", most, INT32_MAX, "use a smaller kernel")


def conv_weight_gradient(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Dense: sum e * x and zero * sum e over the output pixels, then their difference."""
    x, y, _ = geometry(graph, node)
    parts = {"sum of errors times inputs": STORED, "zero point times the sum of errors": abs(x.zero)}
    for name, factor in parts.items():
        yield Accumulator(f"a {name}", y.pixels * ERROR * factor, INT32_MAX, FEWER_PIXELS)
    yield from depthwise_weight_gradient(graph, node)


def depthwise_weight_gradient(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Sum e * (x - zero) over the output pixels; weights are numbered in 32 bits."""
    x, y, _ = geometry(graph, node)
    weights = int(graph.layers[node.layer or ""].weight.size)
    most = y.pixels * ERROR * reach(x)
    yield Accumulator("the gradient of a weight", most, INT32_MAX, FEWER_PIXELS)
    yield Accumulator("the number of a weight", weights, INT32_MAX, SMALLER)


def bias_gradient(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Sums of errors: int16 over 256 pixels on Armv7E-M, then int32."""
    pixels = graph.tensors[node.inputs[0]].pixels
    yield Accumulator("a sum of 256 errors", 256 * ERROR, INT16_MAX, SMALLER)
    yield Accumulator("the gradient of a bias", pixels * ERROR, INT32_MAX, SMALLER)
