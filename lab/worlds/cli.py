"""Command line: larger networks on the emulated board, into lab/pages/worlds.md."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import click
import numpy as np

from lab.alone import hold
from lab.bench import build, measure
from lab.golden.data import Data, find
from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD
from microtrain.base.plan import read_plan
from microtrain.base.terminal import say
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.usage import region_use

from . import page
from .cases import Case, choose
from .deep import DEPTHS, SCHEMES, seconds

WORK = ROOT / "build/worlds"
LABEL = 3


@click.command()
@click.option("--only", multiple=True, metavar="WORDS", help="Only cases whose name holds these; repeatable.")
@click.option("--deep", is_flag=True, help="Measure how long networks of 50 to 400 layers take to convert.")
def main(only: tuple[str, ...], deep: bool) -> None:
    """Measure larger networks and inputs, with weights beside the chip: lab/pages/worlds.md and .json."""
    hold(WORK)
    try:
        if deep:
            page.write_deep(list(conversions()))
            return
        data, cases = find(), choose(only)
        for case in cases:
            start = time.monotonic()
            row = measured(case, data)
            page.write({case.name: row})
            say(
                f"{case.name}: SRAM {row['sram']:,} B, flash {row['flash']:,} B and {row['outside']:,} B, "
                f"step {row['step']['instructions']:,} instructions ({time.monotonic() - start:.0f} s)"
            )
    except Error as error:
        click.echo(f"worlds: {error}", err=True)
        sys.exit(1)


def conversions() -> Iterator[dict[str, Any]]:
    """How long each depth takes, told as it comes."""
    for scheme, layers in product(SCHEMES, DEPTHS):
        clock, processor = seconds(layers, scheme, WORK / "deep")
        say(f"{layers} layers, {scheme}: {processor:.0f} s of a processor, {clock:.0f} s")
        yield {"scheme": scheme, "layers": layers, "processor_seconds": round(processor, 1)}


def measured(case: Case, data: Data) -> dict[str, Any]:
    """Convert, build and run one case. Error where it does not fit."""
    folder = WORK / case.folder
    folder.mkdir(parents=True, exist_ok=True)
    generated = folder / "generated"
    model = case.model(data, folder)
    done = run(ours("tools/convert", model, *case.options(folder), "--board", BOARD, "-o", generated))
    if done.returncode:
        raise Error(f"{case.name}: {last_line(done).removeprefix('convert: ')}")
    elf = build.build(generated, folder, BOARD)
    image = np.random.default_rng(1).integers(0, 256, (case.side, case.side, 3)).astype(np.uint8)
    found, plan = (
        measure.on_board(elf, generated / "plan.json", image, LABEL),
        read_plan(generated / "plan.json"),
    )
    forward, backward = found["macs_forward"], found["macs_backward"]
    macs = {"inference": forward, "step": forward + backward}
    used, _ = region_use(load_firmware(elf)).get("external", (0, 0))
    return {
        "scheme": plan.scheme.name,
        "sram": found["sram_all_in"],
        "flash": found["flash_bytes"],
        "outside": used,
        "outside_layers": len(plan.external.layers) if plan.external else 0,
        "layers": sum(layer.flash_bytes > 0 for layer in plan.layers),
        **{phase: _phase(found, phase, macs[phase]) for phase in macs},
    }


def _phase(found: dict[str, Any], phase: str, macs: int) -> dict[str, int]:
    cycles = found["cycles"][phase]
    numbers = {"cycles": cycles["estimate"], "stalls": cycles["stalls"]}
    return {"macs": macs, "instructions": found[f"{phase}_instructions"], **numbers}
