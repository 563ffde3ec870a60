"""Factors and terms that an int8 file has as int8: each becomes an op that rounds as the file says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import Codes, Graph, Layer, Node
from microtrain.convert.ops import mul_add

from .edits import bypass


def as_product(graph: Graph, node: Node, norm: Layer) -> Graph | None:
    """The graph with a factor a channel as an op; None: it has no integers of a file."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    if norm.codes is None or not norm.codes.is_factor or x.given is None or y.given is None:
        return None
    own = mul_add.Constants(_each(norm.codes, x.channels))
    if not mul_add.arithmetic(own, x.given, y.given).is_possible:
        return None
    made = replace(
        node, op=mul_add.MUL_ADD, layer=None, name=f"{norm.source.weight}.scale", factors=own.factors
    )
    return _exchanged(graph, node, made, {node.layer})


def with_term(graph: Graph, node: Node, norm: Layer, before: Node) -> Graph | None:
    """The graph with a term in the op of the factor before it, which nothing else reads; None: it is none."""
    if norm.codes is None or norm.codes.is_factor or before.op != mul_add.MUL_ADD:
        return None
    x, between, y = (graph.tensors[t] for t in (before.inputs[0], node.inputs[0], node.outputs[0]))
    known = mul_add.constants(before)
    if known.term is not None or before.act != "none" or len(graph.readers(between.name)) > 1:
        return None
    if x.given is None or between.given is None or y.given is None:
        return None
    own = mul_add.Constants(known.factor, _each(norm.codes, x.channels), between.given)
    if not mul_add.arithmetic(own, x.given, y.given).is_possible:
        return None
    made = replace(before, factors=own.factors)
    return bypass(_exchanged(graph, before, made, {node.layer}), node)


def _exchanged(graph: Graph, node: Node, made: Node, gone: set[str | None]) -> Graph:
    nodes = tuple(made if n is node else n for n in graph.nodes)
    return graph.replace(nodes=nodes, layers={k: v for k, v in graph.layers.items() if k not in gone})


def _each(codes: Codes, channels: int) -> Codes:
    """With a number for each channel."""
    return replace(codes, values=np.broadcast_to(codes.values, (channels,)))
