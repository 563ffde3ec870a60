"""Maps that are sampled anew: PyTorch's gradients, the same bytes everywhere, and what becomes of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from networks import Builder
from onnx import TensorProto, helper, numpy_helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_stream import assert_same_logits
from torch import nn
from torch.nn import functional

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.execute.executor import Executor
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, resample
from microtrain.convert.ops.aten.resample import (
    ALIGNED,
    HALF_PIXEL,
    RESAMPLE,
    adaptive_spans,
    around,
    averages,
    between,
)
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.ptq import Choices, quantize_model
from microtrain.convert.scheme import Scheme, convolutions

Change = Callable[[torch.Tensor], torch.Tensor]


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """Pixels around a map, averages of windows of different sizes, and lines between pixels."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 9, 3)
    x = b.sampled(x, around(size, 1, 2, "reflect"), around(size, 2, 0, "replicate"))
    x = b.conv(x, 7, 3, pad=0)
    h, w = b.tensors[x].shape[:2]
    spans = adaptive_spans(h, 7), adaptive_spans(w, 5)
    means = (averages(own, [len(s) for s in own], n) for own, n in zip(spans, (h, w), strict=True))
    x = b.conv(b.sampled(x, *means), 8, relu=False)
    x = b.sampled(x, between(7, 14, HALF_PIXEL), between(5, 9, ALIGNED))
    return b.finish(b.conv(x, 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_along_the_wrong_axis_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[resample.BACKWARD]

    def turned(env: Any, node: Node) -> None:
        """Each row's errors to the row at the other end."""
        op.run(env, node)
        env.values[node.outputs[0]] = env.values[node.outputs[0]][::-1]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=turned))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    assert sum(node.op == resample.BACKWARD for node in trained.graph.nodes) >= 2
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_beside_rows_it_gives_the_same_logits(tmp_path: Path) -> None:
    assert_same_logits(compile_graph(network(), Scheme("head", head="random"), 5), tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


# ---------------------------------------------------------------- as PyTorch and ONNX write it


class Sampled(nn.Module):
    """A map of 9x8, and what `change` makes of it."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.body, self.conv, self.change = nn.Conv2d(3, 6, 3, 1, 1), nn.Conv2d(6, 5, 2), change
        self.head = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.change(functional.relu(self.body(x)))
        result: torch.Tensor = self.head(functional.relu(self.conv(x)).mean((2, 3)))
        return result


class Series(nn.Module):
    """The same of 17 moments."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.body, self.conv, self.change = nn.Conv1d(3, 6, 3, 1, 1), nn.Conv1d(6, 5, 2), change
        self.head = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.change(functional.relu(self.body(x)))
        result: torch.Tensor = self.head(functional.relu(self.conv(x)).mean(2))
        return result


SCRIPT = ".torchscript"  # of files that are traced


def exported(model: nn.Module, path: Path, shape: tuple[int, ...]) -> Path:
    example = (torch.zeros(1, *shape),)
    if path.suffix == ".onnx":
        torch.onnx.export(model.eval(), example, str(path), opset_version=17, dynamo=False)
    elif path.suffix == SCRIPT:
        torch.jit.trace(model.eval(), example, check_trace=False).save(str(path))
    else:
        torch.export.save(torch.export.export(model.eval(), example), path)
    return path


def assert_as_pytorch(model: nn.Module, path: Path, shape: tuple[int, ...]) -> Graph:
    given = shape if path.suffix == SCRIPT else None
    graph = load_model(exported(model, path, shape), input_shape=given).graph
    bright = torch.tensor([1.0, 0.6, 0.3, 0.05]).reshape(4, *[1] * len(shape))
    pixels = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    images = (pixels * bright * 255).round().to(torch.uint8)
    with torch.no_grad():
        wanted = model(images / 255).numpy()
    assert np.ptp(wanted, axis=0).min() > 3e-4, "the logits say something"
    pixels_last = images.numpy().reshape(4, shape[0], -1).transpose(0, 2, 1)
    as_stored = pixels_last.reshape(4, *graph.tensors[graph.input.tensor].shape)
    np.testing.assert_allclose(run_float(graph, as_stored).reshape(4, -1), wanted, atol=1e-5)
    return graph


POOLINGS: dict[str, Change] = {
    "cut off": lambda x: functional.avg_pool2d(x, 3, 2, ceil_mode=True),
    "cut off beside padding": lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "a window in padding alone": lambda x: functional.avg_pool2d(x, (2, 3), 3, (1, 1), ceil_mode=True),
    "without padding": lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "without any": lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, True, False),
    "of its own divisor": lambda x: functional.avg_pool2d(x, 3, 2, 1, divisor_override=4),
    "cut off by its divisor": lambda x: functional.avg_pool2d(x, 3, 2, 1, True, divisor_override=2),
    "to 7x7": lambda x: functional.adaptive_avg_pool2d(x, 7),
    "to more than there are": lambda x: functional.adaptive_avg_pool2d(x, (4, 13)),
    "the largest of 5x6": lambda x: functional.adaptive_max_pool2d(x, (5, 6)),
    "the largest of 3x4": lambda x: functional.adaptive_max_pool2d(x, (3, 4)),
}
BORDERS: dict[str, Change] = {
    "reflect": lambda x: functional.pad(x, (1, 2, 3, 0), "reflect"),
    "replicate": lambda x: functional.pad(x, (0, 9, 11, 1), "replicate"),
    "circular": lambda x: functional.pad(x, (1, 2, 3, 0), "circular"),
    "zeros before a maximum": lambda x: functional.max_pool2d(functional.pad(x - 1, (1, 0, 2, 1)), 2),
    "zeros before a gate": lambda x: nn.Sigmoid()(functional.pad(x, (1, 0, 0, 1))),
    "zeros and pixels": lambda x: functional.pad(functional.pad(x, (1, 0, 0, 1)), (1, 1, 1, 1), "reflect"),
    "less": lambda x: functional.pad(x, (-1, 1, 0, -2)),
    "nothing": lambda x: functional.pad(x, (0, 0, 0, 0), "reflect"),
}
LARGER: dict[str, Change] = {
    "twice": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "three and two times": lambda x: functional.interpolate(x, scale_factor=(3, 2), mode="bilinear"),
    "corners": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    "another size": lambda x: functional.interpolate(x, size=(17, 5), mode="bilinear"),
    "one pixel": lambda x: functional.interpolate(x, size=(2, 4), mode="bilinear", align_corners=True),
}
OVER_TIME: dict[str, Change] = {
    "cut off": lambda x: functional.avg_pool1d(x, 4, 3, ceil_mode=True),
    "without padding": lambda x: functional.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
    "adaptive": lambda x: functional.adaptive_avg_pool1d(x, 7),
    "largest": lambda x: functional.adaptive_max_pool1d(x, 7),
    "reflect": lambda x: functional.pad(x, (2, 3), "reflect"),
    "linear": lambda x: functional.interpolate(x, scale_factor=2, mode="linear"),
}
NOT_BY_ONNX = ("of its own divisor", "cut off by its divisor", "circular")  # lost or in pieces
ADAPTIVE = ("to 7x7", "to more than there are", "the largest of 5x6", "the largest of 3x4")
OF_IMAGES = {**POOLINGS, **BORDERS, **LARGER}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_it_is_that_of_pytorch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    graph = assert_as_pytorch(Sampled(OF_IMAGES[name]), tmp_path / "model.pt2", (3, 9, 8))
    plain = ("of its own divisor", "a window in padding alone", "the largest of 3x4", "nothing")
    assert (RESAMPLE in {n.op for n in graph.nodes}) == (name not in plain), [n.op for n in graph.nodes]


