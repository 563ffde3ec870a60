"""docs/results.svg: accuracy of the device's arithmetic against all-in SRAM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from bench.cases import SCHEMES
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .cases import EPOCHS, family
from .store import Row

KINDS = {
    "sparse": ("o", "#4477aa"),
    "sparse, 4 fraction bits": ("s", "#66ccee"),
    "sparse, 8 fraction bits": ("D", "#228833"),
    "last layers": ("^", "#ee6677"),
    "biases": ("v", "#ccbb44"),
    "head only": ("x", "#777777"),
}


def kind(row: Row) -> str:
    """The key of KINDS that a scheme belongs to."""
    bits = row["fraction_bits"]
    sparse = f"sparse, {bits} fraction bits" if bits else "sparse"
    return {"head": "head only", "last": "last layers", "bias": "biases", "sparse": sparse}[
        family(row["scheme"])
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel a data set and network, a point a plan, seed 0."""
    rows = [row for row in rows if row["arithmetic"] == "device" and row["seed"] == 0]
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 6), layout="constrained")
        grid = figure.subplots(len(EPOCHS), len(SCHEMES), sharex=True, sharey="row", squeeze=False)
        for line, dataset in zip(grid, EPOCHS, strict=True):
            for axes, network in zip(line, SCHEMES, strict=True):
                panel(axes, [r for r in rows if (r["dataset"], r["network"]) == (dataset, network)])
                axes.set_title(f"{dataset}, {network}", loc="left", fontsize=9)
            line[0].set_ylabel("accuracy, %")
        for axes in grid[-1]:
            axes.set_xlabel("all-in SRAM, KB")
        handles = {
            label: h for a in figure.axes for h, label in zip(*a.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles, loc="outside upper center", ncols=len(handles), frameon=False
        )
        figure.savefig(path, metadata={"Date": None})


def panel(axes: Axes, rows: Sequence[Row]) -> None:
    for name, (marker, colour) in KINDS.items():
        own = sorted((row["sram_all_in"] / 1024, 100 * row["accuracy"]) for row in rows if kind(row) == name)
        if own:
            line = "-" if name == "sparse" else ""
            x, y = zip(*own, strict=True)
            axes.plot(x, y, line, marker=marker, color=colour, label=name, markersize=5, linewidth=1)
    axes.grid(color="#eeeeee")
