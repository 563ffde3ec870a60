"""GRN, coordinate attention, statistics of tokens: as in PyTorch, from each kind of file, learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import assert_learned_alike
from test_gradients import assert_as_autograd, everything
from test_onnx import constants, saved
from test_own_models import Own, read, save
from torch import nn
from torch.nn import functional

from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.quantize.ptq import Choices, quantize_model

IMAGE = (3, 12, 16)


class Response(nn.Module):
    """Global response normalisation (Woo et al. 2023). last: channels come last, as its authors have it"""

    def __init__(self, channels: int, last: bool) -> None:
        super().__init__()
        self.last = last
        self.gain, self.shift = (nn.Parameter(torch.randn(channels) / 2) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        over, axis = ((1, 2), -1) if self.last else ((2, 3), 1)
        size = torch.linalg.vector_norm(x, dim=over, keepdim=True)
        size = size / (size.mean(dim=axis, keepdim=True) + 1e-6)
        if self.last:
            return torch.as_tensor(self.gain * (x * size) + self.shift + x)
        return x + torch.addcmul(self.shift[:, None, None], self.gain[:, None, None], x * size)


class Coordinates(nn.Module):
    """Coordinate attention (Hou et al. 2021). pooled: by poolings, as its authors have it, else by means"""

    def __init__(self, channels: int, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.rows, self.columns = nn.AdaptiveAvgPool2d((None, 1)), nn.AdaptiveAvgPool2d((1, None))
        self.into, self.norm = nn.Conv2d(channels, 8, 1), nn.BatchNorm2d(8)
        self.over_rows, self.over_columns = nn.Conv2d(8, channels, 1), nn.Conv2d(8, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[2:]
        if self.pooled:
            both = torch.cat([self.rows(x), self.columns(x).permute(0, 1, 3, 2)], dim=2)
            rows, columns = torch.split(torch.relu(self.norm(self.into(both))), [h, w], dim=2)
            return torch.as_tensor(x * self.over_columns(columns.permute(0, 1, 3, 2)) * self.over_rows(rows))
        both = torch.cat((x.mean(3, keepdim=True).permute(0, 1, 3, 2), x.mean(2, keepdim=True)), 3)
        rows, columns = torch.relu(self.norm(self.into(both))).split([h, w], 3)
        gate = self.over_rows(rows.permute(0, 1, 3, 2)).expand_as(x) * self.over_columns(columns).expand_as(x)
        return torch.as_tensor(x * gate)


def pyramid(net: Own, x: torch.Tensor) -> Any:
    """Poolings of several sizes, flattened and joined (He et al. 2015), beside channels of another number."""
    x = functional.relu(net.a(x))
    parts = [functional.adaptive_max_pool2d(x, 1), functional.adaptive_max_pool2d(x, 2)]
    parts += [functional.max_pool2d(x, 3), functional.avg_pool2d(net.b(x), (6, 8))]
    return net.head(functional.relu(net.c(torch.cat([part.flatten(1) for part in parts], 1))))


def averaged(net: Own, x: torch.Tensor) -> Any:
    x = functional.relu(net.a(x))
    return net.head(torch.cat([functional.adaptive_avg_pool2d(x, n).view(1, -1) for n in (1, 2)], 1))


def as_volumes(net: Own, x: torch.Tensor) -> Any:
    """A group norm of an image whose pixels have three axes."""
    x = net.a(x)
    y = net.b(x.view(*x.shape[:2], -1, 2, x.shape[3])).view(x.shape)
    return net.head(functional.relu(y).mean((2, 3)))


def group_norm(groups: int, channels: int) -> nn.GroupNorm:
    norm = nn.GroupNorm(groups, channels)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, 0, 0.3)
    return norm


def halves(net: Own, x: torch.Tensor) -> Any:
    """Rows above and below, and columns, apart."""
    x = net.a(x)
    above, below = x.chunk(2, 2)
    parts = [functional.relu(net.b(above)) + below, *x.split(4, 3)]
    return net.head(torch.cat([part.mean((2, 3)) for part in parts], 1))


def next_block(net: Own, x: torch.Tensor) -> Any:
    """A block of ConvNeXt V2."""
    x = net.a(x)
    y = functional.hardtanh(net.b(x).permute(0, 2, 3, 1))
    return net.head((x + net.d(net.c(y)).permute(0, 3, 1, 2)).mean((2, 3)))


def of_images(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.c(net.b(net.a(x)))).mean((2, 3)))


def of_statistics(net: Own, x: torch.Tensor) -> Any:
    """Mean and deviation over all tokens, as x-vectors have them."""
    x = net.b(net.a(x).flatten(2).transpose(1, 2))
    return net.head(torch.cat([x.mean(1), x.std(1)], 1))


NETWORKS: dict[str, Callable[[], Own]] = {
    "channels last": lambda: Own(
        next_block,
        *(nn.Conv2d(3, 6, 2, 2), nn.Conv2d(6, 12, 3, padding=1), Response(12, True), nn.Linear(12, 6)),
        head=nn.Linear(6, 4),
    ),
    "channels first": lambda: Own(
        of_images, nn.Conv2d(3, 6, 3, 2), Response(6, False), nn.Conv2d(6, 5, 3), head=nn.Linear(5, 4)
    ),
    "coordinates": lambda: Own(
        of_images, nn.Conv2d(3, 6, 3, 2), Coordinates(6, True), nn.Conv2d(6, 5, 3), head=nn.Linear(5, 4)
    ),
    "coordinates by means": lambda: Own(
        of_images, nn.Conv2d(3, 6, 3, 2), Coordinates(6, False), nn.Conv2d(6, 5, 3), head=nn.Linear(5, 4)
    ),
    "halves of rows": lambda: Own(
        halves, nn.Conv2d(3, 6, 3, (1, 2)), nn.Conv2d(6, 6, 1), head=nn.Linear(18, 4)
    ),
    "pyramid": lambda: Own(
        pyramid,
        *(nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1), nn.Linear(6 + 24 + 120 + 16, 9)),
        head=nn.Linear(9, 4),
    ),
    "pyramid of a head": lambda: Own(averaged, nn.Conv2d(3, 6, 3, padding=1), head=nn.Linear(30, 4)),
    "responses": lambda: Own(
        of_images,
        *(nn.Conv2d(3, 6, 3, 2), nn.LocalResponseNorm(3, 0.5, 0.6, 1.2), nn.Conv2d(6, 5, 3)),
        head=nn.Linear(5, 4),
    ),
    "responses of AlexNet": lambda: Own(
        of_images,
        *(nn.Conv2d(3, 8, 3, 2), nn.LocalResponseNorm(4, k=2), nn.Conv2d(8, 5, 3)),
        head=nn.Linear(5, 4),
    ),
    "group norm of volumes": lambda: Own(
        as_volumes, nn.Conv2d(3, 6, 3), group_norm(2, 6), head=nn.Linear(6, 4)
    ),
    "first rows of a norm": lambda: Own(
        lambda net, x: net.head(functional.relu(net.b(net.a(x))[:, :, :4]).mean((2, 3))),
        *(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6, affine=False)),
        head=nn.Linear(6, 4),
    ),
    "first rows of what is flipped": lambda: Own(
        lambda net, x: net.head(functional.relu(net.a(x).flip(2)[:, :, :4]).mean((2, 3))),
        nn.Conv2d(3, 6, 3),
        head=nn.Linear(6, 4),
    ),
    "statistics of tokens": lambda: Own(
        of_statistics, nn.Conv2d(3, 6, 4, 4), nn.Linear(6, 6), head=nn.Linear(12, 4)
    ),
}


def converted(name: str, suffix: str, folder: Path) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The float graph, images and what PyTorch makes of them."""
    torch.manual_seed(3)
    net = NETWORKS[name]().eval()
    net(torch.zeros(1, *IMAGE))
    images = np.random.default_rng(4).integers(0, 256, (32, *IMAGE)).astype(np.uint8)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p[None] / np.float32(255))).numpy() for p in images])
    graph = read(save(net, IMAGE, folder / f"net{suffix}"), IMAGE)
    return graph, np.moveaxis(images, 1, -1), wanted


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_pytorch_does(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx" and name.startswith("responses"):
        with pytest.raises(ConvertError, match=r"the op if is not supported; .* torch.export do not"):
            converted(name, suffix, tmp_path)
        return
    graph, images, wanted = converted(name, suffix, tmp_path)
    found = run_float(graph, images).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images, Choices()), images).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.15 * np.ptp(wanted), "in int8"


