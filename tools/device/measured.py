"""A session that learns from targets, numbers in the place of a class: what learning.py is for classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from microtrain.base.files import write_json
from microtrain.base.plan import REGRESSION
from microtrain.samples.measured import Measured
from microtrain.samples.source import Dataset

from .answers import Info, Step
from .learning import RATE_EVERY
from .session import Settings, Show, Watcher, mean_loss, name_of, ordered, spread

LOOKED_AT = 32  # samples
APART = 10.0  # times by which deviations of outputs and of their targets differ, of other units
Ratings = dict[str, dict[str, float]]  # output -> what of it is measured -> how large it is


class Learner(Protocol):
    """What such a session trains: a device, or a model on this machine."""

    @property
    def info(self) -> Info: ...
    def scores(self, image: np.ndarray) -> np.ndarray: ...
    def teach(self, image: np.ndarray, target: Sequence[float]) -> Step: ...
    def rate(self, factor: float) -> None: ...
    def seed(self, number: int) -> None: ...
    def skipped(self) -> int: ...
    def sha(self) -> str: ...


@dataclass(frozen=True)
class Taught:
    """One step: its number from 1, the sample, and the loss before the update."""

    step: int
    epoch: int
    file: str
    loss: float


@dataclass(frozen=True)
class Rated:
    """How good the outputs are on held-out samples after `step` steps."""

    step: int
    total: int
    outputs: Ratings


@dataclass
class Log:
    """Everything that happened. skipped, diverged: as in session.Log"""

    device: dict[str, Any]
    outputs: tuple[str, ...]
    settings: Settings
    steps: list[Taught] = field(default_factory=list)
    evaluations: list[Rated] = field(default_factory=list)
    sha256: str = ""
    skipped: int = 0
    diverged: int | None = None

    def in_words(self) -> str:
        """The mean loss over the last WINDOW steps."""
        return f"loss {mean_loss(self.steps):.3f}" if self.steps else ""

    def save(self, path: Path) -> None:
        """Write the log as JSON; nothing half-written stays behind."""
        document = {"format": 1, **asdict(self)}
        for step in document["steps"]:
            step["loss"] = step["loss"] if math.isfinite(step["loss"]) else None
        write_json(path, document)


def new_log(learner: Learner, outputs: tuple[str, ...], settings: Settings) -> Log:
    return Log({**asdict(learner.info), "shape": list(learner.info.shape)}, outputs, settings)


def rated(task: str, names: Sequence[str], scores: np.ndarray, targets: np.ndarray) -> Ratings:
    """Of each output: the mean absolute and the root mean squared error; or of each label the share that is
    right, and F1, the harmonic mean of precision and recall.

    scores, targets  [samples][outputs]; a label holds where its score is above 0
    """
    off = scores.astype(np.float64) - targets
    said, holds = scores > 0, targets > 0.5
    found: Ratings = {}
    for k, name in enumerate(names):
        if task == REGRESSION:
            rms = float(np.sqrt(np.square(off[:, k]).mean()))
            found[name] = {"mae": float(np.abs(off[:, k]).mean()), "rmse": rms}
        else:
            both = 2 * int((said[:, k] & holds[:, k]).sum())
            named = int(said[:, k].sum() + holds[:, k].sum())
            right = float((said[:, k] == holds[:, k]).mean())
            found[name] = {"accuracy": right, "f1": both / named if named else 1.0}
    return found


def in_words(task: str, result: Rated) -> str:
    """All outputs in a line."""
    if task == REGRESSION:
        parts = [f"{name} {r['mae']:.4g} (rms {r['rmse']:.4g})" for name, r in result.outputs.items()]
        return f"mean error {', '.join(parts)} of {result.total} held-out samples"
    parts = [f"{name} {r['accuracy']:.1%} (F1 {r['f1']:.2f})" for name, r in result.outputs.items()]
    return f"right {', '.join(parts)} of {result.total} held-out samples"


def targets_of(samples: Sequence[Any]) -> np.ndarray:
    """[samples][outputs]"""
    return np.array([sample.target for sample in samples], np.float64)


def evaluate(
    learner: Learner, dataset: Dataset, watcher: Watcher, show: Show, step: int = 0, limit: int = 0
) -> Rated:
    """How good the outputs are. limit: most samples, spread evenly over the set, 0: all."""
    samples, scores = spread(dataset.samples, limit), []
    watcher.begin("evaluating", len(samples))
    for sample in samples:
        scores.append(learner.scores(show(sample, None)))
        watcher.advance("")
    watcher.end()
    ratings = rated(learner.info.task, dataset.classes, np.array(scores), targets_of(samples))
    return Rated(step, len(samples), ratings)


def units(learner: Learner, dataset: Dataset, show: Show) -> list[str]:
    """A sentence for each output that varies far more or less than its targets do: those of a model that was
    trained on scaled ones are no units of a table."""
    samples = spread(dataset.samples, LOOKED_AT)
    varied = np.array([learner.scores(show(sample, None)) for sample in samples], np.float64).std(axis=0)
    return [
        f"{name}: targets vary by {wanted:.3g}, what the model says by {own:.3g}: where it was trained on "
        "scaled targets, scale those of targets.csv alike"
        for name, own, wanted in zip(dataset.classes, varied, targets_of(samples).std(axis=0), strict=True)
        if wanted > 0 and not own / APART <= wanted <= own * APART
    ]


def train(
    learner: Learner,
    training: Dataset,
    testing: Dataset | None,
    log: Log,
    watcher: Watcher,
    show: Show,
    spoiled: Callable[[Log], bool] = lambda log: False,
) -> None:
    """Train as log.settings say and write what happens into `log`. spoiled: asked after each step; True ends
    the session."""
    settings, order = log.settings, ordered(training, log.settings)
    skipped = learner.skipped()
    learner.seed(settings.seed)

    def test(step: int) -> None:
        if testing is not None:
            log.evaluations.append(evaluate(learner, testing, watcher, show, step))

    test(0)
    watcher.begin("training", len(order))
    for number, (epoch, sample) in enumerate(order, 1):
        assert isinstance(sample, Measured)
        if number % RATE_EVERY == 1:
            learner.rate(settings.rate_at(number - 1, len(order)))
        result = learner.teach(show(sample, epoch), sample.target)
        log.steps.append(Taught(number, epoch, name_of(sample), result.loss))
        watcher.advance(log.in_words())
        if result.diverged or spoiled(log):
            log.diverged = number
            break
        if settings.eval_every and number % settings.eval_every == 0 and number < len(order):
            test(number)
    watcher.end()
    learner.rate(1.0)
    test(len(log.steps))
    log.skipped = learner.skipped() - skipped
    log.sha256 = learner.sha()
