"""Scales of what a quantized file has in floats in between, which its other scales tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import Graph, Layer
from microtrain.convert.ops import forward_op
from microtrain.convert.ops.aten.channels import CONCAT
from microtrain.convert.ops.functions import ACTIVATIONS
from microtrain.convert.ops.outputs import as_input, scale_and_zero

Side = tuple[float, int]  # scale and zero point
STORED = np.arange(-128, 128)
STEEPEST = 2.0  # of a function whose range is that of int8 values: a reciprocal's is that of those around 0


def with_known_scales(graph: Graph) -> Graph:
    """The graph of a quantized file with scales for parts of a joined map and for functions of a number."""
    tensors = dict(graph.tensors)
    for node in reversed(graph.nodes):
        whole = tensors[node.outputs[0]].given
        if node.op == CONCAT and whole is not None:
            tensors.update((x, replace(tensors[x], given=tensors[x].given or whole)) for x in node.inputs)
    sides = {name: tensor.given for name, tensor in tensors.items()}
    if not graph.input.untouched:
        sides[graph.input.tensor] = graph.input.stored if graph.input.table else None
    for node in graph.nodes:
        x, y = sides[node.inputs[0]], node.outputs[0]
        if sides[y] is None and x is not None and node.op in ACTIVATIONS:
            sides[y] = _of_function(node.op, node.factors, x)
            tensors[y] = replace(tensors[y], given=sides[y])
        elif sides[y] is None and forward_op(node).output is as_input:
            sides[y] = x
        elif sides[y] is None and x is not None and node.layer:
            sides[y] = _of_copies(graph.layers[node.layer], x)
            tensors[y] = replace(tensors[y], given=sides[y])
    return graph.replace(tensors=tensors)


def _of_copies(layer: Layer, x: Side) -> Side | None:
    """Of outputs each of which is one of the numbers that a layer reads, as of those that only turn a map, or
    is that with the other sign."""
    each = layer.weight.reshape(len(layer.weight), -1)
    if layer.bias.any() or not ((each != 0).sum(1) == 1).all():
        return None
    if (each.sum(1) == 1).all():
        return x
    return (x[0], -1 - x[1]) if (each.sum(1) == -1).all() else None


def _of_function(op: str, factors: tuple[float, ...], x: Side) -> Side | None:
    """Of all that a function makes of 256 values; None where that says little of those that occur."""
    with np.errstate(all="ignore"):
        made = np.asarray(ACTIVATIONS[op].value((STORED - x[1]) * x[0], *factors))
        steep = np.abs(np.diff(made)).max() / x[0]
    return scale_and_zero(float(made.min()), float(made.max())) if steep <= STEEPEST else None
