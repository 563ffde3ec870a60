"""Pixels and tokens that are divided by the root of their mean square: RMSNorm (Zhang and Sennrich 2019).

However a model writes it, or an L2 normalisation, its parts are a square, its mean over the channels, a root
and a product. Squares and roots keep little in int8. Of channels and their negatives the mean is 0, so that a
layer normalisation of both is the same, in exact sums: each channel is there twice, and one of both is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node, Source, Tensor, Window
from microtrain.convert.lowering import NORM
from microtrain.convert.ops import conv, functions
from microtrain.convert.ops.blocks_aten import FINEST
from microtrain.convert.ops.channels_aten import TAKE
from microtrain.convert.ops.grouped import GROUPED
from microtrain.convert.ops.multiply import MULTIPLY
from microtrain.convert.ops.normalise_aten import GROUP_NORM
from microtrain.convert.ops.pool_aten import CHANNEL_MEAN
from microtrain.convert.ops.scale import PIXELS

from .edits import exchanged, needed
from .endings import Found

NOTHING = 1e-12  # added to a mean square that is 0, where the model bounds its root
LEAST = 1e-5  # what is added to a root, or bounds it, against division by nothing is not larger


@dataclass(frozen=True)
class Root:
    """gain * (slope * m + shift) ** power, of the mean square m of a tensor over its channels."""

    of: str
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
        if root is None or not root.divides or graph.tensors[root.of].channels < 2:
            continue
        if root.of == node.inputs[0]:
            graph = _normalised(graph, node, root, None)
        elif before is not None and _scales(graph, before, root.of):
            graph = _normalised(graph, node, root, before)
    used = needed(graph, {graph.output})
    return graph.replace(nodes=tuple(n for n in graph.nodes if used.intersection(n.outputs)))


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
        return Root(square.inputs[0], slope=square.factors[1] ** 2)
    if square is not None and square.op == MULTIPLY and len({*square.inputs}) == 1:
        return Root(square.inputs[0])
    return None


def _scales(graph: Graph, node: Node, x: str) -> bool:
    """Whether a node multiplies the channels of a tensor with constants, and adds nothing."""
    return node.op == NORM and node.inputs == (x,) and not np.any(graph.layers[node.layer or ""].bias)


def _normalised(graph: Graph, node: Node, root: Root, scale: Node | None) -> Graph:
    """The graph with a normalisation in the place of a product, and its scale behind it.

    scale  what the model has in front of the product instead
    """
    h, w, c = graph.tensors[root.of].shape
    last, gain = _with_factors(graph, node, root.gain / root.slope**0.5)
    base = node.name.removesuffix(PIXELS).rstrip(".")
    name, made, layers = f"{base}.rms" if base else "rms", last.outputs[0], dict(graph.layers)
    both, normal = (Tensor(f"{made}:{part}", (h, w, 2 * c)) for part in ("both", "normal"))
    twice = np.tile([1.0, -1.0], c).reshape(2 * c, 1, 1, 1).astype(np.float32)
    key = _free(layers, f"{name}.both")
    layers[key] = Layer(twice, np.zeros(2 * c, np.float32), Source(""), np.full(2 * c, 1 / FINEST))
    factors = (max(root.shift / root.slope, NOTHING), 1.0, 1.0)
    nodes = [
        Node(GROUPED, key, (root.of,), (both.name,), layer=key, window=Window(1, 1)),
        Node(GROUP_NORM, name, (both.name,), (normal.name,), factors=factors),
    ]
    behind = [] if scale is None else [scale]
    readers = graph.readers(made)
    if behind or gain != 1 or (len(readers) == 1 and readers[0].op == NORM):  # a scale that learns
        key = _free(layers, f"{name}.gain")
        layers[key] = Layer(np.full((c, 1, 1), gain, np.float32), np.zeros(c, np.float32), Source(""))
        behind = [Node(conv.DEPTHWISE, key, ("",), ("",), layer=key, window=Window(1, 1)), *behind]
    ends = [f"{made}:{i}" for i in range(len(behind))] + [made]
    nodes.append(Node(TAKE, f"{name}.own", (normal.name,), (ends[0],), channels=tuple(range(0, 2 * c, 2))))
    steps = zip(behind, pairwise(ends), strict=True)
    nodes += [replace(n, inputs=(x,), outputs=(y,)) for n, (x, y) in steps]
    tensors = {t: Tensor(t, (h, w, c)) for t in ends[:-1]} | {t.name: t for t in (both, normal)}
    return graph.replace(
        nodes=exchanged(graph, last, tuple(nodes)), tensors={**graph.tensors, **tensors}, layers=layers
    )


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
