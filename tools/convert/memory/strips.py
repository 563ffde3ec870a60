"""How many rows enter a stream at once: as many as the arena has room for anyway.

More rows at a time take more scratch and spare the kernels calls, half-filled tiles and repeated unpacking.
All streams are made as tall as the bytes alive at their steps allow, and that is packed: mostly it can be.
Where it cannot, the solver has the heights as its choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE
from microtrain.convert.storage import ALIGNMENT, align

from .plan import GAP, MOST, Buffer, Plan, buffers, bytes_alive, fit, improved, keeps, laid_out, top
from .solver import pack, packed, places, solver_of

ROWS_MAX = 16
WORK = 1.0  # of choosing rows, in the solver's own deterministic measure; ten seconds
SPARED = 0.5 * GAP  # of the bound, that streams may take more
AMPLE = 0.02  # of it, where that saves more than a third of their work
Options = Mapping[int, Mapping[int, int]]  # step -> rows -> bytes of scratch


def wide(graph: Graph, rows: int) -> Graph:
    """The graph with so many rows of an image at a time, where they enter a chain as they come."""
    if not graph.arriving:
        return graph
    return graph.replace(nodes=(replace(graph.nodes[0], rows=rows), *graph.nodes[1:]))


def planned(graph: Graph, in_place: bool, room: int) -> tuple[Graph, Plan]:
    """The graph with as many rows at a time as its arena has room for, and its plan.

    room  bytes that the arena should have at most: more rows never take more of it
    """
    items = buffers(graph, in_place)
    alive = bytes_alive(items)
    bound, first = max(alive.values()), fit(items)
    if any(node.parts for node in graph.nodes) and len(items) <= MOST:
        most = min(first[1], max(room, bound))
        spared, arena, ample = (min(most, bound + align(int(bound * s))) for s in (SPARED, GAP, AMPLE))
        found = _packed(_tallest(graph, alive, spared, ample), alive, in_place)
        found = found or _chosen(graph, alive, in_place, arena, packed(items, bound))
        if found:
            return found
    offsets, arena = improved(items, bound, *first)
    low = graph, laid_out(graph, items, offsets, alive)
    return _chosen(graph, alive, in_place, arena, offsets) or low


def _tallest(graph: Graph, alive: Mapping[int, int], spared: int, ample: int) -> Graph:
    """All streams as tall as the bytes alive allow in an arena, the ample one where that is much better."""
    tall, taller = (
        _with(graph, {step: max(rows) for step, rows in _options(graph, alive, arena).items()})
        for arena in (spared, ample)
    )
    return taller if 3 * _all_work(taller) < 2 * _all_work(tall) else tall


def _packed(graph: Graph, alive: Mapping[int, int], in_place: bool) -> tuple[Graph, Plan] | None:
    """The graph and its plan in no more bytes than are alive at once; None where none is found."""
    items = buffers(graph, in_place)
    offsets = packed(items, max(bytes_alive(items).values()))
    return (graph, laid_out(graph, items, offsets, alive)) if offsets else None


def _chosen(
    graph: Graph, alive: Mapping[int, int], in_place: bool, arena: int, hint: Sequence[int] | None
) -> tuple[Graph, Plan] | None:
    """Streams as tall as a solver makes them in an arena; None where it finds nothing in time.

    What is minimised is their work: that of a row, each time that rows enter; as its overhead is.
    hint  offsets of all buffers with the graph's own rows at a time
    """
    from ortools.sat.python import cp_model

    options = _options(graph, alive, arena)
    if not options:
        return None
    items = buffers(graph, in_place)
    number = {name: i for i, item in enumerate(items) for name in item.tensors}
    model = cp_model.CpModel()
    taken, sizes, cost = {}, {}, []
    for step, rows in options.items():
        taken[step] = {n: model.new_bool_var(f"rows{step}.{n}") for n in rows}
        model.add_exactly_one(taken[step].values())
        size = model.new_int_var(1, max(rows.values()) // ALIGNMENT, f"size{step}")
        model.add(size == sum(rows[n] // ALIGNMENT * var for n, var in taken[step].items()))
        sizes[number[f"scratch:{step}"]] = size
        cost += [_work(graph, step, n) * var for n, var in taken[step].items()]
    offsets = pack(model, items, sizes, arena)
    if hint:
        for step, of in taken.items():
            for n, var in of.items():
                model.add_hint(var, n == graph.nodes[step].rows)
        for offset, at in zip(offsets, hint, strict=True):
            model.add_hint(offset, at // ALIGNMENT)
    model.minimize(sum(cost))
    solver = solver_of(WORK, cp_model.PORTFOLIO_WITH_QUICK_RESTART_SEARCH)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    tall = _with(graph, {s: next(n for n, v in of.items() if solver.value(v)) for s, of in taken.items()})
    items = buffers(tall, in_place)
    return tall, laid_out(tall, items, _closer(items, places(solver, offsets)), alive)


def _closer(items: Sequence[Buffer], offsets: Sequence[int]) -> Sequence[int]:
    """Offsets in fewer bytes, where that is soon found."""
    need, arena = max(bytes_alive(items).values()), top(items, offsets)
    tries = (packed(items, less) for less in (need, need + align((arena - need) // 2)) if less < arena)
    return next(filter(None, tries), offsets)


def _work(graph: Graph, step: int, rows: int) -> int:
    """Of a row, each time that rows enter."""
    node = graph.nodes[step]
    height = graph.tensors[node.inputs[0]].shape[0]
    return TABLE[node.op].macs(graph, node) // height * -(-height // rows)


def _all_work(graph: Graph) -> int:
    return sum(_work(graph, step, node.rows) for step, node in enumerate(graph.nodes) if node.parts)


def _options(graph: Graph, alive: Mapping[int, int], arena: int) -> Options:
    """For each stream: rows at a time that no step needs more than the arena's bytes for."""
    found = {}
    for step, node in enumerate(graph.nodes):
        if node.parts:
            tall = {n: replace(node, rows=n) for n in _rows(graph, node)}
            sizes = {n: align(TABLE[node.op].scratch(graph, of)) for n, of in tall.items()}
            free = arena - alive[step] + sizes[node.rows]
            if keeps(graph):
                free = min(free, arena - alive[len(graph.nodes) + step] + sizes[node.rows])
            found[step] = {n: size for n, size in sizes.items() if size <= free or n == node.rows}
    return found


def _rows(graph: Graph, node: Node) -> list[int]:
    """Rows at a time, from the node's own on. Others than powers of two leave tiles half filled."""
    height = graph.tensors[node.inputs[0]].shape[0]
    twos = (1 << i for i in range(ROWS_MAX.bit_length()))
    return sorted({node.rows, *(n for n in twos if node.rows < n <= height)})


def _with(graph: Graph, heights: Mapping[int, int]) -> Graph:
    nodes = (replace(node, rows=heights.get(step, node.rows)) for step, node in enumerate(graph.nodes))
    return graph.replace(nodes=tuple(nodes))
