"""A vector that becomes a map, as in the middle of an autoencoder: from and into files of each kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import cosines, everything
from test_model_copy import Session, agree, interpreted
from test_onnx import constants, reference, saved
from test_parallel import assert_simulated, compiled
from test_resample import assert_as_pytorch, exported
from test_turned_weights import planned
from torch import nn
from torch.nn import functional

from lab.attack.tflite_files import Int8
from microtrain.base.rows import by_channels, by_pixels
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, unflatten
from microtrain.convert.ops.aten.channels import TAKE
from microtrain.convert.ops.aten.unflatten import UNFLATTEN
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.device.merging import merge

MAP = (4, 3, 5)  # channels, height, width


class Narrow(nn.Module):
    """Down to a vector, and up again from it. way: how the vector becomes a map"""

    def __init__(self, way: str = "view", biased: bool = True) -> None:
        super().__init__()
        self.way, (c, h, w) = way, MAP
        self.body, self.vector = nn.Conv2d(3, 6, 3, 2, 1), nn.Linear(6 * 25, 9)
        self.wide = nn.Conv2d(9, c * h * w, 1) if way == "pointwise" else nn.Linear(9, c * h * w, bias=biased)
        self.norm = nn.BatchNorm1d(c * h * w) if way == "norm" else nn.BatchNorm2d(c)
        self.up, self.last = nn.ConvTranspose2d(c, 5, 3, 2), nn.Conv2d(5, 6, 1)
        self.head = nn.Linear(6 + (c * h * w if way == "read twice" else 0), 6)
        for norm in (self.norm,):
            nn.init.uniform_(norm.running_mean, -0.3, 0.3)  # type: ignore[arg-type]
            nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
        for values in (p for p in self.parameters() if p.ndim > 1):
            nn.init.normal_(values, 0, 2.0 / values[0].numel() ** 0.5)

    def wide_of(self, x: torch.Tensor) -> torch.Tensor:
        c, h, w = MAP
        ways = {
            "view": lambda: self.wide(x).view(-1, c, h, w),
            "unflatten": lambda: torch.relu(self.wide(x)).unflatten(1, MAP),
            "relu behind": lambda: torch.relu(self.wide(x).reshape(-1, c, h, w)),
            "table behind": lambda: functional.silu(self.wide(x).reshape(-1, c, h, w)),
            "table": lambda: functional.leaky_relu(self.wide(x)).reshape(-1, c, h, w),
            "norm": lambda: torch.relu(self.norm(self.wide(x))).view(-1, c, h, w),
            "norm behind": lambda: torch.relu(self.norm(self.wide(x).view(-1, c, h, w))),
            "pixels first": lambda: self.wide(x).view(-1, h, w, c).permute(0, 3, 1, 2),
            "width first": lambda: self.wide(x).view(-1, c, w, h).transpose(2, 3),
            "pointwise": lambda: self.wide(x[..., None, None]).view(-1, c, h, w),
        }
        made: torch.Tensor = ways[self.way]()  # type: ignore[no-untyped-call]
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.vector(torch.relu(self.body(x)).flatten(1)))
        if self.way == "read twice":
            x = self.wide(x)
            made = torch.relu(self.last(torch.relu(self.up(x.view(-1, *MAP))))).mean((2, 3))
            return torch.as_tensor(self.head(torch.cat((made, x), 1)))
        x = self.wide_of(x)
        if self.way == "relu behind":
            x = x + functional.max_pool2d(x, 3, 1, 1)
        return torch.as_tensor(self.head(torch.relu(self.last(torch.relu(self.up(x)))).mean((2, 3))))


WAYS = (
    *("view", "unflatten", "relu behind", "table behind", "table", "norm", "norm behind"),
    *("pixels first", "width first", "pointwise", "read twice"),
)
GATHERED = ("width first", "read twice")  # in another order than rows can be put in, or read in its own
IN_ORDER = ("pixels first", *GATHERED)


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("way", WAYS)
def test_a_map_of_a_vector_is_that_of_pytorch(way: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    graph = assert_as_pytorch(Narrow(way), tmp_path / f"model.{suffix}", (3, 9, 9))
    ops = [n.op for n in graph.nodes]
    assert ops.count(UNFLATTEN) == 1 and ops.count(TAKE) == (way in GATHERED)
    c, h, w = MAP
    rows = {name: layer.source.rows for name, layer in graph.layers.items() if layer.source.rows}
    assert rows == ({} if way in IN_ORDER else {"wide": (h, w, c)})


def test_a_series_of_a_vector_is_that_of_pytorch(tmp_path: Path) -> None:
    class OfSeries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.wide = nn.Conv1d(2, 4, 5, 4), nn.Linear(16, 3 * 7)
            self.up, self.head = nn.ConvTranspose1d(3, 6, 4, 2, 1), nn.Linear(6, 4)
            for values in (p for p in self.parameters() if p.ndim > 1):
                nn.init.normal_(values, 0, 2.0 / values[0].numel() ** 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.wide(torch.relu(self.body(x)).flatten(1)).unflatten(1, (3, 7))
            return torch.as_tensor(self.head(torch.relu(self.up(torch.relu(x))).mean(2)))

    torch.manual_seed(2)
    for suffix in ("pt2", "onnx"):
        graph = assert_as_pytorch(OfSeries(), tmp_path / f"model.{suffix}", (2, 17))
        assert graph.layers["wide"].source.rows == (7, 1, 3)


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_a_group_norm_of_a_vector_stays_one(suffix: str, tmp_path: Path) -> None:
    """Exporters write it as an instance norm of a view, which is no map."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.inner, self.head = nn.Conv2d(3, 8, 3, 2), nn.Linear(8, 12), nn.Linear(12, 4)
            self.norm = nn.GroupNorm(4, 12)
            nn.init.uniform_(self.norm.weight, 0.5, 1.5)
            for values in (p for p in self.parameters() if p.ndim > 1):
                nn.init.normal_(values, 0, 2.0 / values[0].numel() ** 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inner(torch.relu(self.conv(x)).mean((2, 3)))
            return torch.as_tensor(self.head(torch.relu(self.norm(x))))

    torch.manual_seed(2)
    graph = assert_as_pytorch(Grouped(), tmp_path / f"model.{suffix}", (3, 9, 9))
    assert UNFLATTEN not in [n.op for n in graph.nodes]


def quantized(way: str, folder: Path) -> Graph:
    torch.manual_seed(4)
    path = exported(Narrow(way), folder / "model.pt2", (3, 9, 9))
    images = np.random.default_rng(0).integers(0, 256, (16, 9, 9, 3)).astype(np.uint8)
    return quantize_model(load_model(path).graph, images, Choices())


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("way", ["view", "unflatten", "table behind", "width first", "read twice"])
def test_gradients_are_those_of_autograd(way: str, errors: str, tmp_path: Path) -> None:
    found = cosines(everything(quantized(way, tmp_path)).graph, errors)
    assert {("wide", "weight"), ("wide", "bias"), ("body", "bias")} <= set(found)
    assert min(found.values()) > (0.999 if errors == "fp32" else 0.98), found


def test_an_error_in_the_order_of_the_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, op = everything(quantized("view", tmp_path)).graph, TABLE[unflatten.BACKWARD]

    def by_channel(env: Any, node: Node) -> None:
        error = env.values[node.inputs[0]].transpose(2, 0, 1).reshape(1, 1, -1)
        env.values[node.outputs[0]] = env.backend.error_pass(error, 1.0, env.clamp(node.clamp))

    monkeypatch.setitem(TABLE, op.name, replace(op, run=by_channel))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("way", ["unflatten", "read twice"])
def test_generated_code_trains_like_the_executor(way: str, tmp_path: Path) -> None:
    trained = partly_trained(quantized(way, tmp_path), 4)
    assert unflatten.BACKWARD in [node.op for node in trained.graph.nodes]
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = quantized("unflatten", tmp_path)
    image = np.random.default_rng(3).integers(-128, 128, (9, 9, 3)).astype(np.int8)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image, tmp_path)


