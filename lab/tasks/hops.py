"""Windows that overlap: instructions of a hop against those of a whole window, on the emulated board.

Instructions depend on the network and not on its weights or on what it hears, so nothing is trained here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.bench import measure
from lab.bench.build import build
from microtrain.base.commands import run
from microtrain.base.pio import BOARD
from microtrain.base.plan import Plan, read_plan
from microtrain.base.sound import parse
from microtrain.base.terminal import say
from microtrain.demo import voices
from microtrain.demo.signals import MODELS
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

from . import spoken

WATCHED = ("model_take_row", "model_forward", "model_slide", "model_hear", "model_heard")
BUDGET, CLASSES, TYPICAL = 64, 4, 8
WINDOWS = 4  # one behind the other, which must have the bits of whole ones
SCHEME = "head-only"
ALONE = ("--replay", "off")  # records would take what SRAM is left


@dataclass(frozen=True)
class Case:
    """A network and by how many rows its windows move.

    model    makes the file, from the folder of published models and one to work in
    options  of the conversion
    """

    name: str
    hops: tuple[int, ...]
    model: Callable[[Path, Path], Path]
    options: Callable[[Path], tuple[str, ...]]


def published(name: str) -> Callable[[Path, Path], Path]:
    return lambda given, work: given / "mlperf_tiny" / name


def words(given: Path, work: Path) -> Path:
    """The network of the task `speaker`, untrained."""
    torch.manual_seed(spoken.SEED)
    work.mkdir(parents=True, exist_ok=True)
    path, shape = work / "words.pt2", (spoken.ROWS, spoken.front_end().bands)
    network = spoken.network(CLASSES).eval()
    torch.export.save(torch.export.export(network, (torch.zeros(1, 1, *shape),)), path)
    return path


def hearing(front: str, rows: int) -> Callable[[Path], tuple[str, ...]]:
    """Options of a network behind a front end, which is calibrated with any rows."""

    def options(work: Path) -> tuple[str, ...]:
        rng, folder = np.random.default_rng(0), work / "typical"
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(TYPICAL):
            row = rng.integers(0, 256, (rows, parse(front).bands, 1)).astype(np.uint8)
            np.save(folder / f"{k}.npy", row)
        return "--frontend", front, "--calibration", str(folder)

    return options


CASES = (
    Case("DS-CNN, 49x10", (2, 4), published("kws_dscnn_int8.tflite"), lambda work: ()),
    Case("streaming wake word, 30x40", (1, 3), published("streaming_wakeword_int8.tflite"), lambda work: ()),
    Case("words, 49x40, of sound", (4,), words, hearing(spoken.FRONT, spoken.ROWS)),
    Case(
        "sound of the demo, 33x20",
        (2, 4),
        lambda given, work: MODELS / "sound.pt2",
        hearing(voices.FRONT, voices.ROWS),
    ),
)


def converted(case: Case, given: Path, work: Path, *more: str) -> tuple[Path, Plan]:
    """The firmware of a case, and its plan."""
    model = case.model(given, work)
    folder = work / "-".join(("as", *(word.strip("-") for word in more)))
    limits = ("--budget-sram", str(BUDGET), "--classes", str(CLASSES), "--scheme", SCHEME, *ALONE)
    command = [sys.executable, "tools/convert", str(model), "-o", str(folder / "generated"), *limits]
    done = run([*command, *case.options(work), *more])
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return build(folder / "generated", folder, BOARD), read_plan(folder / "generated/plan.json")


def stretch(plan: Plan, windows: int) -> tuple[np.ndarray, int, int]:
    """What so many windows are cut from, how much of it a window is, and by how much it moves."""
    rows, width, channels = plan.input.shape
    rng, by = np.random.default_rng(0), plan.input.hop or rows
    sound = plan.input.sound
    if sound is None:
        series = rng.integers(0, 256, (rows + windows * by, width, channels)).astype(np.uint8)
        return series, rows, by
    whole, new = sound.samples(rows), by * sound.hop
    return np.rint(rng.normal(0, 3000, whole + windows * new)).astype(np.int16), whole, new


def instructions(board: Board, work: Callable[[], object]) -> int:
    """Of the model and the front end, without the line."""
    known = {f.name for f in board.image.functions}
    board.watch_calls([name for name in WATCHED if name in known], only_inside=True)
    work()
    return sum(call.instructions for call in board.calls().values())


def whole_window(elf: Path, plan: Plan) -> int:
    board = Board(elf)
    device = Device(EmulatedPort(board))
    series, whole, _ = stretch(plan, 0)
    return instructions(board, lambda: device.infer(series[:whole]))


def hop(elf: Path, plan: Plan) -> int:
    """Of each window but the first. RuntimeError where one has other bits than it has by itself."""
    board = Board(elf)
    device = Device(EmulatedPort(board))
    series, whole, new = stretch(plan, WINDOWS)
    wanted = [device.infer(series[k * new : k * new + whole]).logits for k in range(WINDOWS + 1)]
    device.infer(series[:whole])
    counts = []
    for k in range(1, WINDOWS + 1):
        part = series[whole + (k - 1) * new : whole + k * new]

        def follow(part: np.ndarray = part, k: int = k) -> None:
            if device.follow(part).logits.tobytes() != wanted[k].tobytes():
                raise RuntimeError(f"window {k} of {plan.name} has other bits than it has by itself")

        counts.append(instructions(board, follow))
    return max(counts)


def rows(case: Case, given: Path, work: Path) -> list[dict[str, Any]]:
    """A row for each hop of a case."""
    elf, plan = converted(case, given, work)
    streamed, sram = whole_window(elf, plan), measure.memory(elf, plan).sram_total
    unstreamed = whole_window(*converted(case, given, work, "--whole"))
    found = []
    for by in case.hops:
        elf, plan = converted(case, given, work, "--hop", str(by))
        kept = next(t.bytes for t in plan.tensors if t.name == "hop")
        numbers = {
            "network": case.name,
            "hop": by,
            "whole": streamed,
            "unstreamed": unstreamed,
            "per_hop": hop(elf, plan),
            "sram": measure.memory(elf, plan).sram_total,
            "sram_without": sram,
            "kept": kept,
        }
        say(f"{case.name}, hop {by}: {numbers['per_hop']:,} of {streamed:,} instructions")
        found.append(numbers)
    return found


def measured(given: Path, work: Path) -> list[dict[str, Any]]:
    return [row for i, case in enumerate(CASES) for row in rows(case, given, work / str(i))]
