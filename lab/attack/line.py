"""A device that says what a file holds, whatever it is asked: for attacks on the client from the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from microtrain.device.client import Device
from microtrain.device.errors import DeviceError
from microtrain.device.link import Port
from microtrain.device.testing import SHAPE, FakeDevice

FINAL = re.compile(rb"^(ok|err|ready)[^\n]*\n", re.MULTILINE)  # after one of these a device waits


class Replay:
    """A Port that answers each write with the next piece of what was recorded, up to a final line."""

    def __init__(self, recorded: bytes) -> None:
        self.rest = recorded
        self.out = b""
        self.write(b"")

    def write(self, data: bytes) -> None:
        found = FINAL.search(self.rest)
        end = found.end() if found else len(self.rest)
        self.out, self.rest = self.out + self.rest[:end], self.rest[end:]

    def read(self, size: int, timeout_s: float) -> bytes:
        data, self.out = self.out[:size], self.out[size:]
        return data

    def close(self) -> None:
        self.rest = self.out = b""


class Recorder(FakeDevice):
    """A device whose words are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""

    def read(self, size: int, timeout_s: float) -> bytes:
        data = super().read(size, timeout_s)
        self.said += data
        return data


def record(path: Path) -> Path:
    """What a device says in a session."""
    port = Recorder()
    session(port)
    path.write_bytes(port.said)
    return path


def session(port: Port) -> None:
    """Everything that the client asks of a device, each whatever became of the one before.

    Errors   DeviceError where the device is none
    """
    image = np.zeros(SHAPE, np.uint8)
    with Device(port) as device:
        asked: list[Callable[[], object]] = [
            lambda: device.infer(image),
            lambda: device.train(image, 1),
            lambda: device.evaluate(image, 1),
            device.stats,
            device.selftest,
            device.save,
            device.sha,
            lambda: device.rehearse(3),
            device.pull,
            lambda: device.push(bytes(24)),
            device.forget,
        ]
        for ask in asked:
            try:
                ask()
            except DeviceError:
                continue
