"""The learning curve of a session as a picture, SVG and PNG."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DeviceError
from .session import WINDOW, Log

SETTLED = 9  # steps before a mean over fewer is worth drawing
BLUE, ORANGE, GRAY = "#1f6fb4", "#d9600c", "#666666"


def save_curve(path: Path, log: Log) -> tuple[Path, Path]:
    """Draw accuracy and loss over the steps; writes `path` with the suffixes .svg and .png.

    Errors   DeviceError where the files cannot be written
    """
    targets = path.with_suffix(".svg"), path.with_suffix(".png")
    with drawn(log) as figure:
        try:
            figure.savefig(targets[0], metadata={"Date": None})
            figure.savefig(targets[1], dpi=120, metadata={"Software": None})
        except OSError as error:
            raise DeviceError(f"{path} cannot be written: {error.strerror}.") from error
    return targets


def curve_svg(log: Log) -> str:
    """The same as an <svg> for a page."""
    stream = io.StringIO()
    with drawn(log) as figure:
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


@contextmanager
def drawn(log: Log) -> Iterator[Any]:
    """The picture as matplotlib has it, as long as the block runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": "microtrain", "font.size": 10, "text.parse_math": False}):
        figure, (top, bottom) = plt.subplots(
            2, 1, figsize=(8, 6), sharex=True, height_ratios=(2, 1), layout="constrained"
        )
        draw_accuracy(top, log)
        draw_loss(bottom, log)
        top.set_title(
            f"{log.device['model']} on {log.device['board']}: {len(log.steps)} steps of batch size 1"
        )
        try:
            yield figure
        finally:
            plt.close(figure)


def draw_accuracy(axes: Any, log: Log) -> None:
    """Moving average of the predictions before each update; the evaluations as points."""
    steps = [s.step for s in log.steps][SETTLED:]
    right = moving_average([float(s.predicted == s.label) for s in log.steps])[SETTLED:]
    axes.plot(
        steps,
        right * 100,
        color=BLUE,
        lw=1.2,
        alpha=0.8,
        label=f"training {log.noun}s, before each step (mean of {WINDOW})",
    )
    if log.evaluations:
        points = [(e.step, e.accuracy * 100) for e in log.evaluations]
        axes.plot(
            *zip(*points, strict=True),
            "o-",
            color=ORANGE,
            lw=1.6,
            label=f"{log.evaluations[0].total} held-out {log.noun}s",
        )
        for step, value in {points[0], points[-1]}:
            axes.annotate(
                f"{value:.1f} %", (step, value), textcoords="offset points", xytext=(0, 7), ha="center"
            )
    axes.axhline(100 / len(log.classes), color=GRAY, lw=0.8, ls=":", label="chance")
    axes.set(ylim=(0, 105), ylabel="accuracy, %")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize=9)


def draw_loss(axes: Any, log: Log) -> None:
    loss = moving_average([s.loss for s in log.steps])[SETTLED:]
    axes.plot([s.step for s in log.steps][SETTLED:], loss, color=BLUE, lw=1.2)
    axes.set(xlabel="training step", ylabel=f"loss (mean of {WINDOW})")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)


def moving_average(values: list[float]) -> np.ndarray:
    """Mean of the last WINDOW values at each position, of fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - WINDOW)
    return np.asarray((sums[ends] - sums[starts]) / np.maximum(1, ends - starts))
