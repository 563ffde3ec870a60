"""The last step of a search: the best candidates trained for real, and the winner converted."""

from __future__ import annotations

from collections.abc import Iterable

from convert.ir import ConvertError
from convert.pipeline import Compiled, compile_graph

from .contribution import Plan, mean
from .cost import cost_of
from .evolution import Problem, Scored
from .lab import Lab
from .space import Candidate
from .store import Outcomes
from .trial import Trial

APART = 3  # layers in whose level two finalists differ at least


def different(evaluated: Iterable[Scored], count: int) -> list[Candidate]:
    """The best candidates that are no near copies of better ones; the best of each number of fraction bits is
    among them."""
    ordered = sorted({s.candidate: s for s in evaluated}.values(), key=lambda s: -s.score)
    first = {s.candidate.bits: s.candidate for s in reversed(ordered)}
    found = [s.candidate for s in ordered if s.candidate in first.values()][:count]
    for scored in ordered:
        if len(found) >= count:
            break
        if all(apart(scored.candidate, other) for other in found):
            found.append(scored.candidate)
    return found


def apart(one: Candidate, other: Candidate) -> bool:
    changed = sum(a != b for a, b in zip(one.levels, other.levels, strict=True))
    return one.bits != other.bits or changed + abs(one.biases - other.biases) >= APART


def trials(problem: Problem, plan: Plan, candidates: Iterable[Candidate]) -> list[Trial]:
    return [trial for candidate in candidates for trial in plan.trials(problem.space.scheme(candidate))]


def ranked(
    problem: Problem, plan: Plan, candidates: Iterable[Candidate], outcomes: Outcomes
) -> list[tuple[float, Candidate]]:
    """Mean accuracy over the seeds, the best first."""
    found = [(mean(outcomes, plan, problem.space.scheme(candidate)), candidate) for candidate in candidates]
    return sorted(found, key=lambda pair: -pair[0])


def converted(lab: Lab, problem: Problem, candidates: Iterable[Candidate]) -> tuple[Candidate, Compiled]:
    """The first that keeps to the budget as a whole plan. ConvertError where none does."""
    for candidate in candidates:
        compiled = compile_graph(lab.graph, problem.space.scheme(candidate), lab.classes)
        if cost_of(compiled).within(problem.budget):
            return candidate, compiled
    raise ConvertError(
        f"no finalist keeps to {problem.budget.sram:,} B of SRAM as a whole plan, which may take 0.5 % "
        "more than the search counts: raise --finalists, or the budget by a little"
    )
