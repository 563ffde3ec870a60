"""Command line: builds firmwares and writes what convert estimates flash with: `make sizes`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.optimize import nnls

from lab import notes
from lab.alone import hold
from lab.bench.build import build
from microtrain.base.commands import run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.convert import boards
from microtrain.convert.emit.document import flash_of
from microtrain.convert.emit.firmware_flash import ARRIVING, FILE, MOVING, ROWS, called, steps_of
from microtrain.convert.emit.windows import WAYS
from microtrain.convert.ops import TABLE
from microtrain.convert.pipeline import ALL_PASSES, Compiled
from microtrain.native.model import arithmetic

from . import networks, sections
from .firmware import flash_bytes, written

WORK = ROOT / "build/sizes"
USUAL = 60.0  # bytes of model.c a step
CALLS = {
    ROWS: ("stream_fwd_s8",),
    ARRIVING: ("stream_begin", "stream_row", "stream_take", "stream_end"),
    MOVING: ("hop_take", "hop_slide"),
}
FLAGS = (
    "-std=c11",
    "-Os",
    "-g",
    "-ffp-contract=off",
    "-DMICROTRAIN_EXTERNAL=1",  # asked by models alone whose weights lie beside the chip
    "-fno-jump-tables",
    "-ffunction-sections",
    "-fdata-sections",
)


def table_bytes(compiled: Compiled) -> int:
    kinds = flash_of(compiled.graph)
    return kinds.weights + kinds.biases + kinds.tables + kinds.trainables_init


def model_bytes(generated: Path, board: str) -> int:
    """Code and constants of a compiled model.c."""
    core, fpu = boards.core(board)
    target = generated / f"model-{board}.o"
    machine = (f"-mcpu={core}", "-mthumb", f"-mfpu={fpu}", "-mfloat-abi=hard")
    where = (f"-I{ROOT / 'firmware/include'}", f"-I{generated}")
    source = generated / "model.c"
    flags = (*machine, *FLAGS, *arithmetic(generated), *where)
    done = run(["arm-none-eabi-gcc", *flags, "-c", str(source), "-o", str(target)])
    if done.returncode:
        raise Error(f"model.c of {generated.name} does not compile: {done.stderr[:500]}")
    return sections.loaded_bytes(target)


def fitted(models: list[tuple[Compiled, int]]) -> dict[str, float]:
    """Bytes of model.c a step of each op: least squares, not negative, and near USUAL where in doubt."""
    counts = [steps_of(compiled.graph) for compiled, _ in models]
    ops = sorted(set[str]().union(*counts))
    matrix = np.array([[count[op] for op in ops] for count in counts], np.float64)
    sizes = np.array([size for _, size in models], np.float64)
    near = np.eye(len(ops))
    found, _ = nnls(np.vstack([matrix, near]), np.concatenate([sizes, USUAL * near.sum(axis=0)]))
    return {op: round(float(value), 1) for op, value in zip(ops, found, strict=True)}


def measured(board: str, models: list[Compiled], more: Mapping[str, Compiled]) -> dict[str, Any]:
    """All sizes of one board. more: a model with each part of the firmware that only some have."""
    folders = [written(compiled, WORK / f"model{k}", True) for k, compiled in enumerate(models)]
    sizes = [model_bytes(folder, board) for folder in folders]
    steps = fitted(list(zip(models, sizes, strict=True)))
    plain = flash_bytes(build(folders[0], WORK / board, board))
    objects = sections.read(WORK / board / "pio/build" / board / "src")
    shared = objects.reached(["Reset_Handler", *(name for name in objects.bytes if ".isr_vector" in name)])
    windows = {name: objects.reached([name]) for name in WAYS}
    chosen = set[str]().union(*windows.values())  # by what a model uses, whoever calls them
    calls = {kernel: (kernel,) for op in TABLE.values() for kernel in op.kernels if kernel.endswith(TYPES)}
    needs = {
        call: sorted(objects.reached(names) - shared - chosen) for call, names in (calls | CALLS).items()
    }
    needs |= {name: sorted(reached) for name, reached in windows.items()}

    def beside(compiled: Compiled, model: int) -> int:
        """Bytes of the tables, of model.c, of the kernels that it calls and of all windows."""
        used = chosen.union(*(needs.get(call, []) for call in called(compiled.graph)))
        return table_bytes(compiled) + model + objects.total(used)

    base = plain - beside(models[0], sizes[0])
    extra = {}
    for name, compiled in more.items():
        if compiled.graph.outside and not boards.find(board).external:
            extra[name] = 0
            continue
        folder = written(compiled, WORK / name, True)
        whole = flash_bytes(build(folder, WORK / f"{board}-{name}", board))
        extra[name] = whole - base - beside(compiled, model_bytes(folder, board))
    kept = sorted(set[str]().union(*needs.values()))
    numbers = {name: f"{k}" for k, name in enumerate(kept)}
    return {
        "base": base,
        "sections": {numbers[name]: objects.bytes[name] for name in kept},
        "calls": {call: [numbers[n] for n in names] for call, names in needs.items() if names},
        **extra,
        "steps": steps,
    }


TYPES = ("_s8", "_s32", "_f32")  # ends of what model.c calls; the others are for the planner


@click.command()
def main() -> None:
    """Measure, for every board, what the firmware's own code takes of flash."""
    hold(WORK)
    models = list(networks.samples(ROOT, WORK))
    example = networks.example(ROOT)
    more = {
        "replay": networks.replayed(example),
        "coded": networks.replayed(example, part=4),
        "imprint": networks.imprinting(example),
        "sound": networks.hearing(WORK),
        "hop": networks.moving(example, ALL_PASSES),
        "external": networks.outside(example),
        "fleet": networks.sharing(example),
        "tflite": networks.rounding_twice(example),
    }
    notes.write(FILE, {board: measured(board, models, more) for board in boards.names()})
    click.echo(f"wrote {FILE.relative_to(ROOT)}" if FILE.is_relative_to(ROOT) else f"wrote {FILE}")
