"""A constant for each place of a map, added and subtracted: a mean image, a learned offset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_onnx import export, load, reference
from torch import nn

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError

Made = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WAYS: dict[str, Made] = {
    "added": lambda x, t: x + t,
    "subtracted": lambda x, t: x - t,
    "less the map": lambda x, t: t - x,
    "rsub": torch.rsub,
}


class Own(nn.Module):
    """A mean image in front, or a constant map behind a convolution."""

    shape = (2, 6, 5)

    def __init__(self, way: str, front: bool) -> None:
        super().__init__()
        self.way, self.front = way, front
        self.conv, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 3)
        self.map = nn.Parameter(torch.randn(2 if front else 4, 6, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = WAYS[self.way](x, self.map) if self.front else x
        x = self.conv(x)
        x = x if self.front else WAYS[self.way](x, self.map)
        return torch.as_tensor(self.last(torch.relu(x).mean((2, 3))))


def made(way: str, front: bool) -> tuple[nn.Module, np.ndarray]:
    torch.manual_seed(0)
    images = np.random.default_rng(1).integers(0, 256, (4, 6, 5, 2)).astype(np.uint8)
    return Own(way, front).eval(), images


@pytest.mark.parametrize(
    ("way", "front"), [*((w, False) for w in WAYS), ("added", True), ("subtracted", True)]
)
def test_pytorchs_values(way: str, front: bool, tmp_path: Path) -> None:
    net, images = made(way, front)
    samples = torch.tensor(np.moveaxis(images / 255.0, -1, 1).astype(np.float32))
    path = tmp_path / "own.pt2"
    torch.export.save(torch.export.export(net, (samples[:1],)), path)
    wanted = np.concatenate([net(each[None]).detach().numpy() for each in samples])
    found = run_float(load_model(path).graph, images).reshape(4, 3)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("way", [w for w in WAYS if w != "rsub"])
def test_onnx_values(way: str, tmp_path: Path) -> None:
    net, images = made(way, False)
    path = export(net, tmp_path / "own.onnx")
    wanted = reference(path, np.moveaxis(images / 255.0, -1, 1))
    np.testing.assert_allclose(run_float(load(path), images).reshape(4, 3), wanted, atol=1e-5)


def test_an_image_taken_from_a_constant_is_refused(tmp_path: Path) -> None:
    """What grows in the input would fall."""
    net, _ = made("less the map", True)
    path = tmp_path / "own.pt2"
    torch.export.save(torch.export.export(net, (torch.rand(1, 2, 6, 5),)), path)
    with pytest.raises(ConvertError, match="neg makes what grows in the input fall"):
        load_model(path)
