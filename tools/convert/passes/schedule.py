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
    waiting = _Waiting(graph)
    order = []
    while waiting.nodes:
        order.append(waiting.take(min(waiting.candidates(), key=waiting.cost)))
    return graph.replace(nodes=(*graph.forward_nodes, *order))


class _Waiting:
    """Backward nodes that no place is chosen for yet, by their numbers.

    missing   number -> tensors that it reads and that are not made yet
    able      numbers of those that miss none
    readers   tensor -> numbers of those that read it
    of_layer  layer -> those that belong to it
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = dict(enumerate(graph.backward_nodes))
        self.recomputes = any(node.again for node in self.nodes.values())
        made = {t for n in graph.forward_nodes for t in n.outputs} | {graph.input.tensor}
        self.missing = {number: set(node.reads) - made for number, node in self.nodes.items()}
        self.able = {number for number, tensors in self.missing.items() if not tensors}
        self.readers: dict[str, set[int]] = {}
        self.of_owner: dict[str, dict[int, Node]] = {}
        for number, node in self.nodes.items():
            self.of_owner.setdefault(node.owner, {})[number] = node
            for tensor in node.reads:
                self.readers.setdefault(tensor, set()).add(number)

    def candidates(self) -> list[int]:
        """What could run now, in the order of the graph."""
        wanted = self._segments_wanted() if self.recomputes else set()
        able = ((number, self.nodes[number]) for number in sorted(self.able))
        return [i for i, n in able if not self._too_early(n) and (not n.again or n.again in wanted)]

    def cost(self, number: int) -> tuple[int, bool]:
        """Bytes that the node adds to what is alive, less those it frees; and whether it is no update."""
        node, tensors = self.nodes[number], self.graph.tensors
        made = sum(tensor_bytes(tensors[t]) for t in node.outputs)
        freed = sum(tensor_bytes(tensors[t]) for t in set(node.reads) if self.readers[t] == {number})
        return made - freed, updates(node) is Updates.NOTHING

    def take(self, number: int) -> Node:
        """The node, which runs now."""
        node = self.nodes.pop(number)
        self.able.remove(number)
        del self.missing[number], self.of_owner[node.owner][number]
        for tensor in set(node.reads):
            self.readers[tensor].remove(number)
        for tensor in node.outputs:
            for reader in self.readers.get(tensor, ()):
                self.missing[reader].discard(tensor)
                if not self.missing[reader]:
                    self.able.add(reader)
        return node

    def _segments_wanted(self) -> set[str]:
        """Recomputed segments without which some node that all else is ready for cannot run."""
        made = {t: n.again for n in self.nodes.values() if n.again for t in n.outputs}
        wanted: set[str] = set()
        for number, node in self.nodes.items():
            missing = self.missing[number]
            if not node.again and missing <= made.keys():
                wanted.update(made[t] for t in missing)
        return wanted

    def _too_early(self, node: Node) -> bool:
        """True while an update would change what a waiting node still has to read as it was."""
        if updates(node) is Updates.NOTHING:
            return False
        return any(spoils(node, other) for other in self.of_owner[node.owner].values())
