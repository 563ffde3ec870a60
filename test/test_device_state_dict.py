"""Trained integers un-folded into PyTorch state dicts: then the model computes what the device computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pio_build import NULL_MODEL
from torch import nn

from microtrain.base.plan import Plan, read_plan
from microtrain.base.trained import Source, Trainables, Trained
from microtrain.device.errors import DeviceError
from microtrain.device.model_file import load_state, save_state
from microtrain.device.state_dict import merge

EPS = 1e-3


class Net(nn.Module):
    """conv + bn, depthwise + bn, conv with bias, a hidden linear layer behind a 2x2 map, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4, eps=EPS)
        self.dw = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=True)
        self.bn2 = nn.BatchNorm2d(4, eps=EPS)
        self.plain = nn.Conv2d(4, 5, 1)
        self.pool = nn.AvgPool2d(2)
        self.hidden = nn.Linear(20, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn2(self.dw(torch.relu(self.bn(self.conv(x)))))
        x = torch.flatten(self.pool(self.plain(x)), 1)
        result: torch.Tensor = self.head(torch.relu(self.hidden(x)))
        return result


@pytest.fixture
def net() -> Net:
    torch.manual_seed(3)
    model = Net().eval()
    for bn in (model.bn, model.bn2):
        nn.init.uniform_(bn.weight, 0.5, 1.5)
        nn.init.normal_(bn.bias)
        assert bn.running_mean is not None and bn.running_var is not None
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.3, 2)
    return model


def trained(name: str, kind: str, dtype: str, shape: tuple[int, ...], source: Source, **more: Any) -> Trained:
    scale = more.get("scale")
    return Trained(
        f"{name}.{kind}", name, kind, dtype, shape, 0, 0, more.get("channels"),
        None if scale is None else tuple(scale), None, source, more.get("dead", ()),
    )  # fmt: skip


def make_plan(*tensors: Trained) -> Plan:
    shapes = {"plain": ((4, 4, 4), (4, 4, 5)), "pool": ((4, 4, 5), (2, 2, 5))}
    shapes |= {"hidden": ((2, 2, 5), (1, 1, 6)), "head": ((1, 1, 6), (1, 1, 3))}
    shapes |= {"token": ((7, 1, 5), (7, 1, 6)), "patch": ((4, 6, 2), (2, 3, 6))}
    null = read_plan(NULL_MODEL / "plan.json")
    layers = tuple(replace(null.layers[0], layer=name, input=x, output=y) for name, (x, y) in shapes.items())
    return replace(null, name="net", layers=layers, trainables=Trainables(0, tensors))


def gains(bn: nn.BatchNorm2d) -> tuple[np.ndarray, np.ndarray]:
    """g and mean, beta of a batch norm: folded bias is beta - mean * g."""
    assert bn.running_var is not None and bn.running_mean is not None
    g = (bn.weight / torch.sqrt(bn.running_var + EPS)).detach().double().numpy()
    return g, bn.bias.detach().double().numpy() - bn.running_mean.double().numpy() * g


def model_file(net: nn.Module) -> dict[str, Any]:
    return dict(net.state_dict())


