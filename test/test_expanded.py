"""Maps that stand many times: gates that expand themselves, and what reads an expanded map whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_own_models import Forward, Own
from test_resample import assert_as_pytorch
from torch import nn
from torch.nn import functional

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model


def nine(net: Own) -> nn.Module:
    """The layer that is in some of the networks alone."""
    return net.get_submodule("nine")


def squeezed(net: Own, x: torch.Tensor) -> Any:
    """A gate for each channel, as older squeeze-and-excitation has it."""
    y = functional.relu(net.a(x))
    gate = nn.Sigmoid()(net.b(y.mean((2, 3)))).unsqueeze(-1).unsqueeze(-1)
    return net.head((gate.expand_as(y) * y).mean((2, 3)))


def seen(net: Own, x: torch.Tensor) -> Any:
    """A gate for each pixel."""
    y = functional.relu(net.a(x))
    return net.head((y * nn.Sigmoid()(net.c(y)).expand(-1, 6, -1, -1)).mean((2, 3)))


def beside(net: Own, x: torch.Tensor) -> Any:
    """The mean of a map beside the map itself (Chen et al. 2017)."""
    y = functional.relu(net.a(x))
    every = functional.adaptive_avg_pool2d(y, 1).expand(-1, -1, 7, 7)
    return net.head(functional.relu(net.d(torch.cat([y, every], 1))).mean((2, 3)))


def added(net: Own, x: torch.Tensor) -> Any:
    y = functional.relu(net.a(x))
    return net.head(functional.relu(y - y.amax((2, 3), keepdim=True).expand_as(y) / 2).mean((2, 3)))


def alone(net: Own, x: torch.Tensor) -> Any:
    """What has one pixel is read by a convolution of nine."""
    every = functional.adaptive_avg_pool2d(functional.relu(net.a(x)), 1).expand(-1, -1, 5, 5)
    return net.head(functional.relu(nine(net)(every)).mean((2, 3)))


def repeated(net: Own, x: torch.Tensor) -> Any:
    """A gate that is copied."""
    y = functional.relu(net.a(x))
    return net.head((y * y.mean((2, 3), keepdim=True).repeat(1, 1, 7, 7)).mean((2, 3)))


NETWORKS: dict[str, Forward] = {f.__name__: f for f in (squeezed, seen, beside, added, alone, repeated)}


def network(forward: Forward) -> Own:
    torch.manual_seed(2)
    layers = (nn.Conv2d(3, 6, 3), nn.Linear(6, 6), nn.Conv2d(6, 1, 3, padding=1), nn.Conv2d(12, 6, 1))
    net = Own(forward, *layers, head=nn.Linear(6, 4))
    net.add_module("nine", nn.Conv2d(6, 6, 3, padding=1))
    return net.eval()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_expanded_is_pytorchs(name: str, suffix: str, tmp_path: Path) -> None:
    graph = assert_as_pytorch(network(NETWORKS[name]), tmp_path / f"model{suffix}", (3, 9, 9))
    made = [node.op for node in graph.nodes if node.op == "upsample"]
    assert bool(made) == (name in ("beside", "alone", "added")), "a product needs no copies"


def test_one_channel_stands_many_times(tmp_path: Path) -> None:
    def channels(net: Own, x: torch.Tensor) -> Any:
        return net.head(functional.relu(nine(net)(net.c(net.a(x)).expand(-1, 6, -1, -1))).mean((2, 3)))

    path = tmp_path / "model.pt2"
    net = network(channels)
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 9, 9),)), path)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 9, 9)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(pixels / np.float32(255))).numpy()
    found = run_float(load_model(path).graph, pixels.transpose(0, 2, 3, 1)).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
