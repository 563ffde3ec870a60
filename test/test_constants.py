"""Constants that a model computes of others: the values of PyTorch and of ONNX's runtime, in bounds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from test_resample import assert_as_pytorch
from torch import nn
from torch.nn import functional

from microtrain.convert.frontends.aten.resized import resized
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.scheme import convolutions

C, SIDE = 8, 4
Positions = Callable[["Positioned"], torch.Tensor]


class Positioned(nn.Module):
    """Patches, positions that `made` computes, an encoder's layer and the mean of all tokens."""

    def __init__(self, made: Positions) -> None:
        super().__init__()
        self.patches, self.made = nn.Conv2d(3, C, 3, 3), made
        self.table = nn.Parameter(torch.randn(1, C, 3, 3))
        self.whole = nn.Parameter(torch.randn(1, 10, C))
        self.scale = nn.Parameter(torch.tensor([0.5, -1.0, 2.0, 0.25]))
        self.project = nn.Conv2d(4, C, 1)
        self.layer = nn.TransformerEncoderLayer(C, 2, 16, 0.0, nn.GELU(), batch_first=True)
        self.head = nn.Linear(C, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.made(self)
        result: torch.Tensor = self.head(self.layer(x).mean(1))
        return result


def waves(net: Positioned) -> torch.Tensor:
    """Vaswani et al. 2017."""
    place = torch.arange(SIDE * SIDE).unsqueeze(1)
    rate = torch.exp(torch.arange(0, C, 2).float() * (-math.log(10000.0) / C))
    return torch.stack((torch.sin(place * rate), torch.cos(place * rate)), 2).flatten(1).unsqueeze(0)


def of_masks(net: Positioned) -> torch.Tensor:
    """Places counted by a mask, as in DETR and EdgeNeXt, and taken through a convolution."""
    free = ~torch.zeros(1, SIDE, SIDE, dtype=torch.bool)
    down, across = free.cumsum(1, dtype=torch.float32), free.cumsum(2, dtype=torch.float32)
    down, across = down / (down[:, -1:, :] + 1e-6) * 6.28, across / (across[:, :, -1:] + 1e-6) * 6.28
    rate = 10000 ** (2 * torch.div(torch.arange(2), 2, rounding_mode="floor") / 2)
    parts = [side[:, :, :, None] / rate for side in (down, across)]
    waves = torch.cat([torch.stack((p.sin(), p.cos()), 4)[..., 0].flatten(3) for p in parts], 3)
    made: torch.Tensor = net.project(waves.permute(0, 3, 1, 2)).flatten(2).transpose(1, 2)
    return made


POSITIONS: dict[str, Positions] = {
    "waves": waves,
    "looked up": lambda net: functional.embedding(torch.arange(SIDE * SIDE)[None] % 10, net.whole[0]),
    "masks": of_masks,
    "bicubic": lambda net: (
        functional.interpolate(net.table, size=(SIDE, SIDE), mode="bicubic").flatten(2).transpose(1, 2)
    ),
    "bilinear": lambda net: (
        functional.interpolate(net.table, scale_factor=1.34, mode="bilinear").flatten(2).transpose(1, 2)
    ),
    "smooth": lambda net: (
        functional.interpolate(net.table, size=(SIDE, SIDE), mode="bicubic", antialias=True)
        .flatten(2)
        .transpose(1, 2)
    ),
    "of a vit": lambda net: (
        functional.interpolate(
            net.whole[:, 1:].reshape(1, 3, 3, C).permute(0, 3, 1, 2), size=(SIDE, SIDE), mode="bicubic"
        )
        .permute(0, 2, 3, 1)
        .view(1, -1, C)
    ),
    "a grid": lambda net: torch.cat(
        [
            g.reshape(1, -1, 1) * net.scale
            for g in torch.meshgrid(torch.linspace(-1, 1, 4), torch.arange(4.0), indexing="ij")
        ],
        2,
    ),
    "a table": lambda net: net.whole[:, torch.arange(16) % 10],
    "few rows of a large table": lambda net: torch.ones(1 << 16, C)[torch.arange(16)] * net.whole[:, :1],
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    graph = assert_as_pytorch(Positioned(POSITIONS[name]), tmp_path / "model.pt2", (3, 12, 12))
    assert "patches" in convolutions(graph) or graph.layers["patches"].source.weight


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_those_of_pytorch_by_way_of_onnx(name: str, tmp_path: Path) -> None:
    if name == "smooth":
        pytest.skip("PyTorch exports no antialiasing")
    torch.manual_seed(1)
    assert_as_pytorch(Positioned(POSITIONS[name]), tmp_path / "model.onnx", (3, 12, 12))


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_maps_of_constants_are_those_of_pytorch(mode: str, smooth: bool) -> None:
    x = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    for size in ((3, 4), (14, 18), (11, 5), (1, 1), (7, 20)):
        wanted = functional.interpolate(x, size=size, mode=mode, antialias=smooth).numpy()
        found = resized(x.numpy(), size, {"bicubic": "cubic", "bilinear": "linear"}[mode], False, smooth)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


class Standardized(nn.Module):
    """A convolution whose weights are normalised where they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last, self.head = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 5, 1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.body.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) * 2.0
        x = torch.relu(self.last(torch.relu(functional.conv2d(x, w, self.body.bias))))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


def test_weights_that_are_computed_stay_frozen(tmp_path: Path) -> None:
    """Trained, they would be taken for the parameter that they were made of."""
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="weights of .* has no place for them: they stay frozen"):
        graph = assert_as_pytorch(Standardized(), tmp_path / "model.pt2", (3, 9, 9))
    assert convolutions(graph) == ["last"]


class OfTime(nn.Module):
    """Directions and lengths apart, as weight_norm has them."""

    def __init__(self) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(torch.randn(4, 3, 3)), nn.Parameter(torch.rand(4, 1, 1) + 0.5)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(torch.relu(functional.conv1d(x, self.v * self.g)).mean(2))
        return made


def test_so_do_those_of_a_convolution_over_time(tmp_path: Path) -> None:
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="weights of .* has no place for them: they stay frozen"):
        graph = assert_as_pytorch(OfTime(), tmp_path / "model.pt2", (3, 9))
    assert convolutions(graph) == []


class Bomb(nn.Module):
    def __init__(self, made: Callable[[], torch.Tensor]) -> None:
        super().__init__()
        self.made, self.head = made, nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(x.flatten(1) + self.made().sum())
        return result


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: torch.zeros(1 << 16, 1 << 16), "zeros"),
        (lambda: torch.ones(1).expand(1 << 40), "expand"),
        (lambda: torch.arange(1 << 40), "arange"),
        (lambda: torch.arange(4096).reshape(-1, 1) * torch.arange(4096), "mul"),
        (lambda: torch.eye(1 << 14), "eye"),
        (lambda: torch.ones(1, 2048)[torch.zeros(1 << 13, dtype=torch.long)], "index"),
    ],
)
def test_bombs_are_one_sentence(made: Callable[[], torch.Tensor], words: str, tmp_path: Path) -> None:
    path, start = tmp_path / "model.pt2", time.monotonic()
    torch.export.save(torch.export.export(Bomb(made).eval(), (torch.zeros(1, 3, 2, 2),)), path)
    with pytest.raises(ConvertError, match=r"a constant of [\d,]+ numbers is too large; 4,194,304 are the"):
        load_model(path)
    assert time.monotonic() - start < 30, words


def bomb(path: Path, op: str, inputs: list[str]) -> Path:
    """The input, a constant that an op makes of others, and a linear layer."""
    nodes = [
        helper.make_node(op, inputs, ["made"]),
        helper.make_node("ReduceSum", ["made"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["b"]),
        helper.make_node("Gemm", ["b", "u"], ["y"], transB=1),
    ]
    numbers: dict[str, np.ndarray] = {"u": np.ones((4, 12), np.float32), "one": np.ones((1, 1), np.float32)}
    numbers |= {"size": np.array([1 << 16, 1 << 16]), "zero": np.array(0), "most": np.array(1 << 40)}
    numbers |= {"step": np.array(1), "wide": np.ones((1, 4096), np.float32), "high": np.ones((4096, 1))}
    held = [numpy_helper.from_array(a, n) for n, a in numbers.items()]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 12]), ("y", [1, 4]))
    ]
    made = helper.make_graph(nodes, "net", sides[:1], sides[1:], held)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ConstantOfShape", ["size"]),
        ("Expand", ["one", "size"]),
        ("Tile", ["one", "size"]),
        ("Range", ["zero", "most", "step"]),
        ("Mul", ["wide", "high"]),
    ],
)
def test_bombs_of_onnx_are_one_sentence(op: str, inputs: list[str], tmp_path: Path) -> None:
    path, start = bomb(tmp_path / "model.onnx", op, inputs), time.monotonic()
    with pytest.raises(ConvertError, match=r"a constant of .* is more than fits"):
        load_model(path)
    assert time.monotonic() - start < 30
