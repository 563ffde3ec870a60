"""What int8 costs: every layer beside the float model's on the same images, and the accuracy of both."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from microtrain.convert.execute.batched import batches, int8_node, run_float, run_int8
from microtrain.convert.ir import Graph, Layer, Node, Tensor
from microtrain.convert.reference.windows import centred

from .evaluation import Labelled

MOST_IMAGES = 256  # that the layers are compared on


@dataclass(frozen=True)
class LayerError:
    """What int8 makes of one layer's output.

    float_range  least and greatest value of the float model
    int8_range   what the int8 tensor can hold; None for the logits, which stay float
    clipped      share of the float model's values that lie outside it
    weights_db   signal to noise of the rounded weights; None where the layer has none, or they stay float
    own_db       of the output with the float model's own inputs: what this layer alone loses
    total_db     of the output with int8 all the way from the image
    """

    layer: str
    op: str
    float_range: tuple[float, float]
    int8_range: tuple[float, float] | None
    clipped: float
    weights_db: float | None
    own_db: float
    total_db: float


@dataclass(frozen=True)
class Accuracy:
    """Shares of 1.

    same         both networks answer alike
    float_right  the float model answers as the label says; None without labels. int8_right likewise
    """

    images: int
    same: float
    float_right: float | None = None
    int8_right: float | None = None


@dataclass(frozen=True)
class Report:
    """compared: images that the layers were compared on."""

    model: str
    rule: str
    corrected: bool
    compared: int
    layers: tuple[LayerError, ...]
    accuracy: Accuracy

    def json(self) -> dict[str, Any]:
        return {"format": 1, **asdict(self)}


@dataclass(eq=False)
class Tally:
    """Sums over all images of one tensor."""

    low: float = math.inf
    high: float = -math.inf
    signal: float = 0.0
    own: float = 0.0
    total: float = 0.0
    clipped: int = 0
    count: int = 0

    def add(self, tensor: Tensor, real: np.ndarray, own: np.ndarray, found: np.ndarray) -> None:
        """real: float values; own, found: real values of the int8 tensors"""
        self.low, self.high = min(self.low, float(real.min())), max(self.high, float(real.max()))
        self.signal += energy(real)
        self.own += energy(own - real)
        self.total += energy(found - real)
        self.count += real.size
        limits = int8_range(tensor)
        if limits:
            half = tensor.scale / 2
            self.clipped += int(((real < limits[0] - half) | (real > limits[1] + half)).sum())


def energy(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), between -99 and 99."""
    if noise == 0.0:
        return 99.0
    return float(np.clip(10.0 * math.log10(max(signal, 1e-300) / noise), -99.0, 99.0))


def int8_range(tensor: Tensor) -> tuple[float, float] | None:
    """Real values at both ends of an int8 tensor."""
    if tensor.dtype != "s8":
        return None
    return (-128 - tensor.zero) * tensor.scale, (127 - tensor.zero) * tensor.scale


def compare(graph: Graph, quantized: Graph, images: np.ndarray) -> tuple[list[LayerError], Accuracy]:
    """All layers of a float graph and its int8 twin on uint8 images [N, h, w, c]; how often they agree."""
    tallies = {node.outputs[0]: Tally() for node in graph.nodes}
    same = 0
    for batch in batches(graph, images, "comparing int8 with float"):
        real: dict[str, np.ndarray] = {}
        stored: dict[str, np.ndarray] = {}
        expected = run_float(graph, batch, real.__setitem__)
        found = run_int8(quantized, batch, stored.__setitem__)
        same += int((expected.argmax(axis=1) == found.argmax(axis=1)).sum())
        exact = {t: rounded(quantized.tensors[t], values) for t, values in real.items()}
        exact[graph.input.tensor] = stored[graph.input.tensor]
        for node in graph.nodes:
            name = node.outputs[0]
            tensor = quantized.tensors[name]
            own = int8_node(quantized, node, exact)
            tallies[name].add(tensor, real[name], real_values(tensor, own), real_values(tensor, stored[name]))
    rows = [layer_error(graph, quantized, node, tallies[node.outputs[0]]) for node in graph.nodes]
    return rows, Accuracy(len(images), same / len(images))


def rounded(tensor: Tensor, real: np.ndarray) -> np.ndarray:
    """Float values as an int8 tensor stores them."""
    result: np.ndarray = np.clip(np.rint(real / np.float32(tensor.scale)) + tensor.zero, -128, 127).astype(
        np.int8
    )
    return result


def real_values(tensor: Tensor, stored: np.ndarray) -> np.ndarray:
    return centred(stored, tensor.zero) * np.float32(tensor.scale) if tensor.dtype == "s8" else stored


def layer_error(graph: Graph, quantized: Graph, node: Node, tally: Tally) -> LayerError:
    name = node.layer or ""
    weights = weight_decibels(graph.layers[name], quantized.layers[name]) if node.layer else None
    return LayerError(
        layer=node.name,
        op=node.op,
        float_range=(tally.low, tally.high),
        int8_range=int8_range(quantized.tensors[node.outputs[0]]),
        clipped=tally.clipped / tally.count,
        weights_db=weights,
        own_db=decibels(tally.signal, tally.own),
        total_db=decibels(tally.signal, tally.total),
    )


def weight_decibels(layer: Layer, stored: Layer) -> float | None:
    """Signal to noise of a layer's rounded weights; None where they stay float."""
    if stored.weight_scale is None:
        return None
    scale = stored.weight_scale.reshape((-1,) + (1,) * (stored.weight.ndim - 1))
    return decibels(energy(layer.weight), energy(stored.weight * scale - layer.weight))


def top1(graph: Graph, quantized: Graph, labelled: Labelled) -> Accuracy:
    """Answers of both networks to images with labels."""
    answers: list[np.ndarray] = []
    for batch in batches(graph, labelled.images, "top-1"):
        logits = run_float(graph, batch), run_int8(quantized, batch)
        answers.append(np.stack([values.argmax(axis=1) for values in logits]))
    expected, found = np.concatenate(answers, axis=1)
    shares = (expected == found, expected == labelled.labels, found == labelled.labels)
    return Accuracy(len(labelled.labels), *(float(share.mean()) for share in shares))
