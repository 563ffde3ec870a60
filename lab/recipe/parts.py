"""What each part of the recipe costs: SRAM and flash of the firmware, instructions on the board model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab import notes
from lab.bench.accuracy import photos
from lab.bench.build import build, compiler_version
from lab.bench.measure import memory
from lab.golden.data import Data
from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD
from microtrain.base.plan import Plan, read_plan
from microtrain.base.progress import Bars
from microtrain.convert.default_scheme import FRACTION_BITS
from microtrain.demo.measure import ENTRIES
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

from .cases import SCHEMES, SRAM_KB, WHOLE_KB

WORK = ROOT / "build/recipe/parts"
RESULT = ROOT / "lab/pages/recipe-parts.json"
NETWORK = "mcunet-5fps"
CLASSES = 10
# Of the model and the runtime; none of them calls another.
PASSES = (*ENTRIES, "model_front", "model_rest")
ADD, SOLVE, KEEP, RECALL = "model_imprint_add", "model_imprint_solve", "replay_keep", "replay_recall"
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A firmware with one thing more than the one before.

    words      how the table calls it
    options    of tools/convert, in place of those before
    photos     conversion looks at images
    """

    name: str
    words: str
    options: tuple[str, ...]
    photos: bool = False


LINES = {
    "sram": "SRAM all in, bytes",
    "flash": "flash, bytes",
    "statistics": "statistics of features, bytes in the arena",
    "records": "records",
    "record_bytes": "bytes of a record",
    "inference": "an inference, instructions",
    "add": "a look, beside its inference",
    "solve": "the head of ten classes, once",
    "keep": "to keep a record",
    "step": "a training step",
    "recalled_step": "a step on a record",
}
WHOLE = ("--budget-sram", str(WHOLE_KB))
PARTS = (
    Part("training", "training alone", ("--imprint", "off", "--replay", "off")),
    Part("look", "the head of a look", ("--budget-sram", str(SRAM_KB), "--replay", "off")),
    Part("records", "and records as they are", (*WHOLE, "--replay-code", "off")),
    Part("codes", "and records as codes", WHOLE, photos=True),
)


def measured(data: Data) -> Numbers:
    """Numbers of every part, and the compiler that they were measured with."""
    found = []
    with Bars() as bars:
        bar = bars.add("firmwares", len(PARTS))
        for part in PARTS:
            found.append(numbers(part, data))
            bar.advance(text=part.words)
        bar.end()
    return {"compiler": compiler_version(), "parts": found}


def numbers(part: Part, data: Data) -> Numbers:
    """Bytes and instructions of one firmware. Error where it does not convert or build."""
    folder = WORK / part.name
    words = ("--scheme", SCHEMES[NETWORK], "--fraction-bits", FRACTION_BITS, "--classes", CLASSES)
    shown = ("--calibration", photos(data, WORK)) if part.photos else ()
    model, generated = data.checkpoint(NETWORK), folder / "generated"
    done = run(ours("tools/convert", model, *words, *part.options, *shown, "--board", BOARD, "-o", generated))
    if done.returncode:
        raise Error(last_line(done))
    elf, plan = build(generated, folder, BOARD), read_plan(generated / "plan.json")
    report = memory(elf, plan)
    images = data.train_step(NETWORK)["images_u8"]
    known = {"name": part.name, "sram": report.sram_total, "flash": report.flash_total}
    return {**known, **room(plan), **work(elf, plan, images)}


def room(plan: Plan) -> Numbers:
    """Bytes of the statistics, and the records."""
    found: Numbers = {}
    if plan.imprint is not None:
        found["statistics"] = plan.imprint.bytes
    if plan.replay is not None:
        found |= {"records": plan.replay.records, "record_bytes": plan.replay.record_bytes}
    return found


def work(elf: Path, plan: Plan, images: np.ndarray) -> Numbers:
    """Instructions of all that the firmware can do, of a state after one step.

    images  uint8 [n][h][w][c]; looked at as of all classes in turn
    """
    board = Board(elf)
    device = Device(EmulatedPort(board))
    found: Numbers = {"inference": sum(counted(board, PASSES, lambda: device.infer(images[0])).values())}
    if plan.imprint is not None:
        found |= looked(board, device, images)
    if plan.replay is not None:
        device.replay(0)
    device.train(images[1], 1)
    found["step"] = sum(counted(board, PASSES, lambda: device.train(images[0], 0)).values())
    if plan.replay is not None:
        again = counted(board, (*PASSES, RECALL), lambda: device.rehearse(1))
        found["recalled_step"] = sum(again.values())
    return found


def looked(board: Board, device: Device, images: np.ndarray) -> Numbers:
    """A look at each class, and the head of them; what one look takes beside its inference."""
    for label in range(CLASSES):
        once = counted(board, (ADD, KEEP), partial(device.imprint, images[label % len(images)], label))
    found = {"add": once[ADD], "solve": counted(board, (SOLVE,), device.imprint_head)[SOLVE]}
    return {**found, "keep": once[KEEP]} if KEEP in once else found


def counted(board: Board, functions: tuple[str, ...], act: Callable[[], object]) -> dict[str, int]:
    """Instructions in those of the functions that the firmware has."""
    board.watch_calls([name for name in functions if name in board.image.symbols])
    act()
    return {name: call.instructions for name, call in board.calls().items()}


def table(found: Numbers) -> list[str]:
    """In Markdown, a column for each part."""
    rows = found["parts"]
    head = ["", *(next(part.words for part in PARTS if part.name == row["name"]) for row in rows)]
    lines = [head, ["---"] + ["---:"] * len(rows)]
    lines += [
        [words, *(f"{row[name]:,}" if name in row else "" for row in rows)] for name, words in LINES.items()
    ]
    return [f"| {' | '.join(line)} |" for line in lines]


def write(data: Data) -> Numbers:
    """Measure, and keep it as lab/pages/recipe-parts.json."""
    found = measured(data)
    notes.write(RESULT, found)
    return found