def folded(net: Net, state: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of conv + bn as torch computes them: the response to unit impulses and to zero."""
    copy = Net().eval()
    copy.load_state_dict(state)
    with torch.no_grad():
        zero = copy.bn(copy.conv(torch.zeros(1, 2, 5, 5)))[0, :, 2, 2]
        weight = torch.zeros(4, 2, 3, 3)
        for i in range(2):
            impulse = torch.zeros(1, 2, 5, 5)
            impulse[0, i, 2, 2] = 1
            response = copy.bn(copy.conv(impulse))[0] - zero[:, None, None]
            weight[:, i] = response[:, 1:4, 1:4].flip(1, 2)
    return weight.double().numpy(), zero.double().numpy()


def test_a_convolution_with_batch_norm(net: Net) -> None:
    """One trained input channel of two, with fraction bits; the response of conv + bn is the device's."""
    rng = np.random.default_rng(1)
    scale, source = rng.uniform(0.001, 0.02, 4), Source("conv.weight", None, "bn", EPS)
    plan = make_plan(
        trained("conv", "weight", "s8", (4, 3, 3, 1), source, channels=(1,), scale=scale),
        trained("conv", "fraction", "u4", (4, 3, 3, 1), source, channels=(1,), scale=scale),
        trained("conv", "bias", "s16", (4,), source, scale=scale * 0.05),
    )
    w = rng.integers(-127, 128, (4, 3, 3, 1), np.int8)
    part = rng.integers(-8, 8, (4, 3, 3, 1), np.int8)
    b = rng.integers(-9000, 9000, 4, np.int16)
    arrays = {"conv.weight": w, "conv.fraction": part, "conv.bias": b}
    state, notes = merge(plan, arrays, model_file(net))
    before, (after, bias) = folded(net, net.state_dict())[0], folded(net, state)
    real = (w + part / 16)[..., 0] * scale[:, None, None]
    assert notes == []
    assert np.abs(after[:, 1] - real).max() < 2e-5
    assert np.abs(after[:, 0] - before[:, 0]).max() < 1e-6
    assert np.abs(bias - b * scale * 0.05).max() < 2e-5
    untouched = set(state) - {"conv.weight", "bn.bias"}
    assert all(torch.equal(state[k], net.state_dict()[k]) for k in untouched)


def test_the_wrong_eps_would_show(net: Net) -> None:
    """The comparison above can fail: with torch's default eps the weights are off."""
    scale, source = np.full(4, 0.01), Source("conv.weight", None, "bn", 1e-5)
    plan = make_plan(trained("conv", "weight", "s8", (4, 3, 3, 2), source, scale=scale))
    w = np.full((4, 3, 3, 2), 100, np.int8)
    state, _ = merge(plan, {"conv.weight": w}, model_file(net))
    assert np.abs(folded(net, state)[0] - 1.0).max() > 1e-4
    older = make_plan(replace(plan.trainables.tensors[0], source=replace(source, eps=None)))
    with pytest.raises(DeviceError, match="does not say the eps of bn"):
        merge(older, {"conv.weight": w}, model_file(net))


def test_depthwise_and_its_bias_behind_batch_norm(net: Net) -> None:
    rng = np.random.default_rng(2)
    scale, source = rng.uniform(0.001, 0.02, 4), Source("dw.weight", "dw.bias", "bn2", EPS)
    plan = make_plan(
        trained("dw", "weight", "s8", (2, 3, 3), source, channels=(1, 3), scale=scale),
        trained("dw", "bias", "s16", (4,), source, scale=scale),
    )
    w, b = rng.integers(-127, 128, (2, 3, 3), np.int8), rng.integers(-99, 99, 4, np.int16)
    state, _ = merge(plan, {"dw.weight": w, "dw.bias": b}, model_file(net))
    g, shift = gains(net.bn2)
    assert np.allclose(
        state["dw.weight"].numpy()[[1, 3], 0] * g[[1, 3], None, None],
        w * scale[[1, 3], None, None],
        atol=1e-6,
    )
    assert torch.equal(state["dw.weight"][[0, 2]], net.dw.weight[[0, 2]])
    old_bias = net.dw.bias
    assert old_bias is not None
    beta = state["bn2.bias"].double().numpy() - net.bn2.bias.detach().double().numpy()
    assert np.allclose(old_bias.detach().double().numpy() * g + shift + beta, b * scale, atol=1e-6)


def test_convolution_without_batch_norm(net: Net) -> None:
    source, scale = Source("plain.weight", "plain.bias", None), np.linspace(0.01, 0.05, 5)
    plan = make_plan(
        trained("plain", "weight", "s8", (5, 1, 1, 4), source, scale=scale),
        trained("plain", "bias", "s16", (5,), source, scale=scale),
    )
    w, b = np.arange(20, dtype=np.int8).reshape(5, 1, 1, 4), np.arange(-2, 3, dtype=np.int16)
    state, _ = merge(plan, {"plain.weight": w, "plain.bias": b}, model_file(net))
    assert np.allclose(state["plain.weight"][:, :, 0, 0], w[:, 0, 0] * scale[:, None])
    assert np.allclose(state["plain.bias"], b * scale)


def test_a_bias_that_the_model_has_not_comes_with_a_word() -> None:
    net = nn.Sequential(nn.Conv2d(4, 5, 1, bias=False))
    source, scale = Source("0.weight", None, None), np.linspace(0.01, 0.05, 5)
    plan = make_plan(trained("0", "bias", "s16", (5,), source, scale=scale))
    state, notes = merge(plan, {"0.bias": np.arange(5, dtype=np.int16)}, model_file(net))
    assert "0.bias" in state and notes == ["0.bias is new: 0 had no bias; bias=True makes room for it."]


def test_the_scale_of_a_group_norm(net: Net) -> None:
    """On the device it is a depthwise layer of 1x1; in PyTorch a vector."""
    source, scale = Source("scale.weight", "scale.bias", None), np.linspace(0.01, 0.02, 4)
    plan = make_plan(
        trained("scale", "weight", "s8", (2, 1, 1), source, channels=(0, 3), scale=scale),
        trained("scale", "bias", "s16", (4,), source, scale=scale),
    )
    state = {"scale.weight": torch.ones(4), "scale.bias": torch.zeros(4)}
    arrays: dict[str, np.ndarray] = {
        "scale.weight": np.array([50, -7], np.int8).reshape(2, 1, 1),
        "scale.bias": np.arange(4, dtype=np.int16),
    }
    merged, _ = merge(plan, arrays, state)
    assert np.allclose(merged["scale.weight"], [50 * scale[0], 1, 1, -7 * scale[3]])
    assert np.allclose(merged["scale.bias"], np.arange(4) * scale)


def test_a_series_has_weights_of_three_dimensions(net: Net) -> None:
    source = Source("series.weight", None, None)
    plan = make_plan(trained("series", "weight", "s8", (2, 3, 1, 4), source, scale=np.ones(2)))
    w = np.arange(24, dtype=np.int8).reshape(2, 3, 1, 4)
    merged, _ = merge(plan, {"series.weight": w}, {"series.weight": torch.zeros(2, 4, 3)})
    assert np.array_equal(merged["series.weight"], w[:, :, 0].transpose(0, 2, 1))


def test_linear_layers_read_the_map_in_the_models_order(net: Net) -> None:
    """On the device it is a convolution over the whole map, (h, w, c); torch flattens (c, h, w)."""
    source = Source("hidden.weight", "hidden.bias", None)
    plan = make_plan(trained("hidden", "weight", "s8", (6, 2, 2, 5), source, scale=np.ones(6)))
    w = np.arange(120).reshape(6, 2, 2, 5).astype(np.int8)
    state, _ = merge(plan, {"hidden.weight": w}, model_file(net))
    x = np.random.default_rng(0).integers(0, 9, (2, 2, 5)).astype(np.float32)
    device = w.reshape(6, -1).astype(np.float32) @ x.reshape(-1)
    host = state["hidden.weight"].numpy() @ x.transpose(2, 0, 1).reshape(-1)
    assert (device == host).all()


@pytest.mark.parametrize(("name", "kernel"), [("token", (1, 1, 5)), ("patch", (2, 2, 2))])
def test_linear_layers_over_tokens_and_patches(name: str, kernel: tuple[int, int, int], net: Net) -> None:
    """On the device a convolution of one pixel, or of a patch, whose columns torch has as (c, h, w)."""
    h, w, c = kernel
    plan = make_plan(
        trained(name, "weight", "s8", (6, *kernel), Source(f"{name}.weight", None, None), scale=np.ones(6))
    )
    stored = np.arange(6 * h * w * c).reshape(6, *kernel).astype(np.int8)
    state, _ = merge(plan, {f"{name}.weight": stored}, {f"{name}.weight": torch.zeros(6, h * w * c)})
    assert np.array_equal(state[f"{name}.weight"], stored.transpose(0, 3, 1, 2).reshape(6, -1))


def test_linear_layers_over_all_tokens_keep_their_columns(net: Net) -> None:
    """Whose map is read pixel by pixel in the model too."""
    source = Source("hidden.weight", "hidden.bias", None, columns="hwc")
    plan = make_plan(trained("hidden", "weight", "s8", (6, 2, 2, 5), source, scale=np.ones(6)))
    w = np.arange(120).reshape(6, 2, 2, 5).astype(np.int8)
    state, _ = merge(plan, {"hidden.weight": w}, model_file(net))
    assert np.array_equal(state["hidden.weight"], w.reshape(6, -1))
    head = make_plan(trained("hidden", "head_weight", "f32", (6, 20), source))
    state, _ = merge(head, {"hidden.head_weight": w.reshape(6, 20).astype(np.float32)}, model_file(net))
    assert np.array_equal(state["hidden.weight"], w.reshape(6, -1))


def test_a_head_that_is_a_convolution(net: Net) -> None:
    plan = make_plan(trained("conv", "head_weight", "f32", (4, 6), Source("conv.weight", None, None)))
    w = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    state, notes = merge(plan, {"conv.head_weight": w}, {"conv.weight": torch.zeros(3, 6, 1, 1)})
    assert np.array_equal(state["conv.weight"], w[..., None, None]) and len(notes) == 1


def test_a_head_of_more_classes(net: Net) -> None:
    source = Source("head.weight", "head.bias", None)
    plan = make_plan(
        trained("head", "head_weight", "f32", (10, 6), source),
        trained("head", "head_bias", "f32", (10,), source),
    )
    w, b = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32), np.arange(10, dtype=np.float32)
    arrays = {"head.head_weight": w, "head.head_bias": b}
    state, notes = merge(plan, arrays, model_file(net))
    assert (state["head.weight"].numpy() == w).all() and (state["head.bias"].numpy() == b).all()
    assert notes == ["head.weight has 10 classes now, 3 in the original model."]
    bad = make_plan(trained("head", "head_weight", "f32", (10, 7), source))
    with pytest.raises(DeviceError, match=r"head\.weight has shape \(3, 6\) in the model, \(10, 7\)"):
        merge(bad, {"head.head_weight": np.zeros((10, 7), np.float32)}, model_file(net))


