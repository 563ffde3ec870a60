"""Convolutions in groups, and with taps apart: PyTorch's logits and gradients, the same bytes everywhere."""

from __future__ import annotations

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
from torch_networks import Groups, images_for, randomise, torch_logits, write

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, grouped
from microtrain.convert.passes.accumulators import prove
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme, convolutions


def network(seed: int = 0, size: int = 14, classes: int = 5) -> Graph:
    """Groups, taps apart, both, a multiplier, and a residual add around a bottleneck of groups."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.grouped(b.conv("x", 12, 3, 2), 12, 3, 1, groups=3)
    inner = b.grouped(b.conv(x, 20), 20, 3, 1, groups=4, apart=2)
    x = b.add(b.conv(inner, 12, relu=False), x)
    x = b.grouped(b.grouped(x, 24, 3, 2, groups=12), 10, 3, 1, apart=2)
    return b.finish(b.conv(x, 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_errors_that_cross_groups_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[f"{grouped.GROUPED}_bwd_x"]

    def crossed(env: Any, node: Node) -> None:
        op.run(env, node)
        env.values[node.outputs[0]] = env.values[node.outputs[0]][..., ::-1]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=crossed))
    assert min(cosines(graph, "fp32").values()) < 0.99


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


@pytest.mark.parametrize("arriving", [True, False])
def test_rows_give_the_same_logits(arriving: bool, tmp_path: Path) -> None:
    frozen = compile_graph(network(size=21), Scheme("head", head="random"), 5, Passes(arriving=arriving))
    chains = [part.op for node in frozen.graph.nodes for part in node.parts]
    assert chains.count(grouped.GROUPED) == 4
    assert_same_logits(frozen, tmp_path)


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_the_simulation_has_the_executors_gradients(fraction: float, tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), fraction)
    assert_simulated(model, image_of(graph, 1), tmp_path)


def test_its_integers_are_proven() -> None:
    graph = everything(network()).graph
    assert prove(graph) is graph
    made = [n.outputs[0] for n in graph.nodes if n.op == grouped.GROUPED]
    grown = {name: replace(graph.tensors[name], shape=(400, 400, 12)) for name in made}
    with pytest.raises(ConvertError, match=r"the gradient of a weight can reach|times inputs can reach"):
        prove(graph.replace(tensors={**graph.tensors, **grown}))


class Series(nn.Module):
    """A temporal network: taps apart, causal in one layer, groups in another."""

    shape = (4, 50)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(4, 8, 3, padding=2, dilation=2), nn.ReLU()),
            *(nn.Conv1d(8, 8, 3, padding=4, dilation=4, groups=2), nn.ReLU(), nn.Conv1d(8, 6, 2, dilation=8)),
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(x).mean(-1))
        return result


@pytest.mark.parametrize("network", [Groups, Series])
def test_pytorchs_convolutions(network: type[Any], tmp_path: Path) -> None:
    net = randomise(network(), seed=1)
    images = images_for(net, 3, seed=2)
    graph = load_model(write(net, tmp_path / "model.pt2", "exported")).graph
    assert [n.op for n in graph.nodes].count(grouped.GROUPED) >= 3
    np.testing.assert_allclose(run_float(graph, images), torch_logits(net, images), atol=1e-5)


class Wide(nn.Module):
    shape = (3, 8, 300)

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 4, (1, 3), dilation=(1, 128)), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return result


def test_taps_too_far_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConvertError, match="layer body: a window of 1x257 every 1x1 pixels is too large; 255 pixels"
    ):
        load_model(write(Wide().eval(), tmp_path / "model.pt2", "exported"))
