"""Networks that take microseconds, for many calls of the library's functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from microtrain.base.sound import parse
from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.ir import Graph, Input, Layer, Node, Source, Tensor, Window
from microtrain.convert.memory.replay import Request
from microtrain.convert.ops.hop import checked
from microtrain.convert.ops.regression import measured
from microtrain.convert.options import LOSSES
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.scheme import Scheme

from .machines import Session

CLASSES, HOP = 3, 2
SOUND = parse("log-mel:rate=4000,frame=64,hop=16,bands=6")
SCHEME = Scheme("tiny", 2, {-1: 1.0}, head="random")


def sessions(folder: Path) -> list[Session]:
    """Their libraries, each with a trained weight and trained biases: one that hears and tells classes apart,
    with statistics of features and windows that overlap; one that learns from targets; one that remembers."""
    listener = checked(graph("listener"), HOP).replace(sound=SOUND)
    aimer = measured(graph("aimer"), np.eye(CLASSES))
    rememberer = Passes(imprint=4, replay=Request(records=CLASSES))
    return [
        _library(compile_graph(listener, SCHEME, CLASSES, Passes(imprint=4)), folder),
        _library(compile_graph(aimer, replace(SCHEME, loss=LOSSES["huber"]), CLASSES), folder),
        _library(compile_graph(graph("rememberer"), SCHEME, CLASSES, rememberer), folder),
    ]


def _library(compiled: Compiled, folder: Path) -> Session:
    name = compiled.graph.name
    generated, library = folder / f"generated-{name}", folder / f"library-{name}"
    generated.mkdir(parents=True, exist_ok=True)
    for file, text in generate(compiled, "lab/cores").files.items():
        (generated / file).write_text(text, encoding="utf-8")
    export(library, generated, name)
    return Session(library, name, 2)


def graph(name: str) -> Graph:
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
    tensors = {key: Tensor(key, shape, "s8", 1 / 128, -128) for key, shape in shapes.items()}
    tensors["logits"] = Tensor("logits", (1, 1, CLASSES), "f32")
    nodes = (
        Node("conv2d", "stem", ("x",), ("a",), "stem", Window(3, 3, 2, 2, 1, 1)),
        Node("dwconv2d", "deep", ("a",), ("b",), "deep", Window(3, 3, 1, 1, 1, 1)),
        Node("avgpool", "pool", ("b",), ("mean",), None, Window(3, 3, 1, 1, 0, 0)),
        Node("head", "head", ("mean",), ("logits",), "head"),
    )
    return Graph(name, Input("x", (1.0,), (-128.0,)), "logits", tensors, nodes, layers)


def _layer(name: str, weight: np.ndarray) -> Layer:
    channels = len(weight)
    scale, bias = np.full(channels, 0.0078125), np.zeros(channels, np.int32)
    source = Source(f"{name}.weight", f"{name}.bias")
    return Layer(weight.astype(np.int8), bias, source, scale, np.zeros(channels, bool))
