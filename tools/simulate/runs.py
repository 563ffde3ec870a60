"""Several training sessions at once, each in a process of its own, and what they say on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from microtrain.device.learning import train
from microtrain.device.session import Log, Settings, new_log

from .arithmetic import FLOAT
from .guard import LastGood
from .records import Task, show
from .replay import Rehearsing

EVERY = 50  # steps between two notes
POLL_S = 0.2
LEARNING = ("training", "rehearsing")  # what a session says that it does, where it takes steps
GROUP = 9  # runs side by side: more leave the caches


@dataclass(frozen=True)
class Note:
    """How far a run is. accuracy: of its latest evaluation, made after `evaluated` steps."""

    run: int
    steps: int
    evaluated: int
    accuracy: float
    text: str


def note(run: int, log: Log) -> Note:
    """How far a run with this log is."""
    latest = log.evaluations[-1]
    return Note(run, len(log.steps), latest.step, latest.accuracy, log.in_words())


@dataclass(frozen=True)
class Outcome:
    """A finished run. seconds: of a core that its training steps took, evaluations left out."""

    log: Log
    seconds: float

    @property
    def steps(self) -> int:
        """Training steps, those on records alone included."""
        return self.log.evaluations[-1].step

    @property
    def pace(self) -> float:
        """Steps a second; 0 where there were none."""
        return self.steps / self.seconds if self.seconds else 0.0


class Reporter:
    """A watcher (device.session) that sends notes to the parent process and times the training."""

    def __init__(self, run: int, log: Log, notes: SimpleQueue[Note]) -> None:
        self.run, self.log, self.notes = run, log, notes
        self.seconds = 0.0
        self._since: list[float] = []  # of what has begun and not ended: training, or evaluating within it
        self._learns = False

    def begin(self, what: str, total: int) -> None:
        if self._since:
            self.seconds += time.process_time() - self._since[-1]
        else:
            self._learns = what in LEARNING
        self._since.append(time.process_time())

    def advance(self, text: str) -> None:
        if len(self._since) == 1 and self.log.steps and len(self.log.steps) % EVERY == 0:
            self.notes.put(note(self.run, self.log))

    def end(self) -> None:
        began = self._since.pop()
        if self._since:
            self._since[-1] = time.process_time()
        elif self._learns:
            self.seconds += time.process_time() - began


notes_of_process: SimpleQueue[Note]


def join(notes: SimpleQueue[Note]) -> None:
    """Begin a worker process: its notes go to this queue."""
    global notes_of_process
    notes_of_process = notes


def run(task: Task, number: int, settings: Settings) -> list[Outcome]:
    """One session in C; in a process of its own."""
    machine = task.machine()
    learner = Rehearsing(machine, task.memory) if task.memory else machine
    log = new_log(learner, task.training, settings)
    reporter, guard = Reporter(number, log, notes_of_process), LastGood(machine)
    train(learner, task.training, task.testing, log, reporter, show(task, machine), guard)
    return [Outcome(log, reporter.seconds)]


def run_group(task: Task, numbers: Sequence[int], runs: Sequence[Settings]) -> list[Outcome]:
    """Sessions in PyTorch, side by side; in a process of its own."""
    from .side_by_side import sessions  # torch takes a second to load

    def tick(logs: list[Log]) -> None:
        if len(logs[0].steps) % EVERY == 0:
            for number, log in zip(numbers, logs, strict=True):
                notes_of_process.put(note(number, log))

    logs, seconds = sessions(task, runs, tick)
    return [Outcome(log, seconds) for log in logs]


def groups(count: int, jobs: int) -> list[range]:
    """Runs that go side by side: no more than GROUP, and work for all cores."""
    size = min(GROUP, -(-count // jobs))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def run_all(task: Task, runs: list[Settings], jobs: int, tell: Callable[[Note], None]) -> list[Outcome]:
    """All sessions on `jobs` cores; `tell` hears their notes. The outcomes are in the order of `runs`."""
    context = get_context()
    notes: SimpleQueue[Note] = context.SimpleQueue()
    with ProcessPoolExecutor(jobs, context, join, (notes,)) as pool:
        if task.arithmetic == FLOAT:
            parts = [pool.submit(run_group, task, g, [runs[n] for n in g]) for g in groups(len(runs), jobs)]
        else:
            parts = [pool.submit(run, task, number, settings) for number, settings in enumerate(runs)]
        left = set(parts)
        while left:
            left = wait(left, POLL_S).not_done
            while not notes.empty():
                tell(notes.get())
        return [outcome for part in parts for outcome in part.result()]