@pytest.mark.parametrize("name", [n for n in OF_IMAGES if n not in (*NOT_BY_ONNX, *ADAPTIVE)])
def test_it_is_that_of_pytorch_by_way_of_onnx(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    assert_as_pytorch(Sampled(OF_IMAGES[name]), tmp_path / "model.onnx", (3, 9, 8))


@pytest.mark.parametrize("name", OVER_TIME)
def test_a_series_is_that_of_pytorch(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    graph = assert_as_pytorch(Series(OVER_TIME[name]), tmp_path / "model.pt2", (3, 17))
    assert RESAMPLE in {n.op for n in graph.nodes}


def test_a_padding_mode_of_a_convolution(tmp_path: Path) -> None:
    """What in front of it learns is behind the padding."""
    torch.manual_seed(3)
    layer = nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect")
    assert_as_pytorch(Sampled(layer), tmp_path / "model.pt2", (3, 9, 8))


@pytest.mark.parametrize("name", ["without any", "to 7x7", "reflect", "twice", "corners"])
def test_int8_is_near(name: str, tmp_path: Path) -> None:
    """Weights and values of eight bits: to some hundredths."""
    torch.manual_seed(3)
    model = Sampled(OF_IMAGES[name])
    graph = load_model(exported(model, tmp_path / "model.pt2", (3, 9, 8))).graph
    images = np.random.default_rng(0).integers(0, 256, (16, 9, 8, 3)).astype(np.uint8)
    executor = Executor(quantize_model(graph, images, Choices()))
    with torch.no_grad():
        wanted = model(torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))).numpy()
    stored = (images.astype(np.int16) - 128).astype(np.int8)
    found = np.stack([executor.forward(image).ravel() for image in stored])
    assert np.abs(found - wanted).max() < 0.01 < np.ptp(wanted)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda x: functional.interpolate(x, scale_factor=1.3, mode="bilinear"),
            "of 9 pixels by 1.3 gives no whole number of them; .* size=11",
        ),
        (
            lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"),
            "upsample_bicubic2d is not supported; .* mode='bilinear'",
        ),
        (
            lambda x: functional.pad(x, (1, 1, 1, 1), value=2.0),
            "padding with 2 .* zeros, or pixels of the image",
        ),
        (
            lambda x: functional.relu_(functional.pad(x, (1, 0, 0, 1))),
            "relu_ changes an image with zeros around it in place",
        ),
        (
            lambda x: functional.avg_pool2d(
                functional.interpolate(x, scale_factor=4), 24, 1, 12, False, False
            ),
            "windows of too many sizes; .* windows of one size",
        ),
    ],
)
def test_others_are_refused(change: Change, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=said):
        load_model(exported(Sampled(change), tmp_path / "model.pt2", (3, 9, 8)))


