"""Boards that learn for a round: behind a port, or as the same C on this machine. Their bits are the same."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from microtrain.base.plan import Plan
from microtrain.device.client import Device
from microtrain.device.errors import DeviceError, LinkError
from microtrain.device.learning import RATE_EVERY, evaluate, train
from microtrain.device.link import Port
from microtrain.device.plan import check_same_model
from microtrain.device.session import Evaluation, Log, Settings, Silent, new_log
from microtrain.samples.source import Dataset, Sample, load
from microtrain.simulate.blueprint import blueprint
from microtrain.simulate.guard import LastGood
from microtrain.simulate.machine import Machine, library

from .errors import FleetError

T = TypeVar("T")
FLEET_DIGITS = 8  # of a federation's, by which a board knows it
TRIES = 25  # a round is begun again so often before a board counts as missing


@dataclass(frozen=True)
class Learned:
    """What came of a round: the trainables, the steps, their mean loss, how often it was begun again.

    body     of the update, where the board made it
    records  of its own that it learned from, where it was given no samples
    """

    block: bytes
    steps: int
    loss: float
    again: int
    body: bytes = b""
    records: int = 0


@dataclass(frozen=True)
class Round:
    """What a board that makes its updates itself must know of a round.

    federation  16 hex digits
    arrived     the last round whose update the server has
    room        bytes that the update's body may have
    momentum    in 1/256
    """

    federation: str
    number: int
    arrived: int
    room: int
    momentum: int


class Board(Protocol):
    """Something that learns from its samples, from any trainables on."""

    plan: Plan

    def fresh(self) -> bytes:
        """Its trainables as after conversion. What it remembers is lost."""

    def present(self) -> bytes:
        """Its trainables as they are."""

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None = None
    ) -> Learned:
        """Learn from the samples, beginning with these trainables.

        samples  None: the records of the board's own replay buffer
        turn     in which the board makes its update itself, with what it holds back; the trainables of the
                 result are then those given
        Errors   FleetError where it cannot, or training diverged
        """

    def room(self) -> int:
        """Bytes of the largest update that it makes itself; 0: its gateway makes them.

        Errors   FleetError where it is not there
        """

    def close(self) -> None: ...


class PortBoard:
    """A board at the other end of a port, which may fail at any time.

    A round begins with `reset` and a push, so that its bits depend on nothing that was before. After any
    trouble it begins again, and where the board's count of steps is not the round's it had restarted unseen.

    open  a new port, also after the old one broke
    """

    def __init__(self, plan: Plan, open_port: Callable[[], Port], where: str) -> None:
        self.plan, self.where = plan, where
        self._open = open_port
        self._port: Port | None = None
        self._device: Device | None = None

    def _connected(self) -> Device:
        if self._device is None:
            if self._port is None:
                self._port = self._open()
            device = Device(self._port, self.where)
            try:
                check_same_model(self.plan, device.info.model, device.info.model_id, self.where)
            except DeviceError as error:
                raise FleetError(f"{self.where} is left out of this round: {error}") from error
            device.hurry()
            self._device = device
        return self._device

    def _drop(self, error: DeviceError) -> None:
        """After trouble: greet the board again; where the line broke, on a new port."""
        self._device = None
        if isinstance(error, LinkError) and self._port is not None:
            self._port.close()
            self._port = None

    def _tried(self, action: Callable[[Device], T]) -> tuple[T, int]:
        """What came of it, and how often it was begun again."""
        again = 0
        while True:
            try:
                return action(self._connected()), again
            except DeviceError as error:
                again += 1
                self._drop(error)
                if again == TRIES:
                    raise FleetError(f"{self.where} is left out of this round: {error}") from error

    def fresh(self) -> bytes:
        def action(device: Device) -> bytes:
            device.reset()
            return device.pull()

        return self._tried(action)[0]

    def present(self) -> bytes:
        return self._tried(lambda device: device.pull())[0]

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None = None
    ) -> Learned:
        def action(device: Device) -> Learned:
            if samples is None:
                return self._remember(device, block, settings, turn)
            device.reset()
            device.push(block)
            over = self._join(device, turn)
            log = new_log(device, samples, settings)
            if not over:
                train(device, samples, None, log, Silent())
                checked(log, device, self.where)
            if turn is None:
                return finished(log, device.pull(), self.where)
            return self._share(device, block, turn)

        done, again = self._tried(action)
        return replace(done, again=again)

    def _remember(self, device: Device, block: bytes, settings: Settings, turn: Round | None) -> Learned:
        """A round of steps on the board's own records, without `reset`, which would forget them."""
        held = int(device.stats().get("records_held", 0))
        if not held:
            raise FleetError(f"{self.where} is left out of this round: it has no records to learn from.")
        device.push(block)
        steps = 0 if self._join(device, turn) else settings.epochs * min(held, settings.limit or held)
        before = int(device.stats()["steps"])
        device.seed(settings.seed)
        for step in range(0, steps, RATE_EVERY):
            device.rate(settings.rate_at(step, steps))
            device.rehearse(min(RATE_EVERY, steps - step))
        if int(device.stats()["steps"]) != before + steps:
            raise DeviceError(f"{self.where} has lost steps of this round: it has restarted.")
        if turn is not None:
            return replace(self._share(device, block, turn), records=held)
        return Learned(device.pull(), steps, 0.0, 0, records=held)

    @staticmethod
    def _join(device: Device, turn: Round | None) -> bool:
        """Begin a round in which the board makes its update; whether that is over already."""
        return turn is not None and device.join(turn.federation[:FLEET_DIGITS], turn.number, turn.arrived)

    @staticmethod
    def _share(device: Device, block: bytes, turn: Round) -> Learned:
        made = device.share(turn.room, turn.momentum)
        return Learned(block, made.steps, made.loss, 0, made.body)

    def room(self) -> int:
        return self._tried(lambda device: device.info.fleet)[0]

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
        elif self._port is not None:
            self._port.close()
        self._device = self._port = None


