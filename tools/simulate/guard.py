"""A learning rate that is too high: noticed by the loss, and what was learned before is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from microtrain.device.session import WINDOW, HasLoss, mean_loss

LOSS_MOST = 4.0  # mean loss of a window, in units of what guessing costs
STEPS = 64  # that a board's running mean looks back


class Holder(Protocol):
    """Something whose trained bytes can be taken and put back."""

    @property
    def guesses(self) -> int: ...
    def pull(self) -> bytes: ...
    def push(self, block: bytes) -> None: ...


class HasSteps(Protocol):
    """A log of a session."""

    @property
    def steps(self) -> Sequence[HasLoss]: ...


def diverges(steps: Sequence[HasLoss], classes: int) -> bool:
    """The last loss is no number, or the mean of the last WINDOW is far above that of guessing."""
    if not steps or not math.isfinite(steps[-1].loss):
        return bool(steps)
    return len(steps) >= WINDOW and mean_loss(steps) > LOSS_MOST * math.log(classes)


class RunningMean:
    """Of the losses of all steps, in float32, as a board has it (runtime/guard.c). classes: as diverges()"""

    def __init__(self, classes: int) -> None:
        self._most = np.float32(LOSS_MOST) * np.float32(math.log(classes))
        self.restart()

    def restart(self) -> None:
        self._mean = np.float32(0)

    def see(self, loss: float) -> None:
        with np.errstate(all="ignore"):
            self._mean += (np.float32(loss) - self._mean) / np.float32(STEPS)

    @property
    def diverged(self) -> bool:
        return not self._mean <= self._most


class LastGood:
    """A guard (device.session): ends a session that diverges, with the weights from before that."""

    def __init__(self, machine: Holder) -> None:
        self.machine = machine
        self.kept = machine.pull()

    def spoiled(self, log: HasSteps) -> bool:
        if diverges(log.steps, self.machine.guesses):
            self.machine.push(self.kept)
            return True
        if len(log.steps) % WINDOW == 0:
            self.kept = self.machine.pull()
        return False
