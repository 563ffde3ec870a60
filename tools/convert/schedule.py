"""Operator reordering: the order of the backward steps that keeps the least memory alive.

Every weight update runs as soon as its gradient can be computed and its old weights are no longer read, so
no gradient buffer exists beyond a row and an error dies early.
"""

from __future__ import annotations

from .ir import Graph, Node
from .ops import TABLE
from .plan import tensor_bytes


def schedule(graph: Graph) -> Graph:
    """Reorder the backward nodes: of those that are ready, always the one that leaves the fewest bytes alive.

    Updates win ties: they free what they read and add nothing.
    """
    waiting = list(graph.backward_nodes)
    ready = {t for n in graph.forward_nodes for t in n.outputs} | {graph.input.tensor}
    readers = {t: [n for n in waiting if t in n.reads] for n in waiting for t in n.reads}
    order: list[Node] = []
    while waiting:
        candidates = [n for n in waiting if ready.issuperset(n.reads) and not _too_early(n, waiting)]
        node = min(
            candidates, key=lambda n: (_growth(graph, n, readers), not TABLE[n.op].updates, waiting.index(n))
        )
        waiting.remove(node)
        order.append(node)
        ready.update(node.outputs)
        for tensor in node.reads:
            if node in readers[tensor]:
                readers[tensor].remove(node)
    return graph.replace(nodes=(*graph.forward_nodes, *order))


def _too_early(node: Node, waiting: list[Node]) -> bool:
    """True while an update would change weights that a waiting node still has to read as they were."""
    return updates_weights(node) and any(reads_weights(n) and n.layer == node.layer for n in waiting)


def updates_weights(node: Node) -> bool:
    """True for nodes that change a layer's weights (a bias update does not)."""
    return node.op.endswith("_bwd_w")


def reads_weights(node: Node) -> bool:
    """True for backward nodes that read a layer's weights (and so must run before its weight update)."""
    return node.op.endswith("_bwd_x") and node.layer is not None


def _growth(graph: Graph, node: Node, readers: dict[str, list[Node]]) -> int:
    """Bytes that the node adds to what is alive, less those it frees."""
    made = sum(tensor_bytes(graph.tensors[t]) for t in node.outputs)
    freed = sum(tensor_bytes(graph.tensors[t]) for t in set(node.reads) if readers[t] == [node])
    return made - freed
