"""Recomputation: what the backward pass needs of some layers is made again instead of being kept.

The clamp masks and saved inputs of a block stay alive from its forward pass to its backward pass. A segment
of forward nodes that runs once more, just before the backward pass reaches it, needs only the segment's
input all that time. Its first run then leaves nothing behind, so that it can be streamed (`fuse.py`).

Weights and biases are those of the first run: no layer is updated before the nodes that make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE, forward_op, saves
from microtrain.convert.ops.table import Learns

Segment = tuple[int, int]  # forward nodes first .. last, the last one exclusive
SPAN_MAX = 4  # blocks in a segment


def recompute(graph: Graph, peak: Callable[[Graph], int], target: int) -> Graph:
    """Make segments again until the arena is at most `target` bytes, or no segment lowers it any more.

    peak  bytes alive at the busiest step of a graph, as the later passes will order it

    Each time the segment is taken that costs the fewest multiply-accumulates for a byte off the peak. It may
    swallow segments chosen before.
    """
    chosen: frozenset[Segment] = frozenset()
    candidates = list(segments(graph))
    most, work = peak(graph), 0
    while most > target:
        found = []
        for option in _extended(chosen, candidates):
            changed = run_again(graph, option)
            lower, more = peak(changed), recomputed_macs(changed) - work
            if lower < most:
                found.append((more / (most - lower), lower, sorted(option)))
        if not found:
            break
        _, most, best = min(found)
        chosen = frozenset(best)
        work = recomputed_macs(run_again(graph, chosen))
    return run_again(graph, chosen)


def recomputed(graph: Graph) -> tuple[Node, ...]:
    """The nodes of a training graph that run a second time."""
    return tuple(node for node in graph.backward_nodes if node.again)


def recomputed_macs(graph: Graph) -> int:
    """Multiply-accumulates of a training step that are done a second time."""
    return sum(TABLE[node.op].macs(graph, node) for node in recomputed(graph))


def _extended(chosen: frozenset[Segment], candidates: list[Segment]) -> Iterator[frozenset[Segment]]:
    """The chosen segments with one more, in place of those that lie inside it."""
    for first, end in candidates:
        overlapping = {s for s in chosen if s[0] < end and first < s[1]}
        if (first, end) not in chosen and all(first <= a and b <= end for a, b in overlapping):
            yield chosen - overlapping | {(first, end)}


def segments(graph: Graph) -> Iterator[Segment]:
    """Runs of forward nodes that read a single tensor from before them.

    They reach over at most SPAN_MAX blocks and end with a node that leaves something behind for the backward
    pass.
    """
    nodes, kept = graph.forward_nodes, _kept(graph)
    starts = [i for i in range(1, len(nodes)) if len(_read_later(nodes[i:])) == 1]
    for number, first in enumerate(starts):
        last = starts[number + SPAN_MAX] if number + SPAN_MAX < len(starts) else len(nodes)
        for end in range(first + 1, last + 1):
            if not _is_head(nodes[end - 1]) and kept.intersection(nodes[end - 1].outputs):
                yield first, end


def _is_head(node: Node) -> bool:
    return not saves(node) and forward_op(node).learns is Learns.HEAD


def _read_later(nodes: tuple[Node, ...]) -> set[str]:
    """Tensors that the nodes read and do not make."""
    return {t for n in nodes for t in n.reads} - {t for n in nodes for t in n.outputs}


def _kept(graph: Graph) -> set[str]:
    """Tensors of the forward pass that wait for the backward pass."""
    made = {t for n in graph.forward_nodes for t in n.outputs}
    return made & {t for n in graph.backward_nodes for t in n.reads}


def run_again(graph: Graph, chosen: frozenset[Segment]) -> Graph:
    """The graph with segments of forward nodes made again for the backward pass."""
    parts = {s: graph.forward_nodes[s[0] : s[1]] for s in sorted(chosen)}
    inputs = set().union(*(_read_later(nodes) for nodes in parts.values()))
    wanted = _kept(graph) - inputs
    names = {t: f"again:{t}" for nodes in parts.values() for n in nodes for t in n.outputs if t in wanted}
    copies = [copy for nodes in parts.values() for copy in _copies(nodes, set(names))]
    backward = (*copies, *(_renamed(node, names) for node in graph.backward_nodes))
    forward = tuple(
        replace(n, outputs=(n.outputs[0], *(t for t in n.outputs[1:] if t not in names)))
        for n in graph.forward_nodes
        if not saves(n) or n.outputs[0] not in names
    )
    made = {t: t.removeprefix("again:") for n in copies for t in n.outputs}
    tensors = {**graph.tensors, **{n: replace(graph.tensors[t], name=n) for n, t in made.items()}}
    used = {t for n in (*forward, *backward) for t in (*n.reads, *n.outputs)}
    tensors = {name: tensor for name, tensor in tensors.items() if name in used}
    return graph.replace(tensors=tensors, nodes=(*forward, *backward), forward=len(forward))


def _copies(nodes: tuple[Node, ...], wanted: set[str]) -> list[Node]:
    """The nodes that lead to what is wanted, with results of their own."""
    names = {t: f"again:{t}" for n in nodes for t in n.outputs}
    needed, copies = wanted.intersection(names), []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed.update(node.reads)
            outputs = (node.outputs[0], *(t for t in node.outputs[1:] if t in wanted))
            copies.append(_renamed(replace(node, outputs=outputs, again=nodes[0].name), names))
    return copies[::-1]


def _renamed(node: Node, names: dict[str, str]) -> Node:
    clamp = node.clamp
    if clamp is not None and clamp.mask in names:
        clamp = replace(clamp, mask=names[clamp.mask])
    inputs, outputs = (tuple(names.get(t, t) for t in tensors) for tensors in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs, clamp=clamp)