def test_dead_channels_stay_as_they_were(net: Net) -> None:
    with torch.no_grad():
        net.bn.weight[2] = 0
    source = Source("conv.weight", None, "bn", EPS)
    plan = make_plan(
        trained("conv", "weight", "s8", (4, 3, 3, 2), source, scale=np.ones(4), dead=(2,)),
        trained("conv", "bias", "s16", (4,), source, scale=np.ones(4), dead=(2,)),
    )
    arrays: dict[str, np.ndarray] = {
        "conv.weight": np.zeros((4, 3, 3, 2), np.int8),
        "conv.bias": np.full(4, 7, np.int16),
    }
    state, _ = merge(plan, arrays, model_file(net))
    assert torch.equal(state["conv.weight"][2], net.conv.weight[2]) and state["bn.bias"][2] == net.bn.bias[2]
    assert torch.isfinite(state["conv.weight"]).all() and (state["conv.weight"][0] == 0).all()


def test_dead_channels_of_a_depthwise_layer_stay_as_they_were(net: Net) -> None:
    """Among those that are trained, and there alone."""
    with torch.no_grad():
        net.bn2.weight[2] = 0
    source = Source("dw.weight", "dw.bias", "bn2", EPS)
    plan = make_plan(
        trained("dw", "weight", "s8", (2, 3, 3), source, scale=np.ones(4), channels=(1, 2), dead=(2,))
    )
    state, _ = merge(plan, {"dw.weight": np.zeros((2, 3, 3), np.int8)}, model_file(net))
    assert torch.equal(state["dw.weight"][[0, 2, 3]], net.dw.weight[[0, 2, 3]])
    assert not state["dw.weight"][1].any()


