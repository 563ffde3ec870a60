"""What quantization-aware scaling does: norms of weights against those of their gradients, by tensor.

The figure of arXiv 2206.15472 (section 3.1): log10 of norm(W) / norm(G). One learning rate suits all tensors
only where the ratio is about the same. In the real-valued network it is; with stored integers it is not, for
W is divided by the scale and G multiplied with it; scaled by 1 / s^2 it is that of the real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from lab import notes
from microtrain.samples.source import load, split
from microtrain.simulate.blueprint import Blueprint
from microtrain.simulate.network import load_network
from microtrain.simulate.parallel import Parallel, Tensor

from .cases import BAR, CLASSES, Cell
from .execute import WORK, convert
from .store import PAGES

DATASET = "clothing10"
FIGURE, NUMBERS = PAGES / "results-qas.svg", PAGES / "results-qas.json"
HEAD_STEPS, IMAGES = (
    200,
    50,
)  # steps that only the head learns from, so that errors mean something; then the average
KINDS = {"real": "#777777", "stored, without QAS": "#ee6677", "stored, with QAS": "#4477aa"}
Row = dict[str, Any]


def measure(network: str, data: Path) -> list[Row]:
    """Ratios of every tensor of a network of which all is trained, in the order of the layers."""
    plan = convert(Cell(DATASET, network, "full"), data)
    torch.set_num_threads(1)
    net = Parallel(load_network(plan.folder, plan.model_id), plan.front, 1)
    training, _ = split(WORK / "sets" / DATASET, CLASSES)
    order = np.random.default_rng(0).permutation(len(training.samples))
    total: dict[tuple[str, str], Tensor] = {}
    for number, index in enumerate(order[: HEAD_STEPS + IMAGES]):
        sample = training.samples[index]
        given, label = stored(plan, net, sample.path), torch.tensor([sample.label])
        if number < HEAD_STEPS:
            net.train(given, label, torch.tensor([[0.0, 0.0, 0.002]]))
            continue
        for key, gradient in net.gradients(given, label)[2].items():
            total[key] = total.get(key, torch.zeros_like(gradient)) + gradient
    return [ratios(net, *key, gradient) for key, gradient in total.items() if key[1] in ("weight", "bias")]


def stored(plan: Blueprint, net: Parallel, path: Path) -> dict[str, Tensor]:
    image = plan.stored(load(path, plan.shape)).astype(np.float32)
    return {net.network.input: torch.from_numpy(image).permute(2, 0, 1)[None, :, None].contiguous()}


def ratios(net: Parallel, layer: str, kind: str, gradient: Tensor) -> Row:
    """log10 of norm(W) / norm(G) of one tensor: real numbers, stored ones, and these scaled."""
    value, factor = net.parameters[layer, kind].detach(), net.optimizer.qas[layer, kind]
    alive = (factor > 0).to(value.dtype)
    scale = torch.where(factor > 0, factor, 1.0) ** -0.5
    pairs = {
        "real": (value * alive * scale, gradient * alive / scale),
        "stored, without QAS": (value * alive, gradient * alive),
        "stored, with QAS": (value * alive, gradient * factor),
    }
    found = {name: float(torch.log10(w.norm() / g.norm())) for name, (w, g) in pairs.items()}
    return {"tensor": f"{layer}.{kind}"} | {name: round(value, 4) for name, value in found.items()}


def write(data: Path) -> None:
    """Measure the three networks; pages/results-qas.json and .svg."""
    rows = {network: measure(network, data) for network in BAR}
    notes.write(NUMBERS, rows)
    draw(rows, FIGURE)


def draw(rows: dict[str, list[Row]], path: Path) -> None:
    """One panel per network, one line per way of storing."""
    with mpl.rc_context({"font.size": 9, "svg.hashsalt": "microtrain", "svg.fonttype": "none"}):
        figure = Figure(figsize=(10, 6.5), layout="constrained")
        grid = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
        for axes, (network, own) in zip(grid, rows.items(), strict=True):
            for kind, colour in KINDS.items():
                style = "--" if kind == "real" else "-"
                axes.plot([row[kind] for row in own], style, color=colour, label=kind, linewidth=1.2)
            axes.set_title(network, loc="left", fontsize=9)
            axes.set_ylabel("log10 |W| / |G|")
            axes.grid(color="#eeeeee")
        grid[-1].set_xlabel("weights and biases of all convolutions, in forward order")
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def spread(rows: list[Row], kind: str) -> float:
    """Standard deviation over the tensors: orders of magnitude that one learning rate has to bridge."""
    return float(np.std([row[kind] for row in rows]))
