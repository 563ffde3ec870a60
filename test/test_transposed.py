"""Transposed convolutions: PyTorch's values and gradients, ONNX's and TFLite's, and weights that go back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_model_copy import Session, agree, interpreted
from test_onnx import constants, reference, saved
from test_parallel import assert_simulated, compiled
from test_resample import assert_as_pytorch, exported
from test_turned_weights import planned
from torch import nn

from lab.attack.tflite_files import Int8
from microtrain.base.mirrored import mirrored
from microtrain.base.trained import MIRRORED
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops.aten.resample import RESAMPLE
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import convolutions
from microtrain.device.merging import merge

OF_IMAGES: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 4, "stride": 2, "padding": 1, "bias": False},
    {"kernel_size": (3, 5), "stride": (2, 3), "padding": (0, 2), "output_padding": (1, 2)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "groups": 2},
    {"kernel_size": 3, "stride": 2, "groups": 6, "out": 6},
    {"kernel_size": 3, "stride": 2, "groups": 6, "out": 12},
    {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2},
    {"kernel_size": 2, "stride": 3, "padding": 2},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 2},
)
OF_SERIES: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2, "stride": 2},
    {"kernel_size": 5, "stride": 3, "padding": 2, "output_padding": 1},
    {"kernel_size": 3, "stride": 2, "groups": 2},
)


def loud(model: nn.Module) -> nn.Module:
    """With weights that let the logits say something, and batch norms that do something."""
    for name, each in model.named_parameters():
        if each.ndim > 1:
            nn.init.normal_(each, 0, 2.0 / (each[0].numel() if "up" not in name else len(each)) ** 0.5)
    for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_mean, -0.2, 0.2)  # type: ignore[arg-type]
        nn.init.uniform_(norm.running_var, 0.5, 2.0)  # type: ignore[arg-type]
    return model


class Decoder(nn.Module):
    """A map made smaller, and larger again with a batch norm behind it."""

    def __init__(self, out: int = 4, **made: Any) -> None:
        super().__init__()
        self.body, self.up, self.norm = (
            nn.Conv2d(3, 6, 3, 2, 1),
            nn.ConvTranspose2d(6, out, **made),
            nn.BatchNorm2d(out),
        )
        self.conv, self.head = nn.Conv2d(out, 5, 1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.up(torch.relu(self.body(x)))))
        result: torch.Tensor = self.head(torch.relu(self.conv(x)).mean((2, 3)))
        return result


class OfSeries(nn.Module):
    def __init__(self, **made: Any) -> None:
        super().__init__()
        self.body, self.up = nn.Conv1d(3, 6, 3, 2, 1), nn.ConvTranspose1d(6, 4, **made)
        self.conv, self.head = nn.Conv1d(4, 5, 1), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.conv(torch.relu(self.up(self.body(x))))).mean(2))
        return result


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("made", OF_IMAGES, ids=str)
def test_an_image_becomes_what_pytorch_makes(made: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    graph = assert_as_pytorch(loud(Decoder(**made)), tmp_path / f"model.{suffix}", (3, 9, 8))
    assert [n.op for n in graph.nodes].count(RESAMPLE) == (max(np.ravel(made.get("stride", 1))) > 1)
    assert graph.layers["up"].source.bn == "norm" or suffix == "onnx"


@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
@pytest.mark.parametrize("made", OF_SERIES, ids=str)
def test_a_series_becomes_what_pytorch_makes(made: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    assert_as_pytorch(loud(OfSeries(**made)), tmp_path / f"model.{suffix}", (3, 17))


def test_padding_that_leaves_nothing_is_a_sentence(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "model.onnx", {"pads": [4, 0, 4, 0]})
    with pytest.raises(ConvertError, match="leaves nothing of 5 pixels: its padding is too large"):
        load_model(path)


def quantized(made: dict[str, Any], folder: Path) -> Graph:
    torch.manual_seed(4)
    path = exported(loud(Decoder(**made)), folder / "model.pt2", (3, 12, 11))
    images = np.random.default_rng(0).integers(0, 256, (16, 12, 11, 3)).astype(np.uint8)
    return quantize_model(load_model(path).graph, images, Choices())


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("made", OF_IMAGES, ids=str)
def test_gradients_are_those_of_autograd(made: dict[str, Any], errors: str, tmp_path: Path) -> None:
    found = cosines(everything(quantized(made, tmp_path)).graph, errors)
    assert ("up", "weight") in found and ("body", "bias") in found
    assert min(found.values()) > LEAST[errors], found


@pytest.mark.parametrize("made", [OF_IMAGES[1], OF_IMAGES[4], OF_IMAGES[5]], ids=str)
def test_generated_code_trains_like_the_executor(made: dict[str, Any], tmp_path: Path) -> None:
    trained = partly_trained(quantized(made, tmp_path), 4)
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path), 6)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = quantized(OF_IMAGES[1], tmp_path)
    image = np.random.default_rng(3).integers(-128, 128, (12, 11, 3)).astype(np.int8)
    assert_simulated(compiled(graph, len(convolutions(graph)), 1.0), image, tmp_path)


# ---------------------------------------------------------------- back into the file


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_weights_go_there_and_back(groups: int) -> None:
    weight = np.random.default_rng(0).normal(size=(6, 4, 3, 2))
    there = mirrored(weight, groups)
    assert there.shape == (4 * groups, 6 // groups, 3, 2)
    np.testing.assert_array_equal(mirrored(there, groups), weight)
    x = torch.randn(1, 6, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = torch.conv_transpose2d(x, torch.tensor(weight), groups=groups)
    found = torch.conv2d(x, torch.tensor(there.copy()), padding=(2, 1), groups=groups)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("made", [OF_IMAGES[1], OF_IMAGES[4], OF_IMAGES[5], OF_IMAGES[6]], ids=str)
def test_what_was_trained_goes_back_as_it_came(
    made: dict[str, Any], decomposed: bool, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    model, path = loud(Decoder(**made)).eval(), tmp_path / "model.pt2"
    program = torch.export.export(model, (torch.zeros(1, 3, 9, 9),))
    torch.export.save(program.run_decompositions() if decomposed else program, path)
    plan, arrays = planned(model, path)
    state = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    assert {t.source.weight for t in plan.trainables.tensors if t.source.columns == MIRRORED} == {"up.weight"}
    merged, _ = merge(plan, arrays, state)
    for name in ("up.weight", "norm.bias", "conv.weight", "body.weight"):
        assert merged[name].shape == state[name].shape
        np.testing.assert_allclose(merged[name], state[name], atol=0.03, err_msg=name)
    assert np.abs(np.flip(merged["up.weight"], (2, 3)) - state["up.weight"]).max() > 0.2


def test_a_trained_onnx_file_answers_as_the_device(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32),
        v=rng.normal(0, 0.3, (6, 4, 3, 2)).astype(np.float32),
        u=rng.normal(0, 0.3, (4, 4)).astype(np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ConvTranspose", ["b", "v"], ["c"], strides=[2, 1], pads=[1, 0, 0, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "u"], ["y"]),
    ]
    session = Session(saved(tmp_path / "model.onnx", nodes, arrays, [1, 3, 9, 8]), 4)
    session.copy(tmp_path / "out.onnx")
    found = reference(tmp_path / "out.onnx", session.images.transpose(0, 3, 1, 2) / 255.0)
    logits = session.logits()
    agree(found, logits, 0.1 * np.abs(logits).max())


@pytest.mark.parametrize("tied", [False, True])
def test_weights_that_a_decoder_shares_stay_frozen(tied: bool, tmp_path: Path) -> None:
    """A tied autoencoder: the same weights down and up."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.back, self.head = (
                nn.Conv2d(3, 6, 3, 2),
                nn.Parameter(torch.randn(6, 3, 3, 3)),
                nn.Linear(3, 4),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.down.weight if tied else self.back
            made: torch.Tensor = self.head(
                torch.relu(torch.conv_transpose2d(torch.relu(self.down(x)), weight, stride=2)).mean((2, 3))
            )
            return made

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graph = load_model(exported(Tied(), tmp_path / "model.pt2", (3, 9, 9))).graph
    assert any("more than once" in str(each.message) for each in said) == tied
    assert bool(graph.layers["down"].shares) == tied


