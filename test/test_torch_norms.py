"""Normalisations that forward() writes out, in files of torch.export: one op, with PyTorch's values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_model_copy import Session, agree
from test_own_tflite import GROUP_NORM
from torch import Tensor, nn

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.norm_fits import MAPS, fits
from microtrain.convert.frontends.torch.written import Node, group_norms
from microtrain.device.merging import merge

SIDE, CHANNELS, GROUPS, CLASSES = 8, 6, 3, 3
Form = Callable[["Own", Tensor], Tensor]


class Own(nn.Module):
    """A network whose normalisation one of the forms below writes out."""

    def __init__(self, form: Form, shape: tuple[int, ...] = (1, CHANNELS, 1, 1)) -> None:
        super().__init__()
        self.form, self.conv, self.last = form, nn.Conv2d(2, CHANNELS, 3), nn.Linear(CHANNELS, CLASSES)
        self.scale = nn.Parameter(torch.rand(shape) + 0.5)
        self.shift = nn.Parameter(0.5 * torch.randn(shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(torch.relu(self.form(self, self.conv(x))).mean((2, 3))))


def groups(net: Own, x: Tensor) -> Tensor:
    y = x.reshape(x.shape[0], GROUPS, -1)
    var = y.var(-1, keepdim=True, unbiased=False)
    y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(var + 1e-5)
    return y.reshape(x.shape) * net.scale + net.shift


def five_axes(net: Own, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    y = x.reshape(n, GROUPS, c // GROUPS, h, w)
    less = y - y.mean((2, 3, 4), keepdim=True)
    y = less * torch.rsqrt((less**2).mean((2, 3, 4), keepdim=True) + 1e-5)
    return net.shift + y.reshape(n, c, h, w) * net.scale


def instances(net: Own, x: Tensor) -> Tensor:
    mean, var = x.mean((2, 3), keepdim=True), torch.var(x, (2, 3), correction=0, keepdim=True)
    return net.scale * (x - mean) / (var + 1e-5) ** 0.5 + net.shift


def whole(net: Own, x: Tensor) -> Tensor:
    mean = x.mean((1, 2, 3), keepdim=True)
    var = (x - mean).square().mean((1, 2, 3), keepdim=True)
    return (x - mean).div_((var + 1e-5).sqrt_()) * net.scale + net.shift


def last(net: Own, x: Tensor) -> Tensor:
    """Channels last, and weights as vectors."""
    y = x.permute(0, 2, 3, 1)
    mean, var = y.mean((1, 2), keepdim=True), y.var((1, 2), keepdim=True, unbiased=False)
    y = (y - mean) * torch.rsqrt(var + 1e-5) * net.scale.view(-1) + net.shift.view(-1)
    return y.permute(0, 3, 1, 2)


def pixels(net: Own, x: Tensor) -> Tensor:
    less = x - x.mean(1, keepdim=True)
    return less / torch.sqrt(less.pow(2).mean(1, keepdim=True) + 1e-6) * net.scale + net.shift


def in_place(net: Own, x: Tensor) -> Tensor:
    """What is multiplied in place has another name behind it."""
    less = x - x.mean((2, 3), keepdim=True)
    less.mul_(torch.rsqrt(x.var((2, 3), keepdim=True, unbiased=False) + 1e-5))
    return less * net.scale + net.shift


def unbiased(net: Own, x: Tensor) -> Tensor:
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True)
    return (x - mean) / torch.sqrt(var + 1e-5) * net.scale + net.shift


def deviations(net: Own, x: Tensor) -> Tensor:
    """What is added stands beside the deviation."""
    mean, std = x.mean((1, 2, 3), keepdim=True), x.std((1, 2, 3), keepdim=True)
    return (x - mean) / (std + 1e-5) * net.scale + net.shift


def without_weights(net: Own, x: Tensor) -> Tensor:
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + 1e-5)


class Series(nn.Module):
    """A window of a sensor, of which each has a mean of 0 and a deviation of 1."""

    def __init__(self, form: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.form, self.conv, self.last = form, nn.Conv1d(3, CHANNELS, 5), nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(torch.relu(self.conv(self.form(x))).mean(-1)))


def by_sensor(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def variances(x: Tensor) -> Tensor:
    return (x - x.mean(2, keepdim=True)) * torch.rsqrt(x.var(2, keepdim=True, correction=0) + 1e-5)


def together(x: Tensor) -> Tensor:
    return (x - x.mean((1, 2), keepdim=True)) / (x.std((1, 2), keepdim=True) + 1e-6)


@pytest.mark.parametrize("form", [by_sensor, variances, together])
def test_windows_are_normalised_by_one_op(form: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    """In int8 a chain of a dozen ops lost a twentieth of them."""
    torch.manual_seed(0)
    net, path = Series(form).eval(), tmp_path / "series.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 40),)), path)
    graph = load_model(path).graph
    assert graph.nodes[0].op == GROUP_NORM and len(graph.nodes) <= 5
    windows = np.random.default_rng(1).integers(0, 256, (6, 40, 1, 3)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(windows[:, :, 0]).transpose(1, 2).float() / 255).numpy()
    np.testing.assert_allclose(run_float(graph, windows).reshape(6, CLASSES), wanted, atol=1e-4)


@pytest.mark.parametrize("tokens", [12, 8])
def test_tokens_are_normalised_over_their_features(tokens: int, tmp_path: Path) -> None:
    """As a layer norm without weights; not as a map whose channels they are."""
    torch.manual_seed(0)

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x = (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)
            return torch.as_tensor(self.last(torch.relu(x).mean(1)))

    net, path = Tokens().eval(), tmp_path / "tokens.pt2"
    torch.export.save(torch.export.export(net, (torch.zeros(1, tokens, 6),)), path)
    graph = load_model(path).graph
    assert [node.op for node in graph.nodes][:2] == ["conv2d", GROUP_NORM] and len(graph.nodes) == 5
    samples = np.random.default_rng(1).integers(0, 256, (6, tokens, 1, 6)).astype(np.uint8)
    with torch.no_grad():
        wanted = net(torch.tensor(samples[:, :, 0]).float() / 255).numpy()
    np.testing.assert_allclose(run_float(graph, samples).reshape(6, CLASSES), wanted, atol=2e-5)


def saved(net: Own, folder: Path, batch: bool = False) -> Path:
    path, sizes = folder / "net.pt2", ({0: torch.export.Dim("batch")},) if batch else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.export.export(net, (torch.zeros(1 + batch, 2, SIDE, SIDE),), dynamic_shapes=sizes)
        torch.export.save(made, path)
    return path


def images() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (6, SIDE, SIDE, 2)).astype(np.uint8)


def answers(net: Own, of: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        each = [net(torch.tensor(i).permute(2, 0, 1)[None].float() / 255) for i in of]
    return torch.cat(each).numpy()


FORMS = (groups, five_axes, instances, whole, last, in_place, unbiased, deviations, without_weights)


@pytest.mark.parametrize("form", FORMS)
def test_they_are_one_op_with_pytorchs_values(form: Form, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Own(form).eval()
    graph = load_model(saved(net, tmp_path)).graph
    ops = [node.op for node in graph.nodes]
    assert ops.count(GROUP_NORM) == 1 and len(ops) <= 7
    np.testing.assert_allclose(
        run_float(graph, images()).reshape(6, CLASSES), answers(net, images()), atol=2e-5
    )


def test_a_batch_may_be_open(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Own(groups).eval()
    graph = load_model(saved(net, tmp_path, batch=True)).graph
    np.testing.assert_allclose(
        run_float(graph, images()).reshape(6, CLASSES), answers(net, images()), atol=2e-5
    )


@pytest.mark.parametrize("form", [*FORMS[:8], pixels])
def test_what_is_trained_goes_back_into_the_module(form: Form, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Own(form, (CHANNELS,) if form is last else (1, CHANNELS, 1, 1)).eval()
    session = Session(saved(net, tmp_path), CLASSES)
    state = {name: value.detach().double().numpy() for name, value in net.state_dict().items()}
    merged, _ = merge(session.plan, session.arrays, state)
    assert merged["scale"].shape == net.scale.shape and np.abs(merged["scale"] - state["scale"]).max() > 0.001
    net.load_state_dict({name: torch.tensor(value) for name, value in {**state, **merged}.items()})
    found = answers(net.float(), session.images)
    agree(found, session.logits(), 0.1 * np.abs(session.logits()).max())


def of_another(net: Own, x: Tensor) -> Tensor:
    """The mean of other numbers than the variance."""
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, unbiased=False)
    return (2 * x - mean) / torch.sqrt(var + 1e-5) * net.scale + net.shift


def less_half(net: Own, x: Tensor) -> Tensor:
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, unbiased=False)
    return torch.sub(x, mean, alpha=0.5) / torch.sqrt(var + 1e-5) * net.scale + net.shift


def far_from_none(net: Own, x: Tensor) -> Tensor:
    """What is added to the deviation is no trifle."""
    mean, std = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True)
    return (x - mean) / (std + 0.05) * net.scale + net.shift


def read_twice(net: Own, x: Tensor) -> Tensor:
    """The mean is a part of something else too."""
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + 1e-5) * net.scale + net.shift + mean


@pytest.mark.parametrize("form", [of_another, less_half, far_from_none, read_twice])
def test_what_only_looks_like_one_has_its_own_values(form: Form, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Own(form).eval()
    graph = load_model(saved(net, tmp_path)).graph
    assert GROUP_NORM not in [node.op for node in graph.nodes]
    np.testing.assert_allclose(
        run_float(graph, images()).reshape(6, CLASSES), answers(net, images()), atol=1e-4
    )


def test_the_nearer_of_two_gains_is_taken() -> None:
    """Of many numbers both are near."""
    rng = np.random.default_rng(0)
    maps = [rng.normal(mean, spread, (1, 2, 100, 100)) for spread, mean in MAPS]
    for less in (0, 1):
        made = []
        for x in maps:
            about: dict[str, Any] = {"axis": (2, 3), "keepdims": True}
            made.append((x - x.mean(**about)) / np.sqrt(x.var(ddof=less, **about) + 1e-5))
        fit = next(fits(maps, made, [(1, 2)], True, (1e-5, 0.0)))
        assert fit.gain == (1 - less / 10000) ** 0.5


def test_what_is_changed_in_place_and_read_again_is_no_part_of_one() -> None:
    """The name has other numbers behind it."""
    tensors: dict[str, tuple[int, ...]] = {
        "x": (1, 4, 6, 6),
        "less": (1, 4, 6, 6),
        "y": (1, 4, 6, 6),
        "z": (1, 4, 6, 6),
    }
    tensors["seen"] = (1, 4, 36)
    tensors |= dict.fromkeys(("mean", "var", "more", "root"), (1, 4, 1, 1))

    def node(op: str, out: str, *inputs: str, **said: dict[str, Any]) -> Node:
        names = dict(zip(("self", "other"), inputs, strict=False))
        return Node(
            op, {**{k: {"as_tensor": {"name": n}} for k, n in names.items()}, **said}, (out,), tensors[out]
        )

    over: dict[str, Any] = {"dim": {"as_ints": [2, 3]}, "keepdim": {"as_bool": True}}
    nodes = [
        node("mean", "mean", "x", **over),
        node("sub", "less", "x", "mean"),
        node("var", "var", "x", **over, correction={"as_int": 0}),
        node("add", "more", "var", other={"as_float": 1e-5}),
        node("rsqrt", "root", "more"),
    ]
    ends = {
        "plain": [node("mul", "y", "less", "root")],
        "in place": [node("mul_", "y", "less", "root")],
        "doubled": [node("mul_", "z", "less", other={"as_float": 2.0}), node("mul", "y", "less", "root")],
        "a view": [
            node("view", "seen", "less"),
            node("mul_", "z", "seen", other={"as_float": 2.0}),
            node("mul", "y", "less", "root"),
        ],
    }
    found = {
        name: bool(group_norms([*nodes, *last], {}, tensors.get, {"y"})[0]) for name, last in ends.items()
    }
    assert found == {"plain": True, "in place": True, "doubled": False, "a view": False}
