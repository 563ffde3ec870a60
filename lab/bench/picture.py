"""pages/bench.svg: all-in SRAM of every case against the paper's numbers and the chip."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .cases import SCHEMES
from .records import Row

KB = 1024
CHIP_KB = 320
# Peak memory of the paper's engine with sparse update and reordering (arXiv 2206.15472)
PAPER_KB = {"mcunet-5fps": 173, "proxyless-w0.3": 135, "mbv2-w0.35": 141}
PARTS = {"arena": "#4477aa", "trainables": "#ee9933", "stack": "#aa3377", "other": "#999999"}
INK = "#333333"
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind a number that stands on a limit


def draw(rows: list[Row], path: Path) -> None:
    """One panel per network, one bar per case."""
    board = [row for row in rows if "refused" not in row]
    panels = {network: [row for row in board if row["network"] == network] for network in SCHEMES}
    panels = {network: found for network, found in panels.items() if found}
    heights = [len(found) + 1.5 for found in panels.values()]
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 0.26 * sum(heights) + 1.2), layout="constrained")
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)
        for axes, (network, found) in zip(grid[:, 0], panels.items(), strict=True):
            bars(axes, network, found)
        grid[-1, 0].set_xlabel("all-in SRAM, KB")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
        figure.savefig(path, metadata={"Date": None})


def label(row: Row) -> str:
    """Scheme, fraction bits, and the budget that recomputation keeps."""
    bits = f" +{row['fraction_bits']} bits" if row["fraction_bits"] else ""
    result: str = row["scheme"] + bits + (f" in {row['budget_kb']} KB" if row["budget_kb"] else "")
    result += f", weights {row['weights_bits']}" if "top1" in row else ""
    result += f", {row['requantize']} point" if "requantize" in row else ""
    return result


def bars(axes: Axes, network: str, rows: list[Row]) -> None:
    """The cases of one network, the first on top."""
    names = [label(row) for row in rows]
    places, left = range(len(rows)), [0.0] * len(rows)
    for part, colour in PARTS.items():
        sizes = [part_bytes(row, part) / KB for row in rows]
        axes.barh(places, sizes, left=left, color=colour, label=part, height=0.72)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for place, total in zip(places, left, strict=True):
        axes.text(total + 2, place, f"{total:.0f}", va="center", color=INK, fontsize=8, bbox=CLEAR)
    axes.axvline(PAPER_KB[network], color="#cc3311", linestyle="--", linewidth=1.2, label="paper's engine")
    axes.axvline(CHIP_KB, color=INK, linewidth=1.2, label="the chip")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(0, CHIP_KB + 12)
    axes.set_title(f"{network}   (paper: {PAPER_KB[network]} KB)", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def part_bytes(row: Row, part: str) -> int:
    """Bytes of a part of a row's SRAM; `other` is what the named ones leave."""
    if part == "other":
        return int(row["sram_all_in"] - row["arena"] - row["trainables"] - row["stack"])
    return int(row[part])
