"""Factors and terms that an int8 file has as int8: what they do is rounded as the file says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import FACTOR, Codes, Graph, Layer, Node, Tensor
from microtrain.convert.ops import mul_add

from ..edits import bypass, exchanged, without

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
    if norm.codes is None or x is None or y is None or not (entry.table or entry.untouched):
        return None
    known = np.array(entry.table or [range(-128, 128)], np.int8).T
    made = mul_add.rounded(norm.codes, known, entry.stored if entry.table else x, y).T
    made = made[:1] if (made == made[0]).all() else made
    if len(made) not in (1, channels):
        return None
    table = tuple(tuple(int(v) for v in row) for row in made)
    return without(graph, node).replace(input=replace(entry, table=table, stored=y))


def as_op(graph: Graph, node: Node, norm: Layer) -> Graph | None:
    """The graph with a factor or a term a channel as an op; None: it has no integers of a file, or is a term
    of the logits, which the head has."""
    x, codes = graph.tensors[node.inputs[0]], norm.codes
    if codes is None or x.given is None or (codes.means != FACTOR and graph.output in node.outputs):
        return None
    each, name = _each(codes, x.channels), node.name
    own = mul_add.Constants(each)
    if codes.means == FACTOR:
        name = f"{norm.source.weight}.scale"
    else:  # a factor of 1, and a multiplier that has a shift
        own = mul_add.Constants(Codes(np.full(x.channels, 4, np.int8), 0.25, 0, FACTOR), each, x.given)
    made = replace(node, op=mul_add.MUL_ADD, layer=None, name=name, factors=own.factors)
    return _exchanged(graph, node, made, node) if _is_possible(graph, own, x, node) else None


def with_term(graph: Graph, node: Node, norm: Layer, before: Node) -> Graph | None:
    """The graph with a term in the op of the factor before it, which nothing else reads; None: it is none."""
    if norm.codes is None or norm.codes.means == FACTOR or before.op != mul_add.MUL_ADD:
        return None
    x, between = (graph.tensors[t] for t in (before.inputs[0], node.inputs[0]))
    known = mul_add.constants(before)
    alone = before.act == "none" and len(graph.readers(between.name)) == 1
    if known.term is not None or between.given is None or not alone:
        return None
    own = mul_add.Constants(known.factor, _each(norm.codes, x.channels), between.given)
    if not _is_possible(graph, own, x, node):
        return None
    return bypass(_exchanged(graph, before, replace(before, factors=own.factors), node), node)


def _is_possible(graph: Graph, own: mul_add.Constants, x: Tensor, node: Node) -> bool:
    """Whether the kernel takes constants between x and what a node makes, both of which the file scales."""
    y = graph.tensors[node.outputs[0]]
    if x.given is None or y.given is None:
        return False
    return mul_add.arithmetic(own, x.given, y.given).is_possible


def _exchanged(graph: Graph, node: Node, made: Node, norm: Node) -> Graph:
    """The graph with another node in the place of one, without the layer of a norm."""
    layers = {name: layer for name, layer in graph.layers.items() if name != norm.layer}
    return graph.replace(nodes=exchanged(graph, node, (made,)), layers=layers)


def _each(codes: Codes, channels: int) -> Codes:
    """With a number for each channel."""
    return replace(codes, values=np.broadcast_to(codes.values, (channels,)))
