"""What a training session is: its settings, its log, the order of its images, what learns and who watches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from microtrain.base.files import write_json
from microtrain.samples.augment import Augmentation
from microtrain.samples.kind import ANY
from microtrain.samples.source import Dataset, Sample, evenly, load, vary

from .answers import Info, Step

WINDOW = 100  # steps that the running accuracy looks back
COSINE, CONSTANT = SCHEDULES = ("cosine", "constant")  # of the learning rate
SHUFFLED, BY_CLASS = ORDERS = ("shuffled", "classes")  # of the images


@dataclass(frozen=True)
class Settings:
    """How to train.

    epochs      passes over the images; 0: none but the first look, and what is rehearsed
    seed        of the order and of the device's stochastic rounding
    limit       most images per epoch, 0: all
    eval_every  steps between evaluations, 0: only before and after
    rate        factor on the scheme's learning rates
    schedule    CONSTANT, or COSINE: from `rate` down to 0 over the whole session
    warmup      steps over which the rate rises to that
    order       SHUFFLED, or BY_CLASS: one class after the other, each for all of its epochs
    replay      steps on old images behind each new one, None: as many as the learner takes by itself
    rehearse    steps on old images alone, at the end of the session, with a rate that falls to 0
    recalled_rate  factor on the rate in these
    imprint     one look at each image first, to make the head of (Learner.imprint)
    backs_off   learn at half the rate, from that head on, where training diverges
    views       ways of each image in it, which vary as they do from epoch to epoch
    """

    epochs: int = 1
    seed: int = 0
    limit: int = 0
    eval_every: int = 0
    rate: float = 1.0
    schedule: str = CONSTANT
    warmup: int = 0
    order: str = SHUFFLED
    replay: int | None = None
    rehearse: int = 0
    recalled_rate: float = 1.0
    imprint: bool = False
    views: int = 1
    backs_off: bool = False

    def rate_at(self, step: int, steps: int) -> float:
        """Factor on the learning rates at a step, counted from 0, of `steps`."""
        rate = self.rate * min(1.0, (step + 1) / self.warmup) if self.warmup else self.rate
        if self.schedule == CONSTANT:
            return rate
        return rate * 0.5 * (1.0 + math.cos(math.pi * step / steps))


class HasLoss(Protocol):
    """A step."""

    @property
    def loss(self) -> float: ...


class HasSkipped(Protocol):
    """A log of a session."""

    device: dict[str, Any]
    skipped: int


@dataclass(frozen=True)
class TrainStep:
    """One step: its number from 1, the image, the class predicted before the update, the loss."""

    step: int
    epoch: int
    file: str
    label: int
    predicted: int
    loss: float


@dataclass(frozen=True)
class Evaluation:
    """Accuracy on held-out images after `step` steps.

    by_class  (correct, total) of each class
    misses    images that are wrong: file, label, and the class predicted; where a session counts them
    """

    step: int
    correct: int
    total: int
    by_class: tuple[tuple[int, int], ...]
    misses: tuple[tuple[str, int, int], ...] = ()

    @property
    def accuracy(self) -> float:
        return self.correct / self.total


@dataclass
class Log:
    """Everything that happened, as the JSON log holds it.

    skipped   steps, on records too, that ended at their loss: `convert --gate`
    diverged  the step at which a guard, or the device's own, ended it
    halvings  how often the rate was halved, since training had diverged, or knew what it learned from worse
              than the look; steps are those behind that
    gave_up   no rate helped, and the head of the look stays
    noun      of a sample, in sentences: not in the JSON
    """

    device: dict[str, Any]
    classes: tuple[str, ...]
    settings: Settings
    steps: list[TrainStep] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    sha256: str = ""
    skipped: int = 0
    diverged: int | None = None
    halvings: int = 0
    gave_up: bool = False
    noun: str = ANY

    def running_accuracy(self) -> float:
        """Share of right predictions over the last WINDOW steps, made before each image was learned."""
        recent = self.steps[-WINDOW:]
        return sum(s.predicted == s.label for s in recent) / len(recent) if recent else 0.0

    def in_words(self) -> str:
        """How it went lately: the mean loss over the last WINDOW steps, and running_accuracy()."""
        if not self.steps:
            return ""
        return f"loss {mean_loss(self.steps):.3f}, right before learning {self.running_accuracy():.1%}"

    def save(self, path: Path) -> None:
        """Write the log as JSON; nothing half-written stays behind."""
        document = {
            "format": 1,
            "device": self.device,
            "classes": list(self.classes),
            "settings": asdict(self.settings),
            "evaluations": [{**asdict(e), "accuracy": e.accuracy} for e in self.evaluations],
            "steps": [{**asdict(s), "loss": s.loss if math.isfinite(s.loss) else None} for s in self.steps],
            "sha256": self.sha256,
            "skipped": self.skipped,
            "diverged": self.diverged,
            "halvings": self.halvings,
            "gave_up": self.gave_up,
        }
        write_json(path, document)


class Learner(Protocol):
    """What a session trains: a device at the other end of a line, or a model on this machine."""

    @property
    def info(self) -> Info: ...
    def train(self, image: np.ndarray, label: int) -> Step: ...
    def evaluate(self, image: np.ndarray, label: int) -> int: ...
    def imprint(self, image: np.ndarray, label: int) -> int: ...
    def imprint_head(self) -> int: ...
    def rate(self, factor: float) -> None: ...
    def seed(self, number: int) -> None: ...
    def replay(self, count: int) -> None: ...
    def rehearse(self, count: int) -> bool: ...
    def keep(self, on: bool) -> None: ...
    def pull(self) -> bytes: ...
    def push(self, block: bytes) -> None: ...
    def skipped(self) -> int: ...
    def sha(self) -> str: ...


# An image as the learner takes it: of a sample, to learn from in an epoch, or (None) to be tested with.
Show = Callable[[Sample, int | None], np.ndarray]


class Watcher(Protocol):
    """Is told how a session goes on; an evaluation may begin and end within the training."""

    def begin(self, what: str, total: int) -> None: ...
    def advance(self, text: str) -> None: ...
    def end(self) -> None: ...


class Guard(Protocol):
    """Watches over the weights of a session."""

    def spoiled(self, log: Log) -> bool:
        """Asked after each step: True ends the session, with the weights that the guard put back."""


class Silent:
    """A watcher that shows nothing."""

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self, text: str) -> None:
        pass

    def end(self) -> None:
        pass


def new_log(device: Learner, training: Dataset, settings: Settings) -> Log:
    about = asdict(device.info)
    return Log({**about, "shape": list(device.info.shape)}, training.classes, settings, noun=training.noun)


def pixels(device: Learner) -> Show:
    """Images as their files hold them, uint8 [h][w][c]."""
    return lambda sample, epoch: load(sample.path, device.info.shape)


def varied(device: Learner, augmentation: Augmentation) -> Show:
    """The same, and otherwise from epoch to epoch where they are learned from."""

    def show(sample: Sample, epoch: int | None) -> np.ndarray:
        variant = 0 if epoch is None else augmentation.of_epoch(epoch)
        return vary(sample.path, device.info.shape, augmentation.kinds, variant)

    return show


def skips(log: HasSkipped, steps: str = "steps") -> str:
    """How many of a session's steps ended at their loss; "" where no gate is."""
    gate = log.device.get("gate", 0.0)
    return f"{log.skipped:,} {steps} ended at a loss below {gate:g}" if gate else ""


