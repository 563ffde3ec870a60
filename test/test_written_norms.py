"""Normalisations of groups, instances and pixels that files write out: known by what they compute."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from test_model_copy import Session, interpreted
from test_onnx import constants, export, load, reference, saved
from test_own_tflite import GROUP_NORM
from torch import nn

from lab.attack import keras_networks, litert_networks
from lab.attack.tflite_networks import Float
from microtrain.base.errors import Error
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.operations import ADD, MEAN, MUL, SUB, Network, Operation
from microtrain.convert.frontends.written_norms import written_norms
from microtrain.convert.ir import ConvertError

SIDE, CHANNELS = 8, 6
Nodes = list[Any]


class Writing:
    """Nodes of an ONNX graph, one after the other, and its constants."""

    def __init__(self) -> None:
        self.nodes: Nodes = []
        self.arrays: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str | np.ndarray, **about: Any) -> str:
        names = []
        for given in inputs:
            if isinstance(given, str):
                names.append(given)
                continue
            names.append(f"k{len(self.arrays)}")
            self.arrays[names[-1]] = given if given.dtype.kind == "i" else given.astype(np.float32)
        made = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [made], f"n{len(self.nodes)}", **about))
        return made

    def drawn(self, *shape: int, around: float = 0.0) -> np.ndarray:
        return self.rng.normal(around, 0.3, shape)

    def conv(self, x: str, c: int, c_in: int) -> str:
        return self.op("Conv", x, self.drawn(c, c_in, 3, 3), self.drawn(c), pads=[1, 1, 1, 1])

    def file(self, x: str, c: int, folder: Path) -> Path:
        """With a head."""
        x = self.op("GlobalAveragePool", self.op("Relu", self.conv(x, 5, c)))
        flat = self.op("Flatten", x)
        self.nodes.append(helper.make_node("Gemm", [flat, "w", "b"], ["y"], "head", transB=1))
        self.arrays |= {n: self.drawn(*s).astype(np.float32) for n, s in (("w", (3, 5)), ("b", (3,)))}
        path = folder / "written.onnx"
        return saved(path, self.nodes, constants(**self.arrays), ["batch", 2, SIDE, SIDE])


def factor_of(w: Writing, x: str, axes: list[int], gain: np.ndarray | None, centred: bool = True) -> str:
    """One over the deviation of a tensor, times a scale, as tf2onnx writes it."""
    less = w.op("Sub", x, w.op("ReduceMean", x, axes=axes, keepdims=1)) if centred else x
    variance = w.op("ReduceMean", w.op("Mul", less, less), axes=axes, keepdims=1)
    root = w.op("Reciprocal", w.op("Sqrt", w.op("Add", variance, np.array(1e-3))))
    return root if gain is None else w.op("Mul", root, gain)


def keras(w: Writing, x: str, axes: list[int], own: tuple[int, ...]) -> str:
    """x times the factor, and its mean, negative, times the factor, with a shift."""
    minus = w.op("Neg", w.op("ReduceMean", x, axes=axes, keepdims=1))
    factor = factor_of(w, x, axes, w.drawn(*own, around=1.0))
    rest = w.op("Add", w.op("Mul", minus, factor), w.drawn(*own))
    return w.op("Add", w.op("Mul", x, factor), rest)


def groups_last(w: Writing, x: str) -> str:
    """Keras' GroupNormalization of a map in NHWC."""
    x = w.op("Reshape", w.op("Transpose", x, perm=[0, 2, 3, 1]), np.array([-1, SIDE, SIDE, 2, CHANNELS // 2]))
    made = keras(w, x, [1, 2, 4], (1, 1, 1, 2, CHANNELS // 2))
    made = w.op("Reshape", made, np.array([-1, SIDE, SIDE, CHANNELS]))
    return w.op("Transpose", made, perm=[0, 3, 1, 2])


def instances(w: Writing, x: str) -> str:
    return keras(w, x, [2, 3], (1, CHANNELS, 1, 1))


def pixels(w: Writing, x: str) -> str:
    """Keras' LayerNormalization of a map, which tf2onnx has turned to NCHW."""
    return keras(w, x, [1], (1, CHANNELS, 1, 1))


def lengths(w: Writing, x: str) -> str:
    """Keras' RMSNormalization."""
    gain = w.drawn(1, CHANNELS, 1, 1, around=1.0)
    return w.op("Mul", x, factor_of(w, x, [1], gain, centred=False))


def without_a_scale(w: Writing, x: str) -> str:
    view = w.op("Reshape", x, np.array([1, 3, -1]))
    less = w.op("Sub", view, w.op("ReduceMean", view, axes=[2], keepdims=1))
    made = w.op("Mul", less, factor_of(w, view, [2], None))
    return w.op("Reshape", made, np.array([1, CHANNELS, SIDE, SIDE]))


def written(make: Callable[[Writing, str], str], folder: Path) -> Path:
    w = Writing()
    return w.file(make(w, w.conv("x", CHANNELS, 2)), CHANNELS, folder)


FORMS = (groups_last, instances, pixels, lengths, without_a_scale)


@pytest.mark.parametrize("make", FORMS)
def test_what_onnx_files_write_out_has_their_values(make: Any, tmp_path: Path) -> None:
    path = written(make, tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (4, SIDE, SIDE, 2)).astype(np.uint8)
    found = run_float(load(path), images).reshape(4, 3)
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert np.ptp(wanted, axis=0).min() > 1e-3, "the logits say something"


@pytest.mark.parametrize("make", [f for f in FORMS if f is not lengths])
def test_they_are_one_op(make: Any, tmp_path: Path) -> None:
    ops = [node.op for node in load(written(make, tmp_path)).nodes]
    assert ops.count(GROUP_NORM) == 1 and ops[:2] == ["conv2d", GROUP_NORM] and len(ops) <= 6


@pytest.mark.parametrize("make", [groups_last, instances, pixels])
def test_their_trained_constants_go_back_into_the_file(make: Any, tmp_path: Path) -> None:
    session = Session(written(make, tmp_path), 3)
    session.copy(tmp_path / "out.onnx")
    samples = np.moveaxis(session.images / 255.0, -1, 1)
    found, before = (reference(p, samples) for p in (tmp_path / "out.onnx", session.model))
    logits = session.logits()
    assert np.abs(found - logits).max() < 0.08 * np.ptp(logits) < 0.3 * np.abs(before - logits).max()


class Own(nn.Module):
    """A group norm that forward() writes out in PyTorch. groups: of channels; 0: of each channel"""

    shape = (2, SIDE, SIDE)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups, self.conv, self.last = groups, nn.Conv2d(2, CHANNELS, 3), nn.Linear(CHANNELS, 3)
        self.scale = nn.Parameter(torch.rand(1, CHANNELS, 1, 1) + 0.5)
        self.shift = nn.Parameter(torch.randn(1, CHANNELS, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        view = x.view(1, self.groups, -1) if self.groups else x
        axes = (2,) if self.groups else (2, 3)
        mean, var = view.mean(axes, keepdim=True), view.var(axes, keepdim=True, unbiased=False)
        view = (view - mean) / torch.sqrt(var + 1e-5)
        x = view.view(x.shape) * self.scale + self.shift
        return torch.as_tensor(self.last(torch.relu(x).mean((2, 3))))


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_what_pytorchs_export_writes_out_has_its_values(groups: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = export(Own(groups).eval(), tmp_path / "own.onnx")
    images = np.random.default_rng(1).integers(0, 256, (4, SIDE, SIDE, 2)).astype(np.uint8)
    graph = load(path)
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(run_float(graph, images).reshape(4, 3), wanted, atol=2e-5)
    assert [node.op for node in graph.nodes].count(GROUP_NORM) == 1


def stretched(w: Writing, x: str) -> str:
    """The mean is subtracted twice."""
    mean = w.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    less = w.op("Sub", w.op("Sub", x, mean), mean)
    return w.op("Mul", less, factor_of(w, x, [2, 3], None))


def of_another(w: Writing, x: str) -> str:
    """The deviation is that of another map."""
    other = w.conv(x, CHANNELS, CHANNELS)
    mean = w.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    return w.op("Mul", w.op("Sub", x, mean), factor_of(w, other, [2, 3], None))


def computed(w: Writing, x: str) -> str:
    """The scale is no constant of the file, but the product of two."""
    gains = (w.drawn(1, CHANNELS, 1, 1, around=1.0) for _ in range(2))
    made = instances(w, x)
    for gain in gains:
        made = w.op("Mul", made, gain)
    return made


@pytest.mark.parametrize("make", [stretched, of_another])
def test_what_only_looks_like_one_is_none(make: Any, tmp_path: Path) -> None:
    try:
        graph = load(written(make, tmp_path))
    except ConvertError as error:
        assert "layer" in str(error) or "divides" in str(error)
        return
    assert GROUP_NORM not in [node.op for node in graph.nodes]


def test_what_stands_behind_one_stays(tmp_path: Path) -> None:
    """Of several scales one is the normalisation's own."""
    path = written(computed, tmp_path)
    images = np.random.default_rng(1).integers(0, 256, (4, SIDE, SIDE, 2)).astype(np.uint8)
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(run_float(load(path), images).reshape(4, 3), wanted, atol=2e-5)


@pytest.mark.parametrize("of", [keras_networks, litert_networks])
def test_tflites_are_one_op(of: Any, tmp_path: Path) -> None:
    ops = [node.op for node in load_model(of.groups_of_channels().file(tmp_path)).graph.nodes]
    assert ops.count(GROUP_NORM) == (3 if of is keras_networks else 2)
    assert not {"power_of", "multiply_maps", "square"} & set(ops)


def test_a_part_that_something_else_reads_is_made(tmp_path: Path) -> None:
    """Then it is no normalisation, and each operator is what it is."""
    net = keras_networks.turned(Float(2, 9, 8), 0, 2, 3, 1).conv(6, 3, 3, act=0)
    net = keras_networks.turned(net, 0, 3, 1, 2)
    before = len(net.w.tensors)
    net = litert_networks.instances(net)
    mean = before + 1  # behind the axes
    net.op("ADD", (net.x, mean), net.shape, "AddOptions")
    net = litert_networks.ended(keras_networks.turned(net, 0, 2, 3, 1).conv(4, 2, 2))
    path = net.file(tmp_path)
    pixels = np.random.default_rng(1).integers(0, 256, (8, 2, 9, 8)).astype(np.uint8)
    graph = load_model(path).graph
    found = run_float(graph, np.moveaxis(pixels, 1, -1)).reshape(8, 3)
    np.testing.assert_allclose(found, interpreted(path, pixels / 255.0), atol=2e-5)
    assert GROUP_NORM not in [node.op for node in graph.nodes]


def normed_with(gain: np.ndarray, shift: np.ndarray, folder: Path) -> Path:
    """An instance norm of a map of six columns and channels, with what is a scale and a shift, or is not."""
    net = Float(8, 8, 2).conv(6, 3, 3, act=0)
    x, shape, one, sides = net.x, net.shape, (1, 1, 1, 6), net.whole(1, 2)

    def constant(values: Any) -> int:
        return net.w.tensor("constant", np.shape(values), "float32", np.asarray(values, np.float32))

    mean = net.op("MEAN", (x, sides), one, "ReducerOptions", KeepDims=True).x
    less = net.op("SUB", (x, mean), shape, "SubOptions").x
    net.op("MUL", (less, less), shape, "MulOptions")
    net.op("MEAN", (net.x, sides), one, "ReducerOptions", KeepDims=True)
    net.op("ADD", (net.x, constant(1e-3)), one, "AddOptions").op("RSQRT", (net.x,), one)
    net.op("MUL", (less, net.x), shape, "MulOptions").op("MUL", (net.x, constant(gain)), shape, "MulOptions")
    net.op("ADD", (net.x, constant(shift)), shape, "AddOptions")
    return net.conv(4, 2, 2).over("MEAN", 1, 2).linear(3).file(folder)


@pytest.mark.parametrize("way", ["zeros by columns", "ones by columns", "both by channels"])
def test_constants_that_only_look_like_its_own_are_not_written_to(way: str, tmp_path: Path) -> None:
    """Zeros and ones along another axis, of as many: what was learned would stand along that."""
    gain = np.ones((1, 1, 6, 1)) if way.startswith("ones") else np.linspace(0.5, 1.5, 6)
    shift = np.zeros((1, 1, 6, 1)) if way.startswith("zeros") else np.zeros(6)
    session = Session(normed_with(gain, shift, tmp_path), 3, rate=0.2)
    try:
        session.copy(tmp_path / "out.tflite")
    except Error:
        assert way != "both by channels"
        return
    logits = session.logits()
    found = interpreted(tmp_path / "out.tflite", session.images / 255.0)
    assert np.abs(found - logits).max() < 0.1 * np.ptp(logits)


def test_a_long_chain_of_copies_is_no_damage(tmp_path: Path) -> None:
    w = Writing()
    x = w.conv("x", CHANNELS, 2)
    copies = [w.op("Identity", w.drawn(CHANNELS, 1, 1))]
    for _ in range(2000):
        copies.append(w.op("Identity", copies[-1]))
    assert load(w.file(w.op("Add", x, copies[-1]), CHANNELS, tmp_path)).nodes


def test_many_norms_take_a_moment(tmp_path: Path) -> None:
    w = Writing()
    x = w.conv("x", CHANNELS, 2)
    for _ in range(100):
        x = instances(w, x)
    path, start = w.file(x, CHANNELS, tmp_path), time.process_time()
    load(path)
    assert time.process_time() - start < 5.0


def test_circles_and_holes_come_to_an_end() -> None:
    """Whatever a damaged file says of who reads whom."""
    run = lambda values: values[0]  # noqa: E731
    ops = [
        Operation("rsqrt", (0,), (1,), run),
        Operation(ADD, (2, 9), (0,), run),
        Operation(MEAN, (3, 8), (2,), run),
        Operation(MUL, (4, 4), (3,), run),
        Operation(SUB, (5, 6), (4,), run),
        Operation(MEAN, (5, 8), (6,), run),
        Operation("view", (1,), (5,), run),
        Operation("rsqrt", (11,), (10,), run),
        Operation("view", (12,), (11,), run),
        Operation("view", (11,), (12,), run),
    ]
    held = {9: np.ones(1), 8: np.ones(1)}
    network = Network(ops, held.get, frozenset())  # type: ignore[arg-type]
    assert written_norms(network, lambda key: (1, 4, 3, 3)) == {}
