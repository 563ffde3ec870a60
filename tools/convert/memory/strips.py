"""How many rows enter a stream at once: as many as the arena has room for anyway.

More rows at a time take more scratch and spare the kernels calls, half-filled tiles and repeated unpacking.
The arena's size comes from a plan for one row at a time; then the same solver packs it again, the height of
each stream's strip being its choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE
from microtrain.convert.storage import ALIGNMENT, align

from .plan import Plan, buffers, minimised, pack, placements

ROWS_MAX = 16
WORK = 2.0  # the solver's deterministic measure; about that many seconds


def wide(graph: Graph, rows: int) -> Graph:
    """The graph with so many rows of an image at a time, where they enter a chain as they come."""
    if not graph.arriving:
        return graph
    return graph.replace(nodes=(replace(graph.nodes[0], rows=rows), *graph.nodes[1:]))


def widen(graph: Graph, plan: Plan, in_place: bool = True) -> tuple[Graph, Plan]:
    """The graph with more rows at a time, and a plan for it in the same arena."""
    choices = {step: _choices(graph, n, plan.arena) for step, n in enumerate(graph.nodes) if n.parts}
    rows = _solve(graph, plan, choices, in_place) if choices else None
    if rows is None:
        return graph, plan
    heights, offsets = rows
    nodes = [replace(n, rows=heights.get(step, n.rows)) for step, n in enumerate(graph.nodes)]
    graph = graph.replace(nodes=tuple(nodes))
    found = placements(graph, buffers(graph, in_place), offsets)
    return graph, replace(plan, placements=found)


def _choices(graph: Graph, node: Node, arena: int) -> dict[int, int]:
    """Rows at a time -> bytes of scratch."""
    height, scratch = graph.tensors[node.inputs[0]].shape[0], TABLE[node.op].scratch
    rows = [1 << i for i in range(ROWS_MAX.bit_length()) if 1 << i <= height]
    sizes = {n: align(scratch(graph, replace(node, rows=n))) for n in rows}
    return {n: size for n, size in sizes.items() if size <= arena or n == 1}


def _solve(
    graph: Graph, plan: Plan, choices: Mapping[int, Mapping[int, int]], in_place: bool
) -> tuple[dict[int, int], list[int]] | None:
    """Rows of each stream, and the offsets of all buffers; None where the solver finds nothing in time.

    What is minimised is the work of the streams, each divided by its rows: as their overhead is.
    """
    from ortools.sat.python import cp_model

    items = buffers(graph, in_place)
    number = {name: i for i, item in enumerate(items) for name in item.tensors}
    hint = [plan.placements[min(b.tensors, key=lambda t: b.tensors[t])].offset for b in items]
    model = cp_model.CpModel()
    taken, sizes, cost = {}, {}, []
    for step, options in choices.items():
        taken[step] = {rows: model.new_bool_var(f"rows{step}.{rows}") for rows in options}
        model.add_exactly_one(taken[step].values())
        size = model.new_int_var(1, max(options.values()) // ALIGNMENT, f"size{step}")
        model.add(size == sum(options[rows] // ALIGNMENT * var for rows, var in taken[step].items()))
        model.add_hint(size, options[1] // ALIGNMENT)
        sizes[number[f"scratch:{step}"]] = size
        work = TABLE[graph.nodes[step].op].macs(graph, graph.nodes[step])
        cost += [work // rows * var for rows, var in taken[step].items()]
        for rows, var in taken[step].items():
            model.add_hint(var, rows == 1)
    offsets, _ = pack(model, items, sizes, plan.arena, hint)
    solver = minimised(model, sum(cost), WORK)
    if solver is None:
        return None
    chosen = {s: next(r for r, var in options.items() if solver.value(var)) for s, options in taken.items()}
    return chosen, [solver.value(o) * ALIGNMENT for o in offsets]
