"""Whether the images look to the model as its training images did, or would behind another normalisation.

A batch norm remembers the mean and deviation of what it saw in training. Behind a wrong normalisation the
first layer's output has others. Where the images lie in folders of the model's own classes, they are
classified as well.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from microtrain.convert.execute.batched import batches, run_float
from microtrain.convert.frontends.module import LoadedModel
from microtrain.convert.ir import Graph, Input, Node
from microtrain.convert.normalisation import (
    IMAGENET,
    RAW,
    SCALED,
    MeanAndStd,
    Normalisation,
    Origin,
)
from microtrain.samples.source import evenly

from .evaluation import load_labelled, own_classes

MOST_IMAGES = 48
MOST_LABELLED = 100
CLEARLY = 0.5  # of the distance: another normalisation fits clearly better below it
NOTABLE = 0.2  # nats: a distance that images of another subject make too
CLEARLY_RIGHT = 0.1  # of the images: another normalisation names so many more rightly

CANDIDATES: dict[str, MeanAndStd] = {
    "--mean 0 --std 1": SCALED,
    "--mean imagenet --std imagenet": IMAGENET,
    "--mean 0.5 --std 0.5": ((0.5,), (0.5,)),
    "--mean 0 --std 1/255": RAW,
}


@dataclass(frozen=True)
class Fit:
    """How images look to a model behind one normalisation.

    distance  nats a channel between what the first batch norm saw in training and what it would see (mean
              Kullback-Leibler divergence of normal distributions); None where there is no batch norm
    accuracy  share of the labelled images that are named rightly; None without labels
    """

    options: str
    distance: float | None
    accuracy: float | None


def advice(loaded: LoadedModel, images: np.ndarray, folder: Path | None) -> str | None:
    """What to say where another normalisation fits the images clearly better; None: nothing.

    images  calibration images uint8 [N, h, w, c]; folder: where they come from
    """
    images = np.stack(evenly(list(images), MOST_IMAGES))
    labels = folder if folder and own_classes(folder, loaded.graph) else None
    own = fit(loaded.graph, images, labels, "")
    others = [
        fit(loaded.graph.replace(input=changed), images, labels, options)
        for options, changed in candidates(loaded)
    ]
    best = min(others, key=_order, default=own)
    return _sentence(own, best) if _better(own, best) else None


def candidates(loaded: LoadedModel) -> list[tuple[str, Input]]:
    """Other normalisations to try, by the options that ask for them."""
    normal, entry = loaded.normal, loaded.graph.input
    channels = len(normal.mean)
    own = normal.before(entry)
    found = []
    for options, (mean, std) in CANDIDATES.items():
        if len(mean) in (1, channels):
            repeated = Normalisation(
                mean * (channels // len(mean)), std * (channels // len(std)), Origin.OPTION
            )
            changed = repeated.behind(own)
            if not np.allclose(changed.gain, entry.gain) or not np.allclose(
                changed.offset, entry.offset, atol=1e-6
            ):
                found.append((options, changed))
    return found


def fit(graph: Graph, images: np.ndarray, labels: Path | None, options: str) -> Fit:
    return Fit(options, distance(graph, images), accuracy(graph, labels) if labels else None)


def distance(graph: Graph, images: np.ndarray) -> float | None:
    """Between what the first batch norm saw in training and what it would see; None where there is none."""
    seen = ((node, graph.layers[node.layer].seen) for node in graph.nodes if node.layer)
    first = next(((node, found) for node, found in seen if found is not None), None)
    if first is None:
        return None
    node, (mean, deviation) = first
    alive = deviation > 1e-3 * deviation.max()
    values = outputs(graph, node, images).reshape(-1, len(mean))[:, alive]
    ratio = np.maximum(values.var(axis=0), 1e-12) / deviation[alive] ** 2
    shift = (values.mean(axis=0) - mean[alive]) / deviation[alive]
    return float(np.mean(0.5 * (ratio + shift**2 - 1.0 - np.log(ratio))))


def outputs(graph: Graph, node: Node, images: np.ndarray) -> np.ndarray:
    """A node's float output before its activation, [N * h * w, c]."""
    nodes = graph.nodes[: graph.nodes.index(node)]
    until = graph.replace(nodes=(*nodes, replace(node, act="none")), output=node.outputs[0])
    found = [run_float(until, batch) for batch in batches(until, images, "looking at the samples")]
    return np.concatenate(found).reshape(-1, graph.tensors[node.outputs[0]].channels).astype(np.float64)


def accuracy(graph: Graph, folder: Path) -> float:
    """Share of some images of a folder that the float model names rightly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how images are cut to size is told once, of those to calibrate on
        labelled = load_labelled(folder, graph, MOST_LABELLED)
    parts = batches(graph, labelled.images, "trying other normalisations")
    answers = np.concatenate([run_float(graph, batch).argmax(axis=1) for batch in parts])
    return float((answers == labelled.labels).mean())


def _order(fit: Fit) -> tuple[float, float]:
    return -(fit.accuracy or 0.0), fit.distance or 0.0


def _better(own: Fit, other: Fit) -> bool:
    if own.accuracy is not None and other.accuracy is not None:
        return other.accuracy > own.accuracy + CLEARLY_RIGHT
    if own.distance is None or other.distance is None:
        return False
    return own.distance > NOTABLE and other.distance < CLEARLY * own.distance


def _sentence(own: Fit, other: Fit) -> str:
    if own.accuracy is not None and other.accuracy is not None:
        why = f"{other.accuracy:.0%} of the labelled samples are named rightly, not {own.accuracy:.0%}"
    else:
        why = "with it, they look to the first batch norm much more like those it was trained on"
    return f"the samples fit another normalisation better: {why}; try {other.options}"
