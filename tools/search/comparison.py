"""Evolutionary search against random search with as many evaluations, and against the proven optimum."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from . import exact
from .contribution import Gains
from .engine import Engine
from .evolution import Problem, search_evolutionary, search_random

SEARCHES = {"evolutionary": search_evolutionary, "random": search_random}
EXACT = "exact"
Task = tuple[str, int]  # how, and its seed


@dataclass(frozen=True)
class Comparison:
    """Best scores: of each seed, and of all candidates there are."""

    evolutionary: list[float]
    random: list[float]
    exact: float

    def median(self, how: str) -> float:
        """Of the seeds, as a share of the optimum."""
        result: float = statistics.median(getattr(self, how)) / self.exact
        return result


def tasks(seeds: int) -> list[Task]:
    """Nothing to do for no seeds."""
    rivals = [(how, seed) for how in SEARCHES for seed in range(seeds)]
    return [(EXACT, 0), *rivals] if rivals else []


def compare(
    problem: Problem, gains: Gains, evaluations: int, wanted: list[Task], engine: Engine
) -> Iterator[tuple[Task, float]]:
    """The best score of each task, as they are found."""
    yield from engine.each(partial(best_score, problem, gains, evaluations), wanted)


def collected(found: dict[Task, float]) -> Comparison | None:
    """What compare() found."""
    if not found:
        return None
    own = {how: [score for (h, _), score in sorted(found.items()) if h == how] for how in SEARCHES}
    return Comparison(own["evolutionary"], own["random"], found[EXACT, 0])


def best_score(problem: Problem, gains: Gains, evaluations: int, task: Task) -> tuple[Task, float]:
    how, seed = task
    if how == EXACT:
        return task, exact.best(problem, gains).score
    return task, max(scored.score for scored in SEARCHES[how](problem, evaluations, seed))
