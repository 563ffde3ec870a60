"""Recomputation: what the backward pass needs of some layers is made again instead of being kept.

The clamp masks and saved inputs of a block stay alive from its forward pass to its backward pass. A segment
of forward nodes that runs once more, just before the backward pass reaches it, needs only the segment's
input all that time. Its first run then leaves nothing behind, so that it can be streamed (`fuse.py`).

Weights and biases are those of the first run: no layer is updated before the nodes that make it again.

Segments may overlap: the way to what one serves may lead through blocks that another one serves. Then nothing
of these blocks is kept for longer than the backward pass works on one of them, and they run more than twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE, forward_op, saves
from microtrain.convert.ops.table import Learns

Busiest = tuple[int, Collection[str]]  # bytes alive at a step, and the tensors that they belong to
SPAN_MAX = 4  # blocks in a segment


class Segment(NamedTuple):
    """Forward nodes first .. end, the last one exclusive, that run once more.

    serves  what this node and those behind it leave for the backward pass is made again; the nodes before it
            run for what comes behind them alone
    """

    first: int
    serves: int
    end: int


def recompute(graph: Graph, busiest: Callable[[Graph], Busiest], target: int) -> Graph:
    """Make segments again until the arena is at most `target` bytes, or no change lowers it any more.

    busiest  the busiest step of a graph, as the later passes will order it
    """
    return run_again(graph, choose(graph, busiest, target))


def choose(graph: Graph, busiest: Callable[[Graph], Busiest], target: int) -> frozenset[Segment]:
    """The segments that recompute() makes again.

    Each time the change is made that costs the fewest multiply-accumulates for a byte off the peak. In the
    end segments that are not needed any more are taken back, the most expensive first.
    """
    chosen: frozenset[Segment] = frozenset()
    plain, work = list(segments(graph)), 0
    most, alive = busiest(graph)
    while most > target:
        found = []
        for option in _changes(graph, chosen, plain, {t.rpartition("again:")[2] for t in alive}):
            changed = run_again(graph, option)
            lower, still = busiest(changed)
            more = recomputed_macs(changed) - work
            if lower < most:
                found.append((more / (most - lower), lower, sorted(option), more, still))
        if not found:
            break
        _, most, best, more, alive = min(found, key=lambda each: each[:3])
        chosen, work = frozenset(best), work + more
    for segment in sorted(chosen, key=lambda s: -recomputed_macs(run_again(graph, frozenset({s})))):
        if busiest(run_again(graph, chosen - {segment}))[0] <= max(most, target):
            chosen -= {segment}
    return chosen


def recomputed(graph: Graph) -> tuple[Node, ...]:
    """The nodes of a training graph that run a second time."""
    return tuple(node for node in graph.backward_nodes if node.again)


def recomputed_macs(graph: Graph) -> int:
    """Multiply-accumulates of a training step that are done a second time."""
    return sum(TABLE[node.op].macs(graph, node) for node in recomputed(graph))


def _changes(
    graph: Graph, chosen: frozenset[Segment], plain: list[Segment], alive: set[str]
) -> Iterator[frozenset[Segment]]:
    """The chosen segments with a plain one more, or with some that begin earlier.

    alive  what the change is to shorten the life of one at least; other changes do not help
    """
    for segment in plain:
        inside = {t for n in graph.forward_nodes[segment.first : segment.end] for t in n.outputs}
        if segment not in chosen and inside & alive:
            yield _with(chosen, segment)
    starts = _starts(graph)
    for first in sorted({s.first for s in chosen}):
        earlier = [start for start in starts if start < first]
        yield from (_moved(graph, chosen, first, start) for start in earlier[-SPAN_MAX:])


def _with(chosen: frozenset[Segment], new: Segment) -> frozenset[Segment]:
    """The chosen segments and a new one; what it serves is no longer served by others."""
    parts = {new}
    for first, serves, end in chosen:
        for start, stop in ((serves, min(end, new.serves)), (max(serves, new.end), end)):
            if start < stop:
                parts.add(Segment(first, start, stop))
    return frozenset(parts)


def _moved(graph: Graph, chosen: frozenset[Segment], first: int, start: int) -> frozenset[Segment]:
    """The chosen segments; those that began with node `first` begin with `start`, and serve what it reads."""
    (read,) = _read_later(graph.forward_nodes[first:])
    maker = next(i for i, node in enumerate(graph.forward_nodes) if read in node.outputs)
    for segment in sorted(s for s in chosen if s.first == first):
        serves = maker if segment.serves == first else segment.serves
        chosen = _with(chosen - {segment}, Segment(start, serves, segment.end))
    return chosen


def segments(graph: Graph) -> Iterator[Segment]:
    """Runs of forward nodes that read a single tensor from before them, and serve all of them.

    They reach over at most SPAN_MAX blocks and end with a node that leaves something behind for the backward
    pass.
    """
    nodes, kept, starts = graph.forward_nodes, _kept(graph), _starts(graph)
    for number, first in enumerate(starts):
        last = starts[number + SPAN_MAX] if number + SPAN_MAX < len(starts) else len(nodes)
        for end in range(first + 1, last + 1):
            if not _is_head(nodes[end - 1]) and kept.intersection(nodes[end - 1].outputs):
                yield Segment(first, first, end)


def _starts(graph: Graph) -> list[int]:
    """Forward nodes that, with all behind them, read a single tensor from before them."""
    nodes = graph.forward_nodes
    return [i for i in range(1, len(nodes)) if len(_read_later(nodes[i:])) == 1]


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
    nodes = graph.forward_nodes
    inputs = set().union(*(_read_later(nodes[s.first : s.end]) for s in chosen))
    wanted = _kept(graph) - inputs
    names = {
        t: f"again:{t}" for s in chosen for n in nodes[s.serves : s.end] for t in n.outputs if t in wanted
    }
    copies = [copy for segment in sorted(chosen) for copy in _copies(nodes, segment, set(names))]
    backward = (*(copy for copy, _ in copies), *(_renamed(node, names) for node in graph.backward_nodes))
    forward = tuple(
        replace(n, outputs=(n.outputs[0], *(t for t in n.outputs[1:] if t not in names)))
        for n in nodes
        if not saves(n) or n.outputs[0] not in names
    )
    made = {copy: t for _, tensors in copies for t, copy in tensors.items()}
    tensors = {**graph.tensors, **{n: replace(graph.tensors[t], name=n) for n, t in made.items()}}
    used = {t for n in (*forward, *backward) for t in (*n.reads, *n.outputs)}
    tensors = {name: tensor for name, tensor in tensors.items() if name in used}
    return graph.replace(tensors=tensors, nodes=(*forward, *backward), forward=len(forward))


def _copies(
    nodes: tuple[Node, ...], segment: Segment, wanted: set[str]
) -> Iterator[tuple[Node, dict[str, str]]]:
    """The segment's nodes that lead to what it serves, each with the new names of what it makes."""
    path, served = nodes[segment.first : segment.serves], nodes[segment.serves : segment.end]
    name = served[0].outputs[0]
    names = {t: f"again:{name}:{t}" for n in path for t in n.outputs}
    names |= {t: f"again:{t}" for n in served for t in n.outputs}
    needed = {t for n in served for t in n.outputs if t in wanted}
    copies = []
    for node in reversed((*path, *served)):
        if needed.intersection(node.outputs):
            kept = wanted if node in served else set()
            outputs = (node.outputs[0], *(t for t in node.outputs[1:] if t in kept))
            needed.update(node.reads)
            copy = _renamed(replace(node, outputs=outputs, again=name), names)
            copies.append((copy, {t: names[t] for t in outputs}))
    yield from reversed(copies)


def _renamed(node: Node, names: dict[str, str]) -> Node:
    clamp = node.clamp
    if clamp is not None and clamp.mask in names:
        clamp = replace(clamp, mask=names[clamp.mask])
    inputs, outputs = (tuple(names.get(t, t) for t in tensors) for tensors in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs, clamp=clamp)
