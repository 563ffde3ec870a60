"""What the compiled networks compute, against the golden data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from convert import reference
from convert.executor import Executor
from convert.frontends.checkpoint import read_checkpoint
from convert.ir import Graph
from convert.pipeline import training_graph
from convert.scheme import Scheme, convolutions

from .data import Data, stored

CLASSES = 10
STEP_IMAGES = 4
STILL = reference.Sgd(0.0, 0.0, 0.0, 0, 0)


@dataclass(frozen=True)
class Logits:
    """Comparison of int8 logits: share of equal values, largest difference, images classified right."""

    equal: float
    max_diff: int
    top1: float


def check_logits(data: Data, network: str, count: int, tick: Callable[[], None] = lambda: None) -> Logits:
    """Run `count` images (0: all) through the NumPy reference of the whole network."""
    executor = Executor(read_checkpoint(data.checkpoint(network), integer_head=True))
    golden = data.logits(network)
    differences, right = [], []
    for expected, (image, label) in zip(golden, data.imagenet(count), strict=False):
        found = executor.forward(image).reshape(-1)
        differences.append(np.abs(found.astype(int) - expected))
        right.append(int(found.argmax()) == label)
        tick()
    diff = np.array(differences)
    return Logits(float((diff == 0).mean()), int(diff.max()), float(np.mean(right)))


def golden_graph(data: Data, network: str, golden: dict[str, np.ndarray]) -> Graph:
    """The training graph of all biases and of every layer whose weight gradient is in the golden data."""
    graph = read_checkpoint(data.checkpoint(network))
    numbers = [int(k.split("/")[1].removeprefix("conv")) for k in golden if k.endswith("/weight_grad")]
    return training_graph(graph, Scheme("golden", -1, dict.fromkeys(numbers, 1.0)), CLASSES)


def check_gradients(data: Data, network: str, errors: str) -> dict[tuple[int, int, str], float]:
    """Cosine of every gradient with the golden one: (image, convolution, "bias" or "weight") -> cosine.

    errors  "fp32" or "int8"; dead channels are left out
    """
    golden = data.train_step(network)
    graph = golden_graph(data, network, golden)
    executor = Executor(graph, errors)
    head = executor.env.state["classifier"]
    head.weight, head.bias = golden["head_weight"], golden["head_bias"]
    found = {}
    for image in range(STEP_IMAGES):
        executor.forward(stored(golden["images_u8"][image]))
        executor.backward(int(golden["labels"][image]), STILL)
        for number, kind, ours, theirs in _pairs(graph, executor, golden, image):
            found[image, number, kind] = cosine(ours, theirs)
    return found


def _pairs(
    graph: Graph, executor: Executor, golden: dict[str, np.ndarray], image: int
) -> Iterator[tuple[int, str, np.ndarray, np.ndarray]]:
    """Our gradient and the golden one of each trained tensor, live channels only."""
    for number, name in enumerate(convolutions(graph)):
        layer = graph.layers[name]
        live = np.ones(len(layer.bias), bool) if layer.dead is None else ~layer.dead
        bias = golden[f"{image}/conv{number}/bias_grad"]
        yield number, "bias", executor.env.gradients[name, "bias"][live], bias[live]
        weight = golden.get(f"{image}/conv{number}/weight_grad")
        if weight is not None:
            weight = weight[:, 0] if layer.depthwise else weight.transpose(0, 2, 3, 1)
            yield number, "weight", executor.env.gradients[name, "weight"][live], weight[live]


def check_blocks(data: Data, network: str) -> dict[int, int]:
    """Largest difference of each block's int8 output for the first golden image."""
    golden = data.train_step(network)
    executor = Executor(read_checkpoint(data.checkpoint(network), integer_head=True))
    executor.forward(stored(golden["images_u8"][0]))
    differences = {}
    for number in range(sum(key.startswith("0/block") for key in golden)):
        expected = golden[f"0/block{number}_s8"][0].transpose(1, 2, 0).astype(int)
        name = f"blocks.{number}.add"
        found = executor.env.values.get(name)
        found = executor.env.values[f"blocks.{number}.pointwise2.y"] if found is None else found
        differences[number] = int(np.abs(found - expected).max())
    return differences


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two gradients; 1 for two zero gradients, 0 where only one is zero."""
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0:
        return float(not a.any() and not b.any())
    return float(a @ b) / norms
