"""What the gains say of layers that were not measured, and what a scheme is worth by those that were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from microtrain.convert.ir import Graph
from microtrain.convert.scheme import Scheme, convolutions

from .measure import BIASES, EXPAND, KINDS, Gain


def weights(gains: Sequence[Gain]) -> list[Gain]:
    return [gain for gain in gains if gain.kind != BIASES]


def by_kind(gains: Sequence[Gain]) -> dict[str, float]:
    """What all input channels of a layer of each kind gain, of which a fraction gains its share."""
    found = {}
    for kind in KINDS[1:]:
        own = [gain for gain in gains if gain.kind == kind]
        if own:
            found[kind] = sum(g.gain * g.fraction for g in own) / sum(g.fraction**2 for g in own)
    return found


def with_depth(gains: Sequence[Gain], kind: str = EXPAND) -> tuple[float, float]:
    """Of a kind: its gain half-way through the network, and how much more it is in front than at the end."""
    own = [gain for gain in gains if gain.kind == kind]
    terms = np.array([[g.fraction, g.fraction * (g.depth - 0.5)] for g in own])
    (middle, slope), *_ = np.linalg.lstsq(terms, np.array([g.gain for g in own]), rcond=None)
    return float(middle), float(slope)


def left_out(gains: Sequence[Gain], network: str) -> float:
    """Rank correlation between the gains of a network's weights and what the other networks say of them."""
    known = by_kind([gain for gain in gains if gain.network != network])
    own = [gain for gain in weights(gains) if gain.network == network and gain.kind in known]
    guessed = [known[gain.kind] * gain.fraction for gain in own]
    return float(spearmanr(guessed, [gain.gain for gain in own]).statistic)


def worth(gains: Sequence[Gain], graph: Graph, scheme: Scheme) -> tuple[float, float]:
    """Of a scheme's biases and of its weights by the gains of its own network, in nats: what lies between
    two that were measured is on the line between them, and weights that were not count nothing."""
    names = convolutions(graph)
    total = 0.0
    for layer, part in scheme.weights.items():
        name = names[layer] if isinstance(layer, int) else str(layer)
        own = [(gain.fraction, gain.gain) for gain in weights(gains) if gain.layer == name]
        share = part if isinstance(part, float | int) else len(part) / graph.layers[name].columns
        total += between(own, share) if own else 0.0
    return biases(gains, scheme.biases / len(names)), total


def biases(gains: Sequence[Gain], depth: float) -> float:
    """What the biases of a share of the convolutions gain, from the last on."""
    return between([(gain.depth, gain.gain) for gain in gains if gain.kind == BIASES], depth)


def between(points: Sequence[tuple[float, float]], at: float) -> float:
    """On the lines from (0, 0) through the points."""
    x, y = np.array([(0.0, 0.0), *sorted(points)]).T
    return float(np.interp(at, x, y))
