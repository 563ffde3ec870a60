"""Trying a scheme: a short training session in the device's arithmetic, judged on images held out.

The layers before the last bottleneck in front of everything trained are left out; what they make of the
images is known (features.py). The bytes learned are those of training the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microtrain.convert.ir import Graph
from microtrain.convert.passes.cut import behind
from microtrain.convert.passes.lite_residuals import chosen
from microtrain.convert.pipeline import Passes
from microtrain.convert.scheme import Scheme, apply, convolutions
from microtrain.device.learning import train
from microtrain.device.session import COSINE, Settings, Silent, new_log
from microtrain.simulate.guard import LastGood
from microtrain.simulate.machine import Machine

from .build import compile_here, convert
from .features import shown
from .lab import Lab, last_bottleneck

WHOLE = Passes(fused=False)
TEMPERATURES = 4.0  # the logarithm of the temperature is sought within this of 0


@dataclass(frozen=True)
class Trial:
    """epochs: passes over the images, or over `limit` of them, others in each epoch, where that is not 0. The
    scheme's learning rates fall to 0 on a cosine."""

    scheme: Scheme
    epochs: int
    limit: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """accuracy: share of the validation images; likelihood: log_likelihood() of their right classes."""

    accuracy: float
    likelihood: float
    diverged: int | None
    sha256: str


class Tail(Machine):
    """A machine that takes what stands at a bottleneck, int8 [h][w][c]."""

    def _forward(self, record: np.ndarray, train: bool) -> np.ndarray:
        return self.model.forward(record, train)

    def logits(self, record: np.ndarray) -> np.ndarray:
        """float32 [classes]"""
        return self._forward(record, False)


def run(lab: Lab, trial: Trial) -> Outcome:
    """Train and judge."""
    cut = first_bottleneck(lab.graph, trial.scheme)
    compiled = convert(behind(lab.graph, cut), trial.scheme, lab.classes, WHOLE)
    machine, show = Tail(*compile_here(compiled, lab)), shown(lab, cut)
    settings = Settings(trial.epochs, limit=trial.limit, schedule=COSINE, seed=trial.seed)
    log = new_log(machine, lab.training, settings)
    train(machine, lab.training, None, log, Silent(), show, LastGood(machine))
    samples = lab.validation.samples
    logits = np.array([machine.logits(show(s, None)) for s in samples], np.float64)
    labels = np.array([s.label for s in samples])
    accuracy = float(np.mean(logits.argmax(axis=1) == labels))
    return Outcome(accuracy, log_likelihood(logits, labels), log.diverged, log.sha256)


def log_likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean log of the right class's probability, in nats, at the temperature that suits these images best.

    logits float64 [images][classes]; labels int [images]. The temperature takes out how sure of itself a
    session has become, which grows with every step, and leaves how well it tells the classes apart.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    def loss(inverse: float) -> float:
        scaled = logits * np.exp(inverse)
        return float(np.mean(logsumexp(scaled, axis=1) - scaled[np.arange(len(labels)), labels]))

    return -float(minimize_scalar(loss, bounds=(-TEMPERATURES, TEMPERATURES), method="bounded").fun)


def first_bottleneck(graph: Graph, scheme: Scheme) -> str:
    """The last bottleneck with nothing trained before it."""
    layers = apply(graph, scheme).layers
    beside = {block.layers[0] for block in chosen(graph, scheme.lite)} if scheme.lite else set()
    trained = (n for n in convolutions(graph) if n in beside or layers[n].trained or layers[n].bias_trained)
    return last_bottleneck(graph, next(trained, str(graph.forward_nodes[-1].layer)))
