"""Networks in the style of libraries that many use for series, brain waves and images, as PyTorch has them.

Of tsai, braindecode and vit-pytorch; small, and of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_executor import partly_trained, run_both
from test_own_models import Own, read, save
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize
from torch_networks import randomise

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.aten.across import TURN
from microtrain.convert.quantize.ptq import Choices, quantize_model

SERIES, IMAGE = (3, 30), (3, 16, 16)


class Bounded(nn.Module):
    """The norm of each filter is 1 at most (EEGNet, Lawhern et al. 2018)."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.renorm(p=2, dim=0, maxnorm=1.0)


def bounded(layer: nn.Module) -> nn.Module:
    parametrize.register_parametrization(layer, "weight", Bounded())
    return layer


def over_sensors(net: Own, x: torch.Tensor) -> Any:
    """Filters over time, and over all sensors of each (EEGNet)."""
    y = functional.elu(net.b(net.a(x.unsqueeze(1))))
    return net.head(functional.avg_pool2d(y, (1, 4)).flatten(1))


def of_all_sizes(net: Own, x: torch.Tensor) -> Any:
    """Kernels of 1, 2 and 3, each behind its own zeros, of which the first has none (OmniScaleCNN)."""
    layers = (net.a, net.b, net.c)
    y = torch.cat([layer(functional.pad(x, (k // 2, (k + 1) // 2))) for k, layer in enumerate(layers)], 1)
    return net.head(functional.relu(y).mean(-1))


def in_two_shapes(net: Own, x: torch.Tensor) -> Any:
    """Each sensor by itself beside all of them, both of the input (XCM, Fauvel et al. 2021)."""
    y = functional.relu(net.b(functional.relu(net.a(x.unsqueeze(1))))).squeeze(1)
    z = functional.relu(net.d(functional.relu(net.c(functional.pad(x, (3, 3))))))
    return net.head(functional.relu(torch.cat([y, z], 1)).mean(-1))


def as_rows(net: Own, x: torch.Tensor) -> Any:
    """Channels become the rows of an image (SCCNet, Wei et al. 2019); more moments than a window has."""
    y = net.a(x.unsqueeze(1)).permute(0, 2, 1, 3)
    return net.head(functional.avg_pool2d(net.b(y).square(), (1, 12), (1, 12)).flatten(1))


def cropped(net: Own, x: torch.Tensor) -> Any:
    """What is joined is cut to one length (U-Sleep, Perslev et al. 2021)."""
    y = net.a(x)
    z = functional.interpolate(functional.max_pool1d(y, 2), scale_factor=2.0)
    return net.head(functional.relu(torch.cat([y.narrow(2, 1, 26), z.narrow(-1, 2, 26)], 1)).mean(-1))


def patches(x: torch.Tensor) -> torch.Tensor:
    """b c (h p1) (w p2) -> b (h w) (p1 p2 c)"""
    return x.reshape(1, 3, 2, 8, 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(1, 8, 96)


def normed_patches(net: Own, x: torch.Tensor) -> Any:
    """A norm of the numbers of each patch, before any layer (vit-pytorch); a class token that is none."""
    x = net.b(net.a(patches(x)))
    x = torch.cat([torch.zeros(1, 0, x.shape[-1]), x], 1)
    return net.head((x + functional.hardtanh(net.c(x))).mean(1))


def with_places(net: Own, x: torch.Tensor) -> Any:
    """Where each moment stands, beside what there is (CoordConv, Liu et al. 2018)."""
    places = torch.linspace(-1, 1, x.shape[2]).repeat(1, 1, 1)
    y = functional.relu(net.a(torch.cat([x, places], 1)))
    return net.head(functional.relu(net.b(torch.cat([places, y, torch.ones(1, 1, 30)], 1))).mean(-1))


def without_numbers(net: Own, x: torch.Tensor) -> Any:
    """What is no number becomes 0 (tsai's TST)."""
    x = x.clone()
    x[torch.isnan(x)] = 0
    return net.head(functional.relu(net.a(torch.nan_to_num(x))).mean(-1))


def registers(net: Own, x: torch.Tensor) -> Any:
    """Tokens that know nothing, behind the others, which are all that is looked at in the end."""
    x = net.b(net.a(x).flatten(2).transpose(1, 2))
    x = torch.cat([x, torch.as_tensor(net.tokens)[None]], 1)
    x = x + net.d(functional.scaled_dot_product_attention(*net.c(x).chunk(3, -1)))
    return net.head(x[:, :-2].mean(1))


def of_earlier_tokens(net: Own, x: torch.Tensor) -> Any:
    """Features beside those of earlier layers (U-ViT, Bao et al. 2023), and tokens behind tokens."""
    x = net.a(x).flatten(2).transpose(1, 2)
    y = functional.hardtanh(net.b(x))
    x = net.c(torch.cat([y, x], -1))
    return net.head(functional.hardtanh(net.d(torch.cat([x, y[:, 3:9], x[:, :1]], 1))).mean(1))


def pooled_tokens(net: Own, x: torch.Tensor) -> Any:
    """A class token goes beside the others, which become an image again (PiT, Heo et al. 2021)."""
    x = net.a(x).flatten(2).transpose(1, 2)
    x = net.b(torch.cat([torch.as_tensor(net.tokens)[None, :1], x], 1))
    first, rest = x[:, :1], x[:, 1:]
    rest = net.c(rest.transpose(1, 2).reshape(1, 8, 4, 4)).flatten(2).transpose(1, 2)
    return net.head(functional.hardtanh(torch.cat([net.d(first), rest], 1)).mean(1))


def windows(net: Own, x: torch.Tensor) -> Any:
    """What each window sees is a token (T2T-ViT, Yuan et al. 2021)."""
    y = functional.unfold(x, 4, stride=3, padding=1).transpose(1, 2)
    return net.head(functional.hardtanh(net.b(net.a(y))).mean(1))


def by_rows(net: Own, x: torch.Tensor) -> Any:
    """Channels change places with rows, and with columns (DiCENet, triplet attention)."""
    x = functional.relu(net.a(x))
    y = net.b(x.permute(0, 2, 1, 3)).permute(0, 2, 1, 3)
    z = net.c(x.permute(0, 3, 2, 1)).permute(0, 3, 2, 1)
    return net.head(functional.relu(x + y + z).mean((2, 3)))


def from_zeros(net: Own, x: torch.Tensor) -> Any:
    """A layer and a ReLU in place make something of a cell's first state (DIANet, Huang et al. 2020)."""
    x = net.a(x)
    state = functional.relu_(net.b(torch.zeros_like(x.mean(-1))))
    gate = functional.hardtanh(net.c(x.mean(-1)) + state)
    return net.head(functional.relu(x * gate[..., None]).mean(-1))


def listed(net: Own, x: torch.Tensor) -> Any:
    """A layer reads some features, one of them twice (CondenseNet, Huang et al. 2018), of tokens as well."""
    y = net.a(x.transpose(1, 2)).index_select(2, torch.tensor([4, 0, 0, 2, 5]))
    return net.head(functional.relu(net.b(y)).mean(1)[:, [2, 0, 2, 1]])


def of_blocks(net: Own, x: torch.Tensor) -> Any:
    """Poolings as einops' Reduce has them: b c (h 2) (w 4) -> b c h w, the largest, the mean and the sum."""
    x = net.a(x)
    blocks = x.reshape(1, 6, 8, 2, 4, 4)
    x = torch.cat([blocks.amax((3, 5)), blocks.permute(0, 1, 2, 4, 3, 5).mean((4, 5))], 1)
    x = functional.relu(net.b(x)).flatten(2)
    return net.head(x.reshape(1, 5, 16, 2).sum(3).amax(2))


def each_sensor(net: Own, x: torch.Tensor) -> Any:
    """The same layers for each sensor, which are a batch (EEGSimpleConv, SignalJEPA)."""
    y = functional.pad(x.reshape(3, 30), (2, 1))[:, None]
    y = functional.max_pool1d(functional.relu(net.b(net.a(y))), 2)
    y = functional.relu(net.c(functional.pad(y, (1, 1))).transpose(1, 2).reshape(1, 3, -1))
    return net.head(torch.cat([net.d(y).mean(-1), net.b(net.a(x.view(3, 1, 30))).mean(2).view(1, 12)], 1))


class Tokens(Own):
    """With two constant tokens of eight features."""

    def __init__(self, *args: Any, **about: Any) -> None:
        super().__init__(*args, **about)
        self.tokens = nn.Parameter(torch.randn(2, 8))


Make = Callable[[], nn.Module]
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "bounded norms": (
        lambda: Own(
            over_sensors,
            *(nn.Conv2d(1, 4, (1, 5), padding=(0, 2)), bounded(nn.Conv2d(4, 8, (3, 1), groups=4))),
            head=bounded(nn.Linear(56, 4)),
        ),
        SERIES,
    ),
    "all sizes": (
        lambda: Own(of_all_sizes, *(nn.Conv1d(3, 4, k) for k in (1, 2, 3)), head=nn.Linear(12, 4)),
        SERIES,
    ),
    "two shapes": (
        lambda: Own(
            in_two_shapes,
            *(nn.Conv2d(1, 5, (1, 7), padding="same"), nn.Conv2d(5, 1, 1)),
            *(nn.Conv1d(3, 5, 7), nn.Conv1d(5, 1, 1)),
            head=nn.Linear(4, 4),
        ),
        SERIES,
    ),
    "rows": (
        lambda: Own(as_rows, nn.Conv2d(1, 5, (3, 1)), nn.Conv2d(1, 6, (5, 12)), head=nn.Linear(144, 4)),
        (3, 300),
    ),
    "cropped": (lambda: Own(cropped, nn.Conv1d(3, 5, 3), head=nn.Linear(10, 4)), SERIES),
    "normed patches": (
        lambda: Own(
            normed_patches,
            *(nn.LayerNorm(96), nn.Linear(96, 10), nn.Linear(10, 10)),
            head=nn.Linear(10, 4),
        ),
        IMAGE,
    ),
    "places": (
        lambda: Own(with_places, nn.Conv1d(4, 5, 3, padding=1), nn.Conv1d(7, 6, 3), head=nn.Linear(6, 4)),
        SERIES,
    ),
    "no numbers": (lambda: Own(without_numbers, nn.Conv1d(3, 6, 3), head=nn.Linear(6, 4)), SERIES),
    "registers": (
        lambda: Tokens(
            registers,
            *(nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)),
            head=nn.Linear(8, 4),
        ),
        IMAGE,
    ),
    "earlier tokens": (
        lambda: Own(
            of_earlier_tokens,
            *(nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 6), nn.Linear(14, 6), nn.Linear(6, 8)),
            head=nn.Linear(8, 4),
        ),
        IMAGE,
    ),
    "pooled tokens": (
        lambda: Tokens(
            pooled_tokens,
            *(nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8), nn.Conv2d(8, 10, 3, 2, 1), nn.Linear(8, 10)),
            head=nn.Linear(10, 4),
        ),
        IMAGE,
    ),
    "blocks": (
        lambda: Own(of_blocks, nn.Conv2d(3, 6, 1), nn.Conv2d(12, 5, 1), head=nn.Linear(5, 4)),
        IMAGE,
    ),
    "each sensor": (
        lambda: Own(
            each_sensor,
            *(nn.Conv1d(1, 4, 5, 2), nn.BatchNorm1d(4), nn.Conv1d(4, 2, 3), nn.Conv1d(3, 5, 3)),
            head=nn.Linear(17, 4),
        ),
        SERIES,
    ),
    "rows of channels": (
        lambda: Own(
            by_rows,
            *(nn.Conv2d(3, 6, 3, 2), nn.Conv2d(7, 7, 3, padding=1), nn.Conv2d(7, 7, 1)),
            head=nn.Linear(6, 4),
        ),
        IMAGE,
    ),
    "from zeros": (
        lambda: Own(from_zeros, nn.Conv1d(3, 6, 3), nn.Linear(6, 6), nn.Linear(6, 6), head=nn.Linear(6, 4)),
        SERIES,
    ),
    "listed": (lambda: Own(listed, nn.Linear(3, 6), nn.Linear(5, 3), head=nn.Linear(4, 4)), SERIES),
    "windows": (
        lambda: Own(windows, nn.LayerNorm(48), nn.Linear(48, 8), head=nn.Linear(8, 4)),
        IMAGE,
    ),
}


def graph_of(name: str, suffix: str, folder: Path) -> tuple[Graph, np.ndarray, np.ndarray]:
    """The float graph, samples as it takes them, and what PyTorch makes of these."""
    make, shape = NETWORKS[name]
    torch.manual_seed(3)
    net = randomise(make(), 3)
    pixels = np.random.default_rng(4).integers(0, 256, (16, *shape)).astype(np.uint8)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p / np.float32(255))[None]).numpy() for p in pixels])
    graph = read(save(net, shape, folder / f"net{suffix}"), shape)
    sides = graph.tensors[graph.input.tensor].shape
    as_rows = len(shape) == 2 and sides[2] == 1
    return graph, (pixels if as_rows else np.moveaxis(pixels, 1, -1)).reshape(-1, *sides), wanted


