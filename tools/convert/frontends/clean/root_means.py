"""Pixels and tokens that are divided by the root of their mean square, or of their variance.

RMSNorm (Zhang and Sennrich 2019), an L2 normalisation, a layer normalisation: however a model writes them,
their parts are a square, its mean over the channels, a root and a product. Squares and roots keep little in
int8. Of channels and their negatives the mean is 0, so that a layer normalisation of both is the same as a
quotient by the root alone, in exact sums: each channel is there twice, and one of both is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node, Source, Tensor, Window
from microtrain.convert.lowering import NORM
from microtrain.convert.ops import add, conv, functions
from microtrain.convert.ops.aten.channels import TAKE
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.ops.aten.pool import CHANNEL_MEAN
from microtrain.convert.ops.calls import FINEST
from microtrain.convert.ops.grouped import GROUPED
from microtrain.convert.ops.multiply import MULTIPLY
from microtrain.convert.ops.scale import PIXELS

from ..edits import exchanged, needed
from ..endings import Found

NOTHING = 1e-12  # added to a mean square that is 0, where the model bounds its root
LEAST = 1e-5  # what is added to a root, or bounds it, against division by nothing is not larger


@dataclass(frozen=True)
class Numbers:
    """Those of a tensor; centred: less their mean over the channels, wherever that is computed."""

    tensor: str
    centred: bool = False


@dataclass(frozen=True)
class Root:
    """gain * (slope * m + shift) ** power, of the mean square m over the channels.

    of  whose squares these are
    """

    of: Numbers
    gain: float = 1.0
    slope: float = 1.0
    shift: float = 0.0
    power: float = 1.0

    @property
    def divides(self) -> bool:
        """Whether a product with it is a quotient by the root of a mean square."""
        return self.power == -0.5 and self.slope > 0 and self.shift >= 0 and self.gain > 0


def root_means(graph: Graph, found: Found) -> Graph:
    """The graph with normalisations in the place of products with such a root."""
    for node in [n for n in graph.nodes if n.op == PIXELS]:
        root, before = _root(graph, node.inputs[1]), graph.producer(node.inputs[0])
        if root is None or not root.divides or graph.tensors[root.of.tensor].channels < 2:
            continue
        if graph.tensors[node.outputs[0]].given is not None:  # the file says how each part is rounded
            continue
        if root.of == _numbers(graph, node.inputs[0]):
            graph = _normalised(graph, node, root, None)
        elif before is not None and _scales(graph, before, root.of):
            graph = _normalised(graph, node, root, before)
    used = needed(graph, {graph.output})
    nodes = tuple(n for n in graph.nodes if used.intersection(n.outputs))
    layers = {n.layer for n in nodes}
    return graph.replace(nodes=nodes, layers={k: v for k, v in graph.layers.items() if k in layers})


def _root(graph: Graph, tensor: str) -> Root | None:
    """What a tensor of one channel is of a mean square; None where it is none."""
    node = graph.producer(tensor)
    if node is None:
        return None
    if node.op == CHANNEL_MEAN:
        return _mean(graph, node)
    x = _root(graph, node.inputs[0]) if node.op in (functions.POWER, NORM, functions.CLIP) else None
    if x is None:
        return None
    if node.op == functions.POWER:
        power, gain = node.factors
        return replace(x, gain=abs(gain * x.gain) ** power, power=x.power * power)
    if node.op == functions.CLIP:
        least, most = node.factors
        least = max(least, 0.0) ** (0.5 / x.power) if x.power > 0 else least  # of the root itself
        return x if least <= LEAST and most >= 1 / LEAST else None
    layer = graph.layers[node.layer or ""]
    factor, shift = (float(np.ravel(v)[0]) for v in (layer.weight, layer.bias))
    if x.power == 1:
        slope, inner = x.gain * x.slope * factor, x.gain * x.shift * factor + shift
        return replace(x, gain=1.0, slope=slope, shift=inner)
    return replace(x, gain=x.gain * factor) if abs(shift) <= LEAST else None


def _mean(graph: Graph, node: Node) -> Root | None:
    """Of a mean over the channels, where it is one of squares."""
    square = graph.producer(node.inputs[0])
    if square is not None and square.op == functions.POWER and square.factors[0] == 2:
        return Root(_numbers(graph, square.inputs[0]), slope=square.factors[1] ** 2)
    if square is not None and square.op == MULTIPLY and len({*square.inputs}) == 1:
        return Root(_numbers(graph, square.inputs[0]))
    return None


def _numbers(graph: Graph, tensor: str) -> Numbers:
    """What a tensor holds: another one less its mean, which stands there for each channel; or its own."""
    parts = add.difference(graph.producer(tensor))
    if parts is None:
        return Numbers(tensor)
    x, mean = parts[0], graph.producer(parts[1])
    if mean is not None and mean.op == conv.DENSE:
        layer = graph.layers[mean.layer or ""]
        copies = layer.weight.shape[1:] == (1, 1, 1) and (layer.weight == 1).all() and not layer.bias.any()
        mean = graph.producer(mean.inputs[0]) if copies else None
    centred = mean is not None and (mean.op, mean.inputs) == (CHANNEL_MEAN, (x,))
    return Numbers(x, True) if centred else Numbers(tensor)


def _scales(graph: Graph, node: Node, x: Numbers) -> bool:
    """Whether a node multiplies the channels of a tensor with constants, and adds nothing."""
    plain = node.op == NORM and not np.any(graph.layers[node.layer or ""].bias)
    return plain and _numbers(graph, node.inputs[0]) == x


def _normalised(graph: Graph, node: Node, root: Root, scale: Node | None) -> Graph:
    """The graph with a normalisation in the place of a product, and its scale behind it.

    scale  what the model has in front of the product instead
    """
    last, gain = _with_factors(graph, node, root.gain / root.slope**0.5)
    base, made = node.name.removesuffix(PIXELS).rstrip("."), last.outputs[0]
    name, layers = f"{base}.norm" if base else "norm", dict(graph.layers)
    nodes = _of_centred(graph, name, root) if root.of.centred else _of_both(graph, layers, name, root)
    c = graph.tensors[root.of.tensor].channels
    readers = graph.readers(made)
    learns = scale is not None or (len(readers) == 1 and readers[0].op == NORM)
    for word, factor, there in (("factor", gain, gain != 1), ("gain", 1.0, learns)):
        if not there:
            continue
        key = _free(layers, f"{name}.{word}")
        layers[key] = Layer(np.full((c, 1, 1), factor, np.float32), np.zeros(c, np.float32), Source(""))
        nodes.append(Node(conv.DEPTHWISE, key, ("",), ("",), layer=key, window=Window(1, 1)))
    nodes += [] if scale is None else [scale]
    names = [root.of.tensor, *(f"{made}:{i}" for i in range(len(nodes) - 1)), made]
    nodes = [replace(n, inputs=(x,), outputs=(y,)) for n, (x, y) in zip(nodes, pairwise(names), strict=True)]
    h, w, _ = graph.tensors[root.of.tensor].shape
    wide = (GROUPED, GROUP_NORM) if not root.of.centred else ()
    tensors = {
        y: Tensor(y, (h, w, 2 * c if n.op in wide else c))
        for n, y in zip(nodes[:-1], names[1:], strict=False)
    }
    return graph.replace(
        nodes=exchanged(graph, last, tuple(nodes)), tensors={**graph.tensors, **tensors}, layers=layers
    )


def _of_centred(graph: Graph, name: str, root: Root) -> list[Node]:
    """A layer normalisation of each pixel. Inputs and outputs are still to be named"""
    return [Node(GROUP_NORM, name, ("",), ("",), factors=_factors(root))]


def _of_both(graph: Graph, layers: dict[str, Layer], name: str, root: Root) -> list[Node]:
    """One of each channel and its negative, of which the channel is kept."""
    c, key = graph.tensors[root.of.tensor].channels, _free(layers, f"{name}.both")
    twice = np.tile([1.0, -1.0], c).reshape(2 * c, 1, 1, 1).astype(np.float32)
    layers[key] = Layer(twice, np.zeros(2 * c, np.float32), Source(""), np.full(2 * c, 1 / FINEST))
    return [
        Node(GROUPED, key, ("",), ("",), layer=key, window=Window(1, 1)),
        Node(GROUP_NORM, name, ("",), ("",), factors=_factors(root)),
        Node(TAKE, f"{name}.own", ("",), ("",), channels=tuple(range(0, 2 * c, 2))),
    ]


def _factors(root: Root) -> tuple[float, ...]:
    """Of the normalisation: eps, one group, each pixel apart."""
    return (max(root.shift / root.slope, NOTHING), 1.0, 1.0)


def _with_factors(graph: Graph, node: Node, gain: float) -> tuple[Node, float]:
    """The last of a product and of those behind it that multiply with one number, and all these numbers."""
    readers = graph.readers(node.outputs[0])
    while len(readers) == 1 and readers[0].op == NORM and node.outputs[0] != graph.output:
        layer = graph.layers[readers[0].layer or ""]
        if layer.source.bias is not None or np.ptp(layer.weight) or np.any(layer.bias):
            break
        node, gain = readers[0], gain * float(np.ravel(layer.weight)[0])
        readers = graph.readers(node.outputs[0])
    return node, 1.0 if abs(gain - 1) < LEAST else gain


def _free(layers: Mapping[str, Layer], name: str) -> str:
    return name if name not in layers else f"{name}{len(layers)}"
