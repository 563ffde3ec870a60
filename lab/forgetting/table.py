"""The table of pages/replay.md."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from lab import marks

COMMAND = "python lab/forgetting"
HEAD = (
    "| scheme | classes | records | replayed steps after a new one | all-in SRAM | accuracy | of shuffled "
    "| rehearsed at the end | accuracy | of shuffled |\n|---|---|---|---|---|---|---|---|---|---|"
)


def insert(file: Path, rows: list[dict[str, Any]]) -> None:
    """Put the rows between the marks of a Markdown file.

    Errors   OSError where it cannot be read or written, MarksError where it lacks the marks
    """
    lines = "\n".join([HEAD, *(line(row, joint(rows, row["scheme"])) for row in rows)])
    marks.insert(file, COMMAND, {"table": lines})


def joint(rows: list[dict[str, Any]], scheme: str) -> float:
    """Accuracy of a scheme in one pass over shuffled classes."""
    found = [r for r in rows if r["scheme"] == scheme and r["order"] == "shuffled" and r["epochs"] == 1]
    return float(found[0]["mean"])


def line(row: dict[str, Any], whole: float) -> str:
    passes = "" if row["epochs"] == 1 else f", {row['epochs']} passes"
    order = "shuffled" if row["order"] == "shuffled" else "one after the other"
    cells = [
        row["scheme"],
        order + passes,
        *((row["records"], row["replay"]) if row["records"] else ("", "")),
    ]
    cells += [f"{row['all_in_sram']:,} B", *share(row["before_rehearsal"], whole)]
    cells += (
        [f"{row['rehearse']:,} steps", *share(row["accuracy"], whole)] if row["rehearse"] else ["", "", ""]
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def share(accuracy: list[float], whole: float) -> tuple[str, str]:
    """Mean and deviation over the seeds, and the part of what joint training reaches."""
    mean, deviation = statistics.fmean(accuracy), statistics.pstdev(accuracy)
    return f"{mean:.1%} ± {100 * deviation:.1f}", f"{mean / whole:.0%}"
