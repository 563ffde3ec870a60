"""The best score within a budget, proven: an integer linear program for each number of biases (CP-SAT).

The cost of candidates with the same biases is the largest of linear functions (cost.py), so that nothing is
approximated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .contribution import Gains
from .cost import Base, Budget, Choice
from .evolution import Problem, Scored
from .space import Candidate

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import CpModel, IntVar

UNIT = 1e-6  # of a score


def best(problem: Problem, gains: Gains) -> Scored:
    """The candidate of the highest score.

    Numbers of biases whose weights, all of them, cannot reach what is found already are not solved.
    """
    found: Scored | None = None
    bounds = {key: bound(problem, gains, *key) for key in problem.costs.bases}
    for key in sorted(bounds, key=lambda k: -bounds[k]):
        if found is None or bounds[key] > found.score:
            other = best_of(problem, gains, *key, found.score if found else -1.0)
            found = other if other and (found is None or other.score > found.score) else found
    assert found is not None, "the empty candidate is within every budget that has a base"
    return found


def bound(problem: Problem, gains: Gains, biases: int, bits: int) -> float:
    """No candidate with these biases scores more: every layer at its best level."""
    best_of_layer: dict[int, float] = {}
    for layer, level in problem.costs.bases[biases, bits].added:
        gain = gains.weights[layer, level, bits]
        best_of_layer[layer] = max(gain, best_of_layer.get(layer, 0.0))
    return gains.biases[biases] + sum(best_of_layer.values())


def best_of(problem: Problem, gains: Gains, biases: int, bits: int, least: float) -> Scored | None:
    """The best candidate with these biases and bits; None where none scores more than `least`."""
    from ortools.sat.python.cp_model import OPTIMAL, CpModel, CpSolver

    base = problem.costs.bases[biases, bits]
    model = CpModel()
    chosen = {choice: model.new_bool_var(f"{choice}") for choice in base.added}
    for layer in {layer for layer, _ in chosen}:
        model.add_at_most_one(x for (other, _), x in chosen.items() if other == layer)
    add_budget(model, base, chosen, problem.budget)
    score = sum(round(gains.weights[*choice, bits] / UNIT) * x for choice, x in chosen.items())
    model.add(score >= math.floor((least - gains.biases[biases]) / UNIT) + 1)
    model.maximize(score)
    solver = CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != OPTIMAL:
        return None
    levels = [0] * len(problem.space.usable)
    for (layer, level), x in chosen.items():
        if solver.boolean_value(x):
            levels[layer] = level
    candidate = Candidate(biases, tuple(levels), bits)
    return Scored(candidate, problem.score(candidate))


def add_budget(model: CpModel, base: Base, chosen: Mapping[Choice, IntVar], budget: Budget) -> None:
    """The busiest step keeps to the bytes of SRAM, flash and instructions to theirs."""
    room = budget.sram - base.fixed
    fixed = sum(base.added[c].fixed * x for c, x in chosen.items())
    most: dict[tuple[int, ...], int] = {}  # of steps to which the choices add the same, the busiest counts
    for step, alive in enumerate(base.alive):
        row = tuple(int(base.added[c].alive[step]) for c in chosen)
        most[row] = max(most.get(row, 0), int(alive))
    for row, alive in most.items():
        model.add(fixed + sum(n * x for n, x in zip(row, chosen.values(), strict=True)) <= room - alive)
    for choice, x in chosen.items():
        others = {c: y for c, y in chosen.items() if c[0] != choice[0]}
        for at, alive in base.added[choice].own:
            more = sum(int(base.added[c].alive[at]) * y for c, y in others.items())
            model.add(fixed + more <= room - alive).only_enforce_if(x)
    if math.isfinite(budget.flash):
        more = sum(base.added[c].flash * x for c, x in chosen.items())
        model.add(more <= math.floor(budget.flash - base.flash))
    if math.isfinite(budget.instructions):
        more = sum(math.ceil(base.added[c].instructions) * x for c, x in chosen.items())
        model.add(more <= math.floor(budget.instructions - base.instructions))
