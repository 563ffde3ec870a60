"""Command line: the networks of MLPerf Tiny, from their published files to what they learn: `make tasks`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from filelock import FileLock

from lab import notes
from lab.bench import measure
from lab.bench.build import build
from lab.golden.data import find
from microtrain.base.commands import run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD
from microtrain.base.plan import Plan, read_plan
from microtrain.base.terminal import say
from microtrain.memory_report.usage import Report
from microtrain.samples.source import evenly, load, suffixes

from . import bearings, hops, learn, logits, open_sets, over_time, speaker, spoken
from .cases import CASES, Case

WORK, RESULT = ROOT / "build/tasks", ROOT / "build/tasks.json"
HOPS, RECURRENT = ROOT / "build/hops.json", ROOT / "build/recurrent.json"
OPEN_SETS, BEARINGS = ROOT / "build/open_sets.json", ROOT / "build/bearings.json"
SPEAKER = "speaker"
NAMES = (*(case.name for case in CASES), SPEAKER)
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
        words += ["--classes", str(case.classes), *(["--until", case.until] if case.until else [])]
    else:
        words += ["--task", "anomaly", "--calibration", str(data / "normal")]
    done = run(words)
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return folder


def some(data: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """Samples of a folder, evenly spaced."""
    files = sorted(p for p in data.rglob("*") if p.suffix.lower() in suffixes())
    return np.stack([load(file, shape) for file in evenly(files, COMPARED)])


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
        "logits_max_diff": logits.most_apart(model, images, reference=True),
        "logits_max_diff_xnnpack": logits.most_apart(model, images),
        **teach(case, generated, data, work),
        "sram": report.sram_total,
        "flash": report.flash_total,
        "inference_instructions": counts["inference_instructions"],
        "step_instructions": counts["step_instructions"],
        "scheme": plan.scheme.name,
    }


def spoken_words(folder: Path, work: Path) -> dict[str, Any]:
    """The row of the speakers, each held out in turn; their sessions are kept beside it.

    folder  of recordings WORD_SPEAKER_NUMBER.wav
    """
    torch.set_num_threads(1)  # so that sums come in one order
    known = spoken.recordings(folder)
    rows = speaker.all_rows(known, work)
    held = [speaker.hold_out(name, known, rows, work) for name in sorted({one.speaker for one in known})]
    kept = [row for one in held for row in sessions(one, work / one.name / "sessions.json")]
    table = speaker.summary(kept)
    counts, plan, report = sizes_of(held[0], work)
    most = max(speaker.COUNTS)
    return {
        "name": SPEAKER,
        "model": "DS-CNN, 32 channels, trained here",
        "logits_max_diff": None,  # there is no TFLite file of it
        "metric": "accuracy",
        "before": table["all"]["before"],
        "after": table["all"][f"device_{most}"],
        "float_after": table["all"][f"float_{most}"],
        "sram": report.sram_total,
        "flash": report.flash_total,
        **counts,
        "scheme": plan.scheme.name,
        "speakers": table,
    }


def sessions(one: speaker.HeldOut, file: Path) -> list[dict[str, Any]]:
    """The sessions of a speaker, kept in a file: a run that was stopped goes on behind him."""
    if not file.is_file():
        notes.write(file, speaker.sessions(one, say))
    found: list[dict[str, Any]] = notes.read(file, [])
    return found


def sizes_of(one: speaker.HeldOut, work: Path) -> tuple[dict[str, Any], Plan, Report]:
    """Instructions of a speaker's network and of the front end before it, its plan, and its memory."""
    plan = read_plan(one.generated / "plan.json")
    elf = build(one.generated, work, BOARD)
    counts = measure.instruction_counts(elf, plan, one.rows[0][..., None], 0)
    found = {name: counts[name] for name in ("inference_instructions", "step_instructions")}
    found["front_end_instructions"] = speaker.front_end_instructions(elf, plan.input.shape[0])
    return found, plan, measure.memory(elf, plan)


def keep(row: dict[str, Any]) -> None:
    """Put a row among those that others, at work at the same time too, have put there."""
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(RESULT.with_suffix(".lock")):
        rows = {known["name"]: known for known in notes.read(RESULT, [])} | {row["name"]: row}
        notes.write(RESULT, [rows[name] for name in NAMES if name in rows])
    say(f"{row['name']:10} {row['metric']} {row['before']} -> {row['after']}, {row['sram']:,} B of SRAM")


@click.command()
@click.option("--only", type=click.Choice(NAMES), help="One task; the others' rows are kept.")
@click.option(
    "--recordings",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Of the task `speaker`: other .wav files, WORD_SPEAKER_NUMBER.wav.",
)
@click.option("--recurrent", "cells", is_flag=True, help="Measure GRU and LSTM: build/recurrent.json.")
@click.option("--hops", "overlapping", is_flag=True, help="Measure windows that overlap: build/hops.json.")
@click.option(
    "--bearings",
    "cwru",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Measure faults of bearings, by CWRU's .mat files in this folder: build/bearings.json.",
)
@click.option("--open-sets", "unknown", is_flag=True, help="Measure open sets: build/open_sets.json.")
def main(
    only: str | None,
    recordings: Path | None,
    overlapping: bool,
    cells: bool,
    unknown: bool,
    cwru: Path | None,
) -> None:
    """Convert and train the networks of MLPerf Tiny, and write build/tasks.json.

    So too a network of spoken digits, which learns a speaker that it has never heard.
    """
    if overlapping:
        notes.write(HOPS, hops.measured(find().folder, WORK / "hops"))
        return
    if cells:
        folder = recordings or spoken.unpacked(find().folder, WORK / "data")
        notes.write(RECURRENT, list(over_time.measured(folder, WORK / "recurrent")))
        return
    if cwru is not None:
        try:
            notes.write(BEARINGS, bearings.measured(cwru, WORK / "bearings"))
        except Error as error:
            raise click.ClickException(str(error)) from error
        return
    if unknown:
        rows = list(open_sets.measured(find().folder, WORK / "open_sets", say))
        notes.write(OPEN_SETS, rows)
        say(open_sets.table(rows))
        return
    for case in CASES:
        if only in (None, case.name):
            keep(measured(case, find().folder))
    if only in (None, SPEAKER):
        folder = recordings or spoken.unpacked(find().folder, WORK / "data")
        keep(spoken_words(folder, WORK / (f"{SPEAKER}-{folder.name}" if recordings else SPEAKER)))
