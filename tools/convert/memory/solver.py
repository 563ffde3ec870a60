"""Packing by OR-tools' CP-SAT: when each buffer is alive is given, where it lies is sought.

Whether buffers fit an arena of so many bytes is asked first, and the bound is asked for: the buffer that can
lie lowest is laid there, and what the solver learns from each dead end it does not try again. Which of two
that can lie equally low comes first decides whether that takes a tenth of a second or for ever, so several
orders are tried, each with little work. Work is counted by the solver and not by a clock: the result is the
same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from microtrain.convert.storage import ALIGNMENT

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, CpSolver

    from .plan import Buffer

WORK = 0.03  # of each order, in the solver's own deterministic measure; under a second
LONG = 3.0  # of a search for the smallest arena; half a minute


def packed(items: Sequence[Buffer], arena: int) -> list[int] | None:
    """Offsets with which no two buffers meet and all end within `arena` bytes; None where none were found."""
    from ortools.sat.python import cp_model

    for order in _orders(items):
        model = cp_model.CpModel()
        offsets = pack(model, items, {}, arena)
        lowest = [offsets[i] for i in order]
        model.add_decision_strategy(lowest, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE)
        solver = solver_of(WORK, cp_model.FIXED_SEARCH)
        status = solver.solve(model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return places(solver, offsets)
        if status == cp_model.INFEASIBLE:
            return None
    return None


def _orders(items: Sequence[Buffer]) -> list[list[int]]:
    """As the buffers come, those that take the most bytes for the longest first, and as they are born."""
    numbers = range(len(items))
    return [
        list(numbers),
        sorted(numbers, key=lambda i: -items[i].area),
        sorted(numbers, key=lambda i: (items[i].birth, -items[i].height)),
    ]


def smallest(items: Sequence[Buffer], bound: int, hint: Sequence[int], gap: float) -> list[int]:
    """Offsets for as small an arena as one long search finds.

    hint  offsets to begin with
    gap   of the bound at which it stops
    """
    from ortools.sat.python import cp_model

    arena = max(offset + item.height for offset, item in zip(hint, items, strict=True))
    model = cp_model.CpModel()
    top = model.new_int_var(bound // ALIGNMENT, arena // ALIGNMENT, "top")
    offsets, times, spaces = [], [], []
    for i, item in enumerate(items):
        offset = model.new_int_var(0, arena // ALIGNMENT, f"offset{i}")
        model.add_hint(offset, hint[i] // ALIGNMENT)
        offsets.append(offset)
        for j, p in enumerate(item.pieces):
            low, size, steps = p.low // ALIGNMENT, p.size // ALIGNMENT, p.death - p.birth + 1
            spaces.append(model.new_fixed_size_interval_var(offset + low, size, f"space{i}.{j}"))
            times.append(model.new_fixed_size_interval_var(p.birth, steps, f"time{i}.{j}"))
            model.add(offset + low + size <= top)
    model.add_no_overlap_2d(times, spaces)
    model.minimize(top)
    solver = solver_of(LONG, cp_model.AUTOMATIC_SEARCH)
    solver.parameters.relative_gap_limit = gap
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return places(solver, offsets) if found else list(hint)


def solver_of(work: float, branching: Any) -> CpSolver:
    """One that stops after so much work. branching: how it decides what to try next"""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    solver.parameters.search_branching = branching
    return solver


def pack(model: CpModel, items: Sequence[Buffer], sizes: Mapping[int, Any], arena: int) -> list[Any]:
    """Variables for the offset of each buffer, in units of ALIGNMENT: none meet, none ends behind the arena.

    A step is a machine, and an offset a time: buffers that are alive together are jobs that take turns.
    sizes  number of a buffer of a single piece at a time -> the variable for its size
    """
    offsets, alive = [], dict[int, list[Any]]()
    for i, item in enumerate(items):
        offset = model.new_int_var(0, arena // ALIGNMENT, f"offset{i}")
        offsets.append(offset)
        for j, p in enumerate(item.pieces):
            end = model.new_int_var(0, arena // ALIGNMENT, f"end{i}.{j}")
            size = sizes.get(i, p.size // ALIGNMENT)
            space = model.new_interval_var(offset + p.low // ALIGNMENT, size, end, f"space{i}.{j}")
            for step in range(p.birth, p.death + 1):
                alive.setdefault(step, []).append(space)
    for together in _largest(alive):
        model.add_no_overlap(together)
    return offsets


def _largest(alive: Mapping[int, list[Any]]) -> list[list[Any]]:
    """What is alive at each step, but for steps at which it is a part of what is alive at the next to it."""
    found: list[list[Any]] = []
    before: set[int] = set()
    for step in sorted(alive):
        names = {space.index for space in alive[step]}
        if names <= before:
            continue
        if before <= names and found:
            found.pop()
        found.append(alive[step])
        before = names
    return found


def places(solver: CpSolver, offsets: Sequence[Any]) -> list[int]:
    return [solver.value(offset) * ALIGNMENT for offset in offsets]
