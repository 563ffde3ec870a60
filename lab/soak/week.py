"""A simulated week: a long session on a board with a hard life ends where a calm one does, bit for bit.

The host does what any host must: after trouble it asks the device for its step and goes on with the image of
that step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.device.client import Device
from microtrain.device.errors import DeviceError
from microtrain.device.link import Port, ProgramPort
from microtrain.emulator import Board

from .hard_life import HardLife, Troubles
from .line import LineError

AUTOSAVE = 25  # steps: what a trouble costs at most
EVERY_STEPS = 75  # from one trouble to the next, on average
STEP_INSTRUCTIONS = 3_300_000  # of the example, with its image on the line
NOISE = 0.004  # share of writes and reads that are disturbed
SAVES, REBOOTS = 0.01, 0.002  # share of steps behind which the host saves, or restarts the device
STUCK = 50  # troubles without a step between them


@dataclass(frozen=True)
class Lesson:
    """Images uint8 [N][h][w][c] and their labels; step n shows image n % N."""

    images: np.ndarray
    labels: np.ndarray

    def teach(self, device: Device, step: int) -> None:
        n = step % len(self.labels)
        device.train(self.images[n], int(self.labels[n]))


@dataclass(frozen=True)
class Report:
    """Steps of the session and of those learned again after trouble; whether the trainables are equal."""

    steps: int
    again: int
    equal: bool
    troubles: Troubles


def undisturbed(port: Port, lesson: Lesson, steps: int) -> str:
    """SHA-256 of the trainables after so many steps in a row."""
    with Device(port, "the firmware on this machine") as device:
        for step in range(steps):
            lesson.teach(device, step)
        return device.sha()


class Host:
    """Teaches a device that may fail at any time."""

    def __init__(self, port: HardLife, lesson: Lesson, draws: random.Random) -> None:
        self.port, self.lesson, self.draws = port, lesson, draws
        self.device = self._begin()
        self.taught = 0

    def _begin(self) -> Device:
        self.port.calm = True
        device = Device(self.port, "the emulated board")
        device.autosave(AUTOSAVE)
        device.save()
        self.port.calm = False
        return device

    def teach(self, steps: int, advance: Callable[[int], None]) -> str:
        """Until the device has learned `steps` steps; returns the SHA-256 of its trainables.

        advance   called with the steps that have been reached for the first time
        Errors    LineError where it gets no further
        """
        step: int | None = 0
        reached = stuck = 0
        while step is None or step < steps:
            try:
                step = self._one(step)
                advance(max(0, step - reached))
                stuck = 0 if step > reached else stuck
                reached = max(reached, step)
            except DeviceError as error:
                step, stuck = None, stuck + 1
                if stuck == STUCK:
                    raise LineError(f"the board gets no further than step {reached}: {error}") from error
        self.port.calm = True
        return Device(self.port, "the emulated board").sha()

    def _one(self, step: int | None) -> int:
        """The next thing to do, of which trouble is part. Returns the step that the device has reached."""
        if step is None:
            return self._find_place()
        self.lesson.teach(self.device, step)
        self.taught += 1
        chance = self.draws.random()
        if chance < SAVES:
            self.device.save()
        elif chance < SAVES + REBOOTS:
            self.device.reboot()
        return step + 1

    def _find_place(self) -> int:
        """Greet the device again and ask for its step. DeviceError where the answer is damaged."""
        self.device = Device(self.port, "the emulated board")
        said = self.device.stats().get("steps", "")
        if not said.isdigit():
            raise DeviceError(f"steps are {said!r}")
        return int(said)


def live(
    elf: Path, program: Path, lesson: Lesson, steps: int, seed: int, advance: Callable[[int], None]
) -> Report:
    """Train the board through its troubles, and the program undisturbed."""
    draws = random.Random(seed)
    port = HardLife(Board(elf), draws, EVERY_STEPS * STEP_INSTRUCTIONS, NOISE)
    host = Host(port, lesson, draws)
    disturbed = host.teach(steps, advance)
    calm = undisturbed(ProgramPort(program), lesson, steps)
    return Report(steps, host.taught - steps, disturbed == calm, port.troubles)