def ended(log: HasSkipped) -> str:
    """The same behind the number of all steps, in a sentence."""
    said = skips(log, "of which")
    return f", {said}" if said else ""


def setback(log: Log, else_back: str) -> str:
    """What came of training that diverged, in a line; "" where it did not.

    else_back   to what the session is back that began without a look
    """
    if log.diverged:
        back = "the head of the look is back" if log.settings.imprint else else_back
        return f"diverged at step {log.diverged}: {back}; use a lower --lr"
    if log.gave_up:
        return "training knew what it learned from worse than the look did, at each rate: its head stays"
    if log.halvings:
        times = "once" if log.halvings == 1 else f"{log.halvings} times"
        said = "training diverged, or knew less than the look: the rate was halved"
        return f"{said} {times}, from its head on"
    return ""


def name_of(sample: Sample) -> str:
    """What a log calls it: the file in the folder of its class."""
    return f"{sample.path.parent.name}/{sample.path.name}"


def ordered(dataset: Dataset, settings: Settings) -> list[tuple[int, Sample]]:
    """(epoch, sample) in the order of training: shuffled anew each epoch; a limit takes the first ones.

    One class after the other, in an order that the seed draws, where the settings say so.
    """
    order = list(shuffled(dataset, settings))
    if settings.order == BY_CLASS:
        turns = np.random.default_rng((settings.seed, settings.epochs)).permutation(len(dataset.classes))
        order.sort(key=lambda shown: int(turns[shown[1].label]))
    return order


def shuffled(dataset: Dataset, settings: Settings) -> Iterator[tuple[int, Sample]]:
    for epoch in range(settings.epochs):
        order = np.random.default_rng((settings.seed, epoch)).permutation(len(dataset.samples))
        for index in order[: settings.limit or None]:
            yield epoch, dataset.samples[index]


def per_epoch(dataset: Dataset, limit: int) -> int:
    """Images that an epoch shows. limit: most, 0: all"""
    return min(limit or len(dataset.samples), len(dataset.samples))


def spread(samples: tuple[Sample, ...], limit: int) -> tuple[Sample, ...]:
    """At most `limit` samples at even distances, so that every class has its share; 0: all."""
    return tuple(evenly(samples, limit)) if limit else samples


def mean_loss(steps: Sequence[HasLoss]) -> float:
    """Over the last WINDOW steps."""
    recent = [step.loss for step in steps[-WINDOW:]]
    return sum(recent) / len(recent)
