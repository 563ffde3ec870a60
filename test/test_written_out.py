"""Normalisations that forward() writes out, sums over a map, and patches in either order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from test_gradients import assert_as_autograd, cosines, everything
from test_model_copy import Session, agree
from test_resample import assert_as_pytorch, exported
from test_turned_weights import planned
from torch import nn

from microtrain.base.trained import HWC
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.tasks import headed
from microtrain.device.merging import merge

Change = Callable[[torch.Tensor], torch.Tensor]
SUFFIXES = pytest.mark.parametrize("suffix", ["pt2", "onnx"])
OR_SCRIPT = pytest.mark.parametrize("suffix", ["pt2", "onnx", "torchscript"])


def loud(model: nn.Module) -> nn.Module:
    """With weights that let the logits say something."""
    for values in (p for p in model.parameters() if p.ndim > 1):
        nn.init.normal_(values, 0, 2.0 / values[0].numel() ** 0.5)
    return model


class ChannelsFirst(nn.Module):
    """A layer norm over the channels of each pixel, as ConvNeXt has it. over: without scale and shift"""

    def __init__(self, over: Change) -> None:
        super().__init__()
        self.conv, self.last, self.head = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 5, 3), nn.Linear(5, 6)
        self.w, self.b, self.over = nn.Parameter(torch.rand(6) + 0.5), nn.Parameter(torch.randn(6) / 4), over

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.w[:, None, None] * self.over(self.conv(x)) + self.b[:, None, None]
        result: torch.Tensor = self.head(torch.relu(self.last(x)).mean((2, 3)))
        return result


def over_root(x: torch.Tensor) -> torch.Tensor:
    u = x.mean(1, keepdim=True)
    s = (x - u).pow(2).mean(1, keepdim=True)
    return (x - u) / torch.sqrt(s + 1e-6)


def over_product(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dim=1, keepdim=True) + 1e-6)


def by_variance(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-6).sqrt()


def by_layer(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(x.permute(0, 2, 3, 1), (6,)).permute(0, 3, 1, 2)


@OR_SCRIPT
@pytest.mark.parametrize("over", [over_root, over_product, by_variance, by_layer])
def test_a_layer_norm_over_channels_is_that_of_pytorch(over: Change, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*stay frozen")  # its scale and shift learn
        graph = assert_as_pytorch(loud(ChannelsFirst(over)), tmp_path / f"model.{suffix}", (3, 9, 9))
    assert [n.op for n in graph.nodes[:3]] == ["conv2d", GROUP_NORM, "dwconv2d"]
    if suffix == "pt2" and over is not by_layer:
        scale = graph.layers[graph.nodes[2].layer or ""].source
        assert (scale.weight, scale.bias) == ("w", "b"), "it learns"


def test_a_scale_that_is_still_1_and_a_shift_of_0_are_told_apart(tmp_path: Path) -> None:
    """Each was taken for the other: what the scale learned went into the shift."""
    model = ChannelsFirst(over_root)
    nn.init.ones_(model.w)
    nn.init.zeros_(model.b)
    graph = load_model(exported(model, tmp_path / "model.pt2", (3, 9, 9))).graph
    scale = graph.layers[graph.nodes[2].layer or ""].source
    assert (scale.weight, scale.bias) == ("w", "b")


def test_its_gradients_are_those_of_autograd_and_what_it_learned_goes_back(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = loud(ChannelsFirst(over_root)).eval()
    path = exported(model, tmp_path / "model.pt2", (3, 9, 9))
    images = np.random.default_rng(0).integers(0, 256, (16, 9, 9, 3)).astype(np.uint8)
    graph = everything(quantize_model(load_model(path).graph, images, Choices())).graph
    assert_as_autograd(graph)
    plan, arrays = planned(model, path)
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    merged, _ = merge(plan, arrays, state)
    for name in ("w", "b", "conv.weight"):
        np.testing.assert_allclose(merged[name], state[name], atol=0.03, err_msg=name)


def unbiased(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True) + 1e-6).sqrt()


def centred_alone(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(1, keepdim=True)


def of_squares(x: torch.Tensor) -> torch.Tensor:
    u = x.mean(1, keepdim=True)
    return (x - u) / ((x - u).pow(2).sum(1, keepdim=True) + 1e-6).sqrt()


@OR_SCRIPT
@pytest.mark.parametrize("over", [unbiased, centred_alone, of_squares])
def test_what_is_nearly_a_norm_is_what_it_is(over: Change, suffix: str, tmp_path: Path) -> None:
    """One by a variance of n - 1 numbers and one by a sum of squares are norms times a number."""
    torch.manual_seed(2)
    graph = assert_as_pytorch(loud(ChannelsFirst(over)), tmp_path / f"model.{suffix}", (3, 9, 9))
    assert [n.op for n in graph.nodes].count(GROUP_NORM) == (over is not centred_alone)


# ---------------------------------------------------------------- embeddings


class Embedding(nn.Module):
    def __init__(self, by_length: Change) -> None:
        super().__init__()
        self.conv, self.head, self.by_length = nn.Conv2d(3, 6, 3, 2), nn.Linear(6, 5), by_length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.by_length(self.head(torch.relu(self.conv(x)).mean((2, 3))))


LENGTHS: dict[str, Change] = {
    "norm": lambda y: y / y.norm(dim=1, keepdim=True),
    "root": lambda y: y / torch.sqrt((y * y).sum(1, keepdim=True)),
    "power": lambda y: y / y.pow(2).sum(-1, keepdim=True).sqrt(),
    "with eps": lambda y: y / torch.sqrt(y.square().sum(1, keepdim=True) + 1e-8),
    "inverse": lambda y: y * torch.rsqrt((y * y).sum(1, keepdim=True) + 1e-8),
    "bounded": lambda y: y / (y * y).sum(1, keepdim=True).clamp(min=1e-12) ** 0.5,
}


@SUFFIXES
@pytest.mark.parametrize("way", LENGTHS)
def test_a_length_that_is_written_out_is_left_out(way: str, suffix: str, tmp_path: Path) -> None:
    path = exported(Embedding(LENGTHS[way]), tmp_path / f"model.{suffix}", (3, 9, 9))
    with pytest.warns(UserWarning, match="L2 normalisation at the model's end is left out"):
        graph = load_model(path).graph
    assert graph.nodes[-1].op == "head" and [n.op for n in graph.nodes].count("conv2d") == 1


@SUFFIXES
def test_a_mean_of_squares_is_no_length(suffix: str, tmp_path: Path) -> None:
    """At the end of a model it is not left out."""

    def rms(y: torch.Tensor) -> torch.Tensor:
        return y / torch.sqrt((y * y).mean(1, keepdim=True))

    path = exported(Embedding(rms), tmp_path / f"model.{suffix}", (3, 9, 9))
    with pytest.raises(ConvertError, match="it must end with a linear layer, one logit per class"):
        headed(load_model(path).graph)


# ---------------------------------------------------------------- sums

SUMS: dict[str, Change] = {
    "of a map": lambda x: x.sum((2, 3)),
    "one side, then the other": lambda x: x.sum(3).sum(2),
    "kept": lambda x: x.sum((2, 3), keepdim=True).flatten(1),
    "of tokens": lambda x: x.flatten(2).transpose(1, 2).sum(1),
}


class Summed(nn.Module):
    def __init__(self, by: Change) -> None:
        super().__init__()
        self.conv, self.inner, self.head, self.by = (
            nn.Conv2d(3, 6, 3, 2),
            nn.Linear(6, 7),
            nn.Linear(7, 6),
            by,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(torch.relu(self.inner(self.by(torch.relu(self.conv(x))) / 8)))
        return made


@SUFFIXES
@pytest.mark.parametrize("way", SUMS)
def test_a_sum_is_that_of_pytorch(way: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    graph = assert_as_pytorch(loud(Summed(SUMS[way])), tmp_path / f"model.{suffix}", (3, 9, 9))
    images = np.random.default_rng(0).integers(0, 256, (16, 9, 9, 3)).astype(np.uint8)
    found = cosines(everything(quantize_model(graph, images, Choices())).graph, "int8")
    assert ("conv", "bias") in found or suffix == "onnx"
    assert min(found.values()) > 0.98, found


# ---------------------------------------------------------------- patches


class Patched(nn.Module):
    """Patches of 3x3 pixels through a linear layer. order: of their numbers, as einops has it"""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order, self.patch, self.norm = order, nn.Linear(27, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        x = x.reshape(n, 3, 3, 3, 3, 3)  # n c h p1 w p2
        axes = {"p1 p2 c": (0, 2, 4, 3, 5, 1), "c p1 p2": (0, 2, 4, 1, 3, 5), "p2 p1 c": (0, 2, 4, 5, 3, 1)}
        x = self.norm(self.patch(x.permute(axes[self.order]).reshape(n, 9, 27)))
        result: torch.Tensor = self.head(x.mean(1))
        return result


@SUFFIXES
@pytest.mark.parametrize("order", ["p1 p2 c", "c p1 p2"])
def test_patches_of_either_order_are_a_convolution(order: str, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    graph = assert_as_pytorch(loud(Patched(order)), tmp_path / f"model.{suffix}", (3, 9, 9))
    first = graph.nodes[0]
    assert first.op == "conv2d" and first.window is not None and first.window.kh == first.window.stride_h == 3
    assert graph.layers[first.layer or ""].source.columns == (HWC if order == "p1 p2 c" else None)


@SUFFIXES
def test_patches_in_another_order_are_right_too(suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    assert_as_pytorch(loud(Patched("p2 p1 c")), tmp_path / f"model.{suffix}", (3, 9, 9))


def test_what_patches_learned_goes_back(tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = loud(Patched("p1 p2 c")).eval()
    path = exported(model, tmp_path / "model.pt2", (3, 9, 9))
    plan, arrays = planned(model, path)
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    merged, _ = merge(plan, arrays, state)
    np.testing.assert_allclose(merged["patch.weight"], state["patch.weight"], atol=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = Session(exported(model, tmp_path / "model.onnx", (3, 9, 9)), 6)
    session.copy(tmp_path / "out.onnx")
    logits = session.logits()
    run = ReferenceEvaluator(str(tmp_path / "out.onnx"))
    pixels = (session.images.transpose(0, 3, 1, 2) / 255.0).astype(np.float32)
    (name,) = run.input_names
    found = np.concatenate([np.asarray(run.run(None, {name: each[None]}))[0] for each in pixels])
    agree(found, logits, 0.15 * np.abs(logits).max())
