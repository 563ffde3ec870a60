"""The client takes the fastest rate that the line bears, and never leaves the device at another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import Built

from microtrain.device import cli, target
from microtrain.device.client import Device
from microtrain.device.link import DEFAULT_BAUD, EmulatorPort, Port
from microtrain.device.rate import FAST
from microtrain.device.session import Evaluation
from microtrain.device.testing import FakeDevice
from microtrain.samples.source import Dataset


class RatedDevice(FakeDevice):
    """A device on a line with a rate.

    bears   the rate above which every byte is lost; from `noisy` on, every 40th is damaged
    """

    has_baud = True

    def __init__(self, bears: int = 3_000_000, noisy: int = 4_000_000) -> None:
        super().__init__(noise=self.on_the_line)
        self.bears, self.noisy = bears, noisy
        self.here = self.there = DEFAULT_BAUD
        self.before: int | None = None  # while the new rate is not confirmed
        self.next: int | None = None
        self.count = 0

    def set_baud(self, baud: int) -> None:
        self.here = baud

    def on_the_line(self, data: bytes, count: int) -> bytes:
        if self.here != self.there or self.here > self.bears:
            return b""
        if self.here < self.noisy:
            return data
        start, self.count = self.count, self.count + len(data)
        return bytes(b ^ (0x80 if (start + i) % 40 == 39 else 0) for i, b in enumerate(data))

    def line(self, words: list[str]) -> None:
        self.before = None
        super().line(words)
        if self.next is not None:
            self.before, self.there, self.next = self.there, self.next, None

    def do_baud(self, rate: str) -> None:
        self.say(f"ok baud {rate}")
        self.next = int(rate)

    def read(self, size: int, timeout_s: float) -> bytes:
        data = super().read(size, timeout_s)
        if not data and timeout_s >= 2 and self.before is not None:
            self.there, self.before = self.before, None
        return data


@pytest.mark.parametrize("bears", [3_000_000, *FAST, 115200])
def test_the_fastest_rate_that_gets_through(bears: int) -> None:
    line = RatedDevice(bears)
    with Device(line) as device:
        best = next((baud for baud in FAST if baud <= bears), DEFAULT_BAUD)
        assert device.hurry() == best == line.there == line.here
        assert device.train(np.zeros((4, 5, 1), np.uint8), 1).loss == 0.125
    assert line.there == line.here == DEFAULT_BAUD, "as the next program expects it"


def test_a_rate_that_loses_some_bytes_is_not_taken() -> None:
    line = RatedDevice(noisy=1_000_000)
    with Device(line) as device:
        assert device.hurry() == 921600 == line.there


def test_a_line_that_turns_noisy_goes_back() -> None:
    """To the rate at which a device begins, and stays there."""
    line = RatedDevice()
    with Device(line) as device:
        assert device.hurry() == 2_000_000
        line.noisy = 2_000_000
        for value in range(12):
            device.train(np.full((4, 5, 1), value, np.uint8), 1)
        assert line.there == DEFAULT_BAUD and line.trained == 12


def test_a_device_that_was_left_at_another_rate_is_found() -> None:
    line = RatedDevice()
    line.there = 2_000_000
    with Device(line) as device:
        assert line.here == line.there == DEFAULT_BAUD and device.info.model == "tiny"
    assert line.commands.index("baud 115200") < line.commands.index("info")


def test_a_rate_that_was_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(*words: str) -> list[str]:
        line = RatedDevice()
        monkeypatch.setattr(target, "SerialPort", lambda name: line)
        result = CliRunner().invoke(cli.main, ["--port", "fake", *words])
        assert result.exit_code == 0, result.output
        return [command for command in line.commands if command.startswith("baud")]

    assert runs("info") == []
    assert runs("--baud", "460800", "info") == ["baud 460800", "baud 115200"]
    monkeypatch.setattr(cli, "scan", lambda *_, **__: Dataset(("a",), ()))
    monkeypatch.setattr(cli, "evaluate", lambda *_, **__: Evaluation(0, 1, 1, ((1, 1),)))
    assert runs("eval", ".") == ["baud 2000000", "baud 115200"]
    assert runs("--baud", "115200", "eval", ".") == []


@pytest.mark.parametrize("chip", ["disco", "nucleo"])
def test_on_the_emulated_board(chip: str, example: Built, nucleo_elf: Path) -> None:
    """Its line has a rate, too: what comes at another one is damaged."""
    port: Port = EmulatorPort(example.elf if chip == "disco" else nucleo_elf)
    with Device(port) as device:
        board = port._port.board  # type: ignore[attr-defined]
        assert board.usart.baud == pytest.approx(115200, rel=0.01)
        assert device.hurry() == 2_000_000
        assert board.usart.baud == pytest.approx(2_000_000, rel=0.03)
        assert device.train(np.full((32, 32, 1), 90, np.uint8), 3).loss > 0
    assert board.usart.baud == pytest.approx(115200, rel=0.01)
