"""The emulated board's serial line as others reach it: Robot Framework, TCP, a pseudo-terminal."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator_firmware import FIXTURE, TOOLS, build

from microtrain.emulator import Stop, Until
from microtrain.emulator.robotlib import BoardKeywords

ROOT = TOOLS.parent
SUITE = FIXTURE / "echo.robot"
PLANTED = "Planted Failure"


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), "-DWAIT_STATES=7")


class LateBoard:
    """A board whose clock stays a hair before the end of what it was asked to run."""

    seconds = 0.0
    runs = 0

    def run(self, **_limits: object) -> Stop:
        self.runs += 1
        assert self.runs == 1, "it was asked again for no time at all"
        return Stop.LIMIT


def test_a_search_ends_where_rounding_leaves_the_clock_a_hair_early(monkeypatch: pytest.MonkeyPatch) -> None:
    keywords, board = BoardKeywords(), LateBoard()
    monkeypatch.setattr(keywords._monitor, "_board", board)
    assert keywords._search(0.1, lambda: None, Until.LINE) is None
    assert board.runs == 1


def run_suites(
    suite: Path, elf: Path, folder: Path, renode_test: str | None
) -> subprocess.CompletedProcess[str]:
    """`renode_test`: script that stands for Renode's runner, None: it is not installed."""
    programs = folder / "bin"
    programs.mkdir()
    if renode_test is not None:
        (programs / "renode-test").write_text(renode_test)
        (programs / "renode-test").chmod(0o755)
    return subprocess.run(
        [
            sys.executable,
            "renode/run.py",
            str(suite),
            "--elf",
            str(elf),
            "--results",
            str(folder / "results"),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin"},
        check=False,
    )


@pytest.fixture
def sound_suite(tmp_path: Path) -> Path:
    """The suite without the case that must fail."""
    suite = tmp_path / "sound.robot"
    suite.write_text(SUITE.read_text().split(PLANTED)[0])
    return suite


def test_suite_runs_on_the_board_model_and_says_that_renode_did_not(
    sound_suite: Path, elf: Path, tmp_path: Path
) -> None:
    result = run_suites(sound_suite, elf, tmp_path, None)
    assert result.returncode == 0, result.stdout
    assert "3 tests, 3 passed, 0 failed" in result.stdout
    assert "Renode: NOT RUN (renode-test is not on PATH)" in result.stdout
    assert (tmp_path / "results" / "board_model" / "log.html").is_file()


def test_failing_case_fails_the_run(elf: Path, tmp_path: Path) -> None:
    result = run_suites(SUITE, elf, tmp_path, None)
    assert result.returncode == 1
    assert "4 tests, 3 passed, 1 failed" in result.stdout
    assert "board model: FAILED" in result.stdout
    assert re.search(PLANTED + r" +\| FAIL", result.stdout)


@pytest.mark.parametrize(("code", "verdict"), [(0, "Renode: passed"), (1, "Renode: FAILED (exit code 1)")])
def test_renode_runs_where_it_is_installed(
    sound_suite: Path, elf: Path, tmp_path: Path, code: int, verdict: str
) -> None:
    note = tmp_path / "arguments"
    script = f'#!/bin/sh\necho "$@" > {note}\nexit {code}\n'
    result = run_suites(sound_suite, elf, tmp_path, script)
    assert result.returncode == code
    assert verdict in result.stdout
    assert f"ELF:{elf}" in note.read_text()
    assert str(sound_suite) in note.read_text()


def test_runner_without_firmware_is_one_sentence(sound_suite: Path, tmp_path: Path) -> None:
    result = run_suites(sound_suite, tmp_path / "none.elf", tmp_path, None)
    assert result.returncode == 1
    assert "none.elf" in result.stderr
    assert "pio run" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def server(elf: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """An emulator that serves its line; its name is what it prints first."""
    command = [sys.executable, str(TOOLS / "emulator"), str(elf), *request.param, "--seconds", "20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(10)
    process.stdout.close()


@pytest.mark.parametrize("server", [["--tcp", "0"]], indirect=True)
def test_tcp(server: str) -> None:
    host, port = server.removeprefix("socket://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"a")
        said = b""
        while not said.endswith(b"ok\r\n"):
            said += client.recv(4096)
    assert said.startswith(b"boot\r\n")
    assert b"third=3eaaaaab\r\n" in said


@pytest.mark.parametrize("server", [["--pty"]], indirect=True)
def test_pty(server: str) -> None:
    with Path(server).open("r+b", buffering=0) as line:
        line.write(b"a")
        said = b""
        while not said.endswith(b"ok\r\n"):
            said += line.read(4096)
    assert b"third=3eaaaaab\r\n" in said


def test_busy_tcp_port_is_one_sentence(elf: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, str(TOOLS / "emulator"), str(elf), "--tcp", port]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert f"cannot listen on TCP port {port}" in result.stderr
    assert "Traceback" not in result.stderr
