"""Contribution analysis (arXiv 2206.15472, section 3.2): what training one thing alone gains.

One thing is the biases of the last k convolutions, or a fraction of one layer's weights; the head learns with
it. The gain is against training the head alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from convert.scheme import Scheme
from sklearn.isotonic import IsotonicRegression

from .cost import Costs
from .space import FRACTIONS, Candidate, Space
from .store import Outcomes
from .trial import Trial


@dataclass(frozen=True)
class Plan:
    """How schemes are tried: as Trial has it, and the seeds to take the mean of."""

    epochs: int
    limit: int
    rate: float
    seeds: tuple[int, ...]

    def trials(self, scheme: Scheme) -> list[Trial]:
        return [Trial(scheme, self.epochs, self.limit, self.rate, seed) for seed in self.seeds]


@dataclass(frozen=True)
class Gains:
    """biases: k -> gain; weights: (layer, level, bits) -> gain; both in accuracy, 0..1, smoothed."""

    biases: dict[int, float]
    weights: dict[tuple[int, int, int], float]

    def score(self, candidate: Candidate) -> float:
        """The sum that a search maximises."""
        chosen = ((layer, level) for layer, level in enumerate(candidate.levels) if level)
        return self.biases.get(candidate.biases, 0.0) + sum(
            self.weights[layer, level, candidate.bits] for layer, level in chosen
        )


def alone(space: Space, layer: int, level: int, bits: int) -> Scheme:
    """A layer's weights and nothing else but the head."""
    return Scheme("alone", 0, {space.layers[layer]: FRACTIONS[level - 1]}, fraction_bits=bits)


def last_biases(count: int) -> Scheme:
    """The biases of the last convolutions and the head; 0: the head alone."""
    return Scheme("alone", count)


def trials(space: Space, costs: Costs, plan: Plan) -> list[Trial]:
    """All that has to be tried: everything that some scheme within the budget trains."""
    weights = [alone(space, *choice) for choice in costs.weights()]
    schemes = [last_biases(0), *(last_biases(k) for k in costs.biases() if k), *weights]
    return [trial for scheme in schemes for trial in plan.trials(scheme)]


def gains(space: Space, costs: Costs, plan: Plan, outcomes: Outcomes) -> Gains:
    """What the trials say.

    Training more does not gain less: where a trial says so it is noise, and the nearest rising curve
    (isotonic regression) over the biases, and over the fractions of a layer, takes its place.
    """
    start = mean(outcomes, plan, last_biases(0))
    counts = [k for k in costs.biases() if k]
    found = [mean(outcomes, plan, last_biases(k)) - start for k in counts]
    biases = {0: 0.0} | dict(zip(counts, smooth(found), strict=True))
    weights: dict[tuple[int, int, int], float] = {}
    for layer, bits in dict.fromkeys((layer, bits) for layer, _, bits in costs.weights()):
        levels = [level for other, level, b in costs.weights() if (other, b) == (layer, bits)]
        found = [mean(outcomes, plan, alone(space, layer, level, bits)) - start for level in levels]
        weights |= {(layer, level, bits): gain for level, gain in zip(levels, smooth(found), strict=True)}
    return Gains(biases, weights)


def smooth(values: list[float]) -> list[float]:
    """The nearest values that rise and are not below 0."""
    if not values:
        return []
    return [float(v) for v in IsotonicRegression(y_min=0.0).fit_transform(range(len(values)), values)]


def mean(outcomes: Outcomes, plan: Plan, scheme: Scheme) -> float:
    """Accuracy over the seeds."""
    return float(np.mean([outcomes[trial].accuracy for trial in plan.trials(scheme)]))
