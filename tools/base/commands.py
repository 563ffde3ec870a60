"""Running commands in the project's root: our own, and those of others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import Error
from .paths import ROOT

TAIL = 15  # lines of what a command said, where it fails


def ours(tool: str, *words: object) -> list[str]:
    """The words of one of our own commands or scripts: ours("tools/convert", model, "-o", folder)."""
    folder, _, name = tool.partition("/")
    program = ["-m", f"microtrain.{name}"] if folder == "tools" else [tool]
    return [sys.executable, *program, *map(str, words)]


def run(
    words: Sequence[str], extra: Mapping[str, str | None] | None = None, shown: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command in the project's root and keep what it says.

    extra  variables of its environment; None: unset
    shown  what it prints goes to the terminal's error stream instead
    """
    return subprocess.run(
        words,
        cwd=ROOT,
        env=environment(extra or {}),
        stdout=sys.stderr if shown else subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def environment(extra: Mapping[str, str | None]) -> dict[str, str]:
    """The variables that a command gets: ours, with others in their place. None: unset."""
    both = {**os.environ, **extra}
    return {name: value for name, value in both.items() if value is not None}


def logged(words: Sequence[str], log: Path) -> str:
    """Run a command, what it says into `log`; returns its standard output. Errors as failed()."""
    return checked(run(words), log)


def checked(done: subprocess.CompletedProcess[str], log: Path) -> str:
    """Write the log of a command that has run; returns its standard output.

    Errors   Error with the end of the log where it failed
    """
    said = done.stdout + done.stderr
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(said, encoding="utf-8")
    if done.returncode:
        tail = "\n".join(said.splitlines()[-TAIL:])
        raise Error(f"{' '.join(done.args)} failed ({log} has all of it):\n{tail}")
    return done.stdout


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence with which one of our commands ends where it fails."""
    return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