NOT_IN_ONNX = ("bounded norms", "no numbers", "windows")  # which has no op for them
FILES = [(name, suffix) for name in NETWORKS for suffix in (".pt2", ".pt", ".onnx")]


@pytest.mark.filterwarnings("ignore:forward")
@pytest.mark.parametrize(("name", "suffix"), [f for f in FILES if f[1] != ".onnx" or f[0] not in NOT_IN_ONNX])
def test_it_computes_what_pytorch_does(name: str, suffix: str, tmp_path: Path) -> None:
    graph, images, wanted = graph_of(name, suffix, tmp_path)
    assert np.abs(run_float(graph, images).reshape(wanted.shape) - wanted).max() < 1e-5 * np.abs(wanted).max()
    stored = run_int8(quantize_model(graph, images, Choices()), images).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.1 * np.ptp(wanted), "in int8"


@pytest.mark.parametrize("name", ["rows", "normed patches", "places", "registers", "earlier tokens"])
def test_it_learns_on_the_device_as_in_the_executor(name: str, tmp_path: Path) -> None:
    graph, images, _ = graph_of(name, ".pt2", tmp_path)
    trained = partly_trained(quantize_model(graph, images, Choices()), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 4)


def test_a_turn_of_more_rows_than_a_window_has_is_several(tmp_path: Path) -> None:
    """Of few weights, where one window would have 300 x 300."""
    graph, _, _ = graph_of("rows", ".pt2", tmp_path)
    turns = [node for node in graph.nodes if (node.layer or "").endswith(TURN)]
    assert [node.window.kh for node in turns if node.window] == [15, 5, 4]
    assert sum(graph.layers[node.layer or ""].weight.size for node in turns) == 15 * 15 + 75 * 5 + 300 * 4


