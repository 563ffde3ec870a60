"""Activations by table: PyTorch's values and gradients, the same bytes everywhere, streamed like a ReLU6."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from autograd import activation
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits
from torch import nn

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.activations import one, slopes, stored
from microtrain.convert.ops.curves import NUMBERS
from microtrain.convert.ops.functions import (
    ABSOLUTE,
    ACTIVATIONS,
    CLIP,
    CURVE,
    EXPONENTIAL,
    LOGARITHM,
    POWER,
    SELU,
    STEEPEST,
)
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.fidelity import compare
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.scheme import Scheme, convolutions

torch.set_num_threads(1)


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.pow(2)


class Logarithm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log1p(torch.relu(x))


class Absolute(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs()


class Exponential(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x.clamp(-3.0, 1.0))


MODULES: dict[str, nn.Module] = {
    "leaky_relu": nn.LeakyReLU(0.1),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    CLIP: nn.Hardtanh(-1.5, 2.5),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
    "silu": nn.SiLU(),
    "gelu": nn.GELU(approximate="tanh"),
    "mish": nn.Mish(),
    "softplus": nn.Softplus(),
    "elu": nn.ELU(0.7),
    "selu": nn.SELU(),
    "celu": nn.CELU(0.7),
    POWER: Square(),
    LOGARITHM: Logarithm(),
    ABSOLUTE: Absolute(),
    EXPONENTIAL: Exponential(),
    CURVE: nn.LogSigmoid(),
}
FACTORS = {
    "leaky_relu": (0.1,),
    CLIP: (-0.3, 0.4),
    "gelu": (1.0,),
    "elu": (0.7, 1.0, 1.0),
    "celu": (0.7, 1.0, 1 / 0.7),
    "selu": SELU,
    POWER: (2.0, 1.0),
    LOGARITHM: (2.0, 1.5),
    CURVE: (NUMBERS["log_sigmoid"],),
}
STEEP = [op for op, each in ACTIVATIONS.items() if each.slope is None]
IN_C = ("leaky_relu", "hardswish", CLIP)  # one kernel for all: what runs compiled code tries some


def network(op: str, seed: int = 0, size: int = 10) -> Graph:
    """The activation behind convolutions of both kinds, behind an add, and where a tensor has two readers."""
    factors = FACTORS.get(op, ())
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.layer(op, b.conv("x", 9, 3, 2, relu=False), factors=factors)
    inner = b.layer(op, b.conv(x, 20, relu=False), factors=factors)
    inner = b.layer(op, b.depthwise(inner, 3, 1, relu=False), factors=factors)
    x = b.layer(op, b.add(b.conv(inner, 9, relu=False), x), factors=factors)
    return b.finish(b.conv(x, 7, 3), 5)


class Plain(nn.Module):
    """A stem and two blocks of one resolution each, on images large enough for streams to matter."""

    def __init__(self, activation: nn.Module, side: int) -> None:
        super().__init__()
        self.shape = (3, side, side)
        widths = ((3, 16, 1), (16, 48, 16), (48, 24, 1), (24, 72, 24), (72, 32, 1))
        layers: list[nn.Module] = []
        for i, (c_in, c_out, _) in enumerate(widths):
            layers += [nn.Conv2d(c_in, c_out, 3 if i == 0 else 1, 2 if i == 0 else 1, 1 if i == 0 else 0)]
            layers += [nn.BatchNorm2d(c_out), copy.deepcopy(activation)]
            if c_out > 2 * c_in and i:
                layers += [nn.Conv2d(c_out, c_out, 3, 2, 1, groups=c_out), nn.BatchNorm2d(c_out)]
                layers += [copy.deepcopy(activation)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(x).mean((2, 3)))
        return result


def load(module: nn.Module, side: int, folder: Path) -> Graph:
    path = folder / "model.pt2"
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3, side, side),)), path)
    return load_model(path).graph


def pixels(side: int, count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def test_every_activation_is_tested_here() -> None:
    assert MODULES.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_the_front_end_computes_what_torch_does(op: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, images = Plain(MODULES[op], 24).eval(), pixels(24)
    graph = load(module, 24, tmp_path)
    own = CURVE if op == EXPONENTIAL else op  # with the limits in front of it
    assert sum(node.op == own for node in graph.nodes) == 7
    with torch.no_grad():
        wanted = module(torch.tensor(images / 255.0).permute(0, 3, 1, 2).float()).numpy()
    np.testing.assert_allclose(run_float(graph, images), wanted, rtol=1e-3, atol=1e-3)
    quantized = quantize(graph, measure_ranges(graph, images))
    layers, _ = compare(graph, quantized, images)
    assert min(row.own_db for row in layers) > 25
    scripted = tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.script(module), scripted)
    again = load_model(scripted, input_shape=(3, 24, 24)).graph
    assert run_float(again, images).tobytes() == run_float(graph, images).tobytes()


def over_a_step(op: str, x: torch.Tensor, step: float, factors: tuple[float, ...]) -> np.ndarray:
    """The mean derivative between the middles of what is stored."""
    ends = [activation(op, x + off, factors).detach().numpy() for off in (-step / 2, step / 2)]
    return np.asarray((ends[1] - ends[0]) / step)


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_the_table_is_the_function_rounded_once(op: str) -> None:
    graph = network(op)
    for node in (n for n in graph.nodes if n.op == op):
        x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        real = torch.tensor((np.arange(-128, 128) - x.zero) * x.scale, dtype=torch.float64).requires_grad_()
        value = activation(op, real, node.factors)
        value.sum().backward()
        table, slope = stored(graph, node)
        exact = value.detach().numpy() / y.scale + y.zero
        inside = (np.rint(exact) >= -128) & (np.rint(exact) <= 127)
        near = 1e-12 if op != "gelu" else 1e-5
        np.testing.assert_allclose(table, np.clip(exact, -128, 127), atol=0.5001)
        assert real.grad is not None
        about = real.grad.numpy() if op not in STEEP else over_a_step(op, real, x.scale, node.factors)
        wanted = np.where(inside, about, 0.0)
        np.testing.assert_allclose(slope * y.scale / x.scale, wanted, atol=near)
        np.testing.assert_allclose(
            slopes(graph, node) / (kept := one(graph, node)), wanted, atol=1 / kept + near
        )
        assert kept == 2**14 or np.abs(wanted).max() * 2 * kept > 32767, "as fine as there is room"


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("op", ACTIVATIONS)
def test_gradients_are_those_of_autograd(op: str, errors: str) -> None:
    found = cosines(everything(network(op)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_a_forgotten_slope_is_noticed(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with autograd can fail: the error passes as if y were x."""
    graph = everything(network(op)).graph
    each = ACTIVATIONS[op]
    wrong = type(each)(each.name, each.value, lambda x, *f: np.ones_like(x), each.arguments, each.factors)
    monkeypatch.setitem(ACTIVATIONS, op, wrong)
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("op", IN_C)
def test_generated_code_trains_like_the_executor(op: str, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(op), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


@pytest.mark.parametrize("op", IN_C)
def test_rows_give_the_same_logits(op: str, tmp_path: Path) -> None:
    graph = compile_graph(network(op, size=19), Scheme("head", head="random"), 5)
    streamed = [part.op for node in graph.graph.nodes for part in node.parts]
    assert streamed.count(op) >= 3
    assert_same_logits(graph, tmp_path)


@pytest.mark.parametrize("op", IN_C)
def test_a_frozen_network_takes_the_memory_of_one_with_relu6(op: str, tmp_path: Path) -> None:
    arenas = []
    for i, module in enumerate((nn.ReLU6(), MODULES[op])):
        torch.manual_seed(1)
        folder = tmp_path / str(i)
        folder.mkdir()
        graph = load(Plain(module, 128).eval(), 128, folder)
        quantized = quantize(graph, measure_ranges(graph, pixels(128, 2)))
        arenas.append(compile_graph(quantized, Scheme("head"), 4).plan.arena)
    assert arenas[1] <= 1.01 * arenas[0], arenas


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_the_simulation_has_the_executors_gradients(op: str, tmp_path: Path) -> None:
    graph = network(op)
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


def test_a_slope_too_steep_for_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConvertError, match=r"a slope of 2\.5 is not supported; the nearest that is: one below"
    ):
        load(Plain(nn.LeakyReLU(2.5), 24).eval(), 24, tmp_path)
    assert STEEPEST < 2
