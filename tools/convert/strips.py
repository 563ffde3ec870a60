"""How many rows enter a stream at once: as many as the arena has room for anyway.

More rows at a time take more scratch and spare the kernels calls, half-filled tiles and repeated unpacking.
The plan is made for one row at a time; then each stream takes what lies free at its step.
"""

from __future__ import annotations

from dataclasses import replace

from .ir import Graph, Node
from .ops import TABLE
from .plan import Placement, Plan, align

ROWS_MAX = 16


def widen(graph: Graph, plan: Plan) -> tuple[Graph, Plan]:
    """The graph with more rows at a time, and the plan with the scratch of its streams moved and grown."""
    nodes, placements = list(graph.nodes), dict(plan.placements)
    for step, node in enumerate(nodes):
        if node.op == "stream":
            scratch = f"scratch:{step}"
            others = [p for p in placements.values() if p.birth <= step <= p.death and p.name != scratch]
            offset, room = _largest_gap(others, plan.arena)
            nodes[step] = _widest(graph, node, room)
            if nodes[step].rows > 1:
                size = align(TABLE["stream"].scratch(graph, nodes[step]))
                placements[scratch] = replace(placements[scratch], offset=offset, bytes=size)
    return graph.replace(nodes=tuple(nodes)), replace(plan, placements=placements)


def _largest_gap(taken: list[Placement], arena: int) -> tuple[int, int]:
    """Offset and bytes of the largest run of bytes that nothing takes."""
    gaps, end = [], 0
    for placement in sorted(taken, key=lambda p: p.offset):
        gaps.append((placement.offset - end, end))
        end = max(end, align(placement.offset + placement.bytes))
    room, offset = max((*gaps, (arena - end, end)))
    return offset, room


def _widest(graph: Graph, node: Node, room: int) -> Node:
    """The stream with as many rows at once as `room` bytes of scratch allow."""
    height = graph.tensors[node.inputs[0]].shape[0]
    while 2 * node.rows <= min(ROWS_MAX, height):
        wider = replace(node, rows=2 * node.rows)
        if align(TABLE["stream"].scratch(graph, wider)) > room:
            break
        node = wider
    return node
