"""Contribution analysis (arXiv 2206.15472, section 3.2): what training one thing gains.

The biases of the last k convolutions against the head alone; a fraction of one layer's weights against the
biases that are trained beside it in any scheme (those behind the layer), and those of the last half of the
network: without them a layer's weights would be credited with what biases do for a fraction of the bytes.
Gains are in the log-likelihood of the validation images (trial.log_likelihood), which tells apart what the
accuracy of a few hundred images, which moves in whole images, does not (lab/pages/search.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from microtrain.convert.scheme import Scheme

from .cost import Costs
from .space import Candidate, Space
from .store import Outcomes
from .trial import Trial

Measure = Literal["likelihood", "accuracy"]  # of Outcome


@dataclass(frozen=True)
class Plan:
    """How schemes are tried: as Trial has it, and the seeds to take the mean of."""

    epochs: int
    limit: int
    seeds: tuple[int, ...]

    def trials(self, scheme: Scheme) -> list[Trial]:
        return [Trial(scheme, self.epochs, self.limit, seed) for seed in self.seeds]


@dataclass(frozen=True)
class Gains:
    """biases: k -> gain; weights: (layer, level, bits) -> gain; in nats, smoothed."""

    biases: dict[int, float]
    weights: dict[tuple[int, int, int], float]

    @property
    def most(self) -> float | None:
        """The largest; None where nothing but the head was measured."""
        measured = [*(gain for k, gain in self.biases.items() if k), *self.weights.values()]
        return max(measured, default=None)

    def parts(self, candidate: Candidate) -> tuple[float, float]:
        """Of the biases and of the weights."""
        chosen = ((layer, level) for layer, level in enumerate(candidate.levels) if level)
        weights = sum(self.weights[layer, level, candidate.bits] for layer, level in chosen)
        return self.biases.get(candidate.biases, 0.0), weights

    def score(self, candidate: Candidate) -> float:
        """The sum that a search maximises."""
        return sum(self.parts(candidate))


def beside(space: Space, layer: int) -> int:
    """How many biases are trained beside a layer's weights, or a module's, to measure those."""
    return max(space.behind(layer), len(space.layers) // 2)


def one_layer(space: Space, layer: int, level: int, bits: int) -> Scheme:
    """A layer's weights, or a module, with the biases beside them."""
    levels = tuple(level if part == layer else 0 for part in range(len(space.usable)))
    return space.scheme(Candidate(beside(space, layer), levels, bits), "one layer")


def last_biases(space: Space, count: int) -> Scheme:
    """The biases of the last convolutions and the head; 0: the head alone."""
    return Scheme("biases", count, rates=space.rates)


def trials(space: Space, costs: Costs, plan: Plan) -> list[Trial]:
    """All that has to be tried: everything that some scheme within the budget trains."""
    counts = {0, *costs.biases(), *(beside(space, layer) for layer, _, _ in costs.weights())}
    weights = [one_layer(space, *choice) for choice in costs.weights()]
    schemes = [*(last_biases(space, k) for k in sorted(counts)), *weights]
    return [trial for scheme in schemes for trial in plan.trials(scheme)]


def gains(
    space: Space, costs: Costs, plan: Plan, outcomes: Outcomes, measure: Measure = "likelihood"
) -> Gains:
    """What the trials say.

    Training more does not gain less: where a trial says so it is noise, and the nearest rising curve
    (isotonic regression) over the biases, and over the fractions of a layer, takes its place.
    """
    start = mean(outcomes, plan, last_biases(space, 0), measure)
    counts = [k for k in costs.biases() if k]
    found = [mean(outcomes, plan, last_biases(space, k), measure) - start for k in counts]
    biases = {0: 0.0} | dict(zip(counts, smooth(found), strict=True))
    weights: dict[tuple[int, int, int], float] = {}
    for layer, bits in dict.fromkeys((layer, bits) for layer, _, bits in costs.weights()):
        levels = [level for other, level, b in costs.weights() if (other, b) == (layer, bits)]
        start = mean(outcomes, plan, last_biases(space, beside(space, layer)), measure)
        found = [mean(outcomes, plan, one_layer(space, layer, n, bits), measure) - start for n in levels]
        weights |= {(layer, level, bits): gain for level, gain in zip(levels, smooth(found), strict=True)}
    return Gains(biases, weights)


def smooth(values: list[float]) -> list[float]:
    """The nearest values that rise and are not below 0."""
    from sklearn.isotonic import IsotonicRegression

    if not values:
        return []

    return [float(v) for v in IsotonicRegression(y_min=0.0).fit_transform(range(len(values)), values)]


def mean(outcomes: Outcomes, plan: Plan, scheme: Scheme, measure: Measure) -> float:
    """Over the seeds."""
    return float(np.mean([getattr(outcomes[trial], measure) for trial in plan.trials(scheme)]))
