"""The last step of a search: the best candidates trained for real, in rounds, and the winner converted.

The first round takes the best sums of contributions; each later one what the sessions before let hope most of
(surrogate.py). The few that are expected to be best at the end are trained again with other seeds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from microtrain.convert.default_scheme import largest
from microtrain.convert.pipeline import ALL_PASSES, Compiled, Room, compile_graph
from microtrain.convert.scheme import Scheme

from .contribution import Plan, mean
from .cost import keeps, whole_cost
from .evolution import Problem, Scored, regions, search_evolutionary
from .lab import Lab
from .space import Candidate
from .store import Outcomes
from .surrogate import Parts, Surrogate
from .trial import Trial

APART = 3  # layers in whose level two finalists differ at least
KEPT_BACK = 0.005  # of the SRAM
LAST = 3  # candidates that are trained again with other seeds


def cautious(problem: Problem) -> Problem:
    """The problem without KEPT_BACK of its SRAM, which a whole plan may take beyond the search's count: so
    finalists are chosen without conversions. The problem itself where nothing would be left."""
    budget = replace(problem.budget, sram=int(problem.budget.sram * (1 - KEPT_BACK)))
    costs = problem.costs.within(budget)
    return replace(problem, costs=costs, budget=budget) if costs.bases else problem


def chosen(
    problem: Problem, evaluated: Collection[Scored], evaluations: int, count: int, seed: int
) -> list[Candidate]:
    """The best candidates, each of another number of fraction bits or another band of numbers of biases.

    Biases and weights do part of the same work, and fraction bits tell in long sessions: contributions add up
    less well across these than within. How the memory is shared is settled by real training.

    evaluated    by the evolution, under the same costs or larger ones
    """
    best: list[Scored] = []
    for costs in regions(problem.costs, count):
        inside = replace(problem, costs=costs)
        known = (scored for scored in evaluated if inside.feasible(scored.candidate))
        own = search_evolutionary(inside, max(1, evaluations // count), seed)
        best.append(max((*known, *own), key=lambda s: s.score))
    return different(best, count)


def different(best: Iterable[Scored], count: int) -> list[Candidate]:
    """The best candidates that are no near copies of better ones."""
    found: list[Candidate] = []
    for scored in sorted(best, key=lambda s: -s.score):
        if len(found) < count and all(apart(scored.candidate, other) for other in found):
            found.append(scored.candidate)
    return found


def apart(one: Candidate, other: Candidate) -> bool:
    changed = sum(a != b for a, b in zip(one.levels, other.levels, strict=True))
    return one.bits != other.bits or changed + abs(one.biases - other.biases) >= APART


def promising(
    problem: Problem,
    parts: Parts,
    known: Mapping[Candidate, float],
    evaluations: int,
    count: int,
    seed: int,
) -> list[Candidate]:
    """The candidates to train next.

    Each is believed to turn out as expected before the next is chosen, so that they differ ("kriging
    believer": Ginsbourger, Le Riche and Carraro, Kriging is well-suited to parallelize optimization, 2010).

    known    likelihoods of those that were trained
    """
    believed = dict(known)
    found: list[Candidate] = []
    for number in range(count):
        surrogate = Surrogate(parts, believed)
        hopes = replace(problem, score=cache(surrogate.hoped))
        evaluated = search_evolutionary(hopes, max(1, evaluations // count), seed + number, known)
        new = (s for s in evaluated if s.candidate not in believed)
        best = max(new, key=lambda s: s.score, default=None)
        if best is None:
            break
        found.append(best.candidate)
        believed[best.candidate] = surrogate.expected(best.candidate)
    return found


def likeliest(lab: Lab, problem: Problem, parts: Parts, known: Mapping[Candidate, float]) -> list[Candidate]:
    """The LAST that are expected to be best, what a lucky session was worth not taken at its word, and that
    keep to the budget as whole plans."""
    surrogate = Surrogate(parts, known)
    ordered = sorted(known, key=lambda candidate: -surrogate.expected(candidate))
    schemes = ((candidate, problem.space.scheme(candidate)) for candidate in ordered)
    kept = (c for c, scheme in schemes if keeps(lab.graph, scheme, lab.classes, problem.budget))
    return list(islice(kept, LAST))


def trials(problem: Problem, plan: Plan, candidates: Iterable[Candidate]) -> list[Trial]:
    return [trial for candidate in candidates for trial in plan.trials(problem.space.scheme(candidate))]


@dataclass(frozen=True)
class Finalist:
    """Means over its sessions (trial.Outcome)."""

    candidate: Candidate
    accuracy: float
    likelihood: float
    sessions: int


@dataclass(frozen=True)
class Default:
    """What `convert` trains within the same SRAM where it is named no scheme. Means as a finalist's.

    fits   it keeps to the budgets of flash and instructions as well
    """

    name: str
    accuracy: float
    likelihood: float
    sessions: int
    sram: int
    fits: bool


def default_of(lab: Lab, problem: Problem) -> Scheme:
    """The default scheme, with the learning rate that everything is tried with."""
    scheme = largest(Room(lab.graph, lab.classes, problem.budget.sram), ALL_PASSES)
    return replace(scheme, rates=problem.space.rates)


def judged(lab: Lab, problem: Problem, plan: Plan, scheme: Scheme, outcomes: Outcomes) -> Default:
    """The default scheme, of which all sessions are known."""
    accuracy, likelihood = (mean(outcomes, plan, scheme, m) for m in ("accuracy", "likelihood"))
    cost = whole_cost(lab.graph, scheme, lab.classes, problem.budget)
    fits = cost.within(problem.budget)
    return Default(scheme.name, accuracy, likelihood, len(plan.seeds), cost.sram, fits)


def ranked(
    problem: Problem, plan: Plan, candidates: Iterable[Candidate], outcomes: Outcomes
) -> list[Finalist]:
    """By likelihood, the best first."""
    found = []
    for candidate in candidates:
        scheme = problem.space.scheme(candidate)
        accuracy, likelihood = (mean(outcomes, plan, scheme, m) for m in ("accuracy", "likelihood"))
        found.append(Finalist(candidate, accuracy, likelihood, len(plan.seeds)))
    return sorted(found, key=lambda finalist: -finalist.likelihood)


def converted(lab: Lab, problem: Problem, candidate: Candidate) -> Compiled:
    """The whole plan."""
    return compile_graph(lab.graph, problem.space.scheme(candidate), lab.classes)
