"""Averages whose scale is not that of what they average: as a file gives it, or as squares want it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.convert.ir import MEAN, ONCE, WINDOW_MOST, Graph, Layer, Node, Source, Window
from microtrain.convert.lowering import NO_LIMIT
from microtrain.convert.ops import TABLE, ForwardOp, conv, functions, pool
from microtrain.convert.ops.outputs import as_input

from ..edits import exchanged
from ..endings import Found, is_mean


def rescale(graph: Graph, found: Found) -> Graph:
    """Poolings keep the scale of their input; where the file gives another, an op that does not comes in.

    A global average becomes a depthwise convolution of equal weights, which rounds once.
    """
    for node in [
        n for n in graph.nodes if (op := TABLE.get(n.op)) and getattr(op, "output", None) is as_input
    ]:
        given, before = graph.tensors[node.outputs[0]].given, _given(graph, node.inputs[0])
        if given is None and before is not None and is_mean(graph, node):
            graph = _summed(graph, node)
        if given is None or before is None or given == before:
            continue
        graph = (
            _as_convolution(graph, node, rounds=MEAN)
            if is_mean(graph, node)
            else _with_table(graph, node, before)
        )
    return graph


def _summed(graph: Graph, node: Node) -> Graph:
    """A mean whose only reader multiplies it with one factor, a sum, in one step that rounds once."""
    readers = graph.readers(node.outputs[0])
    layer = graph.layers.get(readers[0].layer or "") if len(readers) == 1 else None
    if layer is None or not layer.depthwise or layer.source != Source("") or np.any(layer.bias):
        return graph
    factor, k = float(layer.weight.ravel()[0]), node.window
    if k is None or np.ptp(layer.weight) or factor <= 0 or readers[0].window != Window(1, 1):
        return graph
    kept = {name: own for name, own in graph.layers.items() if name != readers[0].layer}
    node = replace(node, outputs=readers[0].outputs)
    nodes = tuple(node if n.name == node.name else n for n in graph.nodes if n is not readers[0])
    return _as_convolution(
        graph.replace(nodes=nodes, layers=kept), node, share=factor / (k.kh * k.kw), rounds=ONCE
    )


def _given(graph: Graph, tensor: str) -> tuple[float, int] | None:
    """Scale and zero of a tensor as the file has them, through layers that keep them."""
    maker = graph.producer(tensor)
    op = TABLE.get(maker.op) if maker else None
    if maker is not None and isinstance(op, ForwardOp) and op.output is as_input:
        return graph.tensors[tensor].given or _given(graph, maker.inputs[0])
    return graph.tensors[tensor].given


def average_powers(graph: Graph, found: Found) -> Graph:
    """Averages of powers and exponentials become depthwise convolutions, which have a scale of their own.

    A few large numbers set that of what is averaged, of which an average would have few steps.
    """
    for node in [n for n in graph.nodes if n.op == pool.AVERAGE and not n.factors]:
        maker, k = graph.producer(node.inputs[0]), node.window
        if (
            maker is None
            or k is None
            or maker.op not in functions.WIDE
            or graph.tensors[node.inputs[0]].given
        ):
            continue
        if is_mean(graph, node) and k.kh > WINDOW_MOST:
            graph = _in_two(graph, node)
        elif max(k.kh, k.kw, k.stride_h, k.stride_w) <= WINDOW_MOST:
            graph = _as_convolution(graph, node)
    return graph


def _in_two(graph: Graph, node: Node) -> Graph:
    """The mean of a long series: of parts, and of these."""
    x = graph.tensors[node.inputs[0]]
    h, w, c = x.shape
    parts = -(-h // WINDOW_MOST)
    rows = -(-h // parts)
    inner = f"{node.outputs[0]}:parts"
    first = replace(node, name=f"{node.name}.parts", outputs=(inner,))
    window = Window(rows, w, rows, w, more_h=parts * rows - h)
    nodes = exchanged(graph, node, (first, node))
    tensors = {**graph.tensors, inner: replace(x, name=inner, shape=(parts, 1, c))}
    graph = _as_convolution(graph.replace(nodes=nodes, tensors=tensors), first, window)
    behind = replace(node, inputs=(inner,))
    graph = graph.replace(nodes=tuple(behind if n is node else n for n in graph.nodes))
    return _as_convolution(graph, behind, Window(parts, 1), rows / h)


def _as_convolution(
    graph: Graph, node: Node, window: Window | None = None, share: float | None = None, rounds: str = ""
) -> Graph:
    """An average as a depthwise convolution, whose weights the file has no word on.

    window  its own by default; share: what each pixel counts, the same of all of its window by default
    rounds  MEAN, or ONCE of a sum, of a TFLite file, whose sums are of whole pixels
    """
    k = window or node.window
    assert k is not None
    c, share = graph.tensors[node.inputs[0]].channels, share or 1.0 / (k.kh * k.kw)
    name = f"{node.name}.share"
    if name in graph.layers:  # another mean of one function
        name = f"{node.outputs[0]}.share"
    layer = of_shares(c, (k.kh, k.kw), share, rounds)
    made = replace(node, op=conv.DEPTHWISE, layer=name, window=k)
    nodes = tuple(made if n is node else n for n in graph.nodes)
    return graph.replace(nodes=nodes, layers={**graph.layers, name: layer})


def of_shares(c: int, window: tuple[int, int], share: float, rounds: str = "") -> Layer:
    """A depthwise layer of equal weights, frozen. rounds: as of a Layer's sums"""
    scale = np.full(c, share if rounds else share / 127.0)
    weight = np.full((c, *window), share, np.float32)
    return Layer(weight, np.zeros(c, np.float32), Source(""), scale, sums=rounds)


def _with_table(graph: Graph, node: Node, before: tuple[float, int]) -> Graph:
    """A pooling in the scale of its input, and behind it a table that changes it."""
    out = graph.tensors[node.outputs[0]]
    inner = f"{out.name}:pooled"
    limits = (-NO_LIMIT, NO_LIMIT)
    table = Node(functions.CLIP, f"{node.name}.rescaled", (inner,), node.outputs, factors=limits)
    pooled = replace(node, outputs=(inner,))
    nodes = exchanged(graph, node, (pooled, table))
    tensors = {**graph.tensors, inner: replace(out, name=inner, given=before)}
    return graph.replace(nodes=nodes, tensors=tensors)
