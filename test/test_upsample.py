"""Maps made larger: PyTorch's gradients, the same bytes everywhere, and the ways in which it is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from interpreted import interpreted
from networks import Builder
from onnx import TensorProto, helper, numpy_helper
from test_executor import partly_trained, run_both
from test_gradients import LEAST, cosines, everything
from test_parallel import assert_simulated, compiled, image_of
from test_resample import assert_as_pytorch
from test_stream import assert_same_logits
from torch import nn
from torch.nn import functional

from lab.attack.tflite_networks import resized
from microtrain.convert.emit.code import generate
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph, Node
from microtrain.convert.native_model import NativeModel
from microtrain.convert.ops import TABLE, upsample
from microtrain.convert.ops.aten.resample import RESAMPLE, WAYS
from microtrain.convert.ops.aten.upsample import ROUNDINGS, Places, exact, floored, of_onnx
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import Scheme, convolutions


def network(seed: int = 0, size: int = 12, classes: int = 5) -> Graph:
    """What was made smaller is made larger again, and added; then rows alone."""
    b = Builder(np.random.default_rng(seed), (size, size, 3))
    x = b.conv("x", 9, 3)
    small = b.conv(b.pool("maxpool", x, 2, 2), 9, relu=False)
    x = b.add(x, b.larger(small, 2, 2))
    x = b.larger(b.conv(x, 7, 3, 3), 1, 3)
    return b.finish(b.conv(x, 11), classes)


@pytest.mark.parametrize("errors", ["fp32", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_autograd(seed: int, errors: str) -> None:
    found = cosines(everything(network(seed)).graph, errors)
    assert min(found.values()) > LEAST[errors], found


def test_a_gradient_of_one_pixel_of_a_block_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, op = everything(network()).graph, TABLE[upsample.BACKWARD]

    def first(env: Any, node: Node) -> None:
        down, across = upsample.factors_of(node)
        env.values[node.outputs[0]] = env.values[node.inputs[0]][::down, ::across]

    monkeypatch.setitem(TABLE, op.name, replace(op, run=first))
    assert min(cosines(graph, "fp32").values()) < 0.999


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("seed", range(2))
def test_generated_code_trains_like_the_executor(seed: int, compiler: str, tmp_path: Path) -> None:
    trained = partly_trained(network(seed), (0, 8)[seed])
    assert sum(node.op == upsample.BACKWARD for node in trained.graph.nodes) == 2
    run_both(trained, NativeModel(generate(trained, "a test"), tmp_path, compiler), 8)


def test_beside_rows_it_gives_the_same_logits(tmp_path: Path) -> None:
    assert_same_logits(compile_graph(network(), Scheme("head", head="random"), 5), tmp_path)


def test_the_simulation_has_the_executors_gradients(tmp_path: Path) -> None:
    graph = network()
    model = compiled(graph, len(convolutions(graph)), 1.0)
    assert_simulated(model, image_of(graph, 1), tmp_path)


# ---------------------------------------------------------------- front ends


class Larger(nn.Module):
    """A map of 3x4, and what `made` makes of it."""

    def __init__(self, **made: Any) -> None:
        super().__init__()
        self.body, self.conv, self.made = nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 5, 3), made
        self.head = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.interpolate(functional.relu(self.body(x)), **self.made)
        result: torch.Tensor = self.head(self.conv(x).mean((2, 3)))
        return result


def exported(model: nn.Module, path: Path) -> Path:
    torch.export.save(torch.export.export(model.eval(), (torch.zeros(1, 3, 6, 8),)), path)
    return path


@pytest.mark.parametrize(
    "made",
    [
        {"scale_factor": 2},
        {"scale_factor": (2.0, 3.0), "mode": "nearest-exact"},
        {"size": (6, 12)},
        {"size": (3, 8), "mode": "nearest"},
    ],
)
def test_interpolate_is_that_of_pytorch(made: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = Larger(**made)
    graph = load_model(exported(model, tmp_path / "model.pt2")).graph
    assert [n.op for n in graph.nodes].count(upsample.UPSAMPLE) == 1
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 8, 3)).astype(np.uint8)
    with torch.no_grad():
        wanted = model(torch.tensor(images.transpose(0, 3, 1, 2) / np.float32(255))).numpy()
    np.testing.assert_allclose(run_float(graph, images).reshape(4, -1), wanted, atol=1e-5)


@pytest.mark.parametrize(
    "made",
    [
        {"size": (5, 8)},
        {"size": (7, 3), "mode": "nearest-exact"},
        {"scale_factor": 1.4},
        {"scale_factor": (2.0, 1.7), "mode": "nearest-exact"},
    ],
)
@pytest.mark.parametrize("suffix", ["pt2", "onnx"])
def test_any_size_is_that_of_pytorch(made: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    if suffix == "onnx" and "exact" in made.get("mode", ""):
        pytest.skip("PyTorch exports no nearest-exact")
    torch.manual_seed(2)
    graph = assert_as_pytorch(Larger(**made), tmp_path / f"model.{suffix}", (3, 6, 8))
    assert RESAMPLE in [n.op for n in graph.nodes]


@pytest.mark.parametrize(("mode", "rule"), [("nearest", floored), ("nearest-exact", exact)])
def test_places_are_those_of_pytorch(mode: str, rule: Places) -> None:
    """All sizes, larger and smaller ones, and factors that give no whole numbers."""
    for inputs in range(1, 24):
        x = torch.arange(inputs, dtype=torch.float32).reshape(1, 1, inputs)
        for outputs in range(1, 60):
            found = functional.interpolate(x, size=outputs, mode=mode)
            assert rule(inputs, outputs, None) == found.flatten().int().tolist()
        for factor in (0.4, 0.7, 1.3, 1.7, 2.0, 2.9, 3.3):
            if outputs := int(inputs * factor):
                found = functional.interpolate(x, scale_factor=factor, mode=mode)
                assert rule(inputs, outputs, factor) == found.flatten().int().tolist()


def test_bicubic_is_refused(tmp_path: Path) -> None:
    said = "upsample_bicubic2d is not supported; .* mode='nearest'"
    with pytest.raises(ConvertError, match=said):
        load_model(exported(Larger(scale_factor=2, mode="bicubic"), tmp_path / "model.pt2"))


def onnx_file(path: Path, factors: tuple[float, float] = (2, 3), **attributes: Any) -> Path:
    """A convolution, a Resize, another convolution."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.normal(0, 0.3, (6, 3, 1, 1)).astype(np.float32),
        "v": rng.normal(0, 0.3, (5, 6, 1, 1)).astype(np.float32),
        "u": rng.normal(0, 0.3, (4, 5)).astype(np.float32),
        "scales": np.array([1, 1, *factors], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Resize", ["a", "", "scales"], ["b"], **attributes),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "u"], ["y"], transB=1),
    ]
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 6, 8]), ("y", [1, 4]))
    ]
    made = helper.make_graph(
        nodes, "net", sides[:1], sides[1:], [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"coordinate_transformation_mode": "pytorch_half_pixel", "nearest_mode": "round_prefer_ceil"},
    ],
)
def test_a_resize_of_onnx_is_that_of_its_runtime(attributes: dict[str, str], tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    path = onnx_file(tmp_path / "model.onnx", (2, 3), **attributes)
    graph = load_model(path).graph
    images = np.random.default_rng(1).integers(0, 256, (1, 6, 8, 3)).astype(np.uint8)
    pixels = (images.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(str(path)).run(["y"], {"x": pixels})
    np.testing.assert_allclose(run_float(graph, images), np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize("sizes", [(5, 11), (6, 9), (2, 3), (1, 1)])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("way", WAYS)
def test_any_size_is_that_of_onnx(way: str, rounding: str, sizes: tuple[int, int]) -> None:
    from onnx.reference.ops.op_resize import _interpolate_nd, _nearest_coeffs

    x = np.arange(3 * 4, dtype=np.float32).reshape(3, 4)
    wanted = _interpolate_nd(
        x,
        lambda ratio, _: _nearest_coeffs(ratio, mode=rounding),
        output_size=list(sizes),
        coordinate_transformation_mode=way,
    )
    rows, columns = (of_onnx(way, rounding)(n, m, None) for n, m in zip((3, 4), sizes, strict=True))
    np.testing.assert_array_equal(x[rows][:, columns], np.asarray(wanted).reshape(sizes))


def test_a_resize_of_onnx_by_uneven_factors(tmp_path: Path) -> None:
    from onnx.reference import ReferenceEvaluator

    path = onnx_file(tmp_path / "model.onnx", (1.5, 1.3), coordinate_transformation_mode="asymmetric")
    graph = load_model(path).graph
    images = np.random.default_rng(1).integers(0, 256, (1, 6, 8, 3)).astype(np.uint8)
    pixels = (images.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(str(path)).run(["y"], {"x": pixels})
    np.testing.assert_allclose(run_float(graph, images), np.asarray(wanted), atol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("size", [(8, 6), (7, 4), (3, 2), (1, 9)])
def test_any_size_is_that_of_tflite(size: tuple[int, int], half: bool, aligned: bool, tmp_path: Path) -> None:
    if half and aligned:
        pytest.skip("TFLite has no such file")
    path = resized(size, half, aligned).file(tmp_path)
    graph = load_model(path).graph
    pixels = np.random.default_rng(1).integers(0, 256, (1, 6, 5, 2)).astype(np.uint8)
    wanted = interpreted(path, pixels)
    np.testing.assert_allclose(run_float(graph, pixels).ravel(), wanted.ravel(), atol=1e-5)


@pytest.mark.parametrize(
    "attributes", [{"mode": "cubic"}, {"coordinate_transformation_mode": "half_pixel_symmetric"}]
)
def test_another_resize_of_onnx_is_refused(attributes: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"the op resize is not supported; .* mode='nearest'"):
        load_model(onnx_file(tmp_path / "model.onnx", (2, 3), **attributes))
