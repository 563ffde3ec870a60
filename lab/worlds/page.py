"""lab/pages/worlds.md and .json."""

from __future__ import annotations

from typing import Any

from lab import marks, notes
from microtrain.base.paths import ROOT

from .cases import CASES

PAGE = ROOT / "lab/pages/worlds.md"
COMMAND = "python lab/worlds"
Row = dict[str, Any]


def rows() -> dict[str, Row]:
    """What was measured before, by a case's name."""
    found: dict[str, Row] = _read()["networks"]
    return found


def _read() -> dict[str, Any]:
    found: dict[str, Any] = {"networks": {}, "deep": []} | notes.read(PAGE.with_suffix(".json"), {})
    return found


def write(new: dict[str, Row]) -> None:
    """The tables, with the rows of before for cases that were not measured now."""
    found = rows() | new
    kept = {case.name: found[case.name] for case in CASES if case.name in found}
    notes.write(PAGE.with_suffix(".json"), _read() | {"networks": kept})
    marks.insert(PAGE, COMMAND, {"bytes": _bytes(kept), "work": _work(kept)})


def write_deep(found: list[Row]) -> None:
    """The table of conversion times. found: scheme, layers, seconds of a processor"""
    notes.write(PAGE.with_suffix(".json"), _read() | {"deep": found})
    lines = ["| layers | trained | seconds of a processor |", "|---|---|---|"]
    lines += [f"| {row['layers']} | {row['scheme']} | {row['processor_seconds']:.0f} |" for row in found]
    marks.insert(PAGE, f"{COMMAND} --deep", {"deep": "\n".join(lines)})


def _bytes(found: dict[str, Row]) -> str:
    lines = [
        "| network, input | trained | all-in SRAM | the chip's flash | beside the chip | layers there |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        numbers = (row["sram"], row["flash"], row["outside"])
        sizes = " | ".join(f"{number:,}" for number in numbers)
        lines.append(f"| {name} | {row['scheme']} | {sizes} | {row['outside_layers']} of {row['layers']} |")
    return "\n".join(lines)


def _work(found: dict[str, Row]) -> str:
    lines = [
        "| network, input | MACs | instructions | cycles, estimated | of them waiting |",
        "|---|---|---|---|---|",
    ]
    for name, row in found.items():
        for phase in ("inference", "step"):
            numbers = (row[phase][key] for key in ("macs", "instructions", "cycles", "stalls"))
            texts = " | ".join(f"{number / 1e6:.1f} M" for number in numbers)
            lines.append(f"| {name}, {phase} | {texts} |")
    return "\n".join(lines)
