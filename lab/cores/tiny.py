"""A network that takes microseconds, for many calls of the library's functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.ir import Graph, Input, Layer, Node, Source, Tensor, Window
from microtrain.convert.ops.hop import checked
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme

from .machines import Session

NAME, CLASSES, HOP = "tiny", 3, 2


def session(folder: Path) -> Session:
    """Its library, with statistics of features, windows that overlap, a trained weight and trained biases."""
    compiled = compile_graph(
        checked(graph(), HOP), Scheme("tiny", 2, {-1: 1.0}, head="random"), CLASSES, Passes(imprint=4)
    )
    generated, library = folder / f"generated-{NAME}", folder / f"library-{NAME}"
    generated.mkdir(parents=True, exist_ok=True)
    for name, text in generate(compiled, "lab/cores").files.items():
        (generated / name).write_text(text, encoding="utf-8")
    export(library, generated, NAME)
    return Session(library, NAME, 2)


def graph() -> Graph:
    """A convolution, a depthwise one, average pooling, the head."""
    rng = np.random.default_rng(0)
    layers = {
        "stem": _layer("stem", rng.integers(-127, 128, (4, 3, 3, 1))),
        "deep": _layer("deep", rng.integers(-127, 128, (4, 3, 3))),
        "head": Layer(
            rng.normal(0, 0.3, (CLASSES, 4)).astype(np.float32),
            np.zeros(CLASSES, np.float32),
            Source("head.weight", "head.bias"),
        ),
    }
    shapes = {"x": (6, 6, 1), "a": (3, 3, 4), "b": (3, 3, 4), "mean": (1, 1, 4)}
    tensors = {name: Tensor(name, shape, "s8", 1 / 128, -128) for name, shape in shapes.items()}
    tensors["logits"] = Tensor("logits", (1, 1, CLASSES), "f32")
    nodes = (
        Node("conv2d", "stem", ("x",), ("a",), "stem", Window(3, 3, 2, 2, 1, 1)),
        Node("dwconv2d", "deep", ("a",), ("b",), "deep", Window(3, 3, 1, 1, 1, 1)),
        Node("avgpool", "pool", ("b",), ("mean",), None, Window(3, 3, 1, 1, 0, 0)),
        Node("head", "head", ("mean",), ("logits",), "head"),
    )
    return Graph(NAME, Input("x", (1.0,), (-128.0,)), "logits", tensors, nodes, layers)


def _layer(name: str, weight: np.ndarray) -> Layer:
    channels = len(weight)
    scale, bias = np.full(channels, 0.0078125), np.zeros(channels, np.int32)
    source = Source(f"{name}.weight", f"{name}.bias")
    return Layer(weight.astype(np.int8), bias, source, scale, np.zeros(channels, bool))
