"""Random call sequences on the library, under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from microtrain.base.errors import Error

from .machines import Session

FUZZ = Path(__file__).with_name("fuzz.c")
FLAGS = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all")
SANITIZERS = "-fsanitize=address,undefined"


def build(session: Session, folder: Path) -> Path:
    """The fuzzer of a session's model. Error where it does not compile."""
    made = folder / f"fuzz-{session.model}"
    include = f"-I{session.library / 'src'}"
    sources = [FUZZ, *session.sources(arm=False)]
    command = ["gcc", *FLAGS, SANITIZERS, include, *session.defines(), *map(str, sources), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(f"the fuzzer does not compile: {done.stderr[:500]}")
    return made


def run(program: Path, seed: int, sequences: int) -> tuple[int, list[str]]:
    """How many sequences were run, and what went wrong: lines that it prints, or what a sanitizer says."""
    command = [str(program), str(seed), str(sequences)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("sequences ", "failures "))]
    if not lines or not lines[-1].startswith("failures "):
        return 0, [*wrong, *done.stderr.splitlines()[:5], f"ended with {done.returncode}"]
    return int(lines[-2].split()[1]), wrong
