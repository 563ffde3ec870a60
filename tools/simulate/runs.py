"""Several training sessions at once, each in a process of its own, and what they say on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from device.session import Log, Settings, new_log, train

from .machine import Machine
from .records import Task, show

EVERY = 50  # steps between two notes
POLL_S = 0.2


@dataclass(frozen=True)
class Note:
    """How far a run is. accuracy: of its latest evaluation, made after `evaluated` steps."""

    run: int
    steps: int
    evaluated: int
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """A finished run. seconds: of a core that its training steps took, evaluations left out."""

    log: Log
    seconds: float


class Reporter:
    """A watcher (device.session) that sends notes to the parent process and times the training."""

    def __init__(self, run: int, log: Log, notes: SimpleQueue[Note]) -> None:
        self.run, self.log, self.notes = run, log, notes
        self.seconds = 0.0
        self._since: list[float] = []  # of what has begun and not ended: training, or evaluating within it

    def begin(self, what: str, total: int) -> None:
        if self._since:
            self.seconds += time.process_time() - self._since[-1]
        self._since.append(time.process_time())

    def advance(self, text: str) -> None:
        if len(self._since) == 1 and self.log.steps and len(self.log.steps) % EVERY == 0:
            latest = self.log.evaluations[-1]
            self.notes.put(Note(self.run, len(self.log.steps), latest.step, latest.accuracy))

    def end(self) -> None:
        began = self._since.pop()
        if self._since:
            self._since[-1] = time.process_time()
        elif self.log.steps:
            self.seconds += time.process_time() - began


notes_of_process: SimpleQueue[Note]


def join(notes: SimpleQueue[Note]) -> None:
    """Begin a worker process: its notes go to this queue."""
    global notes_of_process
    notes_of_process = notes


def run(task: Task, number: int, settings: Settings) -> Outcome:
    """One whole session; in a process of its own."""
    machine = Machine(task.plan, task.library)
    log = new_log(machine, task.training.classes, settings)
    reporter = Reporter(number, log, notes_of_process)
    train(machine, task.training, task.testing, log, reporter, show(task, machine))
    return Outcome(log, reporter.seconds)


def run_all(task: Task, runs: list[Settings], jobs: int, tell: Callable[[Note], None]) -> list[Outcome]:
    """All sessions on `jobs` cores; `tell` hears their notes. The outcomes are in the order of `runs`."""
    context = get_context()
    notes: SimpleQueue[Note] = context.SimpleQueue()
    with ProcessPoolExecutor(jobs, context, join, (notes,)) as pool:
        running = [pool.submit(run, task, number, settings) for number, settings in enumerate(runs)]
        left = set(running)
        while left:
            left = wait(left, POLL_S).not_done
            while not notes.empty():
                tell(notes.get())
        return [future.result() for future in running]
