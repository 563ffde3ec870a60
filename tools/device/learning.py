"""A session that learns from labels: images streamed in a seeded order, with evaluations between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from microtrain.samples.source import Dataset, Sample

from .answers import REPLAY_DEFAULT
from .session import (
    BY_CLASS,
    COSINE,
    Evaluation,
    Guard,
    Learner,
    Log,
    Settings,
    Show,
    TrainStep,
    Watcher,
    name_of,
    ordered,
    pixels,
    spread,
)

RATE_EVERY = 10  # steps between changes of a scheduled learning rate
HALVINGS = 10  # of a rate, at most
JUDGED = 64  # images by which a session judges itself
SLACK = 2  # fewer that it may know than the look did, by chance
WORSE, TRIES = 2, 2  # halvings at once where it knows fewer, and how often


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
        """Learn from the head of a look on; where training diverges, or knows in the end what it learned from
        worse than the look did, that head is put back. It is learned from again, at less of the rate, where
        the settings say so; where no rate helps, it stays. Returns the steps."""
        log, kept, tested = self.log, self.device.pull(), len(self.log.evaluations)
        backs_off = log.settings.backs_off
        least, tries = self._known() - SLACK, 0
        while True:
            done = self.learn(replace(log.settings, rate=log.settings.rate / 2**log.halvings))
            worse = backs_off and log.diverged is None and self._known() < least
            if log.diverged is None and not worse:
                return done
            self.device.push(kept)
            self.begin()
            log.gave_up = worse and tries == TRIES
            if not backs_off or (log.diverged is not None and log.halvings >= HALVINGS):
                return done
            log.diverged = None
            log.steps.clear()
            del log.evaluations[tested:]
            if log.gave_up:
                return 0
            log.halvings += WORSE if worse else 1
            tries += worse

    def _known(self) -> int:
        """How many of some images that it learns from the learner names rightly, as they are; 0 where nobody
        asks, or nothing is learned."""
        settings = self.log.settings
        if not settings.backs_off or not (settings.epochs or settings.rehearse):
            return 0
        samples, right = spread(self.training.samples, JUDGED), 0
        self.watcher.begin("asking", len(samples))
        for sample in samples:
            right += self.device.evaluate(self.show(sample, None), sample.label) == sample.label
            self.watcher.advance("")
        self.watcher.end()
        return right

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
