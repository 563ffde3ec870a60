"""Statistics pooling, roots and logarithms inside a network: the values and gradients of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_own_models import Own
from test_resample import assert_as_pytorch
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.clean import fold
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.quantize.ptq import Choices, quantize_model

Forward = Callable[[Own, torch.Tensor], Any]


def deviation(net: Own, x: torch.Tensor) -> Any:
    """As x-vectors have it (Snyder et al. 2018)."""
    y = net.a(x)
    return net.head(torch.cat([y.mean(2), y.std(2)], 1))


def of_variance(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    return net.head(torch.cat([y.mean(-1), torch.sqrt(y.var(-1, unbiased=False) + 1e-3)], 1))


def of_squares(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    mean = y.mean(2)
    spread = ((y * y).mean(2) - mean * mean).clamp(min=1e-4).sqrt()
    return net.head(torch.cat([mean, spread], 1))


def of_a_map(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    return net.head(torch.cat([y.mean((2, 3)), y.flatten(2).std(-1)], 1))


def both_at_once(net: Own, x: torch.Tensor) -> Any:
    spread, mean = torch.std_mean(net.a(x), (2, 3), keepdim=True)
    return net.head(torch.cat([mean, spread], 1).flatten(1))


def power(net: Own, x: torch.Tensor) -> Any:
    """Logarithms of powers over time, as of an EEG (Schirrmeister et al. 2017)."""
    y = net.a(x)
    return net.head(torch.log(torch.clamp(functional.avg_pool1d(y * y, 9, 4), min=1e-4)).mean(2))


def generalised(net: Own, x: torch.Tensor) -> Any:
    """GeM of an exponent of 2."""
    y = functional.relu(net.a(x)).clamp(min=1e-6).pow(2.0)
    return net.head(functional.avg_pool2d(y, y.shape[2:]).pow(0.5).flatten(1))


def doubled(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    return net.head((y + y).abs().mean(2))


SERIES, LONG, IMAGE = (3, 40), (3, 300), (3, 9, 8)
NETWORKS: dict[str, tuple[Forward, tuple[int, ...], int]] = {
    "deviation": (deviation, SERIES, 12),
    "deviation of a long series": (deviation, LONG, 12),
    "of the variance": (of_variance, SERIES, 12),
    "of squares": (of_squares, SERIES, 12),
    "of a map": (of_a_map, IMAGE, 12),
    "both at once": (both_at_once, IMAGE, 12),
    "power": (power, SERIES, 6),
    "generalised mean": (generalised, IMAGE, 6),
    "doubled": (doubled, SERIES, 6),
}


WORSE = {"deviation of a long series": 18, "of squares": 10}  # decibels; a difference of two large numbers


def network(name: str) -> Own:
    """Its weights leave each channel about as large as the others, as a batch norm does."""
    forward, shape, features = NETWORKS[name]
    torch.manual_seed(4)
    last = nn.Conv1d(6, 6, 1) if len(shape) == 2 else nn.Conv2d(6, 6, 1)
    layer = nn.Conv1d(3, 6, 5) if len(shape) == 2 else nn.Conv2d(3, 6, 3)
    with torch.no_grad():
        layer.weight -= layer.weight.mean(tuple(range(1, layer.weight.ndim)), keepdim=True)
        layer.weight *= 4.0
    return Own(forward, nn.Sequential(layer, nn.ReLU(), last), head=nn.Linear(features, 3)).eval()


def samples(shape: tuple[int, ...], count: int = 48) -> np.ndarray:
    """uint8 [n, c, ...] of different loudness."""
    draws = np.random.default_rng(0)
    loud = draws.uniform(15, 60, (count, *(1 for _ in shape)))
    return np.clip(np.rint(128 + loud * draws.normal(0, 1, (count, *shape))), 0, 255).astype(np.uint8)


def read(name: str, folder: Path) -> tuple[Graph, np.ndarray]:
    shape = NETWORKS[name][1]
    graph = assert_as_pytorch(network(name), folder / "model.pt2", shape)
    return graph, np.moveaxis(samples(shape), 1, -1).reshape(-1, *graph.tensors["input"].shape)


@pytest.mark.parametrize("suffix", [".pt2", ".torchscript", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_values_are_those_of_pytorch(name: str, suffix: str, tmp_path: Path) -> None:
    assert_as_pytorch(network(name), tmp_path / f"model{suffix}", NETWORKS[name][1])


def decibels(graph: Graph, images: np.ndarray) -> float:
    """Of what samples differ in, over what int8 is off."""
    wanted, found = run_float(graph, images), run_int8(quantize_model(graph, images, Choices()), images)
    return float(10 * np.log10(np.var(wanted, axis=0).sum() / np.mean((found - wanted) ** 2, axis=0).sum()))


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_keeps_them(name: str, tmp_path: Path) -> None:
    assert decibels(*read(name, tmp_path)) > WORSE.get(name, 20)


def test_averages_of_squares_need_a_scale_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = decibels(*read("deviation", tmp_path))
    monkeypatch.setattr(fold, "average_powers", lambda graph, found: graph)
    assert decibels(*read("deviation", tmp_path)) < kept - 3


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name: str, tmp_path: Path) -> None:
    graph, images = read(name, tmp_path)
    trained = everything(quantize_model(graph, images, Choices())).graph
    assert min(cosines(trained, "fp32").values()) > 0.98
    assert min(cosines(trained, "int8").values()) > LEAST["int8"] - 0.02


def test_a_root_that_passes_errors_as_they_are_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from microtrain.convert.ops.functions import ACTIVATIONS, POWER

    graph, images = read("deviation", tmp_path)
    trained = everything(quantize_model(graph, images, Choices())).graph
    monkeypatch.setitem(ACTIVATIONS, POWER, replace(ACTIVATIONS[POWER], slope=lambda x, *f: np.ones_like(x)))
    assert min(cosines(trained, "fp32").values()) < 0.9


def test_generated_code_learns_as_the_executor_does(tmp_path: Path) -> None:
    graph, images = read("deviation of a long series", tmp_path)
    trained = partly_trained(quantize_model(graph, images, Choices()), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, "gcc"), 6)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (
            lambda net, x: net.head(net.a(x).pow(-4).mean(2)),
            "such a power is not supported; the nearest that",
        ),
        (
            lambda net, x: net.head(net.a(x)[:, :, :1].std(2)),
            "a deviation of 1 numbers, less 1, is not a number",
        ),
    ],
)
def test_what_is_no_number_is_a_sentence(forward: Forward, words: str, tmp_path: Path) -> None:
    net = Own(forward, nn.Conv1d(3, 6, 5), head=nn.Linear(6, 3)).eval()
    torch.export.save(torch.export.export(net, (torch.rand(1, *SERIES),)), tmp_path / "net.pt2")
    with pytest.raises(ConvertError, match=words):
        load_model(tmp_path / "net.pt2")


def test_a_cube_comes_with_a_word(tmp_path: Path) -> None:
    net = Own(
        lambda net, x: net.head(net.a(x).pow(3).mean(2)), nn.Conv1d(3, 6, 5), head=nn.Linear(6, 3)
    ).eval()
    torch.export.save(torch.export.export(net, (torch.rand(1, *SERIES),)), tmp_path / "net.pt2")
    with pytest.warns(UserWarning, match="is a power of 3, of which small numbers get few steps"):
        load_model(tmp_path / "net.pt2")