@pytest.mark.parametrize("bias", [None, "0.bias"])
def test_batch_norm_without_parameters_takes_the_bias_in_its_mean(bias: str | None) -> None:
    """Or the convolution takes it, where it has a place for it."""
    conv, bn = nn.Conv2d(1, 2, 1, bias=bias is not None), nn.BatchNorm2d(2, affine=False, eps=EPS)
    model = nn.Sequential(conv, bn).eval()
    assert bn.running_mean is not None and bn.running_var is not None
    bn.running_mean[:], bn.running_var[:] = torch.tensor([0.3, -0.7]), torch.tensor([0.2, 5.0])
    plan = make_plan(
        trained("0", "bias", "s16", (2,), Source("0.weight", bias, "1", EPS), scale=np.full(2, 0.5))
    )
    state, _ = merge(plan, {"0.bias": np.array([3, -4], np.int16)}, dict(model.state_dict()))
    model.load_state_dict(state)
    assert torch.allclose(model(torch.zeros(1, 1, 1, 1)).reshape(-1), torch.tensor([1.5, -2.0]), atol=1e-5)


def test_a_constant_that_scales_a_layer_has_its_own_sentence(net: Net) -> None:
    """LayerScale: nothing of it is a batch norm."""
    source = Source("conv.weight", None, "gain", None)
    plan = make_plan(trained("conv", "bias", "s16", (4,), source, scale=np.ones(4)))
    state = {**model_file(net), "gain": torch.full((4, 1, 1), 0.1)}
    with pytest.raises(DeviceError, match=r"conv\.weight was scaled by the constant gain, or that was added"):
        merge(plan, {"conv.bias": np.zeros(4, np.int16)}, state)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["export", "script", "trace", "state", "legacy"])
def test_every_kind_of_model_file(kind: str, net: Net, tmp_path: Path) -> None:
    path, x = tmp_path / "model.pt", torch.zeros(1, 2, 4, 4)
    if kind == "export":
        torch.export.save(torch.export.export(net, (x,)), path)
    elif kind in ("state", "legacy"):
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=kind == "state")
    else:
        torch.jit.save(torch.jit.script(net) if kind == "script" else torch.jit.trace(net, x), path)
    state = load_state(path)
    assert set(state) == set(net.state_dict())
    assert all(torch.equal(state[name], value) for name, value in net.state_dict().items())
    save_state(tmp_path / "out.pt", state)
    Net().load_state_dict(torch.load(tmp_path / "out.pt", weights_only=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.pt", "out.pt"]


def test_a_file_that_would_run_code_is_refused(net: Net, tmp_path: Path) -> None:
    torch.save(net, tmp_path / "whole.pt")
    (tmp_path / "text.pt").write_text("no model")
    for name in ("whole.pt", "text.pt"):
        with pytest.raises(DeviceError, match="holds no state dict that loads without running code"):
            load_state(tmp_path / name)
    with pytest.raises(DeviceError, match=r"the model has no other\.weight"):
        merge(
            make_plan(trained("x", "bias", "s16", (1,), Source("other.weight", None, None))),
            {},
            model_file(net),
        )