def test_map_and_vector_are_one_memory(tmp_path: Path) -> None:
    """Where nothing else reads the vector; so are their errors."""
    plan = compile_graph(quantized("view", tmp_path), Scheme("biases", biases=-1), 6)
    at = {name: placed.offset for name, placed in plan.plan.placements.items()}
    made = next(n for n in plan.graph.forward_nodes if n.op == UNFLATTEN)
    x, y = made.inputs[0], made.outputs[0]
    assert at[x] == at[y] and at[f"err:{x}"] == at[f"err:{y}"]
    assert at[f"err:{x}/scale"] == at[f"err:{y}/scale"]


# ---------------------------------------------------------------- back into the file


def test_rows_go_there_and_back() -> None:
    values = np.arange(60 * 2).reshape(60, 2)
    there = by_pixels(values, (3, 5, 4))
    np.testing.assert_array_equal(there.reshape(3, 5, 4, 2), values.reshape(4, 3, 5, 2).transpose(1, 2, 0, 3))
    np.testing.assert_array_equal(by_channels(there, (3, 5, 4)), values)


@pytest.mark.parametrize(
    ("way", "biased"), [("view", True), ("norm", True), ("norm", False), ("view", False)]
)
def test_what_was_trained_goes_back_as_it_came(way: str, biased: bool, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = Narrow(way, biased).eval()
    path = exported(model, tmp_path / "model.pt2", (3, 9, 9))
    plan, arrays = planned(model, path)
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    assert {t.source.rows for t in plan.trainables.tensors if t.layer == "wide"} == {(3, 5, 4)}
    merged, _ = merge(plan, arrays, state)
    state.setdefault("wide.bias", np.zeros(60))
    bias = "norm.bias" if way == "norm" else "wide.bias"
    for name in ("wide.weight", bias, "up.weight", "vector.weight"):
        np.testing.assert_allclose(merged[name], state[name], atol=0.03, err_msg=name)
    assert np.abs(by_pixels(merged["wide.weight"], (3, 5, 4)) - state["wide.weight"]).max() > 0.2


def test_a_trained_onnx_file_answers_as_the_device(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32),
        a=rng.normal(0, 0.2, (96, 9)).astype(np.float32),
        g=rng.normal(0, 0.4, (9, 60)).astype(np.float32),
        b=rng.normal(0, 0.2, 60).astype(np.float32),
        sizes=np.array([0, 4, -1, 5]),
        v=rng.normal(0, 0.3, (4, 5, 3, 3)).astype(np.float32),
        u=rng.normal(0, 0.4, (5, 4)).astype(np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c1"], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Flatten", ["r1"], ["f1"]),
        helper.make_node("Gemm", ["f1", "a"], ["g1"]),
        helper.make_node("Relu", ["g1"], ["r2"]),
        helper.make_node("Gemm", ["r2", "g", "b"], ["g2"]),
        helper.make_node("Reshape", ["g2", "sizes"], ["m"]),
        helper.make_node("Relu", ["m"], ["r3"]),
        helper.make_node("ConvTranspose", ["r3", "v"], ["c2"], strides=[2, 2]),
        helper.make_node("Relu", ["c2"], ["r4"]),
        helper.make_node("GlobalAveragePool", ["r4"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f2"]),
        helper.make_node("Gemm", ["f2", "u"], ["y"]),
    ]
    session = Session(saved(tmp_path / "model.onnx", nodes, arrays, [1, 3, 9, 9]), 4)
    session.copy(tmp_path / "out.onnx")
    found = reference(tmp_path / "out.onnx", session.images.transpose(0, 3, 1, 2) / 255.0)
    logits = session.logits()
    agree(found, logits, 0.1 * np.abs(logits).max())


# ---------------------------------------------------------------- TFLite


def of_keras(shape: tuple[int, ...], rows: bool = False) -> Int8:
    """Dense, Reshape and a convolution of what that makes, int8. rows: a series as Conv1D of Keras has it"""
    net = Int8.input((6, 5, 4)).conv(5, (3, 3), 2, (3, 3), (0.03, -128)).linear(7, (0.05, -128), 1)
    net.dense(int(np.prod(shape)), (0.06, -11), 0)
    sizes = [shape, (1, *shape)] if rows else [shape]
    for each in sizes:
        made = net.w.tensor("map", (1, *each), scale=(0.06,), zero=(-11,))
        to = net.w.tensor("to", (len(each) + 1,), "int32", np.array([1, *each]))
        net.w.op("RESHAPE", (net.x, to), (made,))
        net.x, net.shape = made, each
    h, w, _ = net.shape
    return net.conv(6, (min(2, h), 2), 1, (h, w), (0.05, -128)).mean((0.03, -128)).linear(4, (0.05, 0))


TFLITE = (((3, 4, 5), False), ((8, 5), True), ((1, 8, 5), False))


@pytest.mark.parametrize(("shape", "rows"), TFLITE)
def test_int8_tflite_gives_the_integers_of_its_interpreter(
    shape: tuple[int, ...], rows: bool, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(of_keras(shape, rows).file())
    graph = quantize(load_model(path).graph, {})
    assert [n.op for n in graph.nodes].count(UNFLATTEN) == 1 and TAKE not in [n.op for n in graph.nodes]
    samples = np.random.default_rng(1).integers(0, 256, (20, 6, 5, 4)).astype(np.uint8)
    wanted = interpreted(path, samples.astype(int) - 128)
    assert len(np.unique(wanted)) > 10, "the logits say something"
    found = np.clip(np.rint(run_int8(graph, samples).reshape(20, 4) / 0.05), -128, 127) * 0.05
    assert np.abs(found - wanted).max() <= 0.0501, "one unit"


def test_a_trained_tflite_file_answers_as_the_device(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(of_keras((3, 4, 5)).file())
    session = Session(path, 4)
    session.copy(tmp_path / "out.tflite")
    logits = session.logits()
    found = interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128)
    agree(found, logits, 0.02 * np.abs(logits).max())
