"""Attacks on the integer sums of gradients: hidden linear layers over large maps, sums that leave int32."""

from __future__ import annotations

import numpy as np
from convert.executor import Executor
from convert.ir import Graph, Input, Layer, Node, Shape, Source, Tensor, Window
from convert.pipeline import compile_graph
from convert.reference import Sgd
from convert.scheme import Scheme

STILL = Sgd(0.0, 0.0, 0.0, 0, 0)
CLASSES = 5
# Maps in front of a hidden linear layer and its outputs.
MAPS: tuple[tuple[Shape, int], ...] = (
    ((8, 8, 32), 128),
    ((16, 16, 4), 120),
    ((16, 16, 8), 128),
    ((24, 24, 4), 128),
    ((28, 28, 8), 128),
    ((32, 32, 4), 128),
    ((32, 32, 8), 256),
)


def _convolution(rng: np.random.Generator, name: str, x: Tensor, c_out: int, k: Window) -> Layer:
    """A quantized convolution with random weights, whose outputs use their range."""
    fan_in = k.kh * k.kw * x.channels
    scale = rng.uniform(0.3, 3.0, c_out) * 2.0 / (64 * fan_in**0.5)
    bias = (rng.normal(0, 0.2, c_out) / (x.scale * scale)).astype(np.int32)
    weight = rng.integers(-127, 128, (c_out, k.kh, k.kw, x.channels)).astype(np.int8)
    scale = scale.astype(np.float32).astype(np.float64)
    source = Source(f"{name}.weight", f"{name}.bias")
    return Layer(weight, bias, source, scale, np.zeros(c_out, bool))


def hidden_linear(shape: Shape, width: int, seed: int = 0) -> Graph:
    """Image > 1x1 convolution > map of that shape > hidden linear layer > head, quantized, random weights."""
    rng = np.random.default_rng(seed)
    scale = float(np.float32(2.5 / 255))
    image = Tensor("x", (*shape[:2], 3), "s8", float(np.float32(2 / 255)), -1)
    maps, hidden = Tensor("map", shape, "s8", scale, -128), Tensor("hidden", (1, 1, width), "s8", scale, -128)
    tensors = {t.name: t for t in (image, maps, hidden, Tensor("logits", (1, 1, CLASSES)))}
    point, whole = Window(1, 1), Window(*shape[:2])
    head = rng.normal(0, 0.3, (CLASSES, width)).astype(np.float32)
    layers = {
        "conv": _convolution(rng, "conv", image, shape[2], point),
        "linear": _convolution(rng, "linear", maps, width, whole),
        "head": Layer(head, np.zeros(CLASSES, np.float32), Source("head.weight", "head.bias")),
    }
    nodes = (
        Node("conv2d", "conv", ("x",), ("map",), "conv", point),
        Node("conv2d", "linear", ("map",), ("hidden",), "linear", whole),
        Node("head", "head", ("hidden",), ("logits",), "head"),
    )
    return Graph("hidden-linear", Input("x", (1.0,) * 3, (-128.0,) * 3), "logits", tensors, nodes, layers)


def everything_trained(graph: Graph) -> Graph:
    """The training graph of a scheme that trains every weight and bias."""
    return compile_graph(graph, Scheme("all", -1, {"all": 1.0}, head="random"), CLASSES).graph


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two gradients; 1 for two that are zero."""
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0:
        return float(not a.any() and not b.any())
    return float(a @ b) / norms


def least_cosine(graph: Graph, image: np.ndarray, label: int = 1) -> float:
    """Least cosine of a trained tensor's int8 gradient with that of the same graph in float64.

    graph  a training graph; image  stored, int8 [h, w, c]
    """
    found = []
    for errors in ("int8", "fp32"):
        executor = Executor(graph, errors)
        executor.forward(image)
        executor.backward(label, STILL)
        found.append(executor.env.gradients)
    return min(cosine(found[0][key], found[1][key]) for key in found[1])


def stored_image(graph: Graph, seed: int = 3) -> np.ndarray:
    """A random stored image."""
    shape = graph.tensors[graph.input.tensor].shape
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def min_cosine_hidden_linear(maps: tuple[tuple[Shape, int], ...] = MAPS) -> float:
    """Least cosine of a gradient through a hidden linear layer over these maps with the float64 gradient."""
    graphs = (everything_trained(hidden_linear(*case)) for case in maps)
    return min(least_cosine(graph, stored_image(graph)) for graph in graphs)
