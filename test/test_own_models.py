"""Networks as people bring them, from every kind of file: PyTorch's values in float, nearly so in int8."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn import functional
from torch_networks import randomise

from microtrain.convert.cli import main as convert
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.tasks import headed

Forward = Callable[["Own", torch.Tensor], Any]


class Own(nn.Module):
    """A forward() of layers a, b, c, d and of the head."""

    a: nn.Module
    b: nn.Module
    c: nn.Module
    d: nn.Module

    def __init__(self, forward: Forward, *layers: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.what, self.head = forward, head
        for name, layer in zip("abcd", layers, strict=False):
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.what(self, x)
        return result


def causal(net: Own, x: torch.Tensor) -> Any:
    """Zeros before a series alone, and the last moment of what comes of it."""
    for layer, far in ((net.a, 2), (net.b, 4)):
        x = functional.relu(layer(functional.pad(x, (far, 0))))
    return net.head(x[:, :, -1])


def chomped(net: Own, x: torch.Tensor) -> Any:
    """Zeros on both sides, and what looks ahead cut off (Bai et al. 2018), behind a batch norm too."""
    y = functional.relu(net.a(x)[:, :, :-2])
    return net.head((functional.relu(net.c(net.b(y))[:, :, :-4]) + y).mean(-1))


def turned(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.a(x.permute(0, 3, 1, 2))).mean((2, 3)))


def over_time(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.a(x.transpose(1, 2))).mean(-1))


def one_more_axis(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.elu(net.a(x.unsqueeze(1))).flatten(1))


def scaled(net: Own, x: torch.Tensor) -> Any:
    """Normalised before it gets another axis, and a batch norm that reads it there."""
    return net.head(functional.relu(net.a(net.b(((x - 0.3) / 0.4).unsqueeze(1)))).mean((2, 3)))


def scaled_and_turned(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.a((x / 0.5).permute(0, 2, 1))).mean(-1))


def halves(net: Own, x: torch.Tensor) -> Any:
    """Channels of a series, in two parts."""
    first, second = net.a(x).chunk(2, 1)
    return net.head((first + second).mean(-1))


def largest(net: Own, x: torch.Tensor) -> Any:
    y = net.a(x)
    return net.head(torch.cat([y.mean(-1), y.amax(-1), y.max(-1)[0]], 1))


def pooled(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.adaptive_max_pool2d(functional.relu(net.a(x)), 1).flatten(1))


def beside(net: Own, x: torch.Tensor) -> Any:
    """A recurrent layer beside a convolution."""
    return net.head(torch.cat([functional.relu(net.a(x)).mean(-1), net.b(x.transpose(1, 2))[0][:, -1]], 1))


def flattened(net: Own, x: torch.Tensor) -> Any:
    """All moments of a layer over each, one behind the other."""
    return net.head(functional.relu(net.a(x)).flatten(1))


def dense_block(net: Own, x: torch.Tensor) -> Any:
    """Batch norms that follow no convolution."""
    y = net.a(x)
    y = torch.cat([y, net.c(functional.relu(net.b(y)))], 1)
    return net.head(functional.relu(net.d(y)).mean((2, 3)))


def end(net: Own, x: torch.Tensor) -> Any:
    """The mean over what the head makes of each pixel."""
    return net.head(functional.relu(net.a(x))).mean((2, 3))


def middle(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.a(x)[:, :, 3, 2])


def through(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.a(net.b(x))).mean(1))


def one_slope(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.b(net.a(x)).mean((2, 3)))


def two_slopes(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.d(net.c(net.b(net.a(x)))).mean((2, 3)))


def sensors(net: Own, x: torch.Tensor) -> Any:
    """DeepConvLSTM (Ordonez and Roggen 2016): kernels over time, all sensors of a moment for the LSTM."""
    y = functional.relu(net.a(x.transpose(1, 2).unsqueeze(1)))
    y = y.permute(0, 2, 1, 3).reshape(1, y.shape[2], -1)
    return net.head(net.b(y)[0][:, -1])


def long_head(net: Own, x: torch.Tensor) -> Any:
    """Of all moments of a series, more than a window has."""
    return net.head(functional.relu(net.a(x)).flatten(1))


def waves(net: Own, x: torch.Tensor) -> Any:
    """Positions that arange counts, from one number and from two."""
    y = net.b(x)
    at = torch.arange(y.shape[1]).float()[:, None] * torch.exp(-torch.arange(0, 12, 2).float() / 12)
    return net.head(functional.relu(net.a(y + torch.cat([at.sin(), at.cos()], 1))).mean(1))


def sloped() -> nn.PReLU:
    layer = nn.PReLU(6)
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-0.2, 1.5, 6))
    return layer


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def norm() -> nn.BatchNorm2d:
    return nn.BatchNorm2d(6)


def wide(c: int) -> nn.Conv1d:
    return nn.Conv1d(c, 6, 3, dilation=2)


OWN_ORDER = {  # channels last, as they are
    "mixer",
    "from the left",
    "turned",
    "scaled",
    "scaled and turned",
    "one more axis",
    "over time",
    "all moments",
    "transformer",
    "waves",
}


def mixer(net: Own, x: torch.Tensor) -> Any:
    y = net.b(x)
    return net.head((y + net.a(y.transpose(1, 2)).transpose(1, 2)).mean(1))


def before(net: Own, x: torch.Tensor) -> Any:
    return net.head((net.a.weight @ net.b(x)).mean(1))


NETWORKS: dict[str, tuple[Callable[[], Own], tuple[int, ...]]] = {
    "causal": (lambda: Own(causal, nn.Conv1d(3, 6, 3), wide(6), head=nn.Linear(6, 3)), (3, 20)),
    "chomped": (
        lambda: Own(
            chomped,
            nn.Conv1d(3, 6, 3, padding=2),
            nn.Conv1d(6, 6, 3, padding=4, dilation=2),
            nn.BatchNorm1d(6),
            head=nn.Linear(6, 3),
        ),
        (3, 20),
    ),
    "turned": (lambda: Own(turned, nn.Conv2d(3, 6, 3, 2), head=nn.Linear(6, 3)), (9, 8, 3)),
    "over time": (lambda: Own(over_time, nn.Conv1d(3, 6, 5, 2), head=nn.Linear(6, 3)), (21, 3)),
    "one more axis": (lambda: Own(one_more_axis, nn.Conv2d(1, 4, (3, 5)), head=nn.Linear(96, 3)), (8, 8)),
    "scaled": (
        lambda: Own(scaled, nn.Conv2d(1, 6, 3), nn.BatchNorm2d(1), head=nn.Linear(6, 3)),
        (9, 8),
    ),
    "scaled and turned": (
        lambda: Own(scaled_and_turned, nn.Conv1d(3, 6, 3), head=nn.Linear(6, 3)),
        (20, 3),
    ),
    "halves": (lambda: Own(halves, nn.Conv1d(3, 12, 3), head=nn.Linear(6, 3)), (3, 20)),
    "largest": (lambda: Own(largest, nn.Conv1d(3, 6, 5), head=nn.Linear(18, 3)), (3, 20)),
    "pooled": (lambda: Own(pooled, nn.Conv2d(2, 6, 3), head=nn.Linear(6, 3)), (2, 20, 19)),
    "beside": (
        lambda: Own(beside, nn.Conv1d(3, 6, 3), nn.LSTM(3, 5, batch_first=True), head=nn.Linear(11, 3)),
        (3, 20),
    ),
    "all moments": (lambda: Own(flattened, nn.Linear(5, 6), head=nn.Linear(42, 3)), (7, 5)),
    "dense block": (
        lambda: Own(
            dense_block,
            nn.Conv2d(2, 6, 3),
            norm(),
            nn.Conv2d(6, 4, 3, padding=1),
            nn.BatchNorm2d(10),
            head=nn.Linear(10, 3),
        ),
        (2, 9, 8),
    ),
    "end": (lambda: Own(end, nn.Conv2d(2, 6, 3, 2), head=nn.Conv2d(6, 3, 1)), (2, 9, 8)),
    "middle": (lambda: Own(middle, nn.Conv2d(2, 6, 3), head=nn.Linear(6, 3)), (2, 9, 8)),
    "one slope": (lambda: Own(one_slope, nn.Conv2d(2, 6, 3, 2), nn.PReLU(), head=nn.Linear(6, 3)), (2, 9, 8)),
    "a slope for each channel": (
        lambda: Own(
            two_slopes,
            nn.Conv2d(2, 6, 3, 2),
            sloped(),
            nn.Conv2d(6, 6, 3, groups=6),
            sloped(),
            head=nn.Linear(6, 3),
        ),
        (2, 9, 8),
    ),
    "sensors": (
        lambda: Own(sensors, nn.Conv2d(1, 4, (5, 1)), nn.LSTM(12, 6, batch_first=True), head=nn.Linear(6, 3)),
        (3, 20),
    ),
    "long head": (lambda: Own(long_head, nn.Conv1d(3, 4, 5), head=nn.Linear(4 * 296, 3)), (3, 300)),
    "waves": (lambda: Own(waves, nn.Linear(12, 12), nn.Linear(5, 12), head=nn.Linear(12, 3)), (8, 5)),
    "transformer": (lambda: Own(through, encoder(), nn.Linear(5, 12), head=nn.Linear(12, 3)), (8, 5)),
    "mixer": (lambda: Own(mixer, nn.Linear(6, 6), nn.Linear(5, 5), head=nn.Linear(5, 3)), (6, 5)),
    "from the left": (lambda: Own(before, nn.Linear(6, 6), nn.Linear(5, 5), head=nn.Linear(5, 3)), (6, 5)),
}


def save(net: nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    example = torch.zeros(1, *shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt2":
            torch.export.save(torch.export.export(net, (example,)), path)
        elif path.suffix == ".onnx":
            torch.onnx.export(net, (example,), str(path), opset_version=17, dynamo=False)
        else:
            torch.jit.trace(net, example, check_trace=False).save(str(path))
    return path


def read(path: Path, shape: tuple[int, ...]) -> Graph:
    return load_model(path, input_shape=shape if path.suffix == ".pt" else None).graph


def beside_pytorch(
    net: nn.Module, shape: tuple[int, ...], path: Path
) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The graph of a network's file, 32 samples in PyTorch's order, and what PyTorch makes of them."""
    pixels = np.random.default_rng(4).integers(0, 256, (32, *shape)).astype(np.uint8)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p / np.float32(255))[None]).numpy() for p in pixels])
    return read(save(net, shape, path), shape), pixels, wanted


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_ones_own(name: str, suffix: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    torch.manual_seed(3)
    net = randomise(make(), 3)
    graph, pixels, wanted = beside_pytorch(net, shape, tmp_path / f"net{suffix}")
    given = pixels if name in OWN_ORDER else np.moveaxis(pixels, 1, -1)
    images = given.reshape(-1, *graph.tensors[graph.input.tensor].shape)
    found = run_float(graph, images).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images, Choices()), images).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.1 * np.ptp(wanted), "in int8"


