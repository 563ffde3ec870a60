"""lab/pages/floor.md, .json and .svg."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from lab import marks, notes
from microtrain.base.paths import ROOT

from .bound import Bound, best_tile
from .measure import Measured
from .rows import Row

PAGE = ROOT / "lab/pages/floor.md"
COMMAND = "python lab/floor"
PARTS = {"products": "#4477aa", "operands": "#66ccee", "packing": "#ee9933", "outputs": "#aa3377"}
BEYOND = "#bbbbbb"
GROUPS = {
    "conv2d": "dense, forward",
    "dwconv2d": "depthwise, forward",
    "conv2d_bwd_x": "dense, errors",
    "dwconv2d_bwd_x": "depthwise, errors",
    "conv2d_bwd_w": "dense, weights",
    "dwconv2d_bwd_w": "depthwise, weights",
    "bias_update": "biases",
}
Found = dict[str, tuple[Measured, list[Row]]]


def write(found: Found, page: Path = PAGE) -> None:
    """The tables of both phases into the page, the rows beside it, and the picture."""
    document = {
        phase: {
            "instructions": measured.instructions,
            "issue_cycles": measured.issue,
            "stall_cycles": measured.stalls,
            "rows": [asdict(row) for row in rows],
        }
        for phase, (measured, rows) in found.items()
    }
    notes.write(page.with_suffix(".json"), document)
    tables = {"sums": sums(found), "cycles": estimated(found)}
    tables |= {phase: by_layer(rows) for phase, (_, rows) in found.items()}
    marks.insert(page, COMMAND, tables)
    draw(found, page.with_suffix(".svg"))


def millions(count: float) -> str:
    return f"{count / 1e6:.2f}"


def sums(found: Found) -> str:
    """A line for each kind of work, and what lies around the kernels."""
    lines = [
        "| | products | operands | packing | outputs | floor | measured | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for phase, (measured, rows) in found.items():
        lines += [_line(title, own) for title, own in kinds(phase, rows)]
        inside = sum(row.measured for row in rows)
        around = measured.instructions - inside
        lines.append(f"| {phase}: all else | | | | | | {millions(around)} | |")
        lines.append(_line(f"**{phase}**", rows, measured.instructions))
    return "\n".join(lines)


def kinds(phase: str, rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows by the kind of work that they are, with its title."""
    for op, title in GROUPS.items():
        own = [row for row in rows if row.op == op]
        if own:
            yield f"{phase}: {title}", own


def bound_of(rows: list[Row]) -> Bound:
    return sum((row.bound for row in rows), Bound())


def _line(title: str, rows: list[Row], measured: int | None = None) -> str:
    bound = bound_of(rows)
    taken = sum(row.measured for row in rows) if measured is None else measured
    parts = " | ".join(millions(getattr(bound, part)) for part in PARTS)
    return f"| {title} | {parts} | {millions(bound.total)} | {millions(taken)} | {taken / bound.total:.2f} |"


def estimated(found: Found) -> str:
    """Cycles, beside the instructions."""
    lines = ["| | floor | instructions | cycles to issue them | of waiting |", "|---|---:|---:|---:|---:|"]
    for phase, (measured, rows) in found.items():
        counts = (bound_of(rows).total, measured.instructions, measured.issue, measured.stalls)
        lines.append(f"| {phase} | " + " | ".join(millions(count) for count in counts) + " |")
    return "\n".join(lines)


def by_layer(rows: list[Row]) -> str:
    """A line for each, in thousands."""
    lines = [
        "| layer | kernel | products | operands | packing | outputs | floor | measured | ratio |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        parts = " | ".join(f"{getattr(row.bound, part) / 1e3:,.0f}" for part in PARTS)
        total = row.bound.total
        lines.append(
            f"| {row.layer} | {row.op} | {parts} | {total / 1e3:,.0f} | {row.measured / 1e3:,.0f} "
            f"| {row.measured / total:.2f} |"
        )
    return "\n".join(lines)


def draw(found: Found, path: Path) -> None:
    """Each kind of work as a bar: the floor's parts, and what is taken beyond them."""
    bars = [kind for phase, (_, rows) in found.items() for kind in kinds(phase, rows)]
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 0.34 * len(bars) + 1.2), layout="constrained")
        axes = figure.subplots()
        for place, (_, own) in enumerate(bars):
            bound, left = bound_of(own), 0.0
            for part, colour in PARTS.items():
                size = getattr(bound, part) / 1e6
                axes.barh(place, size, left=left, color=colour, height=0.7)
                left += size
            taken = sum(row.measured for row in own) / 1e6
            axes.barh(place, taken - left, left=left, color=BEYOND, height=0.7)
            axes.text(taken + 0.1, place, f"{taken / left:.2f}", va="center", fontsize=8)
        for name, colour in {**PARTS, "beyond the floor": BEYOND}.items():
            axes.barh(0, 0, color=colour, label=name)
        axes.set_yticks(range(len(bars)), [title for title, _ in bars])
        axes.invert_yaxis()
        axes.set_xlabel("millions of instructions; the number is how many times the floor")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=len(PARTS) + 1, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def tile_words() -> str:
    """The best tile, in words."""
    tile = best_tile()
    beside = f"{tile.operands:.3f} instructions beside each product"
    return f"the best tile: {tile.rows} x {tile.lanes} sums, LDM of {tile.words} words, {beside}"
