"""The firmware of the emulator's tests: how it is built, booted and asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from emulator import Board, Fault, Stop, Until

FIXTURE = Path(__file__).parent / "fixtures" / "emulator"
TOOLS = Path(__file__).parents[1] / "tools"
FLAGS = [
    *("-std=c11", "-O2", "-g", "-ffreestanding", "-nostdlib", "-ffp-contract=off"),
    *("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"),
    *("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror"),
    *("-Wl,--no-warn-rwx-segments", "-T", str(FIXTURE / "link.ld")),
]


def build(folder: Path, *defines: str) -> Path:
    elf = folder / "firmware.elf"
    sources = [str(FIXTURE / name) for name in ("board.c", "main.c")]
    subprocess.run(["arm-none-eabi-gcc", *FLAGS, *defines, *sources, "-o", str(elf)], check=True)
    return elf


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


def line_of(text: str) -> str:
    """`main.c:12` of the one source line that holds a text."""
    lines = (FIXTURE / "main.c").read_text().splitlines()
    (number,) = [i for i, line in enumerate(lines, 1) if text in line]
    return f"main.c:{number}"