# ---------------------------------------------------------------- ONNX and TFLite


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"auto_pad": "VALID", "strides": [2, 3]},
        {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_shape": [10, 12]},
    ],
    ids=str,
)
def test_what_onnx_has_is_that_of_its_runtime(about: dict[str, Any], tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "model.onnx", about)
    images = np.random.default_rng(1).integers(0, 256, (4, 5, 6, 4)).astype(np.uint8)
    wanted = reference(path, images.transpose(0, 3, 1, 2) / np.float32(255))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run_float(load_model(path).graph, images).reshape(4, -1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert any("runtimes do not agree" in str(each.message) for each in said) == ("SAME" in str(about))


def onnx_file(path: Path, about: dict[str, Any]) -> Path:
    """A ConvTranspose of 5x6 pixels, and what makes logits of it."""
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32),
        b=rng.normal(0, 0.3, 2).astype(np.float32),
        v=rng.normal(0, 0.3, (3, 2, 4, 5)).astype(np.float32),
        u=rng.normal(0, 0.3, (3, 4)).astype(np.float32),
    )
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["a"], **about),
        helper.make_node("Conv", ["a", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "u"], ["y"]),
    ]
    return saved(path, nodes, arrays, [1, 4, 5, 6])


@pytest.mark.parametrize(
    ("wanted", "pads"),
    [
        ([13, 11], [1, 1, 1, 1]),
        ([14, 13], [1, 0, 0, 0]),
        ([16, 13], [0, 0, -1, 0]),
        ([1, 2, 13, 13], [1, 0, 1, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*runtimes do not agree")
def test_a_shape_is_as_much_padding(wanted: list[int], pads: list[int], tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 256, (4, 5, 6, 4)).astype(np.uint8)
    about = (
        {"output_shape": wanted},
        {"pads": [max(p, 0) for p in pads], "output_padding": [max(-min(pads), 0), 0]},
    )
    files = [onnx_file(tmp_path / f"{i}.onnx", {"strides": [3, 2], **each}) for i, each in enumerate(about)]
    by_shape, by_pads = (run_float(load_model(path).graph, images) for path in files)
    np.testing.assert_array_equal(by_shape, by_pads)
    assert np.ptp(by_pads) > 0.01


def test_qdq_of_groups_keeps_its_integers(tmp_path: Path) -> None:
    """Weights [c_in, c_out / groups, ...] with a scale for each output channel of a group."""
    rng = np.random.default_rng(5)
    scales = {"x": (0.02, 100), "r": (0.03, 0), "y": (0.02, 130)}
    arrays, nodes = [], []
    for name, (scale, zero) in scales.items():
        arrays += constants(**{f"{name}_s": np.float32(scale), f"{name}_z": np.uint8(zero)})
    weight = rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    sw = rng.uniform(0.002, 0.02, 3).astype(np.float32)
    arrays += constants(
        w=weight, w_s=sw, w_z=np.zeros(3, np.int8), c=rng.normal(0, 0.2, 3).astype(np.float32)
    )
    arrays += constants(h=rng.normal(0, 0.3, (3, 6)).astype(np.float32))

    def coded(name: str, made: str) -> str:
        about = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [made, *about], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *about], [f"{name}_d"]))
        return f"{name}_d"

    x = coded("x", "x")
    nodes.append(helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["w_d"], axis=1))
    nodes.append(
        helper.make_node("ConvTranspose", [x, "w_d"], ["v"], strides=[2, 2], group=2, pads=[1, 1, 1, 1])
    )
    nodes.append(helper.make_node("Relu", ["v"], ["r0"]))
    r = coded("r", "r0")
    nodes.append(helper.make_node("GlobalAveragePool", [r], ["p0"]))
    nodes.append(helper.make_node("Flatten", ["p0"], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", "h", "c"], ["y0"], transB=1))
    path = saved(tmp_path / "qdq.onnx", nodes, arrays, [1, 4, 5, 6], outputs=["y0"], opset=19)
    loaded = load_model(path).graph
    (layer,) = (layer for name, layer in loaded.layers.items() if layer.weight.ndim == 4)
    assert layer.weight_scale is not None
    np.testing.assert_allclose(layer.weight_scale, np.tile(sw, 2))
    graph = quantize(loaded, {})
    (stored_as,) = (layer.weight for layer in graph.layers.values() if layer.weight.ndim == 4)
    np.testing.assert_array_equal(stored_as.transpose(0, 3, 1, 2), mirrored(weight, 2))
    stored = rng.integers(0, 256, (12, 5, 6, 4)).astype(np.uint8)
    given = torch.tensor((stored.astype(np.float64) - 100) * 0.02).permute(0, 3, 1, 2)
    real = torch.tensor(weight * sw[:, None, None].astype(np.float64))
    made = torch.conv_transpose2d(given, real, stride=2, padding=1, groups=2).relu()
    units = (made / 0.03).round().clamp(0, 255).numpy()
    found: dict[str, np.ndarray] = {}
    run_int8(graph, stored, found.__setitem__)
    (name,) = (n.outputs[0] for n in graph.nodes if n.op == "gconv2d")
    assert (
        np.abs(found[name].transpose(0, 3, 1, 2).astype(float) + 128 - units).max() <= 1 and units.max() > 100
    )


def test_scales_along_the_inputs_are_not_taken_for_those_of_outputs(tmp_path: Path) -> None:
    """As many input channels as output channels; the weights are quantized anew."""
    rng = np.random.default_rng(3)
    weight, sw = (
        rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8),
        rng.uniform(0.01, 1.0, 4).astype(np.float32),
    )
    arrays = constants(
        w=weight, w_s=sw, w_z=np.zeros(4, np.int8), h=rng.normal(0, 0.3, (4, 3)).astype(np.float32)
    )
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["w_d"], axis=0),
        helper.make_node("ConvTranspose", ["x", "w_d"], ["v"], strides=[2, 2]),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "h"], ["y"]),
    ]
    path = saved(tmp_path / "qdq.onnx", nodes, arrays, [1, 4, 5, 6], opset=19)
    loaded = load_model(path).graph
    (layer,) = (layer for layer in loaded.layers.values() if layer.weight.ndim == 4)
    assert layer.weight_scale is None
    images = rng.integers(0, 256, (3, 5, 6, 4)).astype(np.uint8)
    wanted = reference(path, images.transpose(0, 3, 1, 2) / np.float32(255))
    np.testing.assert_allclose(run_float(loaded, images).reshape(3, -1), wanted, rtol=1e-4)


