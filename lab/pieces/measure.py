"""Pieces of models as QEMU counts them: the longest of each step, at several amounts of work."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lab.cores.machines import FLAGS, Core, linked, ran
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.convert.ir import Graph
from microtrain.convert.pieces import KEEP, RECALL, most_draws
from microtrain.convert.pipeline import Compiled
from microtrain.simulate.replay import RECALL as DRAWN_FOR
from microtrain.simulate.replay import draws, random_key

from .library import PROGRAM, written

TIMER = ROOT / "lab/cores"
ROW = 1  # a job of the library's
SEED = 1  # of an instance that nobody gave another
FOUR_MB = 0x400000
# Where a machine has so much RAM; the others' programs must do with less.
ROOMY = dict.fromkeys(("cortex-m3", "cortex-m4f", "cortex-m7"), "0x20000000")
ROOMY |= {"cortex-m55": "0x21000000", "rv32imc": "0x80400000", "rv32imafc": "0x80400000"}
PIECE, SLIDE = "piece", "slide"  # kinds that pieces.c counts; and those of pieces.py


class Counted(NamedTuple):
    """A line of pieces.c.

    kind          what was counted
    step          of the model, of a piece
    work          that microtrain_step was given
    records       that there is room for, or that there are
    draws         until a number fitted
    instructions  of the longest
    """

    model: str
    kind: str
    step: int
    work: int
    records: int
    draws: int
    instructions: float


@dataclass(frozen=True, eq=False)
class Longest:
    """The longest of a kind. tick: the timer's, in instructions."""

    graph: Graph
    counted: Counted
    tick: float


def roomy(core: Core) -> Core:
    """With as much RAM as its machine has, for several models in a program."""
    return replace(core, ram=ROOMY[core.name], ram_bytes=FOUR_MB) if core.name in ROOMY else core


def built(core: Core, made: Path, folder: Path, flag: str) -> Path:
    """The program. made: a library; flag: how far the compiler optimises; the engine is compiled once in a
    folder."""
    source, objects = made / "src", engine(core, made, folder, flag)
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / f"pieces-{made.parent.name}-{core.name}{flag}"
    own = [str(PROGRAM), *map(str, sorted(source.glob("*.c")))]
    command = [*_command(core, source, flag), *own, *map(str, objects), *linked(core), "-Wl,--gc-sections"]
    compiled([*command, "-o", str(program)])
    return program


def engine(core: Core, made: Path, folder: Path, flag: str) -> list[Path]:
    """Objects of all that models share."""
    source, place = made / "src", folder / f"engine-{core.name}{flag}"
    place.mkdir(parents=True, exist_ok=True)
    kinds = ("*.c", "*.S") if "arm" in core.cc else ("*.c",)
    objects = []
    for path in sorted(p for kind in kinds for p in (source / "microtrain").glob(kind)):
        objects.append(place / f"{path.name}.o")
        if not objects[-1].is_file():
            part = objects[-1].with_suffix(".part")
            compiled([*_command(core, source, flag), *linked(core)[:1], "-c", str(path), "-o", str(part)])
            part.replace(objects[-1])
    return objects


def _command(core: Core, source: Path, flag: str) -> list[str]:
    usual = [each for each in FLAGS if not each.startswith("-O")]
    return [core.cc, *usual, flag, *core.flags, f"-I{source}", f"-I{TIMER}"]


def compiled(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(f"{command[0]} failed: {done.stderr[:300]}")


def counted(core: Core, program: Path, names: Sequence[str]) -> Iterator[Counted]:
    """What a program counts of some models."""
    lines = ran(core, program).splitlines()
    if not lines or lines[-1] != "end":
        raise Error(f"{core.name}: the program did not end: {lines[-1:]}")
    for line in lines[:-1]:
        kind, *found = line.split()
        if kind == "failed":
            raise Error(f"{core.name}: {line}")
        model, *numbers, ticks = map(int, found)
        step = work = records = drawn = 0
        if kind == PIECE:
            _, step, work = numbers
        elif kind == KEEP:
            (records,) = numbers
        elif kind == RECALL:
            records, drawn = numbers[0], drawn_at_most(*numbers)
        yield Counted(names[model], kind, step, work, records, drawn, ticks * core.tick_ns)


def drawn_at_most(records: int, steps: int) -> int:
    """How many numbers the first steps on so many records draw for a place, at most."""
    keys = {turn: random_key(SEED, turn, DRAWN_FOR) for turn in range(-(-steps // records))}
    found = max(
        sum(1 for _ in draws(step % records, records, keys[step // records])) for step in range(steps)
    )
    assert found <= most_draws(records)
    return found


def measured(
    core: Core, models: Mapping[str, Compiled], folder: Path, works: Sequence[int], flag: str = "-O2"
) -> list[Longest]:
    """Of some models, in one program."""
    core = roomy(core)
    shutil.rmtree(folder / "batch", ignore_errors=True)
    program = built(core, written(models, folder / "batch", works), folder, flag)
    graphs = {name: compiled.graph for name, compiled in models.items()}
    return [Longest(graphs[each.model], each, core.tick_ns) for each in counted(core, program, list(models))]
