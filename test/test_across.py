"""Layers over the tokens of each feature, as MLP-Mixer has them, and einsum: as PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from test_executor import partly_trained, run_both
from test_gradients import cosines, everything
from test_model_copy import Session, agree
from test_own_models import Own, beside_pytorch, read, save
from test_parallel import assert_simulated, image_of
from test_parallel import compiled as learning
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.aten.across import TURN
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.device.merging import merge

IMAGE, SERIES, TURNED = (3, 12, 16), (6, 20), (20, 6)
TOKENS, FEATURES = 12, 10
Change = Callable[[torch.Tensor], torch.Tensor]


def wide(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Hardtanh(), nn.Linear(hidden, inputs))


class Mixer(nn.Module):
    """Patches, blocks, the mean over all tokens and a head. pixels: patches are cut out by hand"""

    def __init__(self, *blocks: nn.Module, pixels: bool = False) -> None:
        super().__init__()
        self.pixels = pixels
        self.patches = nn.Linear(48, FEATURES) if pixels else nn.Conv2d(3, FEATURES, 4, 4)
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(FEATURES, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pixels:  # (h p1) (w p2) -> (h w) (p1 p2 c)
            x = self.patches(x.reshape(1, 3, 3, 4, 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(1, TOKENS, 48))
        else:
            x = self.patches(x).flatten(2).transpose(1, 2)
        result: torch.Tensor = self.head(self.blocks(x).mean(1))
        return result


class OfTimm(nn.Module):
    """A block of MLP-Mixer (Tolstikhin et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.mlp_tokens = nn.LayerNorm(FEATURES), wide(TOKENS, 7)
        self.norm2, self.mlp_channels = nn.LayerNorm(FEATURES), wide(FEATURES, 2 * FEATURES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        result: torch.Tensor = x + self.mlp_channels(self.norm2(x))
        return result


class ByConvolution(nn.Module):
    """The same with convolutions of one pixel, whose channels are the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.tokens = nn.Sequential(
            nn.Conv1d(TOKENS, 24, 1, padding="same"), nn.Hardtanh(), nn.Conv1d(24, TOKENS, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.tokens(self.norm(x)) + x
        return result


class Residual(nn.Module):
    """ResMLP (Touvron et al. 2021): scales of features in the place of norms."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (
            nn.Parameter(torch.rand(1, 1, FEATURES) + 0.5),
            nn.Parameter(torch.rand(FEATURES)),
        )
        self.tokens, self.gain = nn.Linear(TOKENS, TOKENS), nn.Parameter(torch.rand(FEATURES) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.tokens((self.scale * x + self.shift).transpose(1, 2)).transpose(1, 2)
        result: torch.Tensor = x + self.gain * y
        return result


class Gated(nn.Module):
    """gMLP (Liu et al. 2021): a gate that looks at all tokens. turned: as timm writes it"""

    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.turned, self.norm = turned, nn.LayerNorm(FEATURES)
        self.into, self.out = nn.Linear(FEATURES, 2 * FEATURES), nn.Linear(FEATURES, FEATURES)
        self.spatial: nn.Module = nn.Linear(TOKENS, TOKENS) if turned else nn.Conv1d(TOKENS, TOKENS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u, v = functional.hardtanh(self.into(x)).chunk(2, -1)
        v = self.norm(v)
        v = self.spatial(v.transpose(-1, -2)).transpose(-1, -2) if self.turned else self.spatial(v)
        result: torch.Tensor = x + self.out(u * v)
        return result


class ByMatrix(nn.Module):
    """A matrix from the left, or an einsum, with a bias for each token."""

    def __init__(self, way: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.weight = way, nn.Parameter(torch.randn(TOKENS, TOKENS) / 3)
        self.bias = nn.Parameter(torch.randn(TOKENS, 1) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + functional.hardtanh(self.way(x, self.weight) + self.bias)


class Permutator(nn.Module):
    """Vision Permutator (Hou et al. 2021): layers over rows, over columns and over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 5, 2, 2), nn.Linear(5, 4)
        self.rows, self.columns, self.channels = nn.Linear(6, 6), nn.Linear(8, 8), nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).permute(0, 2, 3, 1)
        h = self.rows(x.permute(0, 3, 2, 1)).permute(0, 3, 2, 1)
        w = self.columns(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        result: torch.Tensor = self.head(functional.relu(h + w + self.channels(x)).mean((1, 2)))
        return result


class Graphs(nn.Module):
    """Joints of a skeleton over time, as ST-GCN mixes them (Yan et al. 2018). way: with the neighbours"""

    def __init__(self, way: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.way, self.near = way, nn.Parameter(torch.randn(16, 16) / 4)
        self.into, self.time = nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, (3, 1), padding=(1, 0))
        self.head = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.time(functional.relu(self.way(self.into(x), self.near))))
        result: torch.Tensor = self.head(x.mean((2, 3)))
        return result


class Neighbours(nn.Module):
    """One matrix for each kind of neighbours, as ST-GCN's authors have it."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.importance = nn.Buffer(torch.rand(3, 16, 16) / 4), nn.Parameter(torch.rand(3, 16, 16))
        self.into, self.head = nn.Conv2d(3, 18, 1), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        x = x.view(x.shape[0], 3, 6, *x.shape[2:])
        x = torch.einsum("nkctv,kvw->nctw", x, self.near * self.importance)
        result: torch.Tensor = self.head(functional.relu(x).mean((2, 3)))
        return result


def time_and_sensors(net: Own, x: torch.Tensor) -> Any:
    """TSMixer (Chen et al. 2023) of [n, time, sensors]."""
    x = x + functional.relu(net.a(x.transpose(1, 2))).transpose(1, 2)
    x = x + net.c(functional.relu(net.b(x)))
    return net.head(net.d(x.transpose(1, 2)).flatten(1))


def over_time(net: Own, x: torch.Tensor) -> Any:
    """Layers over time right on the input, and one over the sensors behind them."""
    return net.head(functional.relu(net.c(net.b(functional.hardtanh(net.a(x))).transpose(1, 2))).mean(1))


def less_the_last(net: Own, x: torch.Tensor) -> Any:
    """NLinear (Zeng et al. 2023)."""
    last = x[:, :, -1:]
    return net.head((net.a(x - last) + last).reshape(1, -1))


def by_heads(net: Own, x: torch.Tensor) -> Any:
    """One layer for the parts of each token."""
    y = net.a(x.transpose(1, 2)).reshape(1, 20, 4, 3)
    return net.head(functional.relu(net.b(y)).flatten(2).mean(1))


def of_columns(net: Own, x: torch.Tensor) -> Any:
    """A convolution over the features, whose channels are the tokens."""
    y = net.a(x.transpose(1, 2))
    return net.head(functional.relu(net.b(y)).mean(2))


def of_einsum(text: str, shape: tuple[int, ...], first: bool = False) -> Callable[[], nn.Module]:
    """A network of an image or of tokens, whose weights an einsum has. first: as the first operand"""

    def forward(net: Own, x: torch.Tensor) -> Any:
        x = net.a(x)
        x = x if "h" in text else x.flatten(2).transpose(1, 2)
        weight = torch.as_tensor(net.b.weight)
        made = functional.relu(torch.einsum(text, *((weight, x) if first else (x, weight))))
        over = (2, 3) if text.endswith("hw") else tuple(range(1, made.ndim - 1))
        return net.head(made.mean(over))

    made = 8 if 8 in shape else FEATURES
    return lambda: Own(
        forward,
        nn.Conv2d(3, FEATURES, 4, 4),
        nn.Linear(shape[1], shape[0], bias=False),
        head=nn.Linear(made, 4),
    )


def gated(net: Own, x: torch.Tensor) -> Any:
    y = functional.relu(net.a(x))
    gate = torch.relu(net.b(y.mean((2, 3))))
    return net.head(functional.relu(torch.einsum("bchw,bc->bchw", y, gate)).mean((2, 3)))


def pooled(net: Own, x: torch.Tensor) -> Any:
    y = functional.relu(net.a(x)).transpose(1, 2)
    return net.head(torch.einsum("bt,btc->bc", torch.softmax(net.b(y).squeeze(-1), 1), y))


def beside_turned(op: Callable[..., torch.Tensor]) -> Callable[[], nn.Module]:
    """A series and another one that is turned, of as many moments as channels."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        return net.head(op(net.a(x).transpose(1, 2), net.b(x)).mean(-1))

    return lambda: Own(forward, nn.Conv1d(6, 18, 3), nn.Conv1d(6, 18, 3), head=nn.Linear(18, 4))


def joined_halves(x: torch.Tensor) -> torch.Tensor:
    """What is negative beside what is not, as many tokens again."""
    return torch.cat([x, functional.relu(x)], 1)


def beside_a_mean(net: Own, x: torch.Tensor) -> Any:
    """A series times the mean of another one that is turned, of as many moments as channels."""
    return net.head((net.b(x) * net.a(x).transpose(1, 2).mean(1, keepdim=True)).mean(-1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "timm": (lambda: Mixer(OfTimm(), OfTimm()), IMAGE),
    "convolutions": (lambda: Mixer(ByConvolution(), pixels=True), IMAGE),
    "resmlp": (lambda: Mixer(Residual()), IMAGE),
    "gmlp": (lambda: Mixer(Gated(False)), IMAGE),
    "gmlp of timm": (lambda: Mixer(Gated(True)), IMAGE),
    "matrix": (lambda: Mixer(ByMatrix(lambda x, w: w @ x)), IMAGE),
    "einsum": (lambda: Mixer(ByMatrix(lambda x, w: torch.einsum("bnc,nm->bmc", x, w))), IMAGE),
    "permutator": (Permutator, IMAGE),
    "graph": (lambda: Graphs(lambda x, w: torch.einsum("nctv,vw->nctw", x, w)), IMAGE),
    "graph of several kinds": (Neighbours, IMAGE),
    "graph by matmul": (lambda: Graphs(torch.matmul), IMAGE),
    "time and sensors": (
        lambda: Own(
            time_and_sensors,
            *(nn.Linear(20, 20), nn.Linear(6, 9), nn.Linear(9, 6), nn.Linear(20, 5)),
            head=nn.Linear(30, 4),
        ),
        TURNED,
    ),
    "over time": (
        lambda: Own(over_time, nn.Linear(20, 16), nn.Linear(16, 9), nn.Linear(6, 8), head=nn.Linear(8, 4)),
        SERIES,
    ),
    "less the last": (lambda: Own(less_the_last, nn.Linear(20, 5), head=nn.Linear(30, 4)), SERIES),
    "heads": (lambda: Own(by_heads, nn.Linear(6, 12), nn.Linear(3, 5), head=nn.Linear(20, 4)), SERIES),
    "columns": (
        lambda: Own(of_columns, nn.Linear(6, 8), nn.Conv1d(20, 7, 3, padding=1), head=nn.Linear(7, 4)),
        SERIES,
    ),
    "weights in order": (of_einsum("bnc,dc->bnd", (8, FEATURES)), IMAGE),
    "ellipsis": (of_einsum("...c,cd->...d", (FEATURES, 8)), IMAGE),
    "channels": (of_einsum("bchw,dc->bdhw", (8, FEATURES)), IMAGE),
    "weights first": (of_einsum("dc,bchw->bdhw", (8, FEATURES), first=True), IMAGE),
    "turned": (of_einsum("bchw,cd->bhwd", (FEATURES, 8)), IMAGE),
    "gate": (lambda: Own(gated, nn.Conv2d(3, 6, 3, 2), nn.Linear(6, 6), head=nn.Linear(6, 4)), IMAGE),
    "pooled": (lambda: Own(pooled, nn.Conv1d(6, 8, 3), nn.Linear(8, 1), head=nn.Linear(8, 4)), SERIES),
    "columns of a map": (
        lambda: Own(
            lambda net, x: net.head(functional.relu(net.b(net.a(x))).mean((2, 3))),
            *(nn.Conv2d(3, 6, 3), nn.Linear(14, 9)),
            head=nn.Linear(6, 4),
        ),
        IMAGE,
    ),
    "norm over columns": (
        lambda: Own(
            lambda net, x: net.head(functional.relu(net.b(net.a(x))).mean((2, 3))),
            *(nn.Conv2d(3, 6, 3), nn.LayerNorm(14)),
            head=nn.Linear(6, 4),
        ),
        IMAGE,
    ),
    "joined": (
        lambda: Own(
            lambda net, x: net.head(joined_halves(net.b(net.a(x).flatten(2)).transpose(1, 2)).mean(2)),
            *(nn.Conv2d(3, 6, 4, 4), nn.Linear(TOKENS, 7)),
            head=nn.Linear(14, 4),
        ),
        IMAGE,
    ),
    "a product with what is turned": (beside_turned(torch.mul), SERIES),
    "a mean of what is turned": (
        lambda: Own(beside_a_mean, nn.Conv1d(6, 18, 3), nn.Conv1d(6, 18, 3), head=nn.Linear(18, 4)),
        SERIES,
    ),
    "less what is turned": (beside_turned(torch.sub), SERIES),
}


@dataclass(frozen=True)
class Made:
    """A network, its float graph, images and what PyTorch makes of them."""

    net: nn.Module
    graph: Graph
    images: np.ndarray
    wanted: np.ndarray


def made(name: str, suffix: str, folder: Path) -> Made:
    make, shape = NETWORKS[name]
    torch.manual_seed(3)
    net = make().eval()
    graph, pixels, wanted = beside_pytorch(net, shape, folder / f"net{suffix}")
    rows, _, channels = graph.tensors[graph.input.tensor].shape
    as_features = len(shape) == 2 and (rows, channels) == shape  # what a layer reads first of a series
    images = pixels if as_features else np.moveaxis(pixels, 1, -1)
    images = images.reshape(-1, *graph.tensors[graph.input.tensor].shape)
    return Made(net, graph, images, wanted)


def quantized(name: str, folder: Path) -> Graph:
    found = made(name, ".pt2", folder)
    return quantize_model(found.graph, found.images, Choices())


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_computes_what_pytorch_does(name: str, suffix: str, tmp_path: Path) -> None:
    found = made(name, suffix, tmp_path)
    logits = run_float(found.graph, found.images).reshape(found.wanted.shape)
    assert np.abs(logits - found.wanted).max() < 2e-5 * np.abs(found.wanted).max()
    graph = quantize_model(found.graph, found.images, Choices())
    stored = run_int8(graph, found.images).reshape(found.wanted.shape)
    assert np.abs(stored - found.wanted).max() < 0.15 * np.ptp(found.wanted), "in int8"


LEARNING = (
    "timm",
    "gmlp",
    "permutator",
    "graph",
    "graph of several kinds",
    "time and sensors",
    "heads",
    "columns",
)


@pytest.mark.parametrize("name", LEARNING)
def test_it_learns_on_the_device_as_in_the_executor(name: str, tmp_path: Path) -> None:
    trained = partly_trained(quantized(name, tmp_path), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 4)


@pytest.mark.parametrize("name", LEARNING)
def test_its_gradients_are_those_of_autograd(name: str, tmp_path: Path) -> None:
    """But for a bias that a layer norm behind it takes away again, whose gradient is nothing."""
    graph = everything(quantized(name, tmp_path)).graph
    for errors, least in (("fp32", 0.999), ("int8", 0.98)):
        found = cosines(graph, errors)
        assert (
            min(v for (layer, kind), v in found.items() if not ("mlp_tokens" in layer and kind == "bias"))
            > least
        )


@pytest.mark.parametrize("name", ["timm", "permutator"])
def test_the_float_simulation_is_the_executor(name: str, tmp_path: Path) -> None:
    graph = quantized(name, tmp_path)
    assert_simulated(learning(graph, 4, 1.0), image_of(graph, 1), tmp_path)


def answers(path: Path, pixels: np.ndarray) -> np.ndarray:
    """What ONNX's own interpreter makes of each of them."""
    run = ReferenceEvaluator(str(path))
    made: list[Any] = [run.run(None, {run.input_names[0]: each[None]}) for each in pixels]
    return np.concatenate([each[0] for each in made])


def learned(session: Session, net: nn.Module, out: Path) -> np.ndarray:
    """What trained weights answer to a session's images: in a copy of its ONNX file, or back in the network.

    out  the copy; of other files its name says only that they are none of ONNX
    """
    pixels = session.images.transpose(0, 3, 1, 2) / np.float32(255)
    if out.suffix == ".onnx":
        session.copy(out)
        return answers(out, pixels)
    state = {key: value.double().numpy() for key, value in net.state_dict().items()}
    merged, _ = merge(session.plan, session.arrays, state)
    net.load_state_dict({k: torch.tensor(merged.get(k, v)).float() for k, v in state.items()})
    with torch.no_grad():
        return np.concatenate([net(torch.tensor(each[None])).numpy() for each in pixels])


@pytest.mark.parametrize("name", ["timm", "convolutions", "matrix", "einsum", "weights first"])
def test_what_was_trained_goes_back(name: str, tmp_path: Path) -> None:
    """Into the state dict, and into an ONNX file: both answer as the device."""
    make, shape = NETWORKS[name]
    torch.manual_seed(3)
    net = make().eval()
    for suffix in (".onnx", ".pt2"):
        session = Session(save(net, shape, tmp_path / f"net{suffix}"), 4)
        logits = session.logits()
        agree(learned(session, net, tmp_path / f"out{suffix}"), logits, 0.08 * np.abs(logits).max())


def test_turning_a_map_rounds_nothing(tmp_path: Path) -> None:
    """Integers go through as they are, and flash has the ones and zeros of all blocks once."""
    found = made("timm", ".pt2", tmp_path)
    graph = quantize_model(found.graph, found.images, Choices())
    turns = [n for n in graph.nodes if (n.layer or "").endswith(TURN)]
    for node in turns:
        x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
        assert (x.scale, x.zero) == (y.scale, y.zero)
    assert len(turns) == 2 and graph.copies[turns[1].layer or ""] == turns[0].layer


def over_tokens(count: int) -> nn.Module:
    torch.manual_seed(2)
    layers = (nn.Conv1d(3, 5, 1), nn.Linear(count, 4))
    return Own(lambda net, x: net.head(net.b(net.a(x)).flatten(1)), *layers, head=nn.Linear(20, 4)).eval()


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
def test_a_layer_over_many_tokens_is_a_sentence(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="a window of 307x1 every 307x1 pixels is too large; 255 pixels"):
        read(save(over_tokens(307), (3, 307), tmp_path / f"net{suffix}"), (3, 307))


def test_many_tokens_are_turned_in_the_steps_of_fewest_weights(tmp_path: Path) -> None:
    net = over_tokens(300)
    graph = read(save(net, (3, 300), tmp_path / "net.pt2"), (3, 300))
    turns = [n.window for n in graph.nodes if (n.layer or "").endswith(TURN)]
    assert [window.kh for window in turns if window is not None] == [15, 5, 4]
    pixels = np.random.default_rng(3).integers(0, 256, (4, 300, 3)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(pixels.transpose(0, 2, 1) / np.float32(255))).numpy()
    found = run_float(graph, pixels[:, :, None]).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("text", ["bnc,nc->bn", "bnc,cd->bd"])
def test_other_einsums_are_a_sentence(text: str, suffix: str, tmp_path: Path) -> None:
    """Weights that differ by token, and a sum over what the weights have not."""

    def forward(net: Own, x: torch.Tensor) -> Any:
        x = net.a(x).flatten(2).transpose(1, 2)
        return net.head(torch.einsum(text, x, torch.as_tensor(net.b.weight)))

    layers = (nn.Conv2d(3, TOKENS, 4, 4), nn.Linear(TOKENS, TOKENS))
    net = Own(forward, *layers, head=nn.Linear(TOKENS, 4)).eval()
    words = f"einsum {text} is not supported; the nearest that is: "
    with pytest.raises(ConvertError, match=words) as caught:
        read(save(net, IMAGE, tmp_path / f"net{suffix}"), IMAGE)
    assert "\n" not in str(caught.value)
