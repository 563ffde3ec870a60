"""What the commands of a device do where its model learns from targets (measured.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.plan import REGRESSION
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.samples.measured import read_table, same_outputs
from microtrain.samples.source import Dataset, load

from . import measured
from .client import Device
from .options import Course, Rates, in_words
from .session import SHUFFLED, Settings, ended, pixels, varied
from .shown import Shown

KEEPS_ITS_PLACE = ("light",)  # ways in which an image may vary without what is measured of it


@dataclass(frozen=True)
class Files:
    """Where a session is kept. None: nowhere."""

    curve: Path | None
    page: Path | None
    log: Path | None


def course_of(course: Course, task: str) -> Course:
    """A course for targets: a pass where nobody says how many, and images that vary as the task allows.

    Errors   Error for what only classes have
    """
    if course.imprint or course.rehearse or course.order != SHUFFLED:
        raise Error("--imprint, --rehearse and --order are for classes: leave them out.")
    kinds = tuple(kind for kind in course.augmentation.kinds if kind in KEEPS_ITS_PLACE or task != REGRESSION)
    return replace(course, epochs=1 if course.epochs is None else course.epochs, rehearse=0, kinds=kinds)


def tables(device: Device, folder: Path, test_folder: Path | None) -> tuple[Dataset, Dataset | None]:
    """Samples to learn from and, where they are named, those to be tested with."""
    outputs, holds = device.info.classes, device.info.task != REGRESSION
    training = read_table(folder, outputs, holds)
    testing = read_table(test_folder, outputs, holds) if test_folder else None
    if testing is not None:
        same_outputs(training, testing)
    return training, testing


def teach(
    device: Device,
    course: Course,
    sets: tuple[Dataset, Dataset | None],
    settings: Settings,
    rates: Rates | None,
    files: Files,
) -> None:
    """A session, shown and kept. Errors  Error where a file is wanted that only classes have"""
    if files.curve or files.page:
        raise Error("--curve and --page are for classes: --log keeps every step.")
    training, testing = sets
    say(in_words(course, (settings.rate,), rates, files=training.files))
    log = measured.new_log(device, training.classes, settings)
    show = varied(device, course.augmentation)
    if device.info.task == REGRESSION:
        for sentence in measured.units(device, training, show):
            say(sentence, err=True)
    try:
        with Bars() as bars:
            measured.train(device, training, testing, log, Shown(bars), show)
    finally:
        if files.log is not None:
            log.save(files.log)
    say(f"{len(log.steps)} steps{ended(log)}, sha256 {log.sha256}")
    if log.diverged:
        say(f"diverged at step {log.diverged}: the device is back at its last checkpoint; use a lower --lr")
    for result in log.evaluations:
        say(f"after {result.step:5} steps: {measured.in_words(device.info.task, result)}")


def evaluate(device: Device, folder: Path, limit: int) -> None:
    """Say how good the outputs are on the samples of a table."""
    dataset, _ = tables(device, folder, None)
    with Bars() as bars:
        result = measured.evaluate(device, dataset, Shown(bars), pixels(device), limit=limit)
    for name in dataset.classes:
        say(measured.in_words(device.info.task, replace(result, outputs={name: result.outputs[name]})))


def inferred(device: Device, paths: tuple[Path, ...]) -> Iterator[str]:
    """A line for each sample: outputs, or the probability of each label."""
    for path in paths:
        scores = device.scores(load(path, device.info.shape)).astype(np.float64)
        if device.info.task == REGRESSION:
            yield f"{path}: {' '.join(f'{score:g}' for score in scores)}"
        else:
            yield f"{path}: {' '.join(f'{1.0 / (1.0 + np.exp(-score)):.1%}' for score in scores)}"
