"""Factors and terms that an int8 file has as int8: what they do is rounded as the file says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import FACTOR, Codes, Graph, Layer, Node
from microtrain.convert.ops import mul_add

from .edits import bypass, without

MOST_TABLES = 8  # of 256 bytes of flash, one for each channel of an input


def stays(graph: Graph, node: Node) -> bool:
    """Whether what is done to an input is an op all the same: there would be too many tables."""
    codes, sides = graph.layers[node.layer or ""].codes, (*node.inputs, *node.outputs)
    given = all(graph.tensors[t].given is not None for t in sides)
    return codes is not None and given and codes.values.size > MOST_TABLES


def in_table(graph: Graph, node: Node, norm: Layer) -> Graph | None:
    """The graph with what alone reads the input in its table of pixels; None: the file does not say how it
    rounds."""
    entry, (x, y) = graph.input, (graph.tensors[t].given for t in (node.inputs[0], node.outputs[0]))
    channels = len(entry.gain)
    untouched = entry.gain == (1.0,) * channels and entry.offset == (0.0,) * channels
    if norm.codes is None or x is None or y is None or not (entry.table or untouched):
        return None
    known = np.array(entry.table or [range(-128, 128)], np.int8).T
    made = mul_add.rounded(norm.codes, known, entry.stored if entry.table else x, y).T
    made = made[:1] if (made == made[0]).all() else made
    if len(made) not in (1, channels):
        return None
    table = tuple(tuple(int(v) for v in row) for row in made)
    return without(graph, node).replace(input=replace(entry, table=table, stored=y))


def as_product(graph: Graph, node: Node, norm: Layer) -> Graph | None:
    """The graph with a factor a channel as an op; None: it has no integers of a file."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    if norm.codes is None or norm.codes.means != FACTOR or x.given is None or y.given is None:
        return None
    own = mul_add.Constants(_each(norm.codes, x.channels))
    if not mul_add.arithmetic(own, x.given, y.given).is_possible:
        return None
    name = f"{norm.source.weight}.scale"
    made = replace(node, op=mul_add.MUL_ADD, layer=None, name=name, factors=own.factors)
    return _exchanged(graph, node, made, node.layer)


def as_term(graph: Graph, node: Node, norm: Layer) -> Graph | None:
    """The graph with a term a channel as an op, which multiplies by 1; None as above, and for the logits'."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    if norm.codes is None or norm.codes.means == FACTOR or x.given is None or y.given is None:
        return None
    one = Codes(np.full(x.channels, 4, np.int8), 0.25, 0, FACTOR)  # 1, and a multiplier that has a shift
    own = mul_add.Constants(one, _each(norm.codes, x.channels), x.given)
    if graph.output == y.name or not mul_add.arithmetic(own, x.given, y.given).is_possible:
        return None
    made = replace(node, op=mul_add.MUL_ADD, layer=None, factors=own.factors)
    return _exchanged(graph, node, made, node.layer)


def with_term(graph: Graph, node: Node, norm: Layer, before: Node) -> Graph | None:
    """The graph with a term in the op of the factor before it, which nothing else reads; None: it is none."""
    if norm.codes is None or norm.codes.means == FACTOR or before.op != mul_add.MUL_ADD:
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
    return bypass(_exchanged(graph, before, made, node.layer), node)


def _exchanged(graph: Graph, node: Node, made: Node, gone: str | None) -> Graph:
    nodes = tuple(made if n is node else n for n in graph.nodes)
    return graph.replace(nodes=nodes, layers={k: v for k, v in graph.layers.items() if k != gone})


def _each(codes: Codes, channels: int) -> Codes:
    """With a number for each channel."""
    return replace(codes, values=np.broadcast_to(codes.values, (channels,)))
