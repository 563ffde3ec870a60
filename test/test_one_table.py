"""Functions that a model writes out are one table, with PyTorch's values and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_executor import assert_learned_alike
from test_gradients import assert_as_autograd, everything
from test_onnx import export
from torch import Tensor, nn
from torch.nn import functional as f
from torch_networks import images_for, randomise, torch_logits, write

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops.activations import slopes, stored
from microtrain.convert.ops.functions import ACTIVATIONS, CURVE, PROGRAM
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.fidelity import compare
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import Scheme

Function = Callable[[Tensor], Tensor]
TANH, OPEN = nn.Tanh(), nn.Sigmoid()
FORMS: dict[str, Function] = {
    "x * relu6(x + 3) / 6": lambda x: x * f.relu6(x + 3) / 6,
    "x * (hardtanh(x + 3, 0, 6) / 6)": lambda x: x * (f.hardtanh(x + 3, 0, 6) / 6),
    "clamp(x + 3) * (1/6) * x": lambda x: torch.clamp(x + 3, 0, 6) * (1 / 6) * x,
    "quick GELU": lambda x: x * OPEN(1.702 * x),
    "Mish": lambda x: x * TANH(f.softplus(x)),
    "GELU": lambda x: 0.5 * x * (1 + TANH(0.79788456 * (x + 0.044715 * x**3))),
    "GELU by erf": lambda x: x * 0.5 * (1.0 + torch.erf(x / 2**0.5)),
    "x / (1 + |x|)": lambda x: x / (1 + x.abs()),
    "x + sin(x)^2": lambda x: x + torch.sin(x) ** 2,
    "0.9 relu(x)^2 - 0.4": lambda x: 0.8944 * f.relu(x) ** 2 - 0.4472,
    "relu(x) - 0.3 relu(-x)": lambda x: f.relu(x) - 0.3 * f.relu(-x),
    "(x + leaky(x)) / 2": lambda x: (x + f.leaky_relu(x, 0.2)) / 2,
}


class Net(nn.Module):
    """A function behind a convolution, and behind a depthwise one."""

    shape = (3, 12, 10)

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.a = nn.Conv2d(3, 8, 3, padding=1)
        self.b = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.c, self.head = nn.Conv2d(8, 6, 1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.c(self.function(self.b(self.function(self.a(x)))))
        result: Tensor = self.head(y.mean((2, 3)))
        return result


def loaded(net: nn.Module, folder: Path, way: str = "exported") -> Graph:
    path = export(net, folder / "net.onnx", 13) if way == "onnx" else write(net, folder / "net.pt2", way)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model(path).graph


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


@pytest.mark.parametrize("way", ["exported", "onnx"])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_one_table(form: str, way: str, tmp_path: Path) -> None:
    """But GELU, which ONNX's reader knows by its parts."""
    net = randomise(Net(FORMS[form]), 2)
    graph, images = loaded(net, tmp_path, way), images_for(net, 16, 5)
    made = (
        next(op for op in ACTIVATIONS if op.upper() == form[:4])
        if way == "onnx" and form.startswith("GELU")
        else CURVE
    )
    assert ops(graph) == ["conv2d", made, "dwconv2d", made, "conv2d", "avgpool", "head"]
    np.testing.assert_allclose(
        run_float(graph, images).reshape(16, -1), torch_logits(net, images), rtol=1e-4, atol=1e-4
    )
    layers, _ = compare(graph, quantize_model(graph, images, Choices()), images)
    assert min(row.own_db for row in layers) > 30


@pytest.mark.parametrize("form", FORMS)
def test_it_learns_as_pytorch_does(form: str, tmp_path: Path) -> None:
    net = randomise(Net(FORMS[form]), 3)
    graph = quantize_model(loaded(net, tmp_path), images_for(net, 16, 5), Choices())
    assert_as_autograd(everything(graph).graph, 0.97)


def test_the_c_does_the_same(tmp_path: Path) -> None:
    net = randomise(Net(FORMS["x * relu6(x + 3) / 6"]), 3)
    assert_learned_alike(quantize_model(loaded(net, tmp_path), images_for(net, 16, 5), Choices()), tmp_path)


def test_the_table_is_rounded_once(tmp_path: Path) -> None:
    net = randomise(Net(FORMS["Mish"]), 3)
    graph = quantize_model(loaded(net, tmp_path), images_for(net, 16, 5), Choices())
    for node in (n for n in graph.nodes if n.op == CURVE):
        assert node.factors[0] == PROGRAM
        x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
        real = torch.tensor((np.arange(-128, 128) - x.zero) * x.scale)
        wanted = np.rint(f.mish(real).numpy() / y.scale) + y.zero
        np.testing.assert_array_equal(stored(graph, node)[0], np.clip(wanted, -128, 127))


def test_it_streams(tmp_path: Path) -> None:
    """In front of all that learns it takes the memory of an activation that PyTorch has a name for."""
    images, sizes = None, []
    for function in (FORMS["x * relu6(x + 3) / 6"], nn.Hardswish()):
        net = randomise(Net(function), 3)
        images = images_for(net, 16, 5)
        quantized = quantize_model(loaded(net, tmp_path), images, Choices())
        sizes.append(compile_graph(quantized, Scheme("head"), 4).plan.arena)
    assert sizes[0] == sizes[1]


