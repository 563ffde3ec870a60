"""Blocks of pixels as channels and back, cuts of maps, and convolutions over the channels of a vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_onnx import constants, reference, saved
from test_resample import assert_as_pytorch, exported
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import convolutions

Change = Callable[[torch.Tensor], torch.Tensor]
SHAPE = (3, 12, 8)


class Between(nn.Module):
    """A convolution, a change of its map, and another convolution. first: the change is of the image"""

    def __init__(self, change: Change, made: int, c: int = 8, first: bool = False) -> None:
        super().__init__()
        self.body = nn.Identity() if first else nn.Sequential(nn.Conv2d(3, c, 3, 1, 1), nn.ReLU())
        self.change, self.last, self.head = change, nn.Conv2d(made, 5, 3, padding=1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.last(self.change(self.body(x)))).mean((2, 3)))
        return result


def by_hand(x: torch.Tensor) -> torch.Tensor:
    """Blocks first, as public networks write it."""
    n, c, h, w = x.shape
    return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)


def up_by_hand(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, 2, c // 4, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // 4, 2 * h, 2 * w)


def focus(x: torch.Tensor) -> torch.Tensor:
    corners = [x[..., i::2, j::2] for j in range(2) for i in range(2)]
    return torch.cat(corners, 1)


CHANGES: dict[str, tuple[Change, int, bool]] = {
    "shuffle": (lambda x: functional.pixel_shuffle(x, 2), 2, False),
    "unshuffle": (lambda x: functional.pixel_unshuffle(x, 2), 32, False),
    "unshuffle by 4": (lambda x: functional.pixel_unshuffle(x, 4), 128, False),
    "of the image": (lambda x: functional.pixel_unshuffle(x, 4), 48, True),
    "by hand": (by_hand, 32, False),
    "up by hand": (up_by_hand, 2, False),
    "focus": (focus, 12, True),
    "cut": (lambda x: x[:, :, 2:-1, 1:6], 8, False),
    "every third": (lambda x: x[:, :, ::3], 8, False),
}


@pytest.mark.parametrize("way", ["pt2", "decomposed", "onnx"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_pytorch_makes_is_made(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    change, made, first = CHANGES[name]
    model = Between(change, made, first=first)
    if way == "decomposed":
        monkeypatch.setattr("test_resample.exported", decomposed)
    assert_as_pytorch(model, tmp_path / f"model.{'onnx' if way == 'onnx' else 'pt2'}", SHAPE)


def decomposed(model: nn.Module, path: Path, shape: tuple[int, ...]) -> Path:
    program = torch.export.export(model.eval(), (torch.zeros(1, *shape),))
    torch.export.save(program.run_decompositions(), path)
    return path


def quantized(name: str, folder: Path) -> Graph:
    torch.manual_seed(4)
    change, made, first = CHANGES[name]
    path = exported(Between(change, made, first=first), folder / "model.pt2", SHAPE)
    images = np.random.default_rng(0).integers(0, 256, (16, 12, 8, 3)).astype(np.uint8)
    return quantize_model(load_model(path).graph, images, Choices())


@pytest.mark.parametrize("name", ["shuffle", "unshuffle", "up by hand"])
def test_nothing_is_rounded_on_the_way(name: str, tmp_path: Path) -> None:
    """The integers that come out are those that went in, where both have one scale."""
    graph, found = quantized(name, tmp_path), dict[str, np.ndarray]()
    images = np.random.default_rng(1).integers(0, 256, (4, 12, 8, 3)).astype(np.uint8)
    run_int8(graph, images, found.__setitem__)
    body, block = (next(n for n in graph.nodes if n.layer == layer) for layer in ("body.0", own_layer(graph)))
    before, after = (graph.tensors[n.outputs[0]] for n in (body, block))
    assert (before.scale, before.zero) == (after.scale, after.zero)
    given = torch.tensor(found[body.outputs[0]].transpose(0, 3, 1, 2).astype(np.float32))
    wanted = CHANGES[name][0](given).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found[block.outputs[0]], wanted)


def own_layer(graph: Graph) -> str:
    """The layer that conversion made."""
    (name,) = (name for name, layer in graph.layers.items() if not layer.source.weight)
    return name


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("name", CHANGES)
def test_gradients_are_those_of_autograd(name: str, errors: str, tmp_path: Path) -> None:
    graph = quantized(name, tmp_path)
    found = cosines(everything(graph).graph, errors)
    assert min(found.values()) > LEAST[errors], found
    assert {layer for layer, _ in found} <= {"body.0", "last", "head"}


@pytest.mark.parametrize("name", ["shuffle", "by hand"])
def test_generated_code_trains_like_the_executor(name: str, tmp_path: Path) -> None:
    trained = partly_trained(quantized(name, tmp_path), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_a_cut_that_leaves_nothing_is_a_sentence(tmp_path: Path) -> None:
    where = {"starts": [5], "ends": [3], "axes": [2]}
    with pytest.raises(ConvertError, match="a slice of 12 pixels leaves none"):
        load_model(onnx_file(tmp_path / "model.onnx", "Slice", 8, where))


def onnx_file(path: Path, op: str, made: int, more: dict[str, list[int]], **about: Any) -> Path:
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.3, (8, 3, 1, 1)).astype(np.float32),
        v=rng.normal(0, 0.3, (5, made, 1, 1)).astype(np.float32),
        u=rng.normal(0, 0.3, (5, 4)).astype(np.float32),
        **{name: np.array(values, np.int64) for name, values in more.items()},
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node(op, ["a", *more], ["b"], **about),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "u"], ["y"]),
    ]
    return saved(path, nodes, arrays, [1, 3, 12, 8])


@pytest.mark.parametrize(
    ("op", "made", "about"),
    [
        ("DepthToSpace", 2, {}),
        ("DepthToSpace", 2, {"mode": "CRD"}),
        ("DepthToSpace", 2, {"mode": "DCR"}),
        ("SpaceToDepth", 32, {}),
    ],
)
def test_what_onnx_has_is_that_of_its_runtime(
    op: str, made: int, about: dict[str, Any], tmp_path: Path
) -> None:
    path = onnx_file(tmp_path / "model.onnx", op, made, {}, blocksize=2, **about)
    images = np.random.default_rng(1).integers(0, 256, (3, 12, 8, 3)).astype(np.uint8)
    wanted = reference(path, images.transpose(0, 3, 1, 2) / np.float32(255))
    np.testing.assert_allclose(run_float(load_model(path).graph, images).reshape(3, -1), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "side", "words"),
    [
        ("SpaceToDepth", 5, "blocks of 5x5 pixels do not divide 12x8; .* a padding"),
        ("DepthToSpace", 3, "8 channels are no blocks of 3x3 pixels; .* a multiple of 9"),
        ("DepthToSpace", 0, "by 0: 1 is the least"),
    ],
)
def test_what_does_not_divide_is_refused(op: str, side: int, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=words):
        load_model(onnx_file(tmp_path / "model.onnx", op, 8, {}, blocksize=side))


class Partly(nn.Module):
    """The first rows of a map, and all of it. late: what reads all comes behind the cut"""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.body, self.last, self.head, self.late = (
            nn.Conv2d(3, 6, 3, 1, 1),
            nn.Conv2d(6, 5, 3),
            nn.Linear(11, 4),
            late,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.body(x)
        if self.late:
            some, whole = torch.relu(x[:, :, :4]), torch.relu(self.last(x))
        else:
            whole, some = torch.relu(self.last(x)), torch.relu(x[:, :, :4])
        result: torch.Tensor = self.head(torch.cat((some.mean((2, 3)), whole.mean((2, 3))), 1))
        return result


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("late", [False, True])
def test_what_is_cut_for_one_reader_is_whole_for_others(late: bool, suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    assert_as_pytorch(Partly(late), tmp_path / f"model.{suffix}", SHAPE)


# ---------------------------------------------------------------- bands


class Broadcast(nn.Module):
    """A block of BC-ResNet (Kim et al. 2021): a batch norm for each band, and what time says to all rows."""

    def __init__(self, c: int = 8, bands: int = 4) -> None:
        super().__init__()
        self.rows, self.norm = nn.Conv2d(c, c, (3, 1), padding=(1, 0), groups=c), nn.BatchNorm2d(c * bands)
        self.time, self.bands = nn.Conv2d(c, c, (1, 3), padding=(0, 1)), bands
        for name in ("running_mean", "bias"):
            nn.init.uniform_(getattr(self.norm, name), -0.3, 0.3)
        for name in ("running_var", "weight"):
            nn.init.uniform_(getattr(self.norm, name), 0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        made = self.rows(x).view(n, c * self.bands, h // self.bands, w)
        made = self.norm(made).view(n, c, h, w)
        said = functional.hardswish(self.time(made.mean(2, keepdim=True)))
        return torch.relu(x + made + said)


@pytest.mark.parametrize("way", ["pt2", "decomposed", "onnx"])
@pytest.mark.parametrize("bands", [2, 4])
def test_bands_have_their_own_batch_norm(
    bands: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(2)
    if way == "decomposed":
        monkeypatch.setattr("test_resample.exported", decomposed)
    path = tmp_path / f"model.{'onnx' if way == 'onnx' else 'pt2'}"
    graph = assert_as_pytorch(Between(Broadcast(bands=bands), 8), path, SHAPE)
    assert sorted(convolutions(graph)) == ["body.0", "change.rows", "change.time", "last"] or way == "onnx"


@pytest.mark.parametrize("errors", ["fp32", "int8"])
def test_gradients_through_bands_are_those_of_autograd(errors: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    path = exported(Between(Broadcast(), 8), tmp_path / "model.pt2", SHAPE)
    images = np.random.default_rng(0).integers(0, 256, (16, 12, 8, 3)).astype(np.uint8)
    graph = quantize_model(load_model(path).graph, images, Choices())
    found = cosines(everything(graph).graph, errors)
    assert {("change.time", "weight"), ("change.rows", "weight")} <= found.keys()
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("over", ["h", "w", "both"])
def test_a_map_of_one_row_is_added_to_all(over: str, tmp_path: Path) -> None:
    torch.manual_seed(2)

    def change(x: torch.Tensor) -> torch.Tensor:
        small = functional.max_pool2d(x, {"h": (12, 1), "w": (1, 8), "both": (12, 8)}[over])
        return small - x if over == "w" else x + small

    assert_as_pytorch(Between(change, 8), tmp_path / "model.pt2", SHAPE)


@pytest.mark.parametrize(("size", "step", "words"), [(4, 4, ""), (4, 2, "side by side, or a convolution")])
def test_windows_side_by_side_are_a_view(size: int, step: int, words: str, tmp_path: Path) -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.head = nn.Linear(12, 6), nn.Linear(6 * ((16 - size) // step + 1), 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.unfold(-1, size, step).permute(0, 2, 1, 3).flatten(2)
            made: torch.Tensor = self.head(torch.relu(self.each(x)).flatten(1))
            return made

    torch.manual_seed(1)
    if not words:
        assert_as_pytorch(Patches(), tmp_path / "model.pt2", (3, 16))
        return
    with pytest.raises(ConvertError, match=words):
        load_model(exported(Patches(), tmp_path / "model.pt2", (3, 16)))


# ---------------------------------------------------------------- over the channels of a vector


class Efficient(nn.Module):
    """ECA (Wang et al. 2020): a gate that a convolution over the channels makes of their means."""

    def __init__(self, turned: bool, **about: Any) -> None:
        super().__init__()
        self.conv, self.turned, self.gate = nn.Conv1d(1, 1, 3, padding=1, **about), turned, nn.Sigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.turned:
            y = functional.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
            y = self.gate(self.conv(y).transpose(-1, -2).unsqueeze(-1))
        else:
            y = self.conv(x.mean((2, 3)).view(x.shape[0], 1, -1))
            y = self.gate(y).view(x.shape[0], -1, 1, 1)
        made: torch.Tensor = x * y
        return made


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_efficient_attention_is_that_of_pytorch(
    turned: bool, bias: bool, suffix: str, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    gate = Efficient(turned, bias=bias)
    nn.init.normal_(gate.conv.weight, 0, 2.0)
    with pytest.warns(UserWarning, match="a matrix of 8x8 weights here, and stays frozen"):
        graph = assert_as_pytorch(Between(gate, 8), tmp_path / f"model.{suffix}", SHAPE)
    assert len(convolutions(graph)) == 2, "the body and the last"


def test_learning_goes_through_it(tmp_path: Path) -> None:
    torch.manual_seed(1)
    path = exported(Between(Efficient(True), 8), tmp_path / "model.pt2", SHAPE)
    images = np.random.default_rng(0).integers(0, 256, (16, 12, 8, 3)).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = quantize_model(load_model(path).graph, images, Choices())
    for errors, least in (("fp32", 0.999), ("int8", 0.98)):
        found = cosines(everything(graph).graph, errors)
        assert ("body.0", "bias") in found and min(found.values()) > least, found


def test_another_convolution_over_channels_is_refused(tmp_path: Path) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv1d(1, 1, 2, 2), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.head(
                self.conv(functional.conv2d(x, torch.ones(8, 3, 12, 8)).view(1, 1, -1)).flatten(1)
            )
            return made

    with pytest.raises(
        ConvertError, match=r"over the channels of a vector is not supported; .* linear layer"
    ):
        load_model(exported(Strided(), tmp_path / "model.pt2", SHAPE))
