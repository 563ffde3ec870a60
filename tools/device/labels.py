"""What the commands of a device do where its model learns from labels (learning.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from microtrain.base.terminal import say
from microtrain.samples.kind import UNKNOWN
from microtrain.samples.source import Dataset, scan

from .client import Device
from .errors import DeviceError
from .options import imprints
from .session import Evaluation, Log


def named(label: int, known: bool) -> str:
    """A class in words. known: of an open set, whose first is none of the others"""
    return UNKNOWN if known and not label else f"class {label}"


def scanned(device: Device, folder: Path, test_folder: Path | None) -> tuple[Dataset, Dataset | None]:
    """Samples to learn from and, where they are named, those to be tested with, of the same classes."""
    classes, known = device.info.classes, device.info.known
    training = scan(folder, classes, known=known)
    testing = scan(test_folder, classes, known=known) if test_folder is not None else None
    if testing is not None and testing.classes != training.classes:
        raise DeviceError(f"{folder} and {test_folder} have different class folders: name them alike.")
    if known:
        say(f"labels: {training.labels}")
    return training, testing


def imprint_first(device: Device, wanted: bool | None) -> bool:
    """Whether a session begins with a new head; says so where it does not though it could."""
    if device.info.known:  # prototypes go on from what they are
        return wanted is not False
    able, steps = device.info.imprint > 0, int(device.stats()["steps"])
    if able and steps and wanted is None:
        say(f"the head stays, as the device has taken {steps} steps; --imprint makes a new one first")
    return imprints(wanted, able, fresh=not steps)


def save(log: Log, curve: Path | None, log_path: Path | None) -> None:
    """Write what is asked for; an interrupted session keeps what it has."""
    if log_path is not None:
        log.save(log_path)
    if curve is not None and log.steps:
        from .curve import save_curve

        say("learning curve: " + ", ".join(str(path) for path in save_curve(curve, log)))


def show_evaluation(result: Evaluation, dataset: Dataset) -> None:
    width = max(len(name) for name in dataset.classes)
    for name, (correct, total) in zip(dataset.classes, result.by_class, strict=True):
        if total:
            say(f"{name:{width}}  {correct:5} of {total:5}  {correct / total:6.1%}")
    say(f"accuracy {result.accuracy:.1%} of {result.total} {dataset.noun}s")


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())