def upwards(padding: int, size: tuple[int, int], k: tuple[int, int], biased: bool = True) -> Int8:
    """Conv2DTranspose of Keras by 2 and 3, int8."""
    net = Int8.input((6, 6, 4)).conv(5, (3, 3), 2, (3, 3), (0.03, -128))
    channels, rng = 3, np.random.default_rng(2)
    weight = rng.integers(-127, 128, (channels, *k, 5))
    scales = rng.uniform(0.2, 1.0, channels) * 0.01
    about = {"Padding": padding, "StrideH": 2, "StrideW": 3}
    constants_of = [
        net.w.tensor("sizes", (4,), "int32", np.array([1, *size, channels])),
        net.w.tensor("w", weight.shape, data=weight, scale=tuple(scales), zero=[0] * channels, axis=0),
        net.x,
    ]
    if biased:
        b, units = rng.integers(-900, 900, channels), tuple(scales * net.scale)
        constants_of.append(net.w.tensor("b", (channels,), "int32", b, units, [0] * channels))
    made = net.w.tensor("y", (1, *size, channels), scale=(0.04,), zero=(-9,))
    net.w.op("TRANSPOSE_CONV", tuple(constants_of), (made,), "TransposeConvOptions", **about)
    net.x, net.shape, net.scale, net.zero = made, (*size, channels), 0.04, -9
    return net.linear(4, (0.05, 0))


