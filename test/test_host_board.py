"""The firmware as a program of this machine: how it starts, keeps its flash, and ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pio_build import NULL_MODEL, host_program
from serial_program import ANSWER_S, Program

FLASH_BYTES = 384 << 10


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return host_program(NULL_MODEL, tmp_path_factory.mktemp("host"))


def run(program: Path, said: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Let it read all that is said, and wait for its end."""
    return subprocess.run(
        [program],
        input=said,
        capture_output=True,
        env=os.environ | environment,
        timeout=ANSWER_S,
        check=False,
    )


def test_it_answers_what_it_was_told_and_ends_with_the_input(program: Path) -> None:
    done = run(program, b"ping\nled 1\nbaud 921600\nping\n")
    assert done.returncode == 0
    answers = done.stdout.decode().split("\r\n")
    assert answers[answers.index("ready") + 1 :] == ["ok pong", "ok led", "ok baud 921600", "ok pong", ""]
    assert done.stderr == b""


def test_an_answer_larger_than_its_buffer_arrives_whole(program: Path) -> None:
    once = run(program, b"help\n").stdout
    banner, _, listed = once.partition(b"ready\r\n")
    many = 100_000 // len(listed) + 2
    assert run(program, b"help\n" * many).stdout == banner + b"ready\r\n" + listed * many


def test_it_ends_where_nobody_listens(program: Path) -> None:
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.close()
    process.stdin.write(b"ping\n")
    process.stdin.flush()
    assert process.wait(ANSWER_S) != 0
    process.stdin.close()


def test_it_ends_where_its_input_cannot_be_read(program: Path, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    done = subprocess.run([program], stdin=folder, capture_output=True, timeout=ANSWER_S, check=False)
    os.close(folder)
    assert done.returncode == 1
    assert done.stdout.endswith(b"ready\r\n")


def test_flash_is_a_file_that_outlives_the_program(program: Path, tmp_path: Path) -> None:
    flash = tmp_path / "flash"
    first = run(program, b"pattern 1\ntrain 1\nsave\nsha\n", MICROTRAIN_FLASH=str(flash)).stdout
    assert b"checkpoint none" in first and flash.stat().st_size == FLASH_BYTES
    again = run(program, b"sha\n", MICROTRAIN_FLASH=str(flash)).stdout
    assert b"checkpoint 1 of step 1" in again
    assert again.splitlines()[-1] == first.splitlines()[-1]


def test_without_a_file_a_restart_forgets(program: Path) -> None:
    said = run(program, b"pattern 1\ntrain 1\nsave\nreboot\n").stdout.decode()
    assert said.count("ready") == 2
    assert said.count("checkpoint none") == 2


def test_a_restart_keeps_the_file_and_loses_unread_bytes(program: Path, tmp_path: Path) -> None:
    device = Program(program, tmp_path / "flash")
    device.ask("pattern 1")
    device.ask("train 1")
    device.send("reboot\nping\nping\n")
    while not device.line().startswith("ok reboot"):
        pass
    device.boot()
    assert device.checkpoint == "checkpoint 1 of step 1"
    assert device.ask("led 0") == "ok led"  # neither ping is answered


@pytest.mark.parametrize("size", [1, FLASH_BYTES - 1, FLASH_BYTES + 1])
def test_a_file_of_another_size_is_no_flash(program: Path, tmp_path: Path, size: int) -> None:
    flash = tmp_path / "flash"
    flash.write_bytes(bytes(size))
    done = run(program, b"ping\n", MICROTRAIN_FLASH=str(flash))
    assert done.returncode == 1
    assert (
        done.stderr.decode() == f"microtrain: MICROTRAIN_FLASH: {flash} is no file of {FLASH_BYTES} bytes\n"
    )
    assert flash.read_bytes() == bytes(size)


def test_a_file_that_cannot_be_made(program: Path, tmp_path: Path) -> None:
    done = run(program, b"", MICROTRAIN_FLASH=str(tmp_path / "nowhere" / "flash"))
    assert done.returncode == 1
    assert b"is no file of" in done.stderr
