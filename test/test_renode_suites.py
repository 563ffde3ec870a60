"""The .robot suites on the board model; `make renode` also runs them on Renode where that is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import ROOT, Built


def run_suites(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "renode/run.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_suites_pass_on_the_example(example: Built) -> None:
    done = run_suites("--elf", example.elf)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Renode" in done.stdout


def test_a_failing_suite_fails_the_run(example: Built, tmp_path: Path) -> None:
    suite = tmp_path / "wrong.robot"
    text = (ROOT / "renode/microtrain.robot").read_text()
    suite.write_text(text.replace("ok pong", "ok nothing of the kind"))
    assert "ok pong" in text
    assert run_suites("--elf", example.elf, suite).returncode != 0