def checked(log: Log, device: Device, where: str) -> None:
    """FleetError where training diverged, DeviceError where the board has not taken all steps of the log."""
    if log.diverged:
        raise FleetError(f"{where} is left out of this round: its training diverged at step {log.diverged}.")
    if device.stats().get("steps") != str(len(log.steps)):
        raise DeviceError(f"{where} has lost steps of this round: it has restarted.")


def finished(log: Log, block: bytes, where: str) -> Learned:
    """FleetError where training diverged, DeviceError where the trainables are not those of the log."""
    if log.diverged:
        raise FleetError(f"{where} is left out of this round: its training diverged at step {log.diverged}.")
    if hashlib.sha256(block).hexdigest() != log.sha256:
        raise DeviceError(f"{where} sent other trainables than it has.")
    losses = [step.loss for step in log.steps]
    loss = math.fsum(losses) / len(losses) if losses else 0.0
    return Learned(block, len(losses), round(loss, 4), 0)


Show = Callable[[Machine, Sample], np.ndarray]  # what a machine takes of a sample


class Host:
    """The model as a library of this machine, for any number of boards, one after the other.

    show  what the frozen front makes of a sample; None: computed once and kept
    """

    def __init__(self, plan: Plan, work: Path, show: Show | None = None) -> None:
        self.plan = plan
        drawn = blueprint(plan)
        self.machine = Machine(drawn, library(drawn, work))
        self.lock = threading.Lock()  # the model's memory is the library's
        self._kept: dict[Path, np.ndarray] = {}
        self._show = show or self._looked

    def _looked(self, machine: Machine, sample: Sample) -> np.ndarray:
        if sample.path not in self._kept:
            self._kept[sample.path] = machine.look(load(sample.path, machine.info.shape))
        return self._kept[sample.path]

    def show(self, sample: Sample, epoch: int | None) -> np.ndarray:
        return self._show(self.machine, sample)

    def evaluate(self, block: bytes, dataset: Dataset) -> Evaluation:
        """Accuracy of these trainables."""
        with self.lock:
            self.machine.push(block)
            return evaluate(self.machine, dataset, Silent(), show=self.show)


class HostBoard:
    """A board that is this machine."""

    def __init__(self, host: Host, where: str) -> None:
        self.plan, self.where, self.host = host.plan, where, host

    def fresh(self) -> bytes:
        with self.host.lock:
            self.host.machine.reset()
            return self.host.machine.pull()

    def present(self) -> bytes:
        return self.fresh()  # the host's memory is every board's

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None = None
    ) -> Learned:
        assert turn is None and samples is not None, "this machine has no records, and makes no updates"
        with self.host.lock:
            machine = self.host.machine
            machine.reset()
            machine.push(block)
            log = new_log(machine, samples, settings)
            train(machine, samples, None, log, Silent(), self.host.show, LastGood(machine))
            return finished(log, machine.pull(), self.where)

    def room(self) -> int:
        return 0

    def close(self) -> None:
        pass
