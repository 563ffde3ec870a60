"""What the frozen front of a model makes of every image, computed once, in a file mapped into memory.

The front depends on the image alone, so that training from records gives the same bytes as training from
images; test/test_simulate.py proves it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL

from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.base.progress import Bars
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import Dataset, Sample, vary

from .arithmetic import DEVICE
from .blueprint import Blueprint
from .machine import Machine

CHUNK = 256  # views that a process computes in one go
View = tuple[Path, int]  # image file and variant


@dataclass(frozen=True)
class Task:
    """All that the runs of a simulation share.

    library  the compiled model, which makes the records whatever learns from them
    cache    folder for records; None: each image goes through the front whenever it is shown
    epochs   of the longest run
    arithmetic  that learns (arithmetic.py); trainer: its library, where that is another one
    device      of PyTorch, for the float arithmetic
    memory   records of a replay buffer; 0: none
    """

    plan: Blueprint
    library: Path
    training: Dataset
    testing: Dataset
    augmentation: Augmentation
    epochs: int
    cache: Path | None
    arithmetic: str = DEVICE
    trainer: Path | None = None
    device: str = "cpu"
    memory: int = 0

    def machine(self) -> Machine:
        """A machine that learns by the task's arithmetic."""
        return Machine(self.plan, self.trainer or self.library, self.arithmetic)

    def views(self) -> list[View]:
        """Every view of an image that the runs need: training images by variant, then those of the tests."""
        count = self.augmentation.needed(self.epochs)
        seen = [(sample.path, variant) for sample in self.training.samples for variant in range(count)]
        return list(dict.fromkeys([*seen, *((sample.path, 0) for sample in self.testing.samples)]))

    def view(self, sample: Sample, epoch: int | None) -> View:
        """What a session shows of a sample (device.session.Show)."""
        return sample.path, 0 if epoch is None else self.augmentation.of_epoch(epoch)

    def record(self, machine: Machine, view: View) -> np.ndarray:
        return machine.look(vary(view[0], self.plan.shape, self.augmentation.kinds, view[1]))

    def records(self) -> Path | None:
        """The file of these views, this model and this way to compute them."""
        if self.cache is None:
            return None
        about = [
            self.library.name,
            PIL.__version__,
            self.augmentation.kinds,
            list(map(identity, self.views())),
        ]
        return self.cache / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.records"


def identity(view: View) -> tuple[str, int, int, int]:
    """A view as long as nobody changes its file."""
    path, variant = view
    try:
        about = path.stat()
    except OSError as error:
        raise Error(f"{path} cannot be read ({error.strerror}).") from error
    return str(path.resolve()), about.st_size, about.st_mtime_ns, variant


def show(task: Task, machine: Machine) -> Callable[[Sample, int | None], np.ndarray]:
    """Images as the machine takes them (device.session.Show), from the records where the task has some."""
    path = task.records()
    if path is None:
        return lambda sample, epoch: task.record(machine, task.view(sample, epoch))
    table = mapped(path, machine, len(task.views()), "r")
    places = {view: place for place, view in enumerate(task.views())}
    return lambda sample, epoch: table[places[task.view(sample, epoch)]]


def mapped(path: Path, machine: Machine, views: int, mode: str) -> np.ndarray:
    """uint8 [views][record_bytes]"""
    result: np.ndarray = np.memmap(path, np.uint8, mode, shape=(views, machine.record_bytes))  # type: ignore[call-overload]
    return result


def fill(task: Task, jobs: int) -> Iterator[tuple[int, int]]:
    """Compute the records on `jobs` cores where they are missing; yields (views done, of how many)."""
    path, count = task.records(), len(task.views())
    if path is None or path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a simulation beside this one may want the same records
        if not path.is_file():
            yield from fill_all(task, path, count, jobs)


def show_filling(task: Task, jobs: int, bars: Bars) -> None:
    """fill() with a bar, where there is something to fill."""
    bar = None
    for done, total in fill(task, jobs):
        bar = bar or bars.add("frozen layers", total)
        bar.set(done)
    if bar is not None:
        bar.end()


def fill_all(task: Task, path: Path, count: int, jobs: int) -> Iterator[tuple[int, int]]:
    """fill() where nothing is there."""
    with replacing(path) as part, ProcessPoolExecutor(jobs) as pool:
        with part.open("wb") as file:
            file.truncate(count * Machine(task.plan, task.library).record_bytes)
        chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
        running = {pool.submit(fill_chunk, task, part, chunk): len(chunk) for chunk in chunks}
        done = 0
        try:
            for future in as_completed(running):
                future.result()
                done += running[future]
                yield done, count
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def fill_chunk(task: Task, path: Path, places: range) -> None:
    """The records of some of the task's views; in a process of its own."""
    machine, views = Machine(task.plan, task.library), task.views()
    table = mapped(path, machine, len(views), "r+")
    for place in places:
        table[place] = task.record(machine, views[place])
