"""Convolutions of which the first rows alone are read make no others: causal ones lose what looks ahead."""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.lowering import NORM
from microtrain.convert.ops.aten.resample import RESAMPLE, chosen

from .ordered import ELEMENTWISE


def end_rows(graph: Graph) -> Graph:
    """The raw graph without cuts of the first rows of what a convolution makes and nothing else reads."""
    for name in [n.outputs[0] for n in graph.nodes if n.op == RESAMPLE and _takes_first_rows(n)]:
        cut = graph.producer(name)
        graph = graph if cut is None else _ended(graph, cut)
    return graph


def _takes_first_rows(node: Node) -> bool:
    rows, columns = node.axes
    first = rows.terms == chosen(range(rows.outputs), rows.inputs).terms
    return first and columns.terms == chosen(range(columns.inputs), columns.inputs).terms


def _ended(graph: Graph, cut: Node) -> Graph:
    """Without one cut; as it is where no convolution makes what it reads, or others read that too.

    Batch norms and activations may lie between.
    """
    name, made, shape = cut.inputs[0], list[str](), graph.tensors[cut.inputs[0]].shape
    while True:
        maker = graph.producer(name)
        if maker is None or len(graph.readers(name)) > 1 or graph.tensors[name].shape != shape:
            return graph
        made.append(name)
        if maker.layer is not None and maker.window is not None:
            break
        if maker.op not in (NORM, *ELEMENTWISE):
            return graph
        name = maker.inputs[0]
    assert maker.window is not None
    less = (shape[0] - cut.axes[0].outputs) * maker.window.stride_h
    ended = replace(maker, window=replace(maker.window, more_h=maker.window.more_h - less))
    kept, gone = cut.inputs[0], cut.outputs[0]
    nodes = [ended if n is maker else n for n in graph.nodes if n is not cut]
    tensors = {n: t for n, t in graph.tensors.items() if n != gone}
    smaller = {n: replace(tensors[n], shape=(cut.axes[0].outputs, *shape[1:])) for n in made}
    return graph.replace(
        nodes=tuple(replace(n, inputs=tuple(kept if i == gone else i for i in n.inputs)) for n in nodes),
        tensors={**tensors, **smaller},
        output=kept if graph.output == gone else graph.output,
    )
