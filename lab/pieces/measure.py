"""Pieces of models as QEMU counts them: the longest of each step, at several amounts of work."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cores.machines import FLAGS, RAM_BYTES, Core, linked, ran
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.ir import Graph
from microtrain.convert.pipeline import Compiled

PROGRAM = Path(__file__).with_name("pieces.c")
TIMER = ROOT / "lab/cores"
BEGIN = 9  # the job of pieces.c that is no job of the library's
ROW, INFERENCE, TRAINING = 1, 2, 3
RAM = {"cortex-m3", "cortex-m4f", "cortex-m7"}  # whose machines have 4 MB of it
SIZES = ("ARENA_BYTES", "TRAINABLE_BYTES", "CLASSES", "WIDTH", "CHANNELS")


@dataclass(frozen=True, eq=False)
class Longest:
    """The longest piece of a step. step: None: what a begin took; tick: the timer's, in instructions."""

    model: str
    graph: Graph
    step: int | None
    work: int
    instructions: float
    tick: float


def library(models: Mapping[str, Compiled], folder: Path, works: Sequence[int]) -> Path:
    """One library with all models, and what pieces.c asks for."""
    made, sizes = folder / "library", dict.fromkeys(SIZES, 1)
    shutil.rmtree(made, ignore_errors=True)
    for name, compiled in models.items():
        generated = folder / f"generated-{name}"
        generated.mkdir(parents=True, exist_ok=True)
        for file, text in generate(compiled, "lab/pieces").files.items():
            (generated / file).write_text(text, encoding="utf-8")
        export(made, generated, name)
        header = (made / f"src/{name}.h").read_text(encoding="utf-8")
        found = dict(re.findall(rf"^#define {name.upper()}_(\w+) (\d+)$", header, re.MULTILINE))
        sizes = {size: max(most, int(found[size])) for size, most in sizes.items()}
    lines = [f'#include "{name}.h"' for name in models]
    lines += [f"enum {{ MOST_{size} = {most} }};" for size, most in sizes.items()]
    listed = ", ".join(f"&{name}" for name in models)
    lines.append(f"static const struct microtrain_model *const models[] = {{{listed}}};")
    lines.append(f"static const uint32_t works[] = {{{', '.join(map(str, works))}}};")
    (made / "src/models.h").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


def built(core: Core, made: Path, folder: Path, flag: str) -> Path:
    """The program. flag: how far the compiler optimises; the engine is compiled once in a folder."""
    engine, source = folder / f"engine-{core.name}{flag}", made / "src"
    engine.mkdir(parents=True, exist_ok=True)
    places = linked(core)
    flags = [
        core.cc,
        *(f for f in FLAGS if not f.startswith("-O")),
        flag,
        *core.flags,
        f"-I{source}",
        f"-I{TIMER}",
    ]
    kinds = ("*.c", "*.S") if "arm" in core.cc else ("*.c",)
    objects = []
    for path in sorted(p for kind in kinds for p in (source / "microtrain").glob(kind)):
        objects.append(engine / f"{path.name}.o")
        if not objects[-1].is_file():
            compiled([*flags, *places[:1], "-c", str(path), "-o", str(objects[-1])])
    program = folder / f"pieces-{core.name}{flag}"
    room = 8 * RAM_BYTES if core.name in RAM else RAM_BYTES
    places = [each.replace(f"__ram_size={RAM_BYTES}", f"__ram_size={room}") for each in places]
    own = [str(PROGRAM), *map(str, sorted(source.glob("*.c")))]
    compiled([*flags, *own, *map(str, objects), *places, "-Wl,--gc-sections", "-o", str(program)])
    return program


def compiled(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Error(f"{command[0]} failed: {done.stderr[:300]}")


def measured(
    core: Core, models: Mapping[str, Compiled], folder: Path, works: Sequence[int], flag: str = "-O2"
) -> list[Longest]:
    """The longest pieces of each step of some models, each amount of work by itself."""
    program = built(core, library(models, folder, works), folder, flag)
    names, found = list(models), []
    lines = ran(core, program).splitlines()
    if not lines or lines[-1] != "end":
        raise Error(f"{core.name}: the program did not end: {lines[-1:]}")
    for line in lines:
        word, *numbers = line.split()
        if word == "failed":
            raise Error(f"{core.name}: {line}")
        if word == "piece":
            model, job, step, work, ticks = map(int, numbers)
            name, graph = names[model], models[names[model]].graph
            at = None if job == BEGIN else step
            found.append(Longest(name, graph, at, work, ticks * core.tick_ns, core.tick_ns))
    return found
