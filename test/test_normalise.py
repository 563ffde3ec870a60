"""Group, layer and instance normalisation: PyTorch's values and gradients, the same bytes everywhere."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from networks import Builder
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_onnx import constants, reference, saved
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits
from torch import nn

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, normalise
from microtrain.convert.passes.accumulators import prove
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import Scheme, convolutions

KINDS = {"groups": (3.0, 0.0), "layer": (1.0, 0.0), "instances": (12.0, 0.0), "at each pixel": (1.0, 1.0)}


def network(seed: int = 0, kind: str = "groups", size: int = 12, classes: int = 5) -> Graph:
    """Three normalisations: behind the first layer, before a residual add, and of few pixels."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = scaled(b, b.conv("x", 12, 3, 2, relu=False), kind)
    inner = scaled(b, b.conv(b.depthwise(b.conv(x, 20), 3, 1), 12, relu=False), kind)
    x = b.add(inner, x)
    x = scaled(b, b.conv(b.depthwise(x, 3, 2), 12), kind)
    return b.finish(b.conv(x, 11), classes)


def scaled(b: Builder, x: str, kind: str) -> str:
    """A normalisation and its scale and shift."""
    return b.depthwise(b.layer(normalise.GROUP_NORM, x, factors=(1e-5, *KINDS[kind])), 1, 1)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd(kind: str, errors: str) -> None:
    found = cosines(everything(network(kind=kind)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_that_forgets_the_deviation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[normalise.BACKWARD]

    def passed_on(env: Any, node: Node) -> None:
        env.values[node.outputs[0]] = env.values[node.inputs[0]]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=passed_on))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("kind", KINDS)
def test_generated_code_trains_like_the_executor(kind: str, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(1, kind), 8)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_before_and_behind_it_stream(kind: str, tmp_path: Path) -> None:
    frozen = compile_graph(network(kind=kind, size=19), Scheme("head", head="random"), 5, Passes())
    assert sum(bool(node.parts) for node in frozen.graph.nodes) > 1
    assert_same_logits(frozen, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_simulation_has_the_executors_gradients(kind: str, tmp_path: Path) -> None:
    graph = network(kind=kind)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image_of(graph, 1), tmp_path)


def test_its_integers_are_proven() -> None:
    graph = everything(network()).graph
    assert prove(graph) is graph
    maps = [graph.tensors[n.inputs[0]] for n in graph.forward_nodes if n.op == normalise.GROUP_NORM]
    grown = {x.name: replace(x, shape=(400, 400, x.channels)) for x in maps}
    with pytest.raises(ConvertError, match="a sum of squares can reach"):
        prove(graph.replace(tensors={**graph.tensors, **grown}))


class Net(nn.Module):
    """Normalisations of every kind, one without scale and shift."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 12, 3, 2, 1), nn.Conv2d(12, 12, 3, 1, 1)
        self.groups, self.alone = nn.GroupNorm(4, 12, eps=1e-3), nn.InstanceNorm2d(12, affine=True)
        self.bare, self.hidden = nn.LayerNorm((12, 5, 6), elementwise_affine=False), nn.Linear(12, 10)
        self.vector, self.head = nn.LayerNorm(10), nn.Linear(10, 4)
        for norm in (self.groups, self.alone, self.vector):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.groups(self.first(x)))
        x = self.bare(x + self.alone(self.second(x)))
        result: torch.Tensor = self.head(torch.relu(self.vector(self.hidden(x.mean((2, 3))))))
        return result


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(1)
    return Net().eval()


def images(count: int) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 256, (count, 9, 11, 3)).astype(np.uint8)


def by_torch(net: Net, pixels: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        made = net(torch.tensor(pixels / 255.0, dtype=torch.float32).permute(0, 3, 1, 2))
        return np.asarray(made)


def exported(net: Net, kind: str, folder: Path) -> Path:
    path, example = folder / f"net.{kind}", torch.zeros(1, 3, 9, 11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "pt2":
            torch.export.save(torch.export.export(net, (example,)), path)
        else:
            torch.onnx.export(net, (example,), str(path), opset_version=17, dynamo=False)
    return path


@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_files_have_pytorchs_values(kind: str, net: Net, tmp_path: Path) -> None:
    graph = load_model(exported(net, kind, tmp_path)).graph
    assert [n.op for n in graph.nodes].count(normalise.GROUP_NORM) == 4
    pixels = images(6)
    wanted = by_torch(net, pixels)
    found = run_float(graph, pixels).reshape(6, 4)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images(32), Choices()), pixels).reshape(6, 4)
    assert np.corrcoef(stored.ravel(), wanted.ravel())[0, 1] > 0.98, "in int8"


@pytest.mark.parametrize(("op", "opset"), [("GroupNormalization", 21), ("LayerNormalization", 17)])
def test_onnx_has_them_as_ops(op: str, opset: int, tmp_path: Path) -> None:
    """The layer norm of an image in the order NHWC is one at each pixel."""
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.4, (6, 2, 3, 3)).astype(np.float32),
        g=rng.uniform(0.5, 1.5, 6).astype(np.float32),
        b=rng.normal(0, 0.3, 6).astype(np.float32),
        m=rng.normal(0, 0.3, (6, 4)).astype(np.float32),
    )
    turned = op == "LayerNormalization"
    normed = helper.make_node(op, ["t" if turned else "v", "g", "b"], ["n"])
    if not turned:
        normed.attribute.append(helper.make_attribute("num_groups", 3))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["v"]),
        *([helper.make_node("Transpose", ["v"], ["t"], perm=[0, 2, 3, 1])] if turned else []),
        normed,
        *([helper.make_node("Transpose", ["n"], ["u"], perm=[0, 3, 1, 2])] if turned else []),
        helper.make_node("GlobalAveragePool", ["u" if turned else "n"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    path = saved(tmp_path / "net.onnx", nodes, arrays, [1, 2, 8, 8], opset=opset)
    pixels = rng.integers(0, 256, (4, 8, 8, 2)).astype(np.uint8)
    graph = load_model(path).graph
    assert next(n for n in graph.nodes if n.op == normalise.GROUP_NORM).factors[2] == float(turned)
    wanted = reference(path, pixels.transpose(0, 3, 1, 2) / 255.0)
    found = run_float(graph, pixels).reshape(4, 4)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert onnx.load(str(path)).graph.node


class Odd(nn.Module):
    """A layer norm with a scale for each place of a map, or over the width alone."""

    def __init__(self, over: tuple[int, ...]) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Conv2d(3, 6, 3, 2, 1), nn.LayerNorm(over), nn.Linear(6, 3)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.norm(self.body(x)).mean((2, 3)))
        return result


def test_others_are_refused_by_name(tmp_path: Path) -> None:
    program = torch.export.export(Odd((4, 4)).eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(program, tmp_path / "odd.pt2")
    with pytest.raises(ConvertError, match="over the last 2 of the dimensions"):
        load_model(tmp_path / "odd.pt2")