@pytest.mark.parametrize("task", ["anomaly", "regression"])
def test_a_sigmoid_at_the_end_is_not_left_out_where_numbers_are_learned(task: str, tmp_path: Path) -> None:
    end, called = (nn.Softmax(1), "softmax") if task == "anomaly" else (nn.Sigmoid(), "sigmoid")
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8), end).eval()
    path = save(net, (8,), tmp_path / "net.pt2")
    words = [str(path), "--check", "--task", task]
    done = CliRunner().invoke(convert, words)
    assert done.exit_code == 1 and f"ends with a {called}, which no loss of --task {task}" in done.output
    path = save(net[:-1], (8,), tmp_path / "plain.pt2")
    assert CliRunner().invoke(convert, [str(path), *words[1:]]).exit_code == 0


def test_a_hidden_layer_over_a_long_series_is_a_sentence(tmp_path: Path) -> None:
    body = (nn.Conv1d(3, 4, 5), nn.Flatten(), nn.Linear(4 * 296, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(ConvertError, match="layer 2 reads a map of 296x1; a hidden linear layer reads 255"):
        read(save(nn.Sequential(*body).eval(), (3, 300), tmp_path / "net.pt2"), (3, 300))


def test_an_input_that_is_read_in_two_shapes_is_a_sentence(tmp_path: Path) -> None:
    def twice(net: Own, x: torch.Tensor) -> Any:
        y = functional.relu(net.a(x.transpose(1, 2).unsqueeze(1))).mean((2, 3))
        return net.head(torch.cat([y, functional.relu(net.b(x.transpose(1, 2).flatten(1)))], 1))

    net = Own(twice, nn.Conv2d(1, 4, (5, 1)), nn.Linear(60, 4), head=nn.Linear(8, 3)).eval()
    with pytest.raises(
        ConvertError, match=r"reads its input in two shapes, in a and b\.blocks; let one layer"
    ):
        read(save(net, (3, 20), tmp_path / "net.pt2"), (3, 20))


def test_what_is_chosen_by_size_is_no_label_inside(tmp_path: Path) -> None:
    """The mean of the three largest: the head is not what reads the convolution."""
    net = Own(
        lambda net, x: net.head(net.a(x).topk(3, dim=2)[0].mean(2)), nn.Conv1d(3, 4, 5), head=nn.Linear(4, 3)
    )
    with pytest.raises(ConvertError, match=r"Gemm reads what is chosen by size \(TopK, ArgMax\) inside"):
        read(save(net.eval(), (3, 20), tmp_path / "net.onnx"), (3, 20))


def test_several_heads_are_told_to_be_one(tmp_path: Path) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.body(x))
            return torch.cat((self.a(x), self.b(x)), 1)

    with pytest.raises(
        ConvertError, match=r"ends with .*concat.*: one for all outputs, in the place of several"
    ):
        headed(read(save(Heads().eval(), (6,), tmp_path / "net.pt2"), (6,)))
