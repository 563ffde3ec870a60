"""pages/replay.svg: accuracy on the classes seen so far, after each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .cases import CLASSES, MAIN

GRAY = "#666666"
COLOURS = ("#1f6fb4", "#2f9e63", "#8a5fbf")
NOTHING = "#d9600c"


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """One line per buffer size, with K = 4 and a rehearsal, whose result stands behind the last class.

    Errors   OSError where the file cannot be written
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["scheme"] == MAIN]
    joint = next(r for r in rows if r["order"] == "shuffled" and r["epochs"] == 1)
    with matplotlib.rc_context({"svg.hashsalt": "microtrain", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        axes.axhline(100 * joint["mean"], color=GRAY, lw=1, label="all classes shuffled")
        axes.axhline(80 * joint["mean"], color=GRAY, lw=1, ls=":", label="80 % of that")
        for row, colour in zip(replayed(rows), COLOURS, strict=False):
            draw_row(
                axes, row, colour, f"{row['records']} records, {row['all_in_sram'] / 1024:.0f} KB all-in"
            )
        for row in (r for r in rows if r["order"] == "classes" and not r["records"]):
            draw_row(axes, row, NOTHING, f"no replay, {row['all_in_sram'] / 1024:.0f} KB all-in")
        axes.set(
            xlabel="classes shown so far, one after the other", xticks=range(1, CLASSES + 2), ylim=(0, 102)
        )
        axes.set_xticklabels([*map(str, range(1, CLASSES + 1)), "rehearsed"])
        axes.set_ylabel("accuracy on these classes, %")
        axes.set_title(f"MCUNet, {MAIN} scheme, clothing10: each image shown once")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def replayed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sessions with K = 4 and a rehearsal, the largest buffer first."""
    found = [r for r in rows if r["records"] and r["replay"] == 4 and r["rehearse"]]
    return sorted(found, key=lambda r: -r["records"])


def draw_row(axes: Any, row: dict[str, Any], colour: str, label: str) -> None:
    seen = [100 * value for value in row["seen"]]
    axes.plot(range(1, CLASSES + 1), seen[:CLASSES], "-o", ms=4, color=colour, label=label)
    if len(seen) > CLASSES:
        axes.plot([CLASSES, CLASSES + 1], seen[-2:], "--o", ms=5, color=colour)
