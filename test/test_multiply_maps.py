"""The product of two maps: PyTorch's gradients, the same bytes everywhere, and gates as people write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, multiply
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import ALL, Scheme, convolutions


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Two gates, one behind the other's sum with what it was made of."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 9, 3, 2)
    x = b.add(b.gated(x, 9), x)
    return b.finish(b.conv(b.gated(x, 7), 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_times_the_wrong_map_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[multiply.BACKWARD]

    def passed_on(env: Any, node: Node) -> None:
        env.values[node.outputs[0]] = env.values[node.inputs[0]]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=passed_on))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    assert sum(node.op == multiply.BACKWARD for node in trained.graph.nodes) >= 2
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_it_learns_the_same_from_maps_that_are_made_again(tmp_path: Path) -> None:
    """With little memory a map has another name in the backward pass; its error is still its own."""
    scheme = Scheme("all", biases=-1, weights={ALL: 1.0}, head="random")
    trained = compile_graph(network(1), scheme, 5, Passes(arena=1))
    gates = {n.name: n.inputs[0] for n in trained.graph.forward_layers if n.op == multiply.MULTIPLY}
    others = [(n.inputs[1], gates[n.name]) for n in trained.graph.nodes if n.op == multiply.BACKWARD]
    assert any(other == f"again:{first}" for other, first in others), "a first map is made again"
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_beside_rows_it_gives_the_same_logits(tmp_path: Path) -> None:
    assert_same_logits(compile_graph(network(size=19), Scheme("head", head="random"), 5), tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


class Gated(nn.Module):
    """A gate between two convolutions. wide: channels of the second's result"""

    def __init__(self, gate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], wide: int = 8) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, wide, 1)
        self.gate, self.head = gate, nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.a(x))
        result: torch.Tensor = self.head(self.gate(x, self.b(x)).mean((2, 3)))
        return result


GATES: dict[str, Gated] = {
    "wavenet": Gated(lambda a, b: nn.Tanh()(a) * nn.Sigmoid()(b)),
    "relu behind": Gated(lambda a, b: functional.relu(b * a)),
    "swiglu": Gated(lambda a, b: nn.SiLU()(b) * a),
    "glu": Gated(lambda a, b: functional.glu(b, 1), wide=16),
    "glu by hand": Gated(lambda a, b: b[:, :8] * nn.Sigmoid()(b[:, 8:]), wide=16),
}


def exported(model: nn.Module, path: Path) -> Path:
    torch.export.save(torch.export.export(model.eval(), (torch.zeros(1, 3, 10, 10),)), path)
    return path


@pytest.mark.parametrize("name", GATES)
def test_gates_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    """In float to the last digits; with int8 weights and values to some hundredths."""
    torch.manual_seed(1)
    graph = load_model(exported(GATES[name], tmp_path / "model.pt2")).graph
    assert [n.op for n in graph.nodes].count(multiply.MULTIPLY) == 1
    images = np.random.default_rng(0).integers(0, 256, (16, 10, 10, 3)).astype(np.uint8)
    quantized = quantize_model(graph, images, Choices())
    executor = Executor(quantized)
    inputs = torch.tensor(images[:8].transpose(0, 3, 1, 2) / np.float32(255))
    with torch.no_grad():
        wanted = GATES[name](inputs).numpy()
    stored = (images[:8].astype(np.int16) - 128).astype(np.int8)
    found = np.stack([executor.forward(image).ravel() for image in stored])
    assert np.abs(found - wanted).max() < 0.01 < np.ptp(wanted)


class Tokens(nn.Module):
    """A feed-forward layer of a transformer with a gate (Shazeer 2020)."""

    def __init__(self, glu: bool) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 12, 5, 5), nn.LayerNorm(12)
        self.up, self.gate, self.down = nn.Linear(12, 16), nn.Linear(12, 8), nn.Linear(8, 12)
        self.head, self.glu = nn.Linear(12, 3), glu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        normed = self.norm(x)
        up, gate = self.up(normed), self.gate(normed)
        made = functional.glu(up, -1) * gate if self.glu else nn.SiLU()(up[..., :8]) * gate
        result: torch.Tensor = self.head((x + self.down(made)).mean(1))
        return result


class Vectors(nn.Module):
    """A gate of features."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.made, self.gate = nn.Linear(300, 9), nn.Linear(9, 7), nn.Linear(9, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.body(x.flatten(1)))
        result: torch.Tensor = self.head(self.made(x) * nn.Sigmoid()(self.gate(x)))
        return result


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("model", [Tokens(True), Tokens(False), Vectors()])
def test_gates_of_tokens_and_of_vectors(model: nn.Module, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    if suffix == "onnx":
        torch.onnx.export(
            model.eval(), (torch.zeros(1, 3, 10, 10),), str(path), opset_version=17, dynamo=False
        )
    graph = load_model(path if suffix == "onnx" else exported(model, path)).graph
    assert multiply.MULTIPLY in {n.op for n in graph.nodes}
    images = np.random.default_rng(0).integers(0, 256, (4, 10, 10, 3)).astype(np.uint8)
    with torch.no_grad():
        wanted = model(torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))).numpy()
    np.testing.assert_allclose(run_float(graph, images).reshape(4, 3), wanted, atol=1e-5)
