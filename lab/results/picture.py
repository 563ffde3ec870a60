"""pages/results.svg and pages/search.svg: accuracy of the device's arithmetic against all-in SRAM."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.bench.cases import SCHEMES

from .cases import EPOCHS, family
from .store import Row

KINDS = {
    "sparse": ("o", "#4477aa"),
    "sparse, 4 fraction bits": ("s", "#66ccee"),
    "sparse, 8 fraction bits": ("D", "#228833"),
    "last layers": ("^", "#ee6677"),
    "biases": ("v", "#ccbb44"),
    "head only": ("x", "#777777"),
    "found on cifar10": ("P", "#332288"),
    "found on clothing10": ("*", "#aa3377"),
}
SEARCHED = {
    "published": KINDS["sparse, 4 fraction bits"],
    "found on the other images": ("*", "#aa3377"),
    "found on images of the same kind": ("P", "#ee6677"),
}


def kind(row: Row) -> str:
    """The key of KINDS that a scheme belongs to."""
    bits, own = row["fraction_bits"], family(row["scheme"])
    sparse = f"sparse, {bits} fraction bits" if bits else "sparse"
    return {"head": "head only", "last": "last layers", "bias": "biases", "sparse": sparse}.get(own, own)


def draw(rows: Sequence[Row], path: Path) -> None:
    """One panel per data set and network, one point per plan, seed 0."""
    panels(
        [row for row in rows if row["arithmetic"] == "device" and row["seed"] == 0], "dataset", panel, path
    )


def draw_searches(rows: Sequence[Row], path: Path) -> None:
    """One panel per network and data set that judged it, one point per scheme: mean and range of its seeds.

    rows    pages/search.json
    """
    panels(rows, "judged_on", searched_panel, path)


def panels(rows: Sequence[Row], by: str, fill: Callable[[Axes, list[Row]], None], path: Path) -> None:
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 6), layout="constrained")
        grid = figure.subplots(len(EPOCHS), len(SCHEMES), sharex=True, sharey="row", squeeze=False)
        for line, dataset in zip(grid, EPOCHS, strict=True):
            for axes, network in zip(line, SCHEMES, strict=True):
                fill(axes, [r for r in rows if (r[by], r["network"]) == (dataset, network)])
                axes.set_title(f"{dataset}, {network}", loc="left", fontsize=9)
            line[0].set_ylabel("accuracy, %")
        for axes in grid[-1]:
            axes.set_xlabel("all-in SRAM, KB")
        handles = {
            label: h for a in figure.axes for h, label in zip(*a.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def panel(axes: Axes, rows: Sequence[Row]) -> None:
    for name, (marker, colour) in KINDS.items():
        own = sorted((row["sram_all_in"] / 1024, 100 * row["accuracy"]) for row in rows if kind(row) == name)
        if own:
            line = "-" if name == "sparse" else ""
            x, y = zip(*own, strict=True)
            axes.plot(x, y, line, marker=marker, color=colour, label=name, markersize=5, linewidth=1)
    axes.grid(color="#eeeeee")


def searched_kind(row: Row) -> str:
    """The key of SEARCHED that a row of pages/search.json belongs to."""
    if row["scheme"] == "published":
        return "published"
    same = row["found_on"] == row["judged_on"]
    return "found on images of the same kind" if same else "found on the other images"


def searched_panel(axes: Axes, rows: Sequence[Row]) -> None:
    for kind, (marker, colour) in SEARCHED.items():
        schemes = sorted({(row["sram_all_in"], row["name"]) for row in rows if searched_kind(row) == kind})
        own = [[100 * row["accuracy"] for row in rows if row["name"] == name] for _, name in schemes]
        means = [statistics.fmean(values) for values in own]
        spans = [[m - min(v) for m, v in zip(means, own, strict=True)]]
        spans += [[max(v) - m for m, v in zip(means, own, strict=True)]]
        x = [sram / 1024 for sram, _ in schemes]
        axes.errorbar(
            x, means, spans, marker=marker, color=colour, label=kind, markersize=6, linewidth=1, capsize=2
        )
    axes.grid(color="#eeeeee")