def onnx_file(path: Path, op: str, more: dict[str, np.ndarray], **attributes: Any) -> Path:
    """A convolution, one op, another convolution."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(0, 0.3, (6, 3, 1, 1)).astype(np.float32),
        "v": rng.normal(0, 0.3, (5, 6, 1, 1)).astype(np.float32),
        "u": rng.normal(0, 0.3, (4, 5)).astype(np.float32),
        **more,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node(
            op, ["a", *("" if v.size == 0 else k for k, v in more.items())], ["b"], **attributes
        ),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "u"], ["y"], transB=1),
    ]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 6, 8]), ("y", [1, 4]))
    ]
    held = [numpy_helper.from_array(a, n) for n, a in arrays.items() if a.size]
    made = helper.make_graph(nodes, "net", sides[:1], sides[1:], held)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path


NOTHING: np.ndarray = np.zeros(0, np.float32)
BY_FACTORS: dict[str, np.ndarray] = {"roi": NOTHING, "scales": np.array([1, 1, 2, 3], np.float32)}
TO_SIZES: dict[str, np.ndarray] = {
    "roi": NOTHING,
    "scales": NOTHING,
    "sizes": np.array([1, 6, 5, 11], np.int64),
}
OF_ONNX: dict[str, tuple[str, dict[str, np.ndarray], dict[str, Any]]] = {
    **{
        f"linear {way}": ("Resize", BY_FACTORS, {"mode": "linear", "coordinate_transformation_mode": way})
        for way in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    },
    "sizes": ("Resize", TO_SIZES, {"mode": "linear"}),
    "axes": (
        "Resize",
        {"roi": NOTHING, "scales": np.array([3, 2], np.float32)},
        {"mode": "linear", "axes": [3, 2]},
    ),
    "edge": ("Pad", {"pads": np.array([0, 0, 1, 0, 0, 0, 2, 3])}, {"mode": "edge"}),
    "reflect": ("Pad", {"pads": np.array([0, 0, 1, 0, 0, 0, 2, 3])}, {"mode": "reflect"}),
    "wrap": ("Pad", {"pads": np.array([0, 0, 1, 0, 0, 0, 2, 3])}, {"mode": "wrap"}),
    "sides that differ": (
        "AveragePool",
        {},
        {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0], "strides": [2, 1], "count_include_pad": 0},
    ),
    "as much as fits": ("AveragePool", {}, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
}


@pytest.mark.parametrize("name", OF_ONNX)
def test_what_onnx_has_is_that_of_its_runtime(name: str, tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    op, more, attributes = OF_ONNX[name]
    path = onnx_file(tmp_path / "model.onnx", op, more, **attributes)
    graph = load_model(path).graph
    assert RESAMPLE in {n.op for n in graph.nodes}
    images = np.random.default_rng(1).integers(0, 256, (1, 6, 8, 3)).astype(np.uint8)
    pixels = (images.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(str(path)).run(["y"], {"x": pixels})
    np.testing.assert_allclose(run_float(graph, images), np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize(
    ("more", "attributes"),
    [
        (BY_FACTORS, {"mode": "cubic"}),
        (BY_FACTORS, {"mode": "linear", "antialias": 1}),
        (BY_FACTORS, {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}),
        ({"roi": NOTHING, "scales": np.array([1, 2, 2, 3], np.float32)}, {"mode": "linear"}),
    ],
)
def test_another_resize_of_onnx_is_refused(
    more: dict[str, np.ndarray], attributes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConvertError, match=r"the op resize is not supported; .* mode='bilinear'"):
        load_model(onnx_file(tmp_path / "model.onnx", "Resize", more, **attributes))


@pytest.mark.parametrize(
    "pads", [[0, 0, 0, 0, 0, 0, 0, 2**31], [0, 0, -9, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 9, 0]]
)
def test_a_padding_that_cannot_be_is_refused(pads: list[int], tmp_path: Path) -> None:
    said = "the most|leaves none|has no pixels to repeat"
    with pytest.raises(ConvertError, match=said):
        load_model(onnx_file(tmp_path / "model.onnx", "Pad", {"pads": np.array(pads)}, mode="reflect"))
