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
ISLANDS, ISOLATED = (
    5,
    0.5,
)  # populations that evolve apart, and the share of the evaluations for which they do
LEAST = 400  # evaluations of an island
CROSSED = 0.7  # of the children have two parents
CHANGED = 2.0  # layers whose level a mutation changes, on average
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
        candidate = repaired(self, self.space.normal(candidate), rng)
        return Scored(candidate, self.score(candidate))


def search_random(problem: Problem, evaluations: int, seed: int) -> Iterator[Scored]:
    """Everything that is evaluated."""
    rng = np.random.default_rng(seed)
    for _ in range(evaluations):
        yield problem.scored(random_candidate(problem, rng), rng)


def search_evolutionary(
    problem: Problem, evaluations: int, seed: int, start: Iterable[Candidate] = ()
) -> Iterator[Scored]:
    """Everything that is evaluated: first on islands, each with a band of the numbers of biases, then by all
    that these have found together with those it starts with.

    Few biases with many weights and many with few are hills apart, which no small change leads between.
    """
    rng = np.random.default_rng(seed)
    population = {candidate: problem.score(candidate) for candidate in start}
    each = int(ISOLATED * evaluations) // ISLANDS
    islands = regions(problem.costs, ISLANDS) if each >= LEAST else []
    for costs in islands:
        own: dict[Candidate, float] = {}
        yield from evolve(replace(problem, costs=costs), own, each, rng)
        population |= own
    best = sorted(population, key=population.__getitem__, reverse=True)[:POPULATION]
    together = {candidate: population[candidate] for candidate in best}
    yield from evolve(problem, together, evaluations - each * len(islands), rng)


def regions(costs: Costs, count: int) -> list[Costs]:
    """`count` parts of the costs by the number of biases, at least one for each number of fraction bits."""
    kinds = sorted({bits for _, bits in costs.bases})
    parts = []
    for place, bits in enumerate(kinds):
        counts = sorted(k for k, b in costs.bases if b == bits)
        bands = max(1, count // len(kinds) + (place >= len(kinds) - count % len(kinds)))
        parts += [costs.only([(k, bits) for k in band.tolist()]) for band in np.array_split(counts, bands)]
    return [part for part in parts if part.bases]


def evolve(
    problem: Problem, population: dict[Candidate, float], evaluations: int, rng: np.random.Generator
) -> Iterator[Scored]:
    """Everything that is evaluated. The population is filled up at random; then each child that is better
    than its worst one takes that one's place, so that the best one always stays."""
    strangers = POPULATION - len(population)
    for number in range(evaluations):
        if number < strangers:
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
    result: Candidate = max(few, key=population.__getitem__)
    return result


def mutated(problem: Problem, candidate: Candidate, rng: np.random.Generator) -> Candidate:
    """Some levels one up or down, or drawn anew; at times biases and bits as well."""
    levels = list(candidate.levels)
    near = problem.space.reached(max(k for k, _ in problem.costs.bases))
    for layer in near:
        if rng.uniform() < CHANGED / len(near):
            levels[layer] = changed(problem.space.usable[layer], levels[layer], rng)
    biases, bits = candidate.biases, candidate.bits
    if rng.uniform() < 0.3:
        biases += int(rng.integers(-MOVED, MOVED + 1))
    if rng.uniform() < 0.1:
        known = sorted({b for _, b in problem.costs.bases})
        bits = known[rng.integers(len(known))]
    counts = [k for k, b in problem.costs.bases if b == bits]
    return Candidate(min(max(biases, min(counts)), max(counts)), tuple(levels), bits)


def changed(usable: tuple[int, ...], level: int, rng: np.random.Generator) -> int:
    """A neighbour of the level in half of the cases, else none or any."""
    if rng.uniform() < 0.5:
        ladder = (0, *usable)
        place = ladder.index(level) + (1 if rng.uniform() < 0.5 else -1)
        return ladder[min(max(place, 0), len(usable))]
    return 0 if rng.uniform() < 0.5 else drawn(usable, rng)


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
