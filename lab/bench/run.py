"""Run a case, unless it was run before with the very same input."""

from __future__ import annotations

import json
import time
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from lab import notes
from lab.golden.data import Data
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD, NATIVE
from microtrain.base.plan import read_plan

from . import accuracy, build, measure
from .cases import FLOAT, Case

OUTPUT = ROOT / "build/bench"
LABEL = 3


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    row      its numbers, with `network` and `scheme`; None where it failed
    error    what went wrong, one sentence
    known    it was run before
    """

    case: Case
    row: dict[str, Any] | None
    error: str | None
    known: bool
    seconds: float


def run_case(case: Case, data: Data, compiler: str, output: Path = OUTPUT) -> Outcome:
    """Convert, build, run and measure one case; never raises what a user could cause."""
    start = time.monotonic()
    try:
        row, known = _numbers(case, data, compiler, output / case.folder)
        error = None
    except Error as caught:
        row, known, error = None, False, str(caught)
    except OSError as caught:
        row, known, error = None, False, f"{caught.filename or 'a file'}: {caught.strerror}"
    return Outcome(case, row, error, known, time.monotonic() - start)


def _numbers(case: Case, data: Data, compiler: str, folder: Path) -> tuple[dict[str, Any], bool]:
    """A case's row, and whether it was known."""
    image = data.train_step(case.network)["images_u8"][0]
    model = data.checkpoint(case.network)
    board = BOARD if case.on_board else NATIVE
    made = _converted(case, data, folder, board)
    generated = _largest(made)
    key, result = build.digest(made, compiler, image.tobytes()), folder / "result.json"
    known = _load(result)
    if known is not None and known["digest"] == key:
        return known["row"], True
    refused = None if case.on_board else build.refusal(case, model, folder)
    program = build.build(generated, folder, board)
    plan = generated / "plan.json"
    row: dict[str, Any] = {"network": case.network, "scheme": case.scheme, "budget_kb": case.budget_kb}
    if case.on_board:
        row |= measure.on_board(program, plan, image, LABEL)
    else:
        row |= {"refused": refused, **measure.on_host(program, plan, image, LABEL)}
    if case.weights_bits:
        row |= {"weights_bits": case.weights_bits, "top1": accuracy.top1(data, case.network, made)}
    if case.requantize != FLOAT:
        row["requantize"] = case.requantize
    notes.write(result, {"digest": key, "row": row})
    return row, False


def _converted(case: Case, data: Data, folder: Path, board: str) -> list[Path]:
    """What `convert` makes of a case; with weights in fewer bits, a model for each part of the images that
    judge it."""
    model = data.checkpoint(case.network)
    if not case.weights_bits:
        return [build.convert(case, model, folder, board)]
    return [
        build.convert(
            case, model, folder / f"part-{part}", board, accuracy.photos_without(data, folder, part)
        )
        for part in range(accuracy.PARTS)
    ]


def _largest(made: list[Path]) -> Path:
    """The generated model that takes the most flash."""
    return max(made, key=lambda folder: sum(astuple(read_plan(folder / "plan.json").flash)))


def _load(path: Path) -> dict[str, Any] | None:
    """A result that was written before; None where there is none, or it is damaged."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return document if {"digest", "row"} <= document.keys() else None
    except (OSError, ValueError, AttributeError):
        return None
