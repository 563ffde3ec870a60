"""A map times one factor per channel: PyTorch's gradients, the same bytes everywhere, streamed, simulated."""

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

from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, scale
from microtrain.convert.ops.functions import POWER
from microtrain.convert.passes.accumulators import prove
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme, convolutions


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Two blocks of squeeze-and-excitation, one in front of a residual add."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 9, 3, 2)
    inner = excited(b, b.depthwise(b.conv(x, 20), 3, 1))
    x = b.add(b.conv(inner, 9, relu=False), x)
    x = excited(b, b.depthwise(b.conv(x, 18), 5, 2))
    return b.finish(b.conv(x, 11), classes)


def excited(b: Builder, x: str) -> str:
    """The map times what a pooled copy of it says of each channel."""
    h, _, c = b.tensors[x].shape
    squeezed = b.conv(b.pool("avgpool", x, h, 1), 5)
    factor = b.layer("hardsigmoid", b.conv(squeezed, c, relu=False))
    return b.layer(scale.SCALE, x, factor)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_without_its_factor_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[scale.TO_MAP]

    def passed_on(env: Any, node: Node) -> None:
        env.values[node.outputs[0]] = env.values[node.inputs[0]]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=passed_on))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


@pytest.mark.parametrize("arriving", [True, False])
def test_rows_give_the_same_logits(arriving: bool, tmp_path: Path) -> None:
    """The product begins the chain of what reads it: its map is a tensor in memory, and read row by row."""
    frozen = compile_graph(network(size=19), Scheme("head", head="random"), 5, Passes(arriving=arriving))
    chains = [[part.op for part in node.parts] for node in frozen.graph.nodes if node.parts]
    assert sum("scale_channels" in chain for chain in chains) == 2
    assert_same_logits(frozen, tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


class Product(nn.Module):
    """Multiplies a map with itself, or with its mean over the pixels."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.body, self.head, self.whole = nn.Conv2d(3, 6, 3, 2, 1), nn.Linear(6, 3), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        y = x if self.whole else x.mean((2, 3), keepdim=True)
        result: torch.Tensor = self.head((y * x).mean((2, 3)))
        return result


@pytest.mark.parametrize("whole", [True, False])
def test_a_product_of_a_map_and_itself_is_a_square(whole: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    program = torch.export.export(Product(whole).eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, path)
    ops = [n.op for n in load_model(path).graph.nodes]
    assert (ops.count(POWER), ops.count("scale_channels")) == ((1, 0) if whole else (0, 1))


def test_its_integers_are_proven() -> None:
    """A map of 400x400 pixels would be too large for the sum over them."""
    graph = everything(network()).graph
    assert prove(graph) is graph
    maps = [graph.tensors[n.inputs[1]] for n in graph.nodes if n.op == scale.TO_FACTOR]
    grown = {x.name: replace(x, shape=(400, 400, x.channels)) for x in maps}
    with pytest.raises(ConvertError, match="the gradient of a factor can reach"):
        prove(graph.replace(tensors={**graph.tensors, **grown}))