@pytest.mark.parametrize(
    ("padding", "size", "k"),
    [(0, (6, 9), (3, 3)), (0, (6, 8), (4, 5)), (1, (7, 10), (3, 4)), (1, (6, 9), (2, 3))],
)
def test_int8_tflite_gives_the_integers_of_its_interpreter(
    padding: int, size: tuple[int, int], k: tuple[int, int], tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(upwards(padding, size, k).file())
    graph = quantize(load_model(path).graph, {})
    samples = np.random.default_rng(1).integers(0, 256, (20, 6, 6, 4)).astype(np.uint8)
    wanted = interpreted(path, samples.astype(int) - 128)
    assert len(np.unique(wanted)) > 20, "the logits say something"
    found = np.clip(np.rint(run_int8(graph, samples).reshape(20, 4) / 0.05), -128, 127) * 0.05
    assert np.abs(found - wanted).max() <= 0.0501, "one unit"


@pytest.mark.parametrize("biased", [False, True])
def test_a_trained_tflite_file_answers_as_the_device(biased: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    path = tmp_path / "model.tflite"
    path.write_bytes(upwards(0, (6, 9), (3, 3), biased).file())
    session = Session(path, 4)
    session.copy(tmp_path / "out.tflite")
    logits = session.logits()
    agree(
        interpreted(tmp_path / "out.tflite", session.images.astype(int) - 128),
        logits,
        0.02 * np.abs(logits).max(),
    )
