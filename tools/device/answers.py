"""What a device says, as objects, and what it has no room for, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microtrain.base import sound as front_end
from microtrain.base import units
from microtrain.samples.kind import told

REPLAY_MAX = 100  # of firmware/src/serial/handlers.h: replayed steps in one go
NO_IMPRINT = "there are no statistics of features: convert the model with --imprint."
REPLAY_DEFAULT = 4  # of replay.h: replayed steps behind each new one
NO_HOP = "windows do not overlap: convert the model with --hop."
NO_RECORDS = "there is no replay buffer: convert the model with --replay."


@dataclass(frozen=True)
class Info:
    """What a device says about itself.

    model_id   8 hex digits (see plan.short_id)
    shape      (height, width, channels) of an image
    records    of the replay buffer, 0: none
    imprint    features of which the covariance is kept together, 0: no statistics of features
    task       what is learned from targets (plan.Scheme.task); "": it learns from labels
    known      classes of an open set that there is room for beside what is none of them; 0: it is none
    hop        rows by which a window moves on, 0: each comes whole
    gate       loss below which a step learns nothing, 0: every step is taken
    fleet      bytes of an update that the board makes itself, 0: its gateway makes them
    """

    board: str
    model: str
    model_id: str
    shape: tuple[int, int, int]
    classes: int
    arena_bytes: int
    trainable_bytes: int
    records: int
    api: int
    frame_max: int
    imprint: int = 0
    task: str = ""
    hop: int = 0
    fleet: int = 0
    gate: float = 0.0
    known: int = 0

    @property
    def looks(self) -> bool:
        """Whether one look at each sample tells it something: for a head, or for prototypes."""
        return self.imprint > 0 or self.known > 0


@dataclass(frozen=True)
class Prediction:
    """Result of an inference: float32 logits [classes] and the class they point to."""

    logits: np.ndarray
    label: int


@dataclass(frozen=True)
class Step:
    """Result of a training step: the class predicted before the update, and the loss.

    diverged   training has, and the device is back at its last checkpoint
    """

    predicted: int
    loss: float
    diverged: bool = False


@dataclass(frozen=True)
class Shared:
    """What a board says of its round in a fleet: its update's body, steps, and their mean loss."""

    body: bytes
    steps: int
    loss: float


def decimal(number: float) -> str:
    """A number from 0 on as the device reads it: up to 9 digits."""
    return f"{number:.{9 - len(str(int(number)))}f}"


def split_pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(" ")
    return key, value.strip()


def parse_info(said: dict[str, str]) -> Info:
    """The data lines of `info` as an object. KeyError, ValueError or Error where one is missing or wrong."""
    h, w, c = (int(n) for n in said["input"].split("x"))
    return Info(
        board=said["board"],
        model=said["model"],
        model_id=said["id"],
        shape=told(
            (h, w, c),
            front_end.parse(said["sound"]) if "sound" in said else None,
            units.parse(said["units"]) if "units" in said else None,
        ),
        classes=int(said["classes"]),
        arena_bytes=int(said["arena"].split()[0]),
        trainable_bytes=int(said["trainable"].split()[0]),
        records=int(said["records"]),
        api=int(said["api"]),
        frame_max=int(said["frame"]),
        imprint=int(said.get("imprint", 0)),
        task=said.get("task", ""),
        hop=int(said.get("hop", 0)),
        fleet=int(said.get("fleet", 0)),
        gate=float(said.get("gate", 0)),
        known=int(said.get("known", 0)),
    )
