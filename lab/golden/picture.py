"""How far int8 errors turn the gradients, layer by layer: numbers and a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from .check import Gradient

COLOURS = {"bias": "#2a6fbb", "weight": "#d2691e"}
MARKS = {"bias": ".", "weight": "x"}
FLOOR = 1e-7  # the picture's scale is logarithmic; a cosine nearer to 1 than this is drawn here


def spread(gradients: list[Gradient]) -> dict[str, dict[str, dict[str, float]]]:
    """Least and median cosine over the images: kind -> "all" (also over the layers) or layer -> numbers."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for kind in COLOURS:
        by_layer: dict[str, list[float]] = {}
        for gradient in gradients:
            if gradient.kind == kind:
                by_layer.setdefault(gradient.layer, []).append(gradient.cosine)
        groups = {"all": [c for cosines in by_layer.values() for c in cosines], **by_layer}
        result[kind] = {name: {"min": min(c), "median": median(c)} for name, c in groups.items()}
    return result


def draw(gradients: Mapping[str, list[Gradient]], path: Path) -> None:
    """One row per network: 1 - cosine of every gradient against its layer, one mark per image."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "microtrain"
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(gradients), 1, figsize=(9, 3 * len(gradients)), layout="constrained")
    for axes, (network, found) in zip(rows, gradients.items(), strict=True):
        draw_network(axes, found)
        axes.set_title(network, loc="left", fontsize=10)
    rows[-1].set_xlabel("layer in forward order, the head last")
    figure.suptitle("1 - cosine of gradients with int8 errors against PyTorch's, four images")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_network(axes: Any, gradients: list[Gradient]) -> None:
    """Marks of all images; a line through the layers' medians."""
    layers = [*dict.fromkeys(g.layer for g in gradients if g.layer != "classifier"), "classifier"]
    for kind, colour in COLOURS.items():
        own = [g for g in gradients if g.kind == kind]
        places = [layers.index(g.layer) for g in own]
        gaps = [gap(g.cosine) for g in own]
        axes.plot(places, gaps, MARKS[kind], color=colour, ms=5, alpha=0.7, label=kind)
    medians = spread(gradients)["bias"]
    axes.plot(
        range(len(layers)), [gap(medians[name]["median"]) for name in layers], color=COLOURS["bias"], lw=0.8
    )
    axes.set(yscale="log", ylabel="1 - cosine", ylim=(FLOOR / 2, 1e-2))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper right", fontsize=8)


def gap(cosine: float) -> float:
    return max(1.0 - cosine, FLOOR)
