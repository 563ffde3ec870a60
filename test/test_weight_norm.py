"""Weights made of others, by weight and spectral normalisation: they convert, and the former learn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_resample import assert_as_pytorch
from test_turned_weights import planned
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from microtrain.convert.frontends.module import load_model
from microtrain.convert.scheme import convolutions
from microtrain.device.errors import DeviceError
from microtrain.device.merging import merge

Norm = Callable[[Any], Any]
WAYS: dict[str, Norm] = {
    "parametrization": parametrizations.weight_norm,
    "hook": weight_norm,
    "one length": lambda layer: weight_norm(layer, dim=None),  # type: ignore[arg-type]
    "by inputs": lambda layer: parametrizations.weight_norm(layer, dim=1),
}


def network(norm: Norm) -> nn.Module:
    torch.manual_seed(5)
    body = (norm(nn.Conv2d(3, 6, 3)), nn.BatchNorm2d(6), nn.ReLU(), norm(nn.Conv2d(6, 6, 1)))
    net = nn.Sequential(*body, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), norm(nn.Linear(6, 6)))
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith(("original0", "weight_g")):
                value.mul_(torch.linspace(0.5, 2.0, value.numel()).reshape(value.shape))
        for _ in range(3):  # spectral norm finds the largest singular value in training
            net(torch.rand(8, 3, 9, 9))
    return net.eval()


@pytest.mark.parametrize("way", WAYS)
def test_normalised_weights_learn(way: str, tmp_path: Path) -> None:
    graph = assert_as_pytorch(network(WAYS[way]), tmp_path / "model.pt2", (3, 9, 9))
    assert set(convolutions(graph)) == {"0", "3"} and graph.layers["7"].source.weight


def test_they_learn_in_torchscript(tmp_path: Path) -> None:
    path, net = tmp_path / "model.pt", network(parametrizations.weight_norm)
    torch.jit.trace(net, torch.zeros(1, 3, 9, 9), check_trace=False).save(str(path))
    graph = load_model(path, input_shape=(3, 9, 9)).graph
    assert set(convolutions(graph)) == {"0", "3"}
    np.testing.assert_allclose(graph.layers["7"].weight, net[7].weight.detach().numpy(), rtol=1e-5)  # type: ignore[index]


def real(state: dict[str, np.ndarray], way: str) -> nn.Module:
    net = network(WAYS[way])
    net.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in state.items()})
    return net.eval()


@pytest.mark.parametrize("way", WAYS)
def test_what_was_trained_goes_back_as_directions_and_lengths(way: str, tmp_path: Path) -> None:
    net = network(WAYS[way])
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 9, 9),)), path)
    plan, arrays = planned(net, path)
    old = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    x = torch.rand(8, 3, 9, 9, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = net(x)
        same = real(old | merge(plan, arrays, old)[0], way)(x)
    assert (same - wanted).abs().max() < 0.05 * wanted.abs().max(), "int8 weights, and nothing was trained"
    head = next(name for name in arrays if name.startswith("7") and arrays[name].ndim > 1)
    merged = merge(plan, arrays | {head: 2 * arrays[head]}, old)[0]
    twice = real(old | merged, way)
    weights = [effective(each, x) for each in (net, twice)]
    np.testing.assert_allclose(weights[1], 2 * weights[0], rtol=1e-4)
    assert set(merged) <= set(old), "no name is new"


def effective(net: nn.Module, x: torch.Tensor) -> np.ndarray:
    """What the last layer multiplies with, once forward() has worked it out."""
    net(x)
    weight: torch.Tensor = net[7].weight  # type: ignore[index]
    return weight.detach().numpy()


def test_spectral_norm_is_worked_out_and_stays(tmp_path: Path) -> None:
    for number, norm in enumerate((parametrizations.spectral_norm, spectral_norm)):
        with pytest.warns(UserWarning, match=r"computes the weights of 0, 3, 7, .*: they stay frozen"):
            graph = assert_as_pytorch(network(norm), tmp_path / f"{number}.pt2", (3, 9, 9))
        assert not convolutions(graph)


def test_a_head_with_spectral_norm_says_that_it_cannot_go_back(tmp_path: Path) -> None:
    net, path = network(parametrizations.spectral_norm), tmp_path / "model.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 9, 9),)), path)
    with pytest.warns(UserWarning, match=r"a head's come back as \.npz alone"):
        plan, arrays = planned(net, path)
    state = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    with pytest.raises(
        DeviceError, match=r"computes the weights of 7, so the model has no place .* by -o alone"
    ):
        merge(plan, arrays, state)
