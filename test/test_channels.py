"""Concatenation and some of a map's channels: PyTorch's gradients, the same bytes everywhere, model files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import Builder
from test_executor import partly_trained, run_both
from test_gradients import cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, channels, forward_op
from microtrain.convert.scheme import convolutions

SIZE = 12


def network(seed: int = 0, classes: int = 5) -> Graph:
    """A shuffled unit, one half of which is passed on, and a fire module of odd widths that is read twice."""
    b = Builder(np.random.default_rng(seed), (SIZE, SIZE, 3))
    x = b.conv("x", 10, 3, 2)
    kept, worked = b.take(x, range(5)), b.take(x, range(5, 10))
    worked = b.conv(b.depthwise(b.conv(worked, 9), 3, 1, relu=False), 6)
    x = b.take(b.concat(kept, worked), channels.shuffled(1, 11)[::-1])
    squeezed = b.conv(x, 4)
    x = b.concat(b.conv(squeezed, 7), b.conv(squeezed, 5, 3), squeezed)
    return b.finish(b.conv(b.take(x, range(1, 16, 2)), 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > (0.999 if errors == "fp32" else 0.98), found


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


class Unit(nn.Module):
    """What ShuffleNet and SqueezeNet do with channels, in one of the ways to write it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.stem, self.work, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(4, 6, 1), nn.Linear(10, 3)
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(x))
        if self.way == "slice":
            a, b = x[:, :4], x[:, 4:]
        elif self.way == "split":
            a, b = torch.split(x, [4, 4], dim=1)
        else:
            a, b = x.chunk(2, dim=1)
        x = torch.cat((a, functional.relu(self.work(b))), dim=-3 if self.way == "split" else 1)
        if self.way == "channel_shuffle":
            x = functional.channel_shuffle(x, 2)
        else:
            n, c, h, w = x.shape
            x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def written(network: nn.Module, path: Path, shape: tuple[int, ...] = (1, 3, 8, 8)) -> Path:
    torch.manual_seed(0)
    if path.suffix == ".pt":
        torch.jit.trace(network.eval(), torch.zeros(shape)).save(str(path))
    else:
        torch.export.save(torch.export.export(network.eval(), (torch.zeros(shape),)), path)
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.parametrize("way", ["chunk", "split", "slice", "channel_shuffle"])
def test_a_shuffled_unit_of_a_file_is_pytorchs(way: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    unit = Unit(way).eval()
    path = written(unit, tmp_path / f"model{suffix}")
    graph = load_model(path, input_shape=None if suffix == ".pt2" else (3, 8, 8)).graph
    assert [node.op for node in graph.nodes].count("take") == 3
    image = np.random.default_rng(0).normal(0, 1, (2, 8, 8, 3)).astype(np.float32)
    values = {graph.input.tensor: image}
    for node in graph.nodes:
        y = forward_op(node).float_run(graph, node, values)
        values[node.outputs[0]] = np.maximum(y, 0) if node.act == "relu" else y
    with torch.no_grad():
        wanted = unit(torch.as_tensor(image).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(values[graph.output].reshape(2, -1), wanted, rtol=1e-4, atol=1e-5)


class Joined(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.stem, self.head, self.way = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 3), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        if self.way == "along the rows":
            x = torch.cat((x, torch.relu(x)), dim=2)
        elif self.way == "with itself":
            x = torch.cat((x, x), dim=1)[:, 4:12]
        else:
            x = x[:, :, 1:]
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


@pytest.mark.parametrize(
    ("way", "sentence"),
    [
        ("along the rows", "along dimension 2 is not supported; the nearest that is: maps of one size"),
        ("with itself", "of a tensor and itself is not supported"),
        ("some rows", "slice along dimension 2 is not supported; the nearest that is: along the channels"),
    ],
)
def test_what_is_not_along_the_channels_is_refused(way: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=sentence):
        load_model(written(Joined(way), tmp_path / "model.pt2"))
