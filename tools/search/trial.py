"""Trying a scheme: a short training session in the device's arithmetic, judged on images held out.

The layers before the last bottleneck in front of everything trained are left out; what they make of the
images is known (features.py). The bytes learned are those of training the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from convert.cut import behind
from convert.ir import Graph
from convert.pipeline import Passes
from convert.scheme import Scheme, apply, convolutions
from device.session import Settings, Silent, new_log, train
from simulate.guard import LastGood
from simulate.machine import Machine

from .build import compile_here, convert
from .features import shown
from .lab import Lab, last_bottleneck

WHOLE = Passes(fused=False)


@dataclass(frozen=True)
class Trial:
    """epochs: passes over the images, or over `limit` of them, others in each epoch, where that is not 0;
    rate: of weights, biases and head, falls to 0 on a cosine."""

    scheme: Scheme
    epochs: int
    limit: int
    rate: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """accuracy: share of the validation images; confidence: mean probability of their right class."""

    accuracy: float
    confidence: float
    diverged: int | None
    sha256: str


class Tail(Machine):
    """A machine that takes what stands at a bottleneck, int8 [h][w][c]."""

    def _forward(self, record: np.ndarray, train: bool) -> np.ndarray:
        return self.model.forward(record, train)

    def probabilities(self, record: np.ndarray) -> np.ndarray:
        """Of each class."""
        logits = self._forward(record, False).astype(np.float64)
        powers = np.exp(logits - logits.max())
        return powers / powers.sum()


def run(lab: Lab, trial: Trial) -> Outcome:
    """Train and judge."""
    cut = first_bottleneck(lab.graph, trial.scheme)
    compiled = convert(behind(lab.graph, cut), trial.scheme, lab.classes, WHOLE)
    machine, show = Tail(*compile_here(compiled, lab)), shown(lab, cut)
    settings = Settings(trial.epochs, limit=trial.limit, schedule="cosine", seed=trial.seed, rate=trial.rate)
    log = new_log(machine, lab.training.classes, settings)
    train(machine, lab.training, None, log, Silent(), show, LastGood(machine))
    samples = lab.validation.samples
    found = np.array([machine.probabilities(show(s, None)) for s in samples])
    labels = np.array([s.label for s in samples])
    accuracy = float(np.mean(found.argmax(axis=1) == labels))
    confidence = float(np.mean(found[np.arange(len(labels)), labels]))
    return Outcome(accuracy, confidence, log.diverged, log.sha256)


def first_bottleneck(graph: Graph, scheme: Scheme) -> str:
    """The last bottleneck with nothing trained before it."""
    layers = apply(graph, scheme).layers
    trained = (n for n in convolutions(graph) if layers[n].trained or layers[n].bias_trained)
    return last_bottleneck(graph, next(trained, str(graph.forward_nodes[-1].layer)))