class Learnable(nn.Module):
    """A factor that the model learned, and one for each channel."""

    def __init__(self, each: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand((1, 8, 1, 1) if each else 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(x * OPEN(self.gain * x))


def test_factors_of_channels_stay_a_layer(tmp_path: Path) -> None:
    net = randomise(Net(Learnable(True)), 3)
    graph, images = loaded(net, tmp_path), images_for(net, 8, 5)
    assert CURVE not in ops(graph)
    np.testing.assert_allclose(
        run_float(graph, images).reshape(8, -1), torch_logits(net, images), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("function", [lambda x: x * torch.sign(x), lambda x: x * (x > 0.2)])
def test_what_passes_no_gradient_passes_none(function: Function, tmp_path: Path) -> None:
    """PyTorch learns through the other factor alone."""
    net = randomise(Net(function), 3)
    graph = loaded(net, tmp_path)
    assert ops(graph).count(CURVE) == 2 and len(graph.nodes) == 7
    quantized = quantize_model(graph, images_for(net, 16, 5), Choices())
    assert_as_autograd(everything(quantized).graph, 0.95)


@pytest.mark.parametrize("function", [lambda x: torch.sqrt(f.relu(x)) + x, lambda x: x * torch.log1p(x * x)])
def test_roots_and_logarithms_stay_apart(function: Function, tmp_path: Path) -> None:
    """Their tables hold the mean derivative over a step, which that of a sum or a product is not."""
    graph = loaded(randomise(Net(function), 3), tmp_path)
    assert {"power_of", "log_of"} & {*ops(graph)} and len(graph.nodes) > 7


POLES: dict[str, Function] = {
    "x + 1 / x": lambda x: x + 1 / x,
    "0.5 / x": lambda x: 0.5 / x,
    "relu(1 / x)": lambda x: torch.relu(1 / x),
    "x / (x - 0.3)": lambda x: x / (x - 0.3),
}


@pytest.mark.parametrize("form", POLES)
def test_a_pole_is_a_sentence(form: str, tmp_path: Path) -> None:
    """Wherever in a function it is; the divisor of softsign has none."""
    net = randomise(Net(POLES[form]), 3)
    with pytest.raises(ConvertError, match="divides by numbers that come too near to 0"):
        quantize_model(loaded(net, tmp_path), images_for(net, 16, 5), Choices())


def test_slopes_without_a_bound_are_none(tmp_path: Path) -> None:
    net = randomise(Net(lambda x: x * torch.exp(-torch.exp(-900 * x))), 3)
    graph = quantize_model(loaded(net, tmp_path), images_for(net, 16, 5), Choices())
    made = [slopes(graph, node) for node in graph.nodes if node.op == CURVE]
    assert made and all(each.any() for each in made)


def test_what_another_layer_reads_stays_as_well(tmp_path: Path) -> None:
    def both(x: Tensor) -> Tensor:
        gate = OPEN(2 * x)
        return torch.cat([(x * gate)[:, :4], f.max_pool2d(gate, 3, 1, 1)[:, 4:]], 1)

    net = randomise(Net(both), 3)
    graph, images = loaded(net, tmp_path), images_for(net, 8, 5)
    made = [n for n in graph.nodes if n.op == CURVE]
    assert len(made) == 4 and len({n.inputs for n in made}) == 2, "the product and its factor, of one map"
    np.testing.assert_allclose(
        run_float(graph, images).reshape(8, -1), torch_logits(net, images), rtol=1e-4, atol=1e-4
    )


def test_a_long_function_is_several_tables(tmp_path: Path) -> None:
    def long(x: Tensor) -> Tensor:
        for _ in range(9):
            x = TANH(0.9 * x) + 0.1 * x
        return x

    net = randomise(Net(long), 3)
    graph, images = loaded(net, tmp_path), images_for(net, 8, 5)
    assert 2 < sum(op == CURVE for op in ops(graph)) < 20
    np.testing.assert_allclose(
        run_float(graph, images).reshape(8, -1), torch_logits(net, images), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("least", "most", "passes"), [(-0.4, 0.6, 2), (1.0, 1.8, 2), (0.5, 1.5, 4)])
def test_slopes_of_channels(least: float, most: float, passes: int, tmp_path: Path) -> None:
    """No table has several: they are a layer of pixels and a sum, where all lie on one side of 1."""
    net = randomise(Net(nn.PReLU(8)), 3)
    with torch.no_grad():
        function: Any = net.function
        function.weight.copy_(torch.linspace(least, most, 8))
    graph, images = loaded(net, tmp_path), images_for(net, 16, 5)
    assert len(ops(graph)) == 5 + 2 * passes
    np.testing.assert_allclose(
        run_float(graph, images).reshape(16, -1), torch_logits(net, images), rtol=1e-4, atol=1e-4
    )
    quantized = quantize_model(graph, images, Choices())
    assert min(row.own_db for row in compare(graph, quantized, images)[0]) > 30
    assert_as_autograd(everything(quantized).graph, 0.97)
