"""Maps of as many rows, or moments, as channels: their shape alone does not say which axis is which."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError

N = 4  # channels, moments, rows, columns
Middle = Callable[["Square", torch.Tensor], torch.Tensor]


class Square(nn.Module):
    """A convolution, a function of what it makes, and a head."""

    def __init__(self, middle: Middle, axes: int) -> None:
        super().__init__()
        self.middle, self.shape = middle, (N,) * axes
        self.conv = (nn.Conv1d if axes == 2 else nn.Conv2d)(N, N, 3, padding=1)
        self.linear, self.layer_norm, self.batch_norm = nn.Linear(N, N), nn.LayerNorm(N), nn.BatchNorm1d(N)
        self.instance_norm, self.row = nn.InstanceNorm1d(N, affine=True), nn.Parameter(torch.randn(N))
        for each in (self.layer_norm.weight, self.instance_norm.weight, self.batch_norm.running_mean):
            assert isinstance(each, torch.Tensor)
            nn.init.normal_(each)
        self.head = nn.Linear(middle(self, torch.zeros(1, *self.shape)).numel(), 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.middle(self, self.conv(x)).reshape(1, -1))
        return made


def right_or_refused(middle: Middle, axes: int, folder: Path) -> str:
    """Nothing, if a network converts with PyTorch's values; else what is not supported."""
    torch.manual_seed(0)
    net = Square(middle, axes).eval()
    pixels = np.random.default_rng(0).integers(0, 256, (3, *net.shape)).astype(np.uint8)
    samples = torch.tensor(pixels / np.float32(255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(net, (samples[:1],)), folder / "net.pt2")
        try:
            graph = load_model(folder / "net.pt2").graph
        except ConvertError as error:
            return str(error)
    with torch.no_grad():
        wanted = torch.cat([net(sample[None]) for sample in samples]).numpy()
    found = run_float(graph, np.moveaxis(pixels, 1, -1).reshape(3, *graph.tensors["input"].shape))
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    return ""


CONVERT: dict[str, tuple[Middle, int]] = {
    "columns less one of them": (lambda net, y: y[:, 0] - y[:, 0, :, 1:2], 3),
    "one column less all of them": (lambda net, y: y[:, 0, :, 1:2] - y[:, 0], 3),
    "the larger of columns and one of them": (lambda net, y: torch.maximum(y[:, 0], y[:, 0, :, 1:2]), 3),
    "a linear layer over time": (lambda net, y: net.linear(y), 2),
    "a layer norm over time": (lambda net, y: net.layer_norm(y), 2),
    "a pooling of rows that were channels": (
        lambda net, y: F.max_pool2d(y.permute(0, 3, 1, 2), (1, 3), 1, (0, 1)),
        3,
    ),
    "a batch norm of columns": (lambda net, y: net.batch_norm(y.permute(0, 3, 1, 2).flatten(2)), 3),
    "a cut and what is wrapped around": (lambda net, y: F.pad(y, (2, -1), mode="circular"), 2),
    "a variance of each row": (lambda net, y: net.linear(y.var(-1)), 3),
    "a deviation of each row, over rows": (lambda net, y: net.linear(y.std(-1)).transpose(1, 2), 3),
    "a vector times its gate, each with each": (
        lambda net, y: y.mean(-1)[:, :, None] * nn.Sigmoid()(y.mean(-1))[:, None],
        2,
    ),
    "a vector times itself, each with each": (lambda net, y: y.mean(-1)[:, :, None] * y.mean(-1)[:, None], 2),
    "an axis turned by its name": (lambda net, y: y.mT, 3),
}


@pytest.mark.parametrize("name", CONVERT)
def test_what_reads_one_axis_of_a_square_map(name: str, tmp_path: Path) -> None:
    assert right_or_refused(*CONVERT[name], tmp_path) == ""


REFUSED: dict[str, tuple[Middle, int, str]] = {
    "a factor a column": (lambda net, y: y.flatten(0, 1) * net.row, 2, "[4, 4]"),
    "a shift a column": (lambda net, y: y.flatten(0, 1) + net.row, 2, "[4, 4]"),
    "a batch norm a column": (lambda net, y: net.batch_norm(y.flatten(0, 1)), 2, "a view [4, 4]"),
    "a layer norm of each row": (lambda net, y: net.layer_norm(y.flatten(0, 1)), 2, "[4, 4]"),
    "an instance norm of a batch": (lambda net, y: net.instance_norm(y.reshape(2, 4, 2)), 2, "a batch of 2"),
    "a factor a row": (lambda net, y: y * y.mean((2, 3))[:, :, None], 3, "[1, 4, 1]"),
    "a channel and it turned": (lambda net, y: y[:, :1] * y[:, :1].transpose(1, 2), 3, "[1, 4, 1, 4]"),
    "a channel and its gate turned": (
        lambda net, y: (y[:, :1] * nn.Sigmoid()(y[:, :1]).transpose(1, 2)).mean(1),
        3,
        "[1, 4, 1, 4]",
    ),
    "rows of a view, each of length one": (
        lambda net, y: F.normalize(y.reshape(4, 16), dim=1),
        3,
        "each row of a view [4, 16]",
    ),
    "a product with a matrix a channel": (
        lambda net, y: y @ net.linear.weight.expand(4, 4, 4),
        3,
        "a matrix [",
    ),
    "a cut, and a padding with ones": (lambda net, y: F.pad(y, (2, -1), value=1.0), 2, "padding with 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_apart_is_a_sentence(name: str, tmp_path: Path) -> None:
    """Each was once taken for what has one number a channel, or one norm, or zeros around it."""
    middle, axes, text = REFUSED[name]
    assert text in right_or_refused(middle, axes, tmp_path)


def test_a_sum_with_what_is_not_supported_has_the_larger_shape(tmp_path: Path) -> None:
    """It had that of the vector, so that what turns it found too few axes, as in a damaged file."""
    gru = nn.GRU(N, N, batch_first=True)
    assert "gru" in right_or_refused(lambda net, y: (gru(y)[1][-1] + y).permute(0, 2, 1), 2, tmp_path)
