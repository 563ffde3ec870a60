"""Command line: the networks of MLPerf Tiny, from their published files to what they learn: `make tasks`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from lab import notes
from lab.bench import measure
from lab.bench.build import build
from lab.golden.data import find
from microtrain.base.commands import run
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD
from microtrain.base.plan import read_plan
from microtrain.base.terminal import say
from microtrain.samples.source import load, suffixes

from . import learn, logits
from .cases import CASES, Case

WORK, RESULT = ROOT / "build/tasks", ROOT / "build/tasks.json"
COMPARED = 60  # samples of which the logits are compared


def converted(case: Case, model: Path, data: Path, folder: Path) -> Path:
    """The folder that convert wrote."""
    words = [
        sys.executable,
        "tools/convert",
        str(model),
        "-o",
        str(folder),
        "--budget-sram",
        str(case.budget),
    ]
    if case.classes:
        words += ["--classes", str(case.classes)]
    else:
        words += ["--task", "anomaly", "--calibration", str(data / "normal")]
    done = run(words)
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return folder


def some(data: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Samples of a folder, evenly spaced."""
    files = sorted(p for p in data.rglob("*") if p.suffix.lower() in suffixes())
    return np.stack([load(files[i * len(files) // COMPARED], shape) for i in range(COMPARED)])


def measured(case: Case, given: Path) -> dict[str, Any]:
    """One row."""
    work, model = WORK / case.name, given / "mlperf_tiny" / case.model
    work.mkdir(parents=True, exist_ok=True)
    data = case.data(given, WORK / "data")
    generated = converted(case, model, data, work / "generated")
    plan = read_plan(generated / "plan.json")
    images = some(data, plan.input.shape)
    elf = build(generated, work, BOARD)
    report = measure.memory(elf, plan)
    counts = measure.instruction_counts(elf, plan, images[0], 0)
    teach = learn.classes if case.classes else learn.normal
    return {
        "name": case.name,
        "model": case.model,
        "logits_max_diff": logits.most_apart(model, images),
        "logits_max_diff_reference": logits.most_apart(model, images, reference=True),
        **teach(case, generated, data, work),
        "sram": report.sram_total,
        "flash": report.flash_total,
        "inference_instructions": counts["inference_instructions"],
        "step_instructions": counts["step_instructions"],
        "scheme": plan.scheme.name,
    }


@click.command()
@click.option("--only", help="One task, by its name; the others' rows are kept.")
def main(only: str | None) -> None:
    """Convert the published networks of MLPerf Tiny, train them, and write build/tasks.json."""
    given = find().folder
    rows = {row["name"]: row for row in notes.read(RESULT, [])}
    for case in CASES:
        if only in (None, case.name):
            row = rows[case.name] = measured(case, given)
            say(
                f"{case.name:10} {row['metric']} {row['before']} -> {row['after']}, {row['sram']:,} B of SRAM"
            )
            notes.write(RESULT, [rows[c.name] for c in CASES if c.name in rows])
