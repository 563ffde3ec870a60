"""Layers that a model uses more than once: frozen, and in flash once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_executor import run_both
from test_gradients import LEAST, cosines, everything
from test_resample import assert_as_pytorch
from torch import nn

from lab.attack.tflite_networks import Float, used_twice
from microtrain.convert.aten_call import Call, Param
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import flash_of
from microtrain.convert.frontends.clean.shared import mark_shared
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.lowering import Lowering
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import coded
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import ALL, Scheme, convolutions
from microtrain.convert.trainables import layout
from microtrain.convert.weights import weights_of

pytestmark = pytest.mark.filterwarnings("ignore:layers that the model uses more than once")


SIGMOID = nn.Sigmoid()


class Attended(nn.Module):
    """CBAM (Woo et al. 2018) as it was published: one network looks at the means and at the maxima."""

    def __init__(self, c: int, linear: bool) -> None:
        super().__init__()
        layers = (nn.Linear(c, 4), nn.Linear(4, c)) if linear else (nn.Conv2d(c, 4, 1), nn.Conv2d(4, c, 1))
        self.mlp, self.linear = nn.Sequential(layers[0], nn.ReLU(), layers[1]), linear
        self.seven = nn.Conv2d(2, 1, 7, padding=3)

    def said(self, x: torch.Tensor) -> torch.Tensor:
        if not self.linear:
            made: torch.Tensor = self.mlp(x.mean((2, 3), keepdim=True)) + self.mlp(
                nn.functional.adaptive_max_pool2d(x, 1)
            )
            return made
        both = self.mlp(x.mean((2, 3))) + self.mlp(x.amax((2, 3)))
        result: torch.Tensor = both.unsqueeze(2).unsqueeze(3)
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * SIGMOID(self.said(x))
        said = torch.cat((x.mean(1, keepdim=True), x.amax(1, keepdim=True)), 1)
        result: torch.Tensor = x * SIGMOID(self.seven(said))
        return result


class Net(nn.Module):
    def __init__(self, linear: bool = False) -> None:
        super().__init__()
        self.body, self.attended = nn.Conv2d(3, 12, 3, 2), Attended(12, linear)
        self.last, self.head = nn.Conv2d(12, 5, 3), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attended(torch.relu(self.body(x)))
        result: torch.Tensor = self.head(torch.relu(self.last(x)).mean((2, 3)))
        return result


class Tied(nn.Module):
    """Two layers, two names, one weight, and biases of their own; a third that has its batch norm twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(5)
        self.two.weight = self.one.weight
        self.three, self.four = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 5, 1)
        self.norm.running_mean = torch.tensor([0.1, -0.2, 0.0, 0.1, 0.0])
        self.head = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.two(torch.relu(self.one(x))))
        x = torch.relu(self.norm(self.four(torch.relu(self.norm(self.three(x))))))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def quantized(graph: Graph) -> Graph:
    h, w, c = graph.tensors[graph.input.tensor].shape
    images = np.random.default_rng(0).integers(0, 256, (16, h, w, c)).astype(np.uint8)
    return quantize_model(graph, images, Choices())


@pytest.fixture(autouse=True)
def drawn() -> None:
    """Weights that are the same whatever ran before."""
    torch.manual_seed(4)


def made(model: nn.Module, path: Path) -> Graph:
    return assert_as_pytorch(model, path, (3, 14, 13))


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("linear", [False, True])
def test_one_network_used_twice(linear: bool, suffix: str, tmp_path: Path) -> None:
    graph = made(Net(linear), tmp_path / f"model.{suffix}")
    assert len(graph.copies) == 2 and {len(graph.layers[n].weight) for n in graph.copies} == {4, 12}
    int8 = quantized(graph)
    assert int8.copies == graph.copies
    assert [int8.layers[name].source.weight for name in convolutions(int8)] == [
        int8.layers[name].source.weight for name in int8.layers if not int8.layers[name].shares
    ][:-1], "all other layers learn, but for the head, which always does"
    counted = sum(layer.weight.size for name, layer in graph.layers.items() if name not in graph.copies)
    assert weights_of(graph).count == counted - graph.layers[graph.nodes[-1].layer or ""].weight.size


