"""Each board for a short while: a session as this machine's build has it, bytes that get lost, caches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import Built

from microtrain.base.pio import BOARD
from microtrain.device.client import Device
from microtrain.device.link import Port, ProgramPort
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.peripherals import usart

CCR = 0xE000_ED14  # of the core's system control block
BOOT_S = 0.5  # virtual seconds: a firmware that hangs costs no more


@pytest.fixture(params=[BOARD, "nucleo_f446re"])
def board(request: pytest.FixtureRequest, example: Built) -> Board:
    elf: Path = example.elf if request.param == BOARD else request.getfixturevalue("nucleo_elf")
    return Board(elf)


def session(port: Port) -> tuple[str, bytes, bytes]:
    """SHA-256 and bytes of the trainables, and logits, after two steps, a pull and a push."""
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 1), np.uint8)
    with Device(port) as device:
        for label, image in enumerate(images[:2]):
            device.train(image, label)
        pulled = device.pull()
        device.push(pulled)
        return device.sha(), pulled, device.infer(images[2]).logits.tobytes()


def test_a_short_session(board: Board, example: Built) -> None:
    board.run(seconds=BOOT_S)
    banner = board.take_output().decode("ascii").splitlines()
    assert banner[0].startswith(f"microtrain {board.chip.board} digits ")
    assert banner[1:] == ["start power", "checkpoint none", "ready"]
    assert session(EmulatedPort(board)) == session(ProgramPort(example.program))
    with Device(EmulatedPort(board)) as device:
        assert device.save() == 1
        before = device.sha()
        device.reboot()
        assert device.sha() == before
        stats = device.stats()
    assert (stats["steps"], stats["saves"], stats["bytes_lost"], stats["frames_bad"]) == ("2", "1", "0", "0")


def said(board: Board, line: str, seconds: float = 2.0) -> list[str]:
    """What the firmware answers to a line."""
    board.feed(line.encode() + b"\n")
    board.run(seconds=seconds, stop_on_sleep=True)
    return board.take_output().decode("latin1").splitlines()


def lost(board: Board) -> int:
    """Bytes that the firmware counts as lost."""
    return int(next(line.split()[1] for line in said(board, "stats") if line.startswith("bytes_lost")))


def test_bytes_of_another_rate_are_lost_and_counted(board: Board) -> None:
    board.run(seconds=BOOT_S)
    board.usart.host_baud = 9600
    board.feed(b"U" * 40)
    board.run(seconds=0.1)
    board.take_output()
    board.usart.host_baud = 115200
    assert lost(board) == 40
    assert said(board, "ping") == ["ok pong"]


def test_the_ring_holds_1024_bytes_while_the_core_computes(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.run(seconds=BOOT_S)
    monkeypatch.setattr(usart, "BURST", 2000)
    for bytes_behind in (1000, 1100):
        said(board, "pattern 1")
        answers = said(board, "train 0\n" + "ping\n" * (bytes_behind // 5 - 1) + "ping")
        if bytes_behind == 1000:
            assert answers[1:] == ["ok pong"] * 200 and lost(board) == 0
        else:
            said(board, "")  # the last line has lost its end
            assert 0 < lost(board) <= 100


def test_an_overrun_is_counted_and_the_line_goes_on(board: Board) -> None:
    """The core stands still while it erases, the line does not."""
    board.run(seconds=BOOT_S)
    board.take_output()
    board.usart.paced = True
    board.feed(b"forget\n" + b"?" * 100)
    board.run(seconds=5)
    board.usart.paced = False
    assert "ok forget" in board.take_output().decode("latin1")
    board.feed(b"\n")
    board.run(seconds=0.1)
    board.take_output()
    assert lost(board) > 0
    assert said(board, "ping") == ["ok pong"]


def test_the_caches_are_on(board: Board) -> None:
    """Of the Cortex-M7: data and instructions. The F446 has the flash's own: hardware.robot."""
    board.run(seconds=BOOT_S)
    assert board.debug_read(CCR, 4) >> 16 & 3 == (3 if board.chip.has_caches else 0)
