"""pages/fleet-cifar.svg: accuracy on CIFAR-10 by round, and by the bytes that a board has sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .cases import Case

LINES = (
    ("full", "device, whole updates", "#1f6fb4", "-"),
    ("dgc", "device, 1 % of the bytes", "#d9600c", "-"),
    ("float", "float", "#2f9e63", "--"),
)
GRAY = "#666666"
Row = dict[str, Any]


def draw(rows: Sequence[Row], path: Path) -> None:
    """A column of two panels for each case with the settings of all and seed 0."""
    plain = Case().as_json()
    shown = [
        row
        for row in rows
        if all(row["case"][k] == v for k, v in plain.items() if k not in ("boards", "alpha"))
    ]
    shown = sorted(shown, key=lambda row: (row["case"]["boards"], -row["case"]["alpha"]))
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(2.3 * len(shown) + 1, 5), layout="constrained")
        grid = figure.subplots(2, len(shown), sharey=True, sharex="row", squeeze=False)
        for row, upper, lower in zip(shown, *grid, strict=True):
            case = row["case"]
            upper.set_title(f"{case['boards']} boards, Dirichlet {case['alpha']:g}", fontsize=9)
            by_round(upper, row)
            by_bytes(lower, row)
        for line, label in zip(grid, ("by round", "by KB that a board has sent"), strict=True):
            line[0].set_ylabel("accuracy, %")
            for axes in line:
                axes.set_xlabel(label)
                axes.grid(alpha=0.3)
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def by_round(axes: Axes, row: Row) -> None:
    for name, label, colour, style in LINES:
        if name in row:
            values = row[name] if name == "float" else row[name]["accuracy"]
            axes.plot(range(1, len(values) + 1), percent(values), style, color=colour, lw=1.5, label=label)
    if "alone" in row:
        mean = sum(one["accuracy"] for one in row["alone"]) / len(row["alone"])
        axes.axhline(100 * mean, color=GRAY, lw=1, ls=":", label="a board alone, at the end")


def by_bytes(axes: Axes, row: Row) -> None:
    for name, label, colour, style in LINES:
        if name in row and name != "float":
            sent = [total / 1024 for total in accumulate(row[name]["bytes"])]
            axes.plot(sent, percent(row[name]["accuracy"]), style, color=colour, lw=1.5, label=label)
    axes.set_xscale("log")


def percent(values: Sequence[float]) -> list[float]:
    return [100 * value for value in values]