def test_views_of_constants_are_changed_with_them(tmp_path: Path) -> None:
    """In place, as in PyTorch: a part of a table is the table's, a clone of it is not."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        table = net.b(torch.zeros(3, 6))
        kept, part = table.clone(), table[1]
        part.mul_(2.0).relu_()
        table.flip(0).exp_()
        return net.head(functional.relu(net.a(x)).mean(-1) + (table + kept).sum(0))

    torch.manual_seed(3)
    net = randomise(Own(forward, nn.Conv1d(3, 6, 3), nn.Linear(6, 6), head=nn.Linear(6, 4)), 3)
    pixels = np.random.default_rng(4).integers(0, 256, (4, *SERIES)).astype(np.uint8)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p / np.float32(255))[None]).numpy() for p in pixels])
    for suffix in (".pt2", ".pt"):
        graph = read(save(net, SERIES, tmp_path / f"net{suffix}"), SERIES)
        images = np.moveaxis(pixels, 1, -1).reshape(-1, 30, 1, 3)
        assert (
            np.abs(run_float(graph, images).reshape(wanted.shape) - wanted).max()
            < 1e-5 * np.abs(wanted).max()
        )


def test_what_is_no_number_inside_a_network_is_a_sentence(tmp_path: Path) -> None:
    """A layer can make what no sample is."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        return net.head(torch.nan_to_num(torch.log(net.a(x))).mean(-1))

    net = Own(forward, nn.Conv1d(3, 2, 3), head=nn.Linear(2, 4))
    with pytest.raises(ConvertError, match="the op nan_to_num is not supported"):
        read(save(net.eval(), SERIES, tmp_path / "net.pt2"), SERIES)


def test_what_is_stacked_is_named_where_another_map_is_multiplied_with_it(tmp_path: Path) -> None:
    def forward(net: Own, x: torch.Tensor) -> Any:
        y = net.a(x)
        return net.head((torch.ones(2, 1) * torch.stack([y, y + 1], -1).mean(2)).flatten(1))

    net = Own(forward, nn.Conv1d(3, 2, 3), head=nn.Linear(4, 4))
    with pytest.raises(ConvertError, match="the op mean over another axis of stacked tensors"):
        read(save(net.eval(), SERIES, tmp_path / "net.pt2"), SERIES)
