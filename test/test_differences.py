"""A map less another, and sums with a factor: PyTorch's gradients, the same bytes everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_resample import Sampled, assert_as_pytorch, exported
from test_stream import assert_same_logits
from torch import nn

from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import joints
from microtrain.convert.ops.add import c_struct
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme, convolutions


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """What is subtracted is read once, and twice."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 9, 3, 2)
    x = b.less(x, b.conv(x, 9, 3, relu=False))
    once = b.conv(x, 9, relu=False)
    return b.finish(b.conv(b.less(b.less(b.conv(x, 9), once), x), 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_of_the_wrong_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joints, "turned", lambda name, error, factor: joints.passed(name, error, -factor))
    assert min(cosines(everything(network()).graph, "fp32").values()) < 0.0


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    factors = [f for node in trained.graph.backward_nodes for f in node.factors]
    assert min(factors) < 0.0, "an error changes its sign"
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


@pytest.mark.parametrize("first", [True, False])
def test_beside_rows_it_gives_the_same_logits(first: bool, tmp_path: Path) -> None:
    """A stream ends with its result less its input; its input less its result comes behind it."""
    b = Builder(np.random.default_rng(1), (12, 12, 3))
    x = b.conv("x", 9, 3, 2)
    x = b.add(x, b.conv(b.depthwise(x), 9))  # so that what follows has an input in memory
    y = b.conv(b.depthwise(b.conv(x, 14)), 9, relu=False)
    graph = b.finish(b.conv(b.less(y, x) if first else b.less(x, y), 11), 5)
    made = compile_graph(graph, Scheme("head", head="random"), 5)
    closing = [p for node in made.graph.nodes for p in node.parts[-1:] if p.op == "add" and p.factors]
    assert len(closing) == first
    assert_same_logits(made, tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


def test_integers_are_proven_of_differences_too() -> None:
    """Where they are of the sum: else each value would take the way in floats."""
    graph = network()
    nodes = [node for node in graph.nodes if node.op == "add"]
    words = [(c_struct(graph, node), c_struct(graph, replace(node, factors=()))) for node in nodes]
    assert all(less.b < 0 < more.b and (less.a < 0) == (more.a < 0) for less, more in words)
    assert any(less.a < 0 for less, _ in words)


# ---------------------------------------------------------------- as PyTorch and ONNX write it

SIGMOID = nn.Sigmoid()
DIFFERENCES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sub": lambda x: x - SIGMOID(x),
    "sub with alpha": lambda x: torch.sub(x, SIGMOID(x), alpha=2),
    "rsub": lambda x: torch.rsub(SIGMOID(x), x, alpha=0.5),
    "add with alpha": lambda x: torch.add(x, SIGMOID(x), alpha=0.5),
    "less and more": lambda x: x - 0.5 * (SIGMOID(x) - x),
    "in place": lambda x: SIGMOID(x).sub_(x),
    "neg": lambda x: -SIGMOID(x),
    "neg of a layer": lambda x: -x,
    "less a constant": lambda x: x - 0.5,
    "a constant less it": lambda x: 1 - x,
    "by a constant": lambda x: x / 3,
    "a constant by it": lambda x: 1 / (1 + SIGMOID(x)),
    "by a map": lambda x: x / SIGMOID(x),
    "less its first channel": lambda x: x - x[:, :1],
    "a gate that closes": lambda x: x * (1 - SIGMOID(-1.7 * x)),
}


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_it_is_that_of_pytorch(name: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    assert_as_pytorch(Sampled(DIFFERENCES[name]), tmp_path / f"model.{suffix}", (3, 9, 8))


@pytest.mark.filterwarnings("error:layer names made safe")
def test_names_of_constants_are_no_names_of_layers(tmp_path: Path) -> None:
    """ONNX calls them what it likes, /Constant_output_0 for instance."""
    torch.manual_seed(3)
    assert_as_pytorch(Sampled(DIFFERENCES["less a constant"]), tmp_path / "model.onnx", (3, 9, 8))


class OfTokens(nn.Module):
    """Attention less attention, as in differential transformers, without the attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.a, self.b = nn.Conv2d(3, 12, 4, 4), nn.Linear(12, 12), nn.Linear(12, 12)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.patches(x).flatten(2).transpose(1, 2))
        result: torch.Tensor = self.head((self.a(x) - self.b(x)).mean(1))
        return result


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_of_tokens(suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    assert_as_pytorch(OfTokens(), tmp_path / f"model.{suffix}", (3, 12, 8))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x - x, "subtracts a tensor from itself"),
        (lambda x: torch.add(x, SIGMOID(x), alpha=0), "alpha=0 is no factor of a sum"),
    ],
)
def test_others_are_refused(
    change: Callable[[torch.Tensor], torch.Tensor], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=said):
        load_model(exported(Sampled(change), tmp_path / "model.pt2", (3, 9, 8)))
