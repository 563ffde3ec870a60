"""L2 normalisation: at the end of a network it is left out, with a word; elsewhere it is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from interpreted import interpreted
from test_own_models import Forward, Own, save
from torch import nn
from torch.nn import functional

from lab.attack.tflite_networks import Float
from microtrain.convert.cli import main as convert
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError


def embedding(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.a(x)).mean((2, 3)))


def normalized(net: Own, x: torch.Tensor) -> Any:
    return functional.normalize(embedding(net, x))


def by_its_norm(net: Own, x: torch.Tensor) -> Any:
    y = embedding(net, x)
    return y / (y.norm(dim=-1, keepdim=True) + 1e-8)


def inside(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.normalize(functional.relu(net.a(x)).mean((2, 3))))


def by_the_sum(net: Own, x: torch.Tensor) -> Any:
    return functional.normalize(embedding(net, x), p=1)


def of_pixels(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.normalize(net.a(x), dim=1).mean((2, 3)))


def by_another(net: Own, x: torch.Tensor) -> Any:
    y = embedding(net, x)
    return functional.relu(y) / y.norm(dim=1, keepdim=True)


def network(forward: Forward) -> Own:
    torch.manual_seed(4)
    return Own(forward, nn.Conv2d(3, 8, 3), head=nn.Linear(8, 5)).eval()


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("forward", [normalized, by_its_norm])
def test_at_the_end_only_the_length_is_lost(forward: Forward, suffix: str, tmp_path: Path) -> None:
    net, shape = network(forward), (3, 7, 7)
    path = save(net, shape, tmp_path / f"net{suffix}")
    with pytest.warns(UserWarning, match="L2 normalisation at the model's end is left out: .*--classes"):
        graph = load_model(path, input_shape=shape if suffix == ".pt" else None).graph
    pixels = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(pixels / np.float32(255))).numpy()
    found = run_float(graph, pixels.transpose(0, 2, 3, 1))
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found / lengths, wanted, atol=1e-5)
    assert np.abs(lengths - 1).max() > 0.1


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("forward", [by_the_sum, by_another])
def test_elsewhere_it_is_a_sentence(forward: Forward, suffix: str, tmp_path: Path) -> None:
    path = save(network(forward), (3, 7, 7), tmp_path / f"net{suffix}")
    with pytest.raises(ConvertError, match="not supported; the nearest that is"):
        load_model(path)


@pytest.mark.parametrize(("forward", "suffix"), [(inside, ".pt2"), (inside, ".onnx"), (of_pixels, ".pt2")])
def test_inside_it_is_written_out(forward: Forward, suffix: str, tmp_path: Path) -> None:
    net, shape = network(forward), (3, 7, 7)
    graph = load_model(save(net, shape, tmp_path / f"net{suffix}")).graph
    pixels = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(pixels / np.float32(255))).numpy()
    found = run_float(graph, pixels.transpose(0, 2, 3, 1))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_no_regression_ends_with_it(tmp_path: Path) -> None:
    path = save(network(normalized), (3, 7, 7), tmp_path / "net.pt2")
    done = CliRunner().invoke(convert, [str(path), "--check", "--task", "regression"])
    assert done.exit_code == 1 and "ends with a normalisation of length, which no loss" in done.output
    done = CliRunner().invoke(convert, [str(path), "--check"])
    assert done.exit_code == 0, done.output


def embedded() -> Float:
    net = Float(6, 5, 2).conv(4, 3, 3).over("MEAN", 1, 2).linear(3)
    return net.op("L2_NORMALIZATION", (net.x,), (1, 3), "L2NormOptions")


def test_so_it_is_in_tflite(tmp_path: Path) -> None:
    path = embedded().file(tmp_path)
    with pytest.warns(UserWarning, match="L2 normalisation at the model's end is left out"):
        graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (1, 6, 5, 2)).astype(np.uint8)
    wanted = interpreted(path, pixels)[0]
    found = run_float(graph, pixels)[0]
    np.testing.assert_allclose(found / np.linalg.norm(found), wanted, atol=1e-5)
