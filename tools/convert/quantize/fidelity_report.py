"""The quantization report: printed, as JSON and as a picture."""

from __future__ import annotations

import io
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.table import Table

from microtrain.base.columns import Column, broken, is_wide, table

from .fidelity import Accuracy, LayerError, Report

WIDE = 76  # characters of a title in the narrowest picture
NAME = 20  # characters of a layer's name in a narrow table's line
NOTHING_CLIPPED = "no value is clipped in any layer"
OWN, TOTAL, CLIPPED = "#2a6fbb", "#d2691e", "#bbbbbb"


def print_report(report: Report, console: Console) -> None:
    """One row per layer, then the answers of both networks."""
    wide = _table(report, narrow=False)
    console.print(wide if is_wide(console, wide) else _table(report, narrow=True))
    how = f"ranges by {report.rule}, biases {'corrected' if report.corrected else 'not corrected'}"
    console.print(f"{answers(report.accuracy)}; {how}")


def _table(report: Report, narrow: bool) -> Table:
    """One row per layer; a narrow table has its headings in two lines."""
    numbers = ("float range", "int8 range", "clipped %", "weights dB", "own dB", "total dB")
    headings = (name.replace(" ", "\n") if narrow else name for name in numbers)
    columns = [*(Column(name, number=False) for name in ("layer", "op")), *map(Column, headings)]
    made = table(f"{report.model} in int8 beside float, {report.compared} samples", columns, narrow)
    for row in report.layers:
        layer, *cells = _cells(row)
        if narrow:
            layer, cells = broken(layer, NAME), [cell.replace(" .. ", "..") for cell in cells]
        made.add_row(layer, *cells)
    return made


def _cells(row: LayerError) -> tuple[str, ...]:
    clipped = f"{100 * row.clipped:.3f}" if row.clipped else ""
    weights = "" if row.weights_db is None else f"{row.weights_db:.1f}"
    ranges = (_ends(row.float_range), _ends(row.int8_range) if row.int8_range else "float")
    return (row.layer, row.op, *ranges, clipped, weights, f"{row.own_db:.1f}", f"{row.total_db:.1f}")


def _ends(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3g} .. {ends[1]:.3g}"


def answers(accuracy: Accuracy) -> str:
    """The accuracy of both networks in a line."""
    same = f"the same answer on {accuracy.same:.1%}"
    if accuracy.float_right is None or accuracy.int8_right is None:
        return f"{same} of {accuracy.images} samples"
    right = f"float {accuracy.float_right:.2%}, int8 {accuracy.int8_right:.2%}"
    return f"top-1 of {accuracy.images} samples: {right}, {same}"


def draw(report: Report) -> str:
    """SVG: signal to noise of every layer's output, alone and with all before it; what is cut off."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    rows, places = report.layers, range(len(report.layers))
    style: dict[str, Any] = {"marker": ".", "lw": 0.8}
    with mpl.rc_context({"svg.hashsalt": "microtrain", "font.size": 9}):
        clipped = any(row.clipped for row in rows)
        ratios = (3, 1) if clipped else (1,)
        figure, panels = pyplot.subplots(
            len(ratios), 1, figsize=(max(6.0, 0.2 * len(rows) + 2.0), 5.0), sharex=True, squeeze=False,
            height_ratios=ratios, layout="constrained",
        )  # fmt: skip
        top, bottom = panels[0, 0], panels[-1, 0]
        top.plot(places, [r.own_db for r in rows], color=OWN, label="this layer alone", **style)
        top.plot(places, [r.total_db for r in rows], color=TOTAL, label="int8 from the input on", **style)
        top.set(ylabel="signal to noise, dB")
        said = [f"{report.model} in int8", answers(report.accuracy), *([] if clipped else [NOTHING_CLIPPED])]
        figure.suptitle("\n".join(wrapped for line in said for wrapped in wrap(line, WIDE)), fontsize=9)
        top.legend(loc="best", fontsize=8)
        if clipped:
            bottom.bar(places, [100 * r.clipped for r in rows], color=CLIPPED)
            bottom.set(ylabel="clipped, %", ylim=(0.0, max(1.0, *(105 * r.clipped for r in rows))))
        bottom.set_xticks(places, [r.layer for r in rows], rotation=90, fontsize=6)
        for axes in panels[:, 0]:
            axes.grid(alpha=0.25)
        text = _svg(figure)
        pyplot.close(figure)
    return text


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
