"""The mean and the maximum over one side of a map: PyTorch's values and gradients, and what reads them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interpreted import interpreted
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_own_models import Forward, Own
from test_parallel import assert_simulated, compiled
from test_resample import assert_as_pytorch, exported
from test_transposed import loud
from torch import nn
from torch.nn import functional

from lab.attack.tflite_networks import Float
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.aten.pool import DOWN
from microtrain.convert.passes.fuse import fuse
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import convolutions

SHAPE = (2, 12, 10)


def body(net: Own, x: torch.Tensor) -> Any:
    return functional.relu(net.a(x))


def bands(net: Own, x: torch.Tensor) -> Any:
    """The mean over frequency, and a convolution over time."""
    return net.head(functional.relu(net.b(body(net, x).mean(2))).mean(-1))


def loudest(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.b(body(net, x).amax(2))).amax(-1))


def moments(net: Own, x: torch.Tensor) -> Any:
    """The mean over the width, read twice."""
    y = body(net, x).mean(3)
    return net.head(torch.cat([functional.relu(net.b(y)).mean(-1), y.amax(-1)], 1))


def recurrent(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.c(body(net, x).mean(2).transpose(1, 2))[0][:, -1])


def flattened(net: Own, x: torch.Tensor) -> Any:
    return net.head(body(net, x).mean(2).flatten(1))


def attended(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.d(body(net, x).mean(2).transpose(1, 2)).mean(1))


def rows_too(net: Own, x: torch.Tensor) -> Any:
    """A column of means beside the map that they are of."""
    y = body(net, x)
    return net.head((y + y.mean(3, keepdim=True)).mean((2, 3)))


def at_once(net: Own, x: torch.Tensor) -> Any:
    """The mean over the whole map, in two calls: one pooling."""
    return net.head(body(net, x).mean(3).mean(2))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True)


NETWORKS: dict[Forward, int] = {  # and the inputs of the head
    **dict.fromkeys((bands, loudest), 4),
    **{moments: 10, recurrent: 5, flattened: 48, attended: 6, rows_too: 6, at_once: 6},
}


def network(forward: Forward) -> nn.Module:
    torch.manual_seed(6)
    others: tuple[Callable[[], nn.Module], ...] = (lambda: nn.GRU(6, 5, batch_first=True), encoder)
    layers = (nn.Conv2d(2, 6, 3), nn.Conv1d(6, 4, 3), *(make() for make in others))
    return Own(forward, *layers, head=nn.Linear(NETWORKS[forward], 3)).eval()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("forward", NETWORKS)
def test_each_is_what_pytorch_makes(forward: Forward, suffix: str, tmp_path: Path) -> None:
    graph = assert_as_pytorch(network(forward), tmp_path / f"model{suffix}", SHAPE)
    lying = [node for node in graph.nodes if node.factors == DOWN and node.window]
    assert bool(lying) == (forward not in (moments, rows_too, at_once))
    if forward is at_once:
        assert [node.op for node in graph.nodes] == ["conv2d", "avgpool", "head"], "it rounds once"


def quantized(forward: Forward, folder: Path) -> Graph:
    path = exported(loud(network(forward)), folder / "model.pt2", SHAPE)
    images = np.random.default_rng(0).integers(0, 256, (16, *SHAPE[1:], SHAPE[0])).astype(np.uint8)
    return quantize_model(load_model(path).graph, images, Choices())


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("forward", [bands, loudest, moments])
def test_gradients_are_those_of_autograd(forward: Forward, errors: str, tmp_path: Path) -> None:
    found = cosines(everything(quantized(forward, tmp_path)).graph, errors)
    assert ("a", "bias") in found and ("b", "weight") in found
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("forward", [bands, loudest])
def test_generated_code_trains_like_the_executor(forward: Forward, tmp_path: Path) -> None:
    trained = partly_trained(quantized(forward, tmp_path), 2)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


@pytest.mark.parametrize("forward", [bands, loudest])
def test_the_simulation_has_the_executors_gradients(forward: Forward, tmp_path: Path) -> None:
    graph = quantized(forward, tmp_path)
    image = np.random.default_rng(3).integers(-128, 128, (12, 10, 2)).astype(np.int8)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image, tmp_path)


def test_none_runs_inside_a_stream(tmp_path: Path) -> None:
    """It needs all rows for its first result."""
    graph = fuse(quantized(bands, tmp_path))
    inside = [part for node in graph.nodes for part in node.parts]
    assert not any(part.factors == DOWN for part in inside)
    assert any(node.factors == DOWN for node in graph.nodes)


@pytest.mark.parametrize("axis", [1, 2])
def test_so_it_is_in_tflite(axis: int, tmp_path: Path) -> None:
    net = Float(7, 6, 2).conv(4, 3, 3).over("MEAN", axis)
    size = net.shape[1]
    path = net.view(1, 4 * size).linear(3).file(tmp_path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (1, 7, 6, 2)).astype(np.uint8)
    wanted = interpreted(path, pixels)
    np.testing.assert_allclose(run_float(graph, pixels).reshape(1, 3), wanted, atol=1e-5)


def test_a_model_that_ends_with_one_is_a_sentence(tmp_path: Path) -> None:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Conv2d(2, 2, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.a(x).mean(3)
            return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = exported(Ends().eval(), tmp_path / "model.pt2", SHAPE)
    with pytest.raises(ConvertError, match="ends with a mean over the width alone, or with zeros"):
        load_model(path)