@pytest.mark.parametrize("size", [3, 4])
def test_an_lrn_of_onnx_is_what_onnx_says(size: int, tmp_path: Path) -> None:
    """Its own interpreter normalises as many channels as there are images."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2]),
        helper.make_node("LRN", ["c"], ["n"], size=size, alpha=0.6, beta=0.7, bias=1.5),
        helper.make_node("GlobalAveragePool", ["n"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "u"], ["y"]),
    ]
    w, u = (rng.normal(0, 0.5, shape).astype(np.float32) for shape in ((6, 3, 3, 3), (6, 4)))
    path = saved(tmp_path / "model.onnx", nodes, constants(w=w, u=u), [1, 3, 9, 9])
    images = rng.integers(0, 256, (8, 9, 9, 3)).astype(np.uint8)
    x = torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))
    made = functional.conv2d(x, torch.tensor(w), stride=2).numpy()
    before, behind = (size - 1) // 2, size // 2  # floor and ceiling of (size - 1) / 2
    squares = [(made[:, max(0, c - before) : c + behind + 1] ** 2).sum(1) for c in range(6)]
    wanted = (made / (1.5 + 0.6 / size * np.stack(squares, 1)) ** 0.7).mean((2, 3)) @ u
    np.testing.assert_allclose(run_float(load_model(path).graph, images).reshape(8, 4), wanted, atol=1e-5)


class Volumes(nn.Module):
    """A pooling over rows and columns of a volume too."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 6, 3), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = functional.avg_pool3d(self.body(x)[:, None], (1, 2, 2), stride=1)[:, 0]
        return torch.as_tensor(self.head(made.mean((2, 3))))


def test_other_poolings_of_volumes_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="the op avg_pool3d of a volume is not supported; the nearest"):
        read(save(Volumes().eval(), IMAGE, tmp_path / "net.pt2"), IMAGE)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_learns_on_the_device_as_in_pytorch(name: str, tmp_path: Path) -> None:
    graph, images, _ = converted(name, ".pt2", tmp_path)
    int8 = quantize_model(graph, images, Choices())
    assert_learned_alike(int8, tmp_path)
    assert_as_autograd(everything(int8).graph, 0.95)
