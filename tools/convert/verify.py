"""What must hold of a graph after every pass."""

from __future__ import annotations

from .ir import Graph, Node
from .ops import TABLE, spoils


def verify(graph: Graph) -> Graph:
    """Return the graph unchanged, or raise ValueError naming the node that breaks an invariant.

    Tensors are written once and before they are read; shapes are what the op table says; layers exist; a
    layer's weights change only after everything that reads them as they were.
    """
    written = {graph.input.tensor}
    changed: dict[str, list[Node]] = {}  # owner -> what has used it so far
    for node in graph.nodes:
        _check_node(graph, node, written)
        _check_order(node, changed.setdefault(node.owner, []))
        written.update(node.outputs)
    if graph.output not in written:
        raise ValueError(f"{graph.name}: nothing writes the output {graph.output}")
    return graph


def _check_node(graph: Graph, node: Node, written: set[str]) -> None:
    where = f"{node.op} of {node.name}"
    if node.op not in TABLE:
        raise ValueError(f"{where}: no such op")
    if node.layer is not None and node.layer not in graph.layers:
        raise ValueError(f"{where}: no layer {node.layer}")
    for tensor in node.reads:
        if tensor not in written:
            raise ValueError(f"{where} reads {tensor} before it is written")
    for tensor in node.outputs:
        if tensor in written:
            raise ValueError(f"{where} writes {tensor} a second time")
    shapes = TABLE[node.op].shapes(graph, node)
    found = tuple(graph.tensors[t].shape for t in node.outputs)
    if shapes != found:
        raise ValueError(f"{where} makes {found}, the op table says {shapes}")


def _check_order(node: Node, before: list[Node]) -> None:
    if any(spoils(update, node) for update in before):
        raise ValueError(f"{node.op} of {node.name} runs after the update of its weights")
    before.append(node)
