"""RMSNorm and layer norms as models write them: as in PyTorch, learned, and given back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_across import learned
from test_executor import partly_trained, run_both
from test_gradients import assert_as_autograd, everything
from test_model_copy import Session, agree
from test_own_models import Own, read, save
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.ir import Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.quantize.ptq import Choices, quantize_model

IMAGE, FEATURES = (3, 12, 16), 10
Way = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Norm(nn.Module):
    """A scale of each feature, and a way to write the norm. shifted: with a shift, as layer norms have"""

    def __init__(self, way: Way, shape: tuple[int, ...] = (FEATURES,), shifted: bool = False) -> None:
        super().__init__()
        self.way, self.gain = way, nn.Parameter(torch.rand(shape) + 0.5)
        self.shift = nn.Parameter(torch.randn(shape) / 4) if shifted else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.way(x, self.gain)
        return made if self.shift is None else made + self.shift


def as_llama(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * gain


def by_quotient(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return gain * (x / torch.sqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-6))


def by_product(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x / (x * x).mean(dim=-1, keepdim=True).add(1e-5).sqrt() * gain


def by_length(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """A unit vector times the root of its features."""
    return functional.normalize(x, dim=-1) * float(FEATURES**0.5) * gain


def by_norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(gain * x / (x.norm(2, dim=-1, keepdim=True) * float(FEATURES**-0.5) + 1e-8))


def of_pixels(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * gain


def by_torch(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(functional.rms_norm(x, (FEATURES,), gain, 1e-6))


def without_gain(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(functional.rms_norm(x, (FEATURES,)))


def as_annotated(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """A layer norm as The Annotated Transformer has it: a deviation of n - 1 numbers, eps beside it."""
    return gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def by_variance(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain


def by_squares(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    away = x - x.mean(-1, keepdim=True)
    return away * torch.rsqrt((away**2).mean(-1, keepdim=True) + 1e-5) * gain


def of_tokens(net: Own, x: torch.Tensor) -> Any:
    x = net.a(x).flatten(2).transpose(1, 2)
    x = x + functional.relu(net.c(net.b(x)))
    return net.head(net.d(x).mean(1))


def of_images(net: Own, x: torch.Tensor) -> Any:
    return net.head(functional.relu(net.c(net.b(net.a(x)))).mean((2, 3)))


def of_vectors(net: Own, x: torch.Tensor) -> Any:
    return net.head(net.b(functional.relu(net.a(x)).mean((2, 3))))


def tokens(way: Way, shifted: bool = False) -> Callable[[], Own]:
    def make() -> Own:
        first, second = (Norm(way, shifted=shifted) for _ in range(2))
        layers = (nn.Conv2d(3, FEATURES, 4, 4), first, nn.Linear(FEATURES, FEATURES), second)
        return Own(of_tokens, *layers, head=nn.Linear(FEATURES, 4))

    return make


NETWORKS: dict[str, Callable[[], Own]] = {
    "llama": tokens(as_llama),
    "quotient": tokens(by_quotient),
    "product": tokens(by_product),
    "length": tokens(by_length),
    "norm": tokens(by_norm),
    "torch": tokens(by_torch),
    "without gain": tokens(without_gain),
    "annotated": tokens(as_annotated, shifted=True),
    "variance": tokens(by_variance, shifted=True),
    "squares": tokens(by_squares, shifted=True),
    "pixels": lambda: Own(
        of_images,
        *(nn.Conv2d(3, FEATURES, 3, 2), Norm(of_pixels, (FEATURES, 1, 1)), nn.Conv2d(FEATURES, 6, 3)),
        head=nn.Linear(6, 4),
    ),
    "vectors": lambda: Own(
        of_vectors, nn.Conv2d(3, FEATURES, 3, 2), Norm(as_llama), head=nn.Linear(FEATURES, 4)
    ),
    "vectors by torch": lambda: Own(
        of_vectors, nn.Conv2d(3, FEATURES, 3, 2), nn.RMSNorm(FEATURES), head=nn.Linear(FEATURES, 4)
    ),
}
NOT_IN_ONNX = ("torch", "without gain", "vectors by torch")  # no operator before opset 23


def pixels(quiet: bool = False) -> np.ndarray:
    """Images; quiet: some of their patches are faint, and some black."""
    rng = np.random.default_rng(4)
    made = rng.integers(0, 256, (32, *IMAGE))
    patches = rng.choice([0, 0.03, 0.2, 1.0], (32, 1, 3, 4)).repeat(4, 2).repeat(4, 3)
    return (made * (patches if quiet else 1)).astype(np.uint8)


def converted(net: nn.Module, suffix: str, folder: Path, images: np.ndarray) -> tuple[Graph, Graph]:
    """The float graph, whose values are PyTorch's, and the one in int8, whose values are nearly so."""
    graph = read(save(net, IMAGE, folder / f"net{suffix}"), IMAGE)
    with torch.no_grad():
        wanted = np.concatenate([net(torch.tensor(p[None] / np.float32(255))).numpy() for p in images])
    given = np.moveaxis(images, 1, -1)
    assert np.abs(run_float(graph, given).reshape(wanted.shape) - wanted).max() < 2e-5 * np.abs(wanted).max()
    int8 = quantize_model(graph, given, Choices())
    stored = run_int8(int8, given).reshape(wanted.shape)
    assert np.abs(stored - wanted).max() < 0.2 * np.ptp(wanted), "in int8"
    return graph, int8


