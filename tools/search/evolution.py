"""Evolutionary search for the candidate of the highest score within a budget; random search, to compare.

Both repair a candidate that is over the budget the same way: weights at random go down a level, then biases
go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from .cost import Budget, Costs
from .space import Candidate, Space

POPULATION, TOURNAMENT = 100, 5
CROSSED = 0.7  # of the children have two parents
CHANGED = 2.0  # layers whose level a mutation draws anew, on average
MOVED = 3  # biases that a mutation adds or takes at most


@dataclass(frozen=True)
class Scored:
    candidate: Candidate
    score: float


@dataclass(frozen=True)
class Problem:
    """Maximise the score within the budget."""

    space: Space
    costs: Costs
    budget: Budget
    score: Callable[[Candidate], float]

    def feasible(self, candidate: Candidate) -> bool:
        cost = self.costs.of(candidate)
        return cost is not None and cost.within(self.budget)

    def scored(self, candidate: Candidate, rng: np.random.Generator) -> Scored:
        """The candidate, repaired, with its score: one evaluation."""
        candidate = repaired(self, candidate.normal(), rng)
        return Scored(candidate, self.score(candidate))


def search_random(problem: Problem, evaluations: int, seed: int) -> Iterator[Scored]:
    """Everything that is evaluated."""
    rng = np.random.default_rng(seed)
    for _ in range(evaluations):
        yield problem.scored(random_candidate(problem, rng), rng)


def search_evolutionary(
    problem: Problem, evaluations: int, seed: int, start: Iterable[Candidate] = ()
) -> Iterator[Scored]:
    """Everything that is evaluated. The first POPULATION are random, beside those it starts with; then each
    child that is better than the worst of the population takes its place, so that the best one always
    stays."""
    rng = np.random.default_rng(seed)
    population = {candidate: problem.score(candidate) for candidate in start}
    for number in range(evaluations):
        if number < POPULATION:
            child = random_candidate(problem, rng)
        else:
            child = mutated(problem, offspring(population, rng), rng)
        scored = problem.scored(child, rng)
        yield scored
        population[scored.candidate] = scored.score
        if len(population) > POPULATION:
            del population[min(population, key=population.__getitem__)]


def random_candidate(problem: Problem, rng: np.random.Generator) -> Candidate:
    """Biases and bits at random, a random share of the layers at random levels."""
    keys = sorted(problem.costs.bases)
    biases, bits = keys[rng.integers(len(keys))]
    share = rng.uniform()
    levels = tuple(drawn(usable, rng) if rng.uniform() < share else 0 for usable in problem.space.usable)
    return Candidate(biases, levels, bits)


def drawn(usable: tuple[int, ...], rng: np.random.Generator) -> int:
    return usable[rng.integers(len(usable))] if usable else 0


def offspring(population: dict[Candidate, float], rng: np.random.Generator) -> Candidate:
    """Of one parent, or of two: each gene from either."""
    first, second = tournament(population, rng), tournament(population, rng)
    if rng.uniform() >= CROSSED:
        return first
    levels = tuple(a if rng.uniform() < 0.5 else b for a, b in zip(first.levels, second.levels, strict=True))
    biases = first.biases if rng.uniform() < 0.5 else second.biases
    return Candidate(biases, levels, first.bits if rng.uniform() < 0.5 else second.bits)


def tournament(population: dict[Candidate, float], rng: np.random.Generator) -> Candidate:
    """The best of a few at random."""
    candidates = list(population)
    few = [candidates[i] for i in rng.integers(len(candidates), size=TOURNAMENT)]
    return max(few, key=population.__getitem__)


def mutated(problem: Problem, candidate: Candidate, rng: np.random.Generator) -> Candidate:
    """Some levels drawn anew, at times biases and bits as well."""
    levels = list(candidate.levels)
    near = range(len(levels) - max(k for k, _ in problem.costs.bases), len(levels))
    for layer in near:
        if rng.uniform() < CHANGED / len(near):
            levels[layer] = 0 if rng.uniform() < 0.5 else drawn(problem.space.usable[layer], rng)
    biases, bits = candidate.biases, candidate.bits
    if rng.uniform() < 0.3:
        biases += int(rng.integers(-MOVED, MOVED + 1))
    if rng.uniform() < 0.1:
        known = sorted({b for _, b in problem.costs.bases})
        bits = known[rng.integers(len(known))]
    counts = [k for k, b in problem.costs.bases if b == bits]
    return Candidate(min(max(biases, min(counts)), max(counts)), tuple(levels), bits)


def repaired(problem: Problem, candidate: Candidate, rng: np.random.Generator) -> Candidate:
    """The candidate, or less of it that is within the budget."""
    while not problem.feasible(candidate):
        levels = list(candidate.levels)
        trained = [layer for layer, level in enumerate(levels) if level]
        if trained:
            layer = trained[rng.integers(len(trained))]
            levels[layer] = max((x for x in problem.space.usable[layer] if x < levels[layer]), default=0)
            candidate = replace(candidate, levels=tuple(levels))
        else:
            fewer = (
                key for key in problem.costs.bases if key[1] == candidate.bits and key[0] < candidate.biases
            )
            biases, bits = max(fewer, default=min(problem.costs.bases))
            candidate = replace(candidate, biases=biases, bits=bits)
    return candidate
