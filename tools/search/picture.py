"""Pictures of a search: contributions by layer, and scores over the evaluations."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .comparison import Comparison
from .contribution import Gains
from .evolution import Scored
from .space import FRACTIONS, Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = ("#c6dbef", "#6baed6", "#2171b5", "#08306b")  # of the fractions
LINES = {"evolutionary": "#4477aa", "random": "#bbbbbb"}


def drawn(size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """An SVG text that depends on nothing but what is drawn."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def contributions(space: Space, gains: Gains) -> str:
    """The paper's figure: gain of the last k biases, and of each layer's weights by fraction."""

    from matplotlib.ticker import MaxNLocator

    def draw(figure: Figure) -> None:
        bits = sorted({b for _, _, b in gains.weights})
        grid = figure.subplots(1 + len(bits), 1, squeeze=False)[:, 0]
        ks = sorted(gains.biases)
        grid[0].plot(ks, [gains.biases[k] for k in ks], color="#4477aa", drawstyle="steps-mid")
        grid[0].set_xlabel("biases of the last k convolutions")
        grid[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes, count in zip(grid[1:], bits, strict=True):
            bars(axes, space, {c[:2]: gain for c, gain in gains.weights.items() if c[2] == count})
            axes.set_title(
                f"weights, {count} fraction bits: gain over the biases beside them, nats",
                loc="left",
                fontsize=9,
            )
        grid[0].set_title("gain in log-likelihood over the head alone, nats", loc="left", fontsize=9)
        for axes in grid:
            axes.grid(color="#eeeeee", axis="y")
            axes.set_axisbelow(True)

    return drawn((10, 6.5), draw)


def bars(axes: Axes, space: Space, gains: dict[tuple[int, int], float]) -> None:
    layers = sorted({layer for layer, _ in gains})
    width = 0.8 / len(FRACTIONS)
    for level, (fraction, shade) in enumerate(zip(FRACTIONS, SHADES, strict=True), 1):
        own = [(place, gains[layer, level]) for place, layer in enumerate(layers) if (layer, level) in gains]
        at = [place + (level - 2.5) * width for place, _ in own]
        axes.bar(at, [gain for _, gain in own], width, color=shade, label=f"{fraction:g}")
    axes.set_xticks(range(len(layers)), [space.parts[layer] for layer in layers], rotation=90, fontsize=7)
    axes.legend(title="of its channels", ncols=len(FRACTIONS), frameon=False, fontsize=8, title_fontsize=8)


def progress(evolved: Sequence[Scored], random: Sequence[Scored], comparison: Comparison | None) -> str:
    """Best score so far against evaluations, and the optimum where it is known."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for (name, colour), evaluated in zip(LINES.items(), (evolved, random), strict=True):
            best = list(accumulate((s.score for s in evaluated), max))
            axes.plot(range(1, len(best) + 1), best, color=colour, label=name)
        if comparison:
            axes.axhline(comparison.exact, color="#228833", linestyle=":", label="optimum")
        axes.set_xscale("log")
        axes.set_xlabel("evaluations")
        axes.set_ylabel("best sum of contributions, nats")
        axes.grid(color="#eeeeee")
        axes.legend(frameon=False)

    return drawn((6, 3.5), draw)
