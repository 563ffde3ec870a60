"""Operator reordering: the order of the backward steps that keeps the least memory alive.

Every weight update runs as soon as its gradient can be computed and its old weights are no longer read, so
no gradient buffer exists beyond a row and an error dies early. A segment that is recomputed waits until a
node could go on with it.
"""

from __future__ import annotations

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import spoils, updates
from microtrain.convert.ops.table import Updates
from microtrain.convert.storage import tensor_bytes


def schedule(graph: Graph) -> Graph:
    """Reorder the backward nodes: of those that are ready, always the one that leaves the fewest bytes alive.

    Updates win ties: they free what they read and add nothing.
    """
    waiting = list(graph.backward_nodes)
    ready = {t for n in graph.forward_nodes for t in n.outputs} | {graph.input.tensor}
    readers = {t: [n for n in waiting if t in n.reads] for n in waiting for t in n.reads}
    order: list[Node] = []
    while waiting:
        wanted = _segments_wanted(waiting, ready)
        candidates = [
            n
            for n in waiting
            if ready.issuperset(n.reads) and not _too_early(n, waiting) and (not n.again or n.again in wanted)
        ]
        node = min(
            candidates,
            key=lambda n: (_growth(graph, n, readers), updates(n) is Updates.NOTHING, waiting.index(n)),
        )
        waiting.remove(node)
        order.append(node)
        ready.update(node.outputs)
        for tensor in node.reads:
            if node in readers[tensor]:
                readers[tensor].remove(node)
    return graph.replace(nodes=(*graph.forward_nodes, *order))


def _segments_wanted(waiting: list[Node], ready: set[str]) -> set[str]:
    """Recomputed segments without which some node that all else is ready for cannot run."""
    made = {t: n.again for n in waiting if n.again for t in n.outputs}
    wanted: set[str] = set()
    for node in waiting:
        missing = set(node.reads) - ready
        if not node.again and missing <= made.keys():
            wanted.update(made[t] for t in missing)
    return wanted


def _too_early(node: Node, waiting: list[Node]) -> bool:
    """True while an update would change what a waiting node still has to read as it was."""
    return any(spoils(node, n) for n in waiting)


def _growth(graph: Graph, node: Node, readers: dict[str, list[Node]]) -> int:
    """Bytes that the node adds to what is alive, less those it frees."""
    made = sum(tensor_bytes(graph.tensors[t]) for t in node.outputs)
    freed = sum(tensor_bytes(graph.tensors[t]) for t in set(node.reads) if readers[t] == [node])
    return made - freed
