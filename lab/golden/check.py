"""What the compiled networks compute, against the golden data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import Graph
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import convolutions

from .data import Data, stored
from .graphs import golden_blocks, step_graph

STEP_IMAGES = 4
STILL = reference.Sgd(0.0, 0.0, 0.0, 0, 0)

Forward = Callable[[np.ndarray], np.ndarray]  # stored image -> int8 logits [1000]
Tick = Callable[[], None]


def nothing() -> None:
    """What is done after each image where nobody watches."""


@dataclass(frozen=True)
class Logits:
    """Comparison of int8 logits: share of equal values, largest difference, images classified right."""

    equal: float
    max_diff: int
    top1: float


@dataclass(frozen=True)
class Gradient:
    """Cosine of one gradient with the golden one.

    image   0..3
    kind    "bias" or "weight"
    dead    channels that were left out, because they are constants here
    """

    image: int
    layer: str
    kind: str
    cosine: float
    dead: int


def compare_logits(forward: Forward, data: Data, network: str, count: int, tick: Tick = nothing) -> Logits:
    """Run `count` images (0: all) and compare with the golden logits."""
    found, labels = [], []
    for image, label in data.imagenet(count):
        found.append(forward(image))
        labels.append(label)
        tick()
    return compared(np.array(found), np.array(labels), data.logits(network))


def compared(found: np.ndarray, labels: np.ndarray, golden: np.ndarray) -> Logits:
    """Compare int8 logits [images, 1000] with the first of the golden ones."""
    diff = np.abs(found.astype(int) - golden[: len(found)])
    right = found.argmax(axis=1) == labels
    return Logits(float((diff == 0).mean()), int(diff.max()), float(right.mean()))


def check_logits(data: Data, network: str, count: int, tick: Tick = nothing) -> Logits:
    """Run `count` images (0: all) through the NumPy reference of the whole network."""
    executor = Executor(read_checkpoint(data.checkpoint(network), integer_head=True))
    return compare_logits(lambda image: executor.forward(image).reshape(-1), data, network, count, tick)


def compare_blocks(
    run: Callable[[np.ndarray], object],
    value: Callable[[str], np.ndarray],
    graph: Graph,
    golden: Mapping[str, np.ndarray],
) -> dict[tuple[int, str], int]:
    """Largest difference of each int8 tensor that the golden training steps know: (image, tensor) -> units.

    run    a forward pass over a stored image; value  a tensor of the last one, int8
    """
    differences = {}
    for image in range(STEP_IMAGES):
        run(stored(golden["images_u8"][image]))
        expected = {"features": golden[f"{image}/features_s8"].reshape(1, 1, -1)}
        if image == 0:
            expected |= dict(golden_blocks(graph, golden))
        for name, tensor in expected.items():
            differences[image, name] = int(np.abs(value(name).astype(int) - tensor).max())
    return differences


def check_blocks(data: Data, network: str) -> dict[tuple[int, str], int]:
    """`compare_blocks` of the NumPy reference."""
    golden = data.train_step(network)
    executor = Executor(step_graph(data, network, golden))
    return compare_blocks(
        executor.forward, lambda name: executor.env.values[name], executor.env.graph, golden
    )


def check_gradients(data: Data, network: str, errors: str, tick: Tick = nothing) -> list[Gradient]:
    """Compare every golden gradient, those of the float head included; errors: "fp32" or "int8"."""
    golden = data.train_step(network)
    executor = Executor(step_graph(data, network, golden), errors)
    found = []
    for image in range(STEP_IMAGES):
        executor.forward(stored(golden["images_u8"][image]))
        executor.backward(int(golden["labels"][image]), STILL)
        found += list(_gradients(executor, golden, image))
        tick()
    return found


def _gradients(executor: Executor, golden: Mapping[str, np.ndarray], image: int) -> Iterator[Gradient]:
    """Our gradients of one image beside the golden ones, live channels only."""
    graph, ours = executor.env.graph, executor.env.gradients
    for kind in ("bias", "weight"):
        head = cosine(ours["classifier", kind], golden[f"{image}/head_{kind}_grad"])
        yield Gradient(image, "classifier", kind, head, 0)
    for number, name in enumerate(convolutions(graph)):
        layer = graph.layers[name]
        assert layer.dead is not None
        live, dead = ~layer.dead, int(layer.dead.sum())
        bias = golden[f"{image}/conv{number}/bias_grad"]
        yield Gradient(image, name, "bias", cosine(ours[name, "bias"][live], bias[live]), dead)
        weight = golden.get(f"{image}/conv{number}/weight_grad")
        if weight is not None:
            weight = weight[:, 0] if layer.depthwise else weight.transpose(0, 2, 3, 1)
            yield Gradient(image, name, "weight", cosine(ours[name, "weight"][live], weight[live]), dead)


def dead_channels(data: Data, network: str) -> int:
    """Channels of a checkpoint that became constants."""
    layers = read_checkpoint(data.checkpoint(network)).layers.values()
    return sum(int(layer.dead.sum()) for layer in layers if layer.dead is not None)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two gradients; 1 for two zero gradients, 0 where only one is zero."""
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0:
        return float(not a.any() and not b.any())
    return float(a @ b) / norms
