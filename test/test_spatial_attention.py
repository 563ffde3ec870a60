"""One factor per pixel, made of what its channels say: PyTorch's gradients, the same bytes everywhere."""

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
from test_resample import assert_as_pytorch
from test_stream import assert_same_logits
from torch import nn

from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, scale_pixels
from microtrain.convert.ops.aten.pool import CHANNEL_MAXIMUM, CHANNEL_MEAN
from microtrain.convert.ops.scale import PIXELS
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme, convolutions


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Two gates, of many and of few channels. Nothing makes the gradients through the first small."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.attended_to(b.conv("x", 19, 3, 2, relu=False), op=None)
    return b.finish(b.conv(b.attended_to(b.conv(x, 4, 3)), 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize(
    "name", [scale_pixels.TO_FACTOR, f"{CHANNEL_MEAN}_bwd_x", f"{CHANNEL_MAXIMUM}_bwd_x"]
)
def test_a_gradient_that_is_lost_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[name]

    def lost(env: Any, node: Node) -> None:
        op.run(env, node)
        env.values[node.outputs[0]] = 0.0 * env.values[node.outputs[0]]

    monkeypatch.setitem(TABLE, name, replace(op, run=lost))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    made = {node.op for node in trained.graph.nodes}
    assert {scale_pixels.TO_MAP, scale_pixels.TO_FACTOR, f"{CHANNEL_MEAN}_bwd_x"} <= made
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_beside_rows_it_gives_the_same_logits(tmp_path: Path) -> None:
    assert_same_logits(compile_graph(network(size=19), Scheme("head", head="random"), 5), tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


# ---------------------------------------------------------------- as PyTorch and ONNX write it


class Spatial(nn.Module):
    """A map of 9x8, attended to. made: of it and of what its channels say"""

    def __init__(self, made: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.seven, self.made = nn.Conv2d(3, 6, 3, 1, 1), nn.Conv2d(2, 1, 7, 1, 3), made
        self.conv, self.head = nn.Conv2d(6, 5, 1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.body(x))
        said = self.seven(torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1))
        result: torch.Tensor = self.head(torch.relu(self.conv(self.made(x, said))).mean((2, 3)))
        return result


SIGMOID = nn.Sigmoid()
GATES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "CBAM": lambda x, said: x * SIGMOID(said),
    "the other way round": lambda x, said: SIGMOID(said) * x,
    "no gate": lambda x, said: said * x,
    "the largest by max": lambda x, said: x * (said + x.max(1, keepdim=True)[0]),
    "without the axis": lambda x, said: x * (said + x.mean(1).unsqueeze(1)).relu(),
}


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("name", GATES)
def test_it_is_that_of_pytorch(name: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    graph = assert_as_pytorch(Spatial(GATES[name]), tmp_path / f"model.{suffix}", (3, 9, 8))
    assert {PIXELS, CHANNEL_MEAN, CHANNEL_MAXIMUM} <= {n.op for n in graph.nodes}


class Crossed(nn.Module):
    """One factor for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        result: torch.Tensor = self.head((x * x.amax((1, 3), keepdim=True)).mean((2, 3)))
        return result


def test_what_else_goes_over_channels_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(3)
    torch.export.save(
        torch.export.export(Crossed().eval(), (torch.zeros(1, 3, 9, 8),)), tmp_path / "model.pt2"
    )
    with pytest.raises(ConvertError, match=r"a maximum of .* over .1, 3. is not supported; .* over the ch"):
        load_model(tmp_path / "model.pt2")
