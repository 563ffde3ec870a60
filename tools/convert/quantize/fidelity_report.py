"""The quantization report: printed, as JSON and as a picture."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table

from .fidelity import Accuracy, LayerError, Report

OWN, TOTAL, CLIPPED = "#2a6fbb", "#d2691e", "#bbbbbb"


def print_report(report: Report, console: Console) -> None:
    """A row a layer, then the answers of both networks."""
    table = Table(title=f"{report.model} in int8 beside float, {report.compared} images", header_style="bold")
    table.add_column("layer")
    table.add_column("op")
    for name in ("float range", "int8 range", "clipped %", "weights dB", "own dB", "total dB"):
        table.add_column(name, justify="right")
    for row in report.layers:
        table.add_row(*_cells(row))
    console.print(table)
    how = f"ranges by {report.rule}, biases {'corrected' if report.corrected else 'not corrected'}"
    console.print(f"{answers(report.accuracy)}; {how}")


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
        return f"{same} of {accuracy.images} images"
    right = f"float {accuracy.float_right:.2%}, int8 {accuracy.int8_right:.2%}"
    return f"top-1 of {accuracy.images} images: {right}, {same}"


def draw(report: Report) -> str:
    """SVG: signal to noise of every layer's output, alone and with all before it; what is cut off."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    rows, places = report.layers, range(len(report.layers))
    style: dict[str, Any] = {"marker": ".", "lw": 0.8}
    with mpl.rc_context({"svg.hashsalt": "microtrain", "font.size": 9}):
        size = (max(6.0, 0.2 * len(rows) + 2.0), 5.0)
        figure, (top, bottom) = pyplot.subplots(
            2, 1, figsize=size, sharex=True, height_ratios=(3, 1), layout="constrained"
        )
        top.plot(places, [r.own_db for r in rows], color=OWN, label="this layer alone", **style)
        top.plot(places, [r.total_db for r in rows], color=TOTAL, label="int8 from the image on", **style)
        top.set(ylabel="signal to noise, dB", title=f"{report.model}: {answers(report.accuracy)}")
        top.legend(loc="best", fontsize=8)
        bottom.bar(places, [100 * r.clipped for r in rows], color=CLIPPED)
        bottom.set(ylabel="clipped, %", ylim=(0.0, max(1.0, *(105 * r.clipped for r in rows))))
        bottom.set_xticks(places, [r.layer for r in rows], rotation=90, fontsize=6)
        for axes in (top, bottom):
            axes.grid(alpha=0.25)
        text = _svg(figure)
        pyplot.close(figure)
    return text


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
