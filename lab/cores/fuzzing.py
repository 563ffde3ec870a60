"""Random call sequences on the library, under sanitizers."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from microtrain.base.errors import Error

from .machines import Session

FUZZ = Path(__file__).with_name("fuzz.c")
FLAGS = ("-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all")
SANITIZERS = "-fsanitize=address,undefined"


def build(session: Session, folder: Path) -> Path:
    """The fuzzer of a session's model. Error where it does not compile."""
    made = folder / f"fuzz-{session.model}"
    parts = session.objects("gcc", (*FLAGS, SANITIZERS), FUZZ, (), folder / f"{made.name}-objects")
    done = subprocess.run(
        ["gcc", SANITIZERS, *map(str, parts), "-o", str(made)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Error(f"the fuzzer cannot be linked: {done.stderr[:500]}")
    return made


class Tried(NamedTuple):
    """What came of random sequences.

    sequences  that were run
    failures   lines that were printed, or what a sanitizer says
    worked     how often a function did what it is for
    """

    sequences: int
    failures: list[str]
    worked: Counter[str]


def run(program: Path, seed: int, sequences: int) -> Tried:
    command = [str(program), str(seed), str(sequences)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("worked ", "sequences ", "failures "))]
    said = [line.split() for line in lines if line.startswith("worked ")]
    worked = Counter({name: int(count) for _, name, count in said})
    if not lines or not lines[-1].startswith("failures "):
        return Tried(0, [*wrong, *done.stderr.splitlines()[:5], f"ended with {done.returncode}"], worked)
    return Tried(int(lines[-2].split()[1]), wrong, worked)


def tried(sessions: Sequence[Session], folder: Path, seed: int, sequences: int) -> Tried:
    """So many sequences, shared by the models. A function that has done on none of them what it is for is a
    failure."""
    each = [sequences // len(sessions)] * (len(sessions) - 1)
    shares = [*each, sequences - sum(each)]
    found = [run(build(s, folder), seed, count) for s, count in zip(sessions, shares, strict=True)]
    worked: Counter[str] = Counter()
    for one in found:
        worked.update(one.worked)
    idle = [f"{name} never did what it is for" for name, count in worked.items() if sequences and not count]
    return Tried(
        sum(one.sequences for one in found), [*(w for one in found for w in one.failures), *idle], worked
    )