def test_flash_has_them_once_and_the_code_reads_them(tmp_path: Path) -> None:
    graph = quantized(made(Net(), tmp_path / "model.pt2"))
    own = graph.replace(layers={n: replace(v, shares="") for n, v in graph.layers.items()})
    shared, apart = (compile_graph(g, Scheme("head"), 4) for g in (graph, own))
    assert flash_of(apart.graph).weights - flash_of(shared.graph).weights == 2 * 4 * 12
    written = generate(shared, "a test").files
    assert written["model.c"].count(".frozen = w_attended_mlp_0,") == 2
    assert len(re.findall("int8_t w_attended_mlp_0", written["model_weights.c"])) == 1


@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_gradients_pass_both_uses(errors: str, tmp_path: Path) -> None:
    found = cosines(everything(quantized(made(Net(), tmp_path / "model.pt2"))).graph, errors)
    assert any("body" in name for name in found), "the layer before them learns"
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_generated_code_trains_like_the_executor(compiler: str, tmp_path: Path) -> None:
    graph = quantized(made(Net(), tmp_path / "model.pt2"))
    trained = compile_graph(graph, Scheme("full", biases=-1, weights={ALL: 1.0}, fraction_bits=4), 4)
    assert {item.layer for item in layout(trained.graph)} == {"body", "attended.seven", "last", "head"}
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path / "native", compiler), 6)


def test_one_weight_under_two_names_and_one_norm_behind_two_layers(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"stay frozen.*: (one|two), used 2 times, three, used 2 times"):
        graph = made(Tied(), tmp_path / "model.pt2")
    int8 = quantized(graph)
    assert len(int8.copies) == 1 and not int8.copies.keys() & {"three", "four"}, "their weights differ"
    assert convolutions(int8) == []
    assert set(coded.candidates(int8, frozenset())) == set()
    with pytest.raises(ConvertError, match="three more than once, so they stay frozen: train another layer"):
        compile_graph(int8, Scheme("own", weights={"three": 1.0}), 4)


class TiedHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(torch.relu(self.inner(x.flatten(1))))
        return result


def test_a_last_layer_that_is_used_before_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(TiedHead().eval(), (torch.zeros(1, 3, 2, 2),)), path)
    with pytest.raises(ConvertError, match=r"inner.* is the last layer, which learns.*weights of its own"):
        load_model(path)


def test_tflite_files_say_it_too(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="conv1, used 2 times"):
        graph = load_model(used_twice().file(tmp_path)).graph
    assert graph.copies == {"conv2": "conv1"}


@pytest.mark.parametrize("make", [used_twice])
def test_apart_they_would_not_be(make: Callable[[], Float], tmp_path: Path) -> None:
    """A planted copy of the weights is none of the model's own."""
    with pytest.warns(UserWarning):
        graph = load_model(make().file(tmp_path)).graph
    other = replace(graph.layers["conv2"], weight=graph.layers["conv2"].weight + np.float32(0.5))
    assert graph.replace(layers={**graph.layers, "conv2": other}).copies == {}


def test_weights_that_lie_where_others_lay_are_not_theirs() -> None:
    """forward() may compute one layer's weights, and the next one's in the memory that becomes free."""
    low = Lowering("model")
    for number in range(20):
        call = Call("conv2d", f"layer{number}", True, {})
        values = np.full((6, 6, 1, 1), float(number), np.float32)
        weight = Param(f"layer{number}.weight", values, computed=True)
        low.layer(call, weight, weight.value.reshape(6, 1, 1, 6).copy(), None, (6, 1, 1, 6))
        del weight, values
    assert not any(layer.shares for layer in low.layers.values())


def test_of_several_users_the_first_may_be_left_out(tmp_path: Path) -> None:
    """As where one of several results is asked for, and conversion's own layers were made for another."""
    with pytest.warns(UserWarning, match="used 2 times"):
        graph = load_model(used_twice().file(tmp_path)).graph
    name = next(name for name, layer in graph.layers.items() if layer.shares)
    users = [name for name, layer in graph.layers.items() if layer.shares]
    one = replace(graph.layers[name], shares="gone")
    left = graph.replace(layers={**graph.layers, **dict.fromkeys(users, one)})
    assert {mark_shared(left).layers[user].shares for user in users} == {users[0]}
    alone = graph.replace(layers={**graph.layers, users[0]: replace(graph.layers[users[0]], shares="gone")})
    alone = alone.replace(layers={k: v for k, v in alone.layers.items() if k not in users[1:]})
    assert mark_shared(alone).layers[users[0]].shares == ""
