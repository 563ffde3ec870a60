"""A learning rate that is too high: noticed by the loss, and what was learned before is kept."""

from __future__ import annotations

import math
from typing import Protocol

from microtrain.device.client import Info
from microtrain.device.session import WINDOW, Log, TrainStep

LOSS_MOST = 4.0  # mean loss of a window, in units of what guessing costs


class Holder(Protocol):
    """Something whose trained bytes can be taken and put back."""

    @property
    def info(self) -> Info: ...
    def trainables(self) -> bytes: ...
    def load(self, trainables: bytes) -> None: ...


def diverges(steps: list[TrainStep], classes: int) -> bool:
    """The last loss is no number, or the mean of the last WINDOW is far above that of guessing."""
    if not steps or not math.isfinite(steps[-1].loss):
        return bool(steps)
    recent = steps[-WINDOW:]
    return len(recent) == WINDOW and sum(s.loss for s in recent) > WINDOW * LOSS_MOST * math.log(classes)


class LastGood:
    """A guard (device.session): ends a session that diverges, with the weights from before that."""

    def __init__(self, machine: Holder) -> None:
        self.machine = machine
        self.kept = machine.trainables()

    def spoiled(self, log: Log) -> bool:
        if diverges(log.steps, self.machine.info.classes):
            self.machine.load(self.kept)
            return True
        if len(log.steps) % WINDOW == 0:
            self.kept = self.machine.trainables()
        return False
