"""The firmware of the emulator's tests: how it is built, booted and asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from microtrain.emulator import Board, EmulatedPort, Fault, Stop, Until
from renode import exerciser

FIXTURE = Path(__file__).parent / "fixtures" / "emulator"
TOOLS = Path(__file__).parents[1] / "tools"
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror")


def build(folder: Path, *defines: str, board: str = "disco_f746ng") -> Path:
    return exerciser.build(folder / "firmware.elf", board, *STRICT, *defines)


def booted(board: Board) -> Board:
    assert board.run(seconds=1, until=Until.LINE) is Stop.OUTPUT
    assert board.take_output() == b"boot\r\n"
    return board


def ask(board: Board, command: bytes) -> dict[str, int]:
    """Send a letter, collect the "name=hex" lines up to "ok"."""
    board.feed(command)
    said = b""
    while not said.endswith(b"ok\r\n"):
        assert board.run(seconds=5, until=Until.LINE) is Stop.OUTPUT, said
        said += board.take_output()
    pairs = [line.split("=") for line in said.decode().splitlines() if "=" in line]
    return {name: int(value, 16) for name, value in pairs}


def ask_booted(board: Board, command: bytes) -> dict[str, int]:
    return ask(booted(board), command)


def fault_of(board: Board, command: bytes) -> Fault:
    board.feed(command)
    with pytest.raises(Fault) as caught:
        board.run(seconds=1)
    return caught.value


def overrun_is_noted_once(elf: Path) -> Board:
    """The line overruns a firmware that erases flash: the core stalls for far longer than bytes take."""
    board = booted(Board(elf, paced=True))
    board.feed(b"f" + b"?" * 8)
    board.run(seconds=2)
    assert int.from_bytes(board.read_memory(board.image.symbols["lost"], 4), "little") == 1
    assert board.take_output().count(b"what?") == 1
    return board


def other_baud_arrives_damaged(elf: Path) -> None:
    """And what is sent at the right one after that is understood."""
    port = EmulatedPort(elf)
    port.read(100, 1.0)
    port.set_baud(9600)
    port.write(b"aaaa")
    assert b"third" not in port.read(1000, 0.1)
    port.set_baud(115200)
    port.write(b"a")
    assert b"third" in port.read(1000, 0.1)


def line_of(text: str) -> str:
    """`main.c:12` of the one source line that holds a text."""
    lines = (FIXTURE / "main.c").read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return f"main.c:{number}"
