"""Concatenation and some of a map's channels: PyTorch's gradients, the same bytes everywhere, model files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_own_models import Own, read, save
from test_parallel import assert_simulated, compiled, image_of
from torch import nn
from torch.nn import functional
from torch_networks import images_for, randomise, torch_logits, write

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, channels
from microtrain.convert.ops.aten import channels as channels_aten
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import convolutions

SIZE = 12


def network(seed: int = 0, classes: int = 5) -> Graph:
    """A shuffled unit, one half of which is passed on, and a fire module of odd widths that is read twice."""
    b = Builder(np.random.default_rng(seed), (SIZE, SIZE, 3))
    x = b.conv("x", 10, 3, 2)
    kept, worked = b.take(x, range(5)), b.take(x, range(5, 10))
    worked = b.conv(b.depthwise(b.conv(worked, 9), 3, 1, relu=False), 6)
    x = b.take(b.concat(kept, worked), channels_aten.shuffled(1, 11)[::-1])
    squeezed = b.conv(x, 4)
    x = b.concat(b.conv(squeezed, 7), b.conv(squeezed, 5, 3), squeezed)
    return b.finish(b.conv(b.take(x, range(1, 16, 2)), 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_errors_of_the_wrong_channels_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[channels.ERROR]

    def turned(env: Any, node: Node) -> None:
        op.run(env, replace(node, channels=node.channels[::-1] if node.channels else None))

    monkeypatch.setitem(TABLE, op.name, replace(op, run=turned))
    assert min(cosines(graph, "fp32").values()) < 0.99


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


class Shuffle(nn.Module):
    """PyTorch's own op for it."""

    shape = (3, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.shuffle, self.head = nn.Conv2d(3, 9, 3, 2, 1), nn.ChannelShuffle(3), nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.shuffle(self.stem(x)).mean((2, 3)))
        return result


def test_pytorchs_channel_shuffle(tmp_path: Path) -> None:
    net = randomise(Shuffle(), seed=1)
    images = images_for(net, 3, seed=2)
    graph = load_model(write(net, tmp_path / "model.pt2", "exported")).graph
    np.testing.assert_allclose(run_float(graph, images), torch_logits(net, images), atol=1e-5)


class Joined(nn.Module):
    shape = (3, 8, 8)

    def __init__(self, way: str) -> None:
        super().__init__()
        self.stem, self.head, self.way = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 3), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        if self.way == "along the rows":
            x = torch.cat((x, torch.relu(x)), dim=2)
        else:
            x = torch.cat((x, x), dim=1)[:, 4:12]
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


@pytest.mark.parametrize("way", ["along the rows", "with itself"])
def test_maps_that_are_joined_otherwise_are_those_of_pytorch(way: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    net = Joined(way).eval()
    graph = load_model(write(net, tmp_path / "model.pt2", "exported")).graph
    images = np.random.default_rng(2).normal(0, 1, (4, 8, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(run_float(graph, images), torch_logits(net, images), atol=1e-5)


def test_copies_of_all_numbers_are_a_sentence(tmp_path: Path) -> None:
    def forward(net: Own, x: torch.Tensor) -> Any:
        return net.head(net.a(x).repeat_interleave(2).reshape(1, -1))

    net = Own(forward, nn.Conv2d(3, 6, 3, 2), head=nn.Linear(588, 4)).eval()
    with pytest.raises(ConvertError, match="repeat_interleave without an axis"):
        read(save(net, (3, 16, 16), tmp_path / "net.pt2"), (3, 16, 16))


LISTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "twice": lambda x: x[:, [0, 0, 1, 2, 3, 5, 4, 4]],
    "three times": lambda x: x[:, [5, 1, 5, 2, 5, 0, 3, 4]],
    "two of them, and one not": lambda x: x[:, [0, 1, 1, 5, 2, 1, 0, 3]],
    "all of them again": lambda x: torch.cat([x, x], 1)[:, 2:10],
    "all of them, of two maps": lambda x: torch.cat([x, -x, x], 1)[:, 5:13],
    "rows again": lambda x: x[:, [0, 1, 2, 3, 4, 5, 0, 1]].repeat(1, 1, 2, 1),
    "each column twice": lambda x: x[:, [0, 1, 2, 3, 4, 5, 0, 1]].repeat_interleave(2, 3),
    "zeros behind": lambda x: functional.pad(x, (0, 0, 0, 0, 0, 2)),
    "zeros in front": lambda x: functional.pad(x, (0, 0, 0, 0, 2, 0)),
}


@pytest.mark.parametrize("name", LISTS)
def test_errors_of_all_copies_of_a_channel_are_added(name: str, tmp_path: Path) -> None:
    """They were those of one copy: beside zeros that of the zeros, so that a channel learned nothing."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        return net.head(functional.relu(net.b(LISTS[name](functional.relu(net.a(x))))).mean((2, 3)))

    torch.manual_seed(1)
    net = Own(forward, nn.Conv2d(3, 6, 3, 2), nn.Conv2d(8, 7, 3), head=nn.Linear(7, 4)).eval()
    graph = read(save(net, (3, 16, 16), tmp_path / "net.pt2"), (3, 16, 16))
    images = np.random.default_rng(1).integers(0, 256, (16, 16, 16, 3)).astype(np.uint8)
    quantized = quantize_model(graph, images, Choices())
    for errors, least in (("fp32", 0.9999), ("int8", 0.98)):
        assert min(cosines(everything(quantized).graph, errors).values()) > least
    trained = partly_trained(quantized, 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 3)
