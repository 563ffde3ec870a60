"""Vectors that become maps, in the order of the maps.

A file has a vector channel by channel, a map lies in memory pixel by pixel. Where a linear layer makes the
vector, its rows are put in that order, which costs nothing; elsewhere its numbers are gathered.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.base.rows import by_pixels
from microtrain.convert.ir import Graph, Layer, Node, Shape, Tensor
from microtrain.convert.ops import conv, functions, unflatten
from microtrain.convert.ops.aten.channels import TAKE
from microtrain.convert.ops.aten.unflatten import in_memory
from microtrain.convert.raw import Raw

from ..edits import exchanged
from ..endings import LINEAR, Found

ELEMENTWISE = (*functions.ACTIVATIONS, functions.CLIP, "relu", "relu6")


def as_returned(raw: Raw) -> Graph:
    """The raw graph; one that returns a vector as a map like its input ends in that map."""
    graph = raw.graph
    order = next((r.order for r in raw.results if r.tensor == graph.output), None)
    if order is None:
        return graph
    shape, made = graph.tensors[graph.input.tensor].shape, f"{graph.output}:map"
    node = unflatten.node_of("map", graph.output, made, shape)
    node = replace(node, channels=in_memory(order))
    tensors = {**graph.tensors, made: Tensor(made, shape)}
    return graph.replace(nodes=(*graph.nodes, node), tensors=tensors, output=made)


def order_vectors(graph: Graph, found: Found) -> Graph:
    """The graph whose vectors stand in the order of the maps that they become."""
    while True:
        node = next((n for n in graph.nodes if n.op == unflatten.UNFLATTEN and n.channels), None)
        if node is None:
            return graph
        graph = _ordered(graph, node)


def _ordered(graph: Graph, node: Node) -> Graph:
    """The graph with the numbers of one vector in order."""
    maker, order, shape = _maker(graph, node), np.array(node.channels), unflatten.map_of(node)
    plain = replace(node, channels=None)
    if maker is not None and np.array_equal(order, by_pixels(np.arange(order.size), shape)):
        name = maker.layer or ""
        nodes = tuple(plain if n is node else n for n in graph.nodes)
        return graph.replace(nodes=nodes, layers={**graph.layers, name: _turned(graph.layers[name], shape)})
    vector = graph.tensors[node.inputs[0]]
    made = replace(vector, name=f"{vector.name}:ordered", given=None)
    take = Node(TAKE, f"{node.name}.order", node.inputs, (made.name,), channels=node.channels)
    plain = replace(plain, inputs=(made.name,))
    nodes = exchanged(graph, node, (take, plain))
    return graph.replace(nodes=nodes, tensors={**graph.tensors, made.name: made})


def _maker(graph: Graph, node: Node) -> Node | None:
    """The layer whose rows the numbers of a vector are, through activations, if nothing else reads them."""
    tensor = node.inputs[0]
    while len(graph.readers(tensor)) == 1:
        maker = graph.producer(tensor)
        if maker is None:
            return None
        if maker.op in (LINEAR, conv.DENSE):
            layer = graph.layers[maker.layer or ""]
            return None if layer.shares else maker
        if maker.op not in ELEMENTWISE:
            return None
        tensor = maker.inputs[0]
    return None


def _turned(layer: Layer, shape: Shape) -> Layer:
    """A layer whose rows make a map of this shape, pixel by pixel."""
    scale, seen = layer.weight_scale, layer.seen
    return replace(
        layer,
        weight=np.ascontiguousarray(by_pixels(layer.weight, shape)),
        bias=by_pixels(layer.bias, shape),
        weight_scale=None if scale is None else by_pixels(scale, shape),
        seen=None if seen is None else (by_pixels(seen[0], shape), by_pixels(seen[1], shape)),
        source=replace(layer.source, rows=shape),
    )
