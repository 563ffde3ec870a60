"""A training session: images of a folder streamed in a seeded order, with evaluations between."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from microtrain.base.files import write_json
from microtrain.samples.augment import Augmentation
from microtrain.samples.kind import ANY
from microtrain.samples.source import Dataset, Sample, evenly, load, vary

from .answers import REPLAY_DEFAULT, Info, Step

WINDOW = 100  # steps that the running accuracy looks back
RATE_EVERY = 10  # steps between changes of a scheduled learning rate
HALVINGS = 10  # of a rate, at most
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
    halvings  how often the rate was halved, since training had diverged; steps are those behind that
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


def evaluate(
    device: Learner,
    dataset: Dataset,
    watcher: Watcher,
    step: int = 0,
    limit: int = 0,
    show: Show | None = None,
) -> Evaluation:
    """Accuracy on a data set. limit: most images, spread evenly over it, 0: all."""
    show = show or pixels(device)
    samples = spread(dataset.samples, limit)
    counts, misses = [[0, 0] for _ in dataset.classes], []
    watcher.begin("evaluating", len(samples))
    for sample in samples:
        predicted = device.evaluate(show(sample, None), sample.label)
        counts[sample.label][0] += predicted == sample.label
        counts[sample.label][1] += 1
        if predicted != sample.label:
            misses.append((name_of(sample), sample.label, predicted))
        correct, total = sum(c for c, _ in counts), sum(n for _, n in counts)
        watcher.advance(f"accuracy {correct / total:.1%}")
    watcher.end()
    by_class = tuple((int(c), n) for c, n in counts)
    return Evaluation(step, sum(c for c, _ in by_class), len(samples), by_class, tuple(misses))


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
    if log.halvings:
        times = "once" if log.halvings == 1 else f"{log.halvings} times"
        return f"training diverged: the rate was halved {times}, from the head of the look on"
    return ""


def name_of(sample: Sample) -> str:
    """What a log calls it: the file in the folder of its class."""
    return f"{sample.path.parent.name}/{sample.path.name}"


def train(
    device: Learner,
    training: Dataset,
    testing: Dataset | None,
    log: Log,
    watcher: Watcher,
    show: Show | None = None,
    guard: Guard | None = None,
) -> None:
    """Train as log.settings say and write what happens into `log`, step by step."""
    settings, show = log.settings, show or pixels(device)
    skipped = device.skipped()
    test = evaluator(device, testing, log, watcher, show)
    session = Session(device, training, log, watcher, show, guard, test)
    session.begin()
    test(0)
    if settings.imprint:
        imprint(device, training, settings, watcher, show)
        test(0)
        done = session.learn_from_the_look()
    else:
        done = session.learn(settings)
    device.rate(1.0)
    test(done)
    log.skipped = device.skipped() - skipped
    log.sha256 = device.sha()


@dataclass(frozen=True)
class Session:
    """What learning needs, again and again: as train() has it. test: judges the learner at a step."""

    device: Learner
    training: Dataset
    log: Log
    watcher: Watcher
    show: Show
    guard: Guard | None
    test: Callable[[int], None]

    def begin(self) -> None:
        """Random numbers and replayed steps as the settings say."""
        settings = self.log.settings
        self.device.seed(settings.seed)
        if settings.replay is not None:
            self.device.replay(settings.replay)

    def learn_from_the_look(self) -> int:
        """Learn from the head of a look on; where training diverges, that head is put back. It is learned
        from again, at half the rate, where the settings say so. Returns the steps."""
        log, kept, known = self.log, self.device.pull(), len(self.log.evaluations)
        for log.halvings in range(HALVINGS + 1):
            done = self.learn(replace(log.settings, rate=log.settings.rate / 2**log.halvings))
            if log.diverged is None:
                return done
            self.device.push(kept)
            self.begin()
            if not log.settings.backs_off or log.halvings == HALVINGS:
                break
            log.diverged = None
            log.steps.clear()
            del log.evaluations[known:]
        return done

    def learn(self, settings: Settings) -> int:
        """A pass or several, and what is rehearsed behind them. Returns the steps."""
        self.passes(settings)
        done = len(self.log.steps)
        if settings.rehearse and self.log.diverged is None:
            if done:
                self.test(done)
            done += self.rehearse(settings)
        return done

    def passes(self, settings: Settings) -> None:
        """A step on each image that the settings show."""
        device, log = self.device, self.log
        order, keeping = ordered(self.training, settings), True
        self.watcher.begin("training", len(order))
        for number, (epoch, sample) in enumerate(order, 1):
            if number % RATE_EVERY == 1:
                device.rate(settings.rate_at(number - 1, len(order)))
            keeping = keep_first(device, settings, epoch, keeping)
            result = device.train(self.show(sample, epoch), sample.label)
            predicted, loss = result.predicted, result.loss
            log.steps.append(TrainStep(number, epoch, name_of(sample), sample.label, predicted, loss))
            self.watcher.advance(log.in_words())
            if (self.guard is not None and self.guard.spoiled(log)) or result.diverged:
                log.diverged = number
                break
            if number < len(order) and due(settings, number, sample, order[number][1]):
                self.test(number)
        self.watcher.end()
        if not keeping:
            device.keep(True)

    def rehearse(self, settings: Settings) -> int:
        """Train on what the learner remembers, with a rate that falls from that of the session to 0.

        Returns the steps.
        """
        falling = replace(settings, rate=settings.rate * settings.recalled_rate, schedule=COSINE, warmup=0)
        starts = range(0, settings.rehearse, RATE_EVERY)
        self.watcher.begin("rehearsing", len(starts))
        for step in starts:
            self.device.rate(falling.rate_at(step, settings.rehearse))
            some = min(RATE_EVERY, settings.rehearse - step)
            if self.device.rehearse(some):
                self.log.diverged = len(self.log.steps) + step + some
                break
            self.watcher.advance("")
        self.watcher.end()
        return settings.rehearse


def keep_first(device: Learner, settings: Settings, epoch: int, keeping: bool) -> bool:
    """Let an image become a record when it is seen first, and only then; returns whether it may.

    keeping   as it is now
    """
    first = epoch == 0 and not settings.imprint
    if device.info.records and first != keeping:
        device.keep(first)
        return first
    return keeping


def imprint(device: Learner, training: Dataset, settings: Settings, watcher: Watcher, show: Show) -> int:
    """Look at each image of the first epoch, in the session's order, and make the head of them all; of an
    open set their embeddings join the prototypes, and nothing else changes.

    Returns   how many classes the head knows
    """
    shown = ordered(training, replace(settings, epochs=settings.views))
    if device.info.known:
        return join(device, shown, settings, watcher, show)
    watcher.begin("looking", len(shown))
    for epoch, sample in shown:
        device.imprint(show(sample, epoch), sample.label)
        watcher.advance("")
    classes = device.imprint_head()
    watcher.end()
    return classes


def join(
    device: Learner, shown: list[tuple[int, Sample]], settings: Settings, watcher: Watcher, show: Show
) -> int:
    """Let samples join the prototypes of their classes, by steps at a rate of 0, none of them on records.

    Returns   how many classes they are of
    """
    device.rate(0.0)
    if device.info.records:
        device.replay(0)
    watcher.begin("looking", len(shown))
    for epoch, sample in shown:
        device.train(show(sample, epoch), sample.label)
        watcher.advance("")
    watcher.end()
    device.rate(1.0)
    if device.info.records:
        device.replay(REPLAY_DEFAULT if settings.replay is None else settings.replay)
    return len({sample.label for _, sample in shown if sample.label})


def evaluator(
    device: Learner, testing: Dataset | None, log: Log, watcher: Watcher, show: Show
) -> Callable[[int], None]:
    """What evaluates after a given step, and does nothing where there is no test set."""

    def test(step: int) -> None:
        if testing is not None:
            log.evaluations.append(evaluate(device, testing, watcher, step, show=show))

    return test


def due(settings: Settings, number: int, sample: Sample, following: Sample) -> bool:
    """True where an evaluation comes between two samples: every so many steps, and behind each class."""
    paced = settings.eval_every > 0 and number % settings.eval_every == 0
    return paced or (settings.order == BY_CLASS and sample.label != following.label)


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
