"""A device that is this machine: the generated C, and the session state the firmware keeps around it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.device.answers import NO_RECORDS, Info, Step, decimal
from microtrain.device.plan import short_id
from microtrain.native.model import Model, Sgd, compile_model

from .arithmetic import DEVICE, adapt, flags, forced
from .blueprint import Blueprint
from .guard import RunningMean

FAST = ("-O3", "-march=native")
SEED = 1  # SEED_DEFAULT of the firmware's session.c


def library(plan: Blueprint, folder: Path, arithmetic: str = DEVICE) -> Path:
    """The model as a shared library in `folder`; made where there is none of these very sources.

    Errors   Error where the compiler is missing or refuses the files
    """
    check_model(plan)
    options = (*FAST, *flags(arithmetic))
    return compile_model(plan.folder, folder, options, forced=forced(arithmetic))


def check_model(plan: Blueprint) -> None:
    """Error where the C files beside a plan are missing or of another model."""
    header = plan.folder / "model.h"
    try:
        same = f"0x{short_id(plan.model_id)}u" in header.read_text(encoding="utf-8")
    except OSError as error:
        raise Error(f"{header} cannot be read ({error.strerror}): convert again.") from error
    if not same:
        raise Error(f"plan.json and model.h in {plan.folder} are of different models: convert again.")


class Machine:
    """A learner (device.session) that takes what the frozen front of the model made of an image.

    One at a time in a process. arithmetic: that of the library at `path` (arithmetic.py).

    rate_now  factor on the scheme's learning rates, float32
    seed_now  of the stochastic rounding
    steps     as the device counts them
    seen      samples in the statistics of features
    ended     steps that ended at their loss
    """

    def __init__(self, plan: Blueprint, path: Path, arithmetic: str = DEVICE) -> None:
        self.plan = plan
        self.model = Model(plan.folder, path)
        adapt(self.model, plan, arithmetic)
        self.seed_now, self.rate_now, self.steps = SEED, np.float32(1), 0
        self.seen = self.ended = 0
        self.info = Info(
            board="this machine",
            model=plan.name,
            model_id=short_id(plan.model_id),
            shape=plan.shape,
            classes=plan.classes,
            arena_bytes=self.model.arena_bytes,
            trainable_bytes=self.model.trainable_bytes,
            records=0,
            imprint=plan.imprint,
            api=0,
            frame_max=0,
            task=plan.scheme.task,
            gate=plan.gate,
            known=plan.known,
        )
        self._losses = RunningMean(plan.guesses)

    @property
    def guesses(self) -> int:
        """Classes whose guessing costs as much as the model's."""
        return self.plan.guesses

    @property
    def record_bytes(self) -> int:
        """Bytes of what look() returns."""
        return (
            sum(size for _, size in self.plan.regions) if self.plan.front else int(np.prod(self.plan.shape))
        )

    def look(self, pixels: np.ndarray) -> np.ndarray:
        """What learning never changes about an image, uint8 [h][w][c]: the arena behind the frozen front.

        Where the model has no such front it is the stored image. uint8 [record_bytes]
        """
        stored = self.plan.stored(pixels)
        if not self.plan.front:
            return stored.reshape(-1).view(np.uint8)
        if self.plan.coded:
            self.model.front_of_record(stored)
        else:
            self.model.front(stored)
        return self.model.keep(self.plan.regions)

    def recorded(self, image: np.ndarray) -> np.ndarray:
        """What a record gives back of what look() returned."""
        if not self.plan.coded:
            return image
        if self.plan.front:
            self.model.restore(self.plan.regions, image)
        else:
            self.model.front_of_record(image.view(np.int8).reshape(self.plan.shape))
        self.model.through_record(self.plan.coded)
        return self.model.keep(self.plan.held)

    def train(self, image: np.ndarray, label: int) -> Step:
        """One training step on what look() returned."""
        return self._step(image, label)

    def teach(self, image: np.ndarray, target: Sequence[float]) -> Step:
        """One training step on what look() returned, and its target in the place of a label."""
        return self._step(image, np.array(target, np.float32))

    def scores(self, image: np.ndarray) -> np.ndarray:
        """What the model makes of what look() returned, float32."""
        return self._forward(image, False)

    def _step(self, image: np.ndarray, label: int | np.ndarray) -> Step:
        logits = self._forward(image, True)
        rates = np.array(self.plan.rates, np.float32) * self.rate_now
        loss = self.model.backward(label, Sgd(*map(float, rates), self.seed_now, self.steps))
        self._losses.see(loss)
        self.ended += bool(loss < np.float32(self.plan.gate))
        self.steps += 1
        self.seen = 0
        return Step(int(np.argmax(logits)), loss)

    def evaluate(self, image: np.ndarray, label: int) -> int:
        """Class predicted for what look() returned."""
        return int(np.argmax(self._forward(image, False)))

    def imprint(self, image: np.ndarray, label: int) -> int:
        """One look at what look() returned; the class predicted for it."""
        predicted = self.evaluate(image, label)
        if not self.seen:
            self.model.imprint_clear()
        self.seen += 1
        self.model.imprint_add(label)
        return predicted

    def imprint_head(self) -> int:
        """The head of all that was looked at; returns how many classes it knows."""
        self.steps += 1
        return self.model.imprint_solve()

    def _forward(self, record: np.ndarray, train: bool) -> np.ndarray:
        if not self.plan.front:
            return self.model.forward(record.view(np.int8).reshape(self.plan.shape), train)
        self.model.restore(self.plan.regions, record)
        return self.model.rest_of_record(train) if self.plan.coded else self.model.rest(train)

    def rate(self, factor: float) -> None:
        """Multiply the scheme's learning rates by the factor, with the digits that a device is sent."""
        self.rate_now = as_sent(factor)

    def seed(self, number: int) -> None:
        self.seed_now = number

    def pull(self) -> bytes:
        """All trainables, as they lie in the device's memory."""
        return self.model.trainables()

    def reset(self) -> None:
        """Trainables and the count of steps as after conversion."""
        self.model.reset()
        self._losses.restart()
        self.steps = self.seen = self.ended = 0

    def push(self, block: bytes) -> None:
        """Put back what pull() returned."""
        self.model.load(block)

    def settle(self) -> bool:
        """What a board does behind steps: where training has diverged, back to the conversion, as there is no
        checkpoint, and on at half the rate. Returns whether that was so."""
        diverged = self._losses.diverged
        if diverged:
            self.reset()
            self.rate_now /= np.float32(2)
        return diverged

    def replay(self, count: int) -> None:
        """Errors   Error: this machine remembers nothing"""
        raise Error(NO_RECORDS)

    def keep(self, on: bool) -> None:
        """Errors   Error: this machine remembers nothing"""
        raise Error(NO_RECORDS)

    def rehearse(self, count: int) -> bool:
        """Errors   Error: this machine remembers nothing"""
        raise Error(NO_RECORDS)

    def skipped(self) -> int:
        """Steps that ended at their loss (`convert --gate`)."""
        return self.ended

    def sha(self) -> str:
        """SHA-256 of the trainables, 64 hex digits."""
        return hashlib.sha256(self.model.trainables()).hexdigest()


def as_sent(factor: float) -> np.float32:
    """The factor with the digits that a device is sent, as it reads them."""
    whole, _, places = decimal(factor).partition(".")
    return np.float32(int(whole + places)) / np.float32(10 ** len(places))