@pytest.mark.parametrize("suffix", [".pt2", ".pt", ".onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_a_norm_however_it_is_written(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx" and name in NOT_IN_ONNX:
        pytest.skip("torch.onnx has no operator for it in this opset")
    torch.manual_seed(3)
    graph, _ = converted(NETWORKS[name]().eval(), suffix, tmp_path, pixels())
    ops = [n.op for n in graph.nodes]
    assert ops.count(GROUP_NORM) == (1 if "vectors" in name or name == "pixels" else 2)
    assert not {"power_of", "channel_mean", "scale_pixels"} & set(ops), "nothing of its parts is left"


@pytest.mark.parametrize("name", ["llama", "length", "pixels"])
def test_tokens_of_all_sizes_are_normalised(name: str, tmp_path: Path) -> None:
    """A table of roots had no numbers for both faint and loud ones, nor for nothing at all."""
    torch.manual_seed(3)
    net = NETWORKS[name]().eval()
    nn.init.zeros_(net.a.bias)  # type: ignore[arg-type]
    converted(net, ".pt2", tmp_path, pixels(quiet=True))


@pytest.mark.parametrize("name", ["llama", "pixels", "vectors", "annotated"])
def test_it_learns_on_the_device_as_in_pytorch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    _, graph = converted(NETWORKS[name]().eval(), ".pt2", tmp_path, pixels())
    trained = partly_trained(graph, 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 4)
    assert_as_autograd(everything(graph).graph)


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("name", ["llama", "length", "pixels", "annotated", "squares"])
def test_its_scale_goes_back(name: str, suffix: str, tmp_path: Path) -> None:
    """Also one that is 1 everywhere, as before any training."""
    torch.manual_seed(3)
    net = NETWORKS[name]().eval()
    nn.init.ones_(net.b.gain)  # type: ignore[arg-type]
    session = Session(save(net, IMAGE, tmp_path / f"net{suffix}"), 4)
    logits = session.logits()
    found = learned(session, net, tmp_path / f"out{suffix}")
    if suffix != ".onnx":
        assert (torch.as_tensor(net.b.gain) - 1).abs().max() > 0
    agree(found, logits, 0.15 * np.abs(logits).max())


NEARLY: dict[str, Way] = {
    "a square too many": lambda x, gain: x * torch.rsqrt((x * x + 1).pow(2).mean(-1, keepdim=True)) * gain,
    "of another map": lambda x, gain: x * torch.rsqrt((2 + x).pow(2).mean(-1, keepdim=True) + 1) * gain,
    "a cube root": lambda x, gain: x * (x.pow(2).mean(-1, keepdim=True) + 1).pow(-1 / 3) * gain,
    "bounded": lambda x, gain: x / x.pow(2).mean(-1, keepdim=True).clamp(min=1e-3).sqrt() * gain,
    "far from nothing": lambda x, gain: x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.5) * gain,
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_one_is_what_it_is(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    graph, _ = converted(tokens(NEARLY[name])().eval(), ".pt2", tmp_path, pixels())
    assert GROUP_NORM not in [n.op for n in graph.nodes]


def test_a_norm_over_several_axes_is_a_sentence(tmp_path: Path) -> None:
    net = Own(of_images, nn.Conv2d(3, 6, 3), nn.RMSNorm((10, 14)), nn.Conv2d(6, 5, 3), head=nn.Linear(5, 4))
    words = (
        "layer b: rms_norm over the last 2 of the dimensions .* is not supported; the nearest that is: one"
    )
    with pytest.raises(Exception, match=words):
        read(save(net.eval(), IMAGE, tmp_path / "net.pt2"), IMAGE)
