"""TFLite files of 2019 and 2020: uint8, biases with their weights' axis, SVDF; and what is not supported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.attack.tflite_files import Int8, Writer
from lab.attack.tflite_networks import Float
from lab.tasks.logits import int8_graph
from microtrain.convert.execute.batched import run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.frontends.tflite.file import read_flatbuffer
from microtrain.convert.ir import ConvertError
from microtrain.convert.quantize.int8 import quantize

SIDE, CHANNELS, CLASSES = 6, 5, 3


def of_bytes(zero: int) -> bytes:
    """A convolution and a head in uint8, whose weights have this zero point; one channel has the farthest."""
    w, rng = Writer(), np.random.default_rng(0)
    x = w.tensor("input", (1, SIDE, SIDE, 3), "uint8", scale=(1 / 128,), zero=(128,))
    weight = rng.integers(zero - 127, 256, (CHANNELS, 3, 3, 3)).clip(0, 255)
    weight[0, 0, 0, 0] = 0
    bias = rng.integers(-3000, 3000, CHANNELS)
    made = w.tensor("map", (1, SIDE, SIDE, CHANNELS), "uint8", scale=(0.02,), zero=(5,))
    constants = (
        w.tensor("weight", weight.shape, "uint8", weight, (0.004,), (zero,)),
        w.tensor("bias", (CHANNELS,), "int32", bias, (0.004 / 128,)),
    )
    options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 0}
    w.op("CONV_2D", (x, *constants), (made,), "Conv2DOptions", **options)
    size = SIDE * SIDE * CHANNELS
    head = rng.integers(0, 256, (CLASSES, size))
    last = w.tensor("logits", (1, CLASSES), "uint8", scale=(0.2,), zero=(120,))
    constants = (
        w.tensor("head", head.shape, "uint8", head, (0.003,), (zero,)),
        w.tensor("head bias", (CLASSES,), "int32", rng.integers(-99, 99, CLASSES), (0.02 * 0.003,)),
    )
    w.op("FULLY_CONNECTED", (made, *constants), (last,), "FullyConnectedOptions", FusedActivationFunction=0)
    return w.file((x,), (last,))


def interpreted(path: Path, samples: np.ndarray) -> list[np.ndarray]:
    """What TFLite's reference kernels make of the map, uint8."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    run = litert.Interpreter(
        str(path),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    found = []
    for sample in samples:
        run.set_tensor(run.get_input_details()[0]["index"], sample[None])
        run.invoke()
        found.append(run.get_tensor(int(run._get_ops_details()[0]["outputs"][0]))[0])
    return found


def maps(path: Path, samples: np.ndarray) -> np.ndarray:
    """The same of ours."""
    graph, seen = int8_graph(path), {}
    run_int8(graph, samples, lambda name, values: seen.update({name: values}))
    result: np.ndarray = seen[graph.nodes[0].outputs[0]].astype(int) + 128
    return result


@pytest.mark.parametrize("zero", [128, 151, 60])
def test_bytes_are_kept_where_int8_holds_them(zero: int, tmp_path: Path) -> None:
    """All channels but those that have a weight of nine bits."""
    path = tmp_path / "bytes.tflite"
    path.write_bytes(of_bytes(zero))
    samples = np.random.default_rng(1).integers(0, 256, (8, SIDE, SIDE, 3)).astype(np.uint8)
    off = np.abs(maps(path, samples) - np.array(interpreted(path, samples)).astype(int)).max(axis=(0, 1, 2))
    (weight,) = (t for t in read_flatbuffer(path).tensors if t.name == "weight")
    assert weight.data is not None
    real = weight.data.astype(int).reshape(CHANNELS, -1) - zero
    kept = (real >= -128).all(1) & (real <= 127).all(1)
    assert not off[kept].any() and off.max() <= 3
    assert kept.all() == (zero == 128) and (zero != 151 or kept.sum() == CHANNELS - 1)


def test_what_is_rounded_is_said(tmp_path: Path) -> None:
    path = tmp_path / "bytes.tflite"
    path.write_bytes(of_bytes(151))
    with pytest.warns(UserWarning, match="1 channels in 1 layers have weights of nine bits"):
        quantize(load_model(path).graph, {})


def file_with_axis(weight: int, bias: int) -> bytes:
    """A depthwise layer, whose weights and biases have their scales along these axes."""
    n = Int8.input((6, 6, 4))
    scales, rng = (0.01, 0.02, 0.03, 0.04), np.random.default_rng(0)
    taps = rng.integers(-127, 128, (1, 3, 3, 4))
    constants = (
        n.w.tensor("w", taps.shape, data=taps, scale=scales, zero=[0] * 4, axis=weight),
        n.w.tensor("b", (4,), "int32", rng.integers(-99, 99, 4), [s * 0.05 for s in scales], [0] * 4, bias),
    )
    made = n.w.tensor("y", (1, 6, 6, 4), scale=(0.1,), zero=(2,))
    options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DepthMultiplier": 1, "FusedActivationFunction": 0}
    n.w.op("DEPTHWISE_CONV_2D", (n.x, *constants), (made,), "DepthwiseConv2DOptions", **options)
    n.x, n.shape, n.scale = made, (6, 6, 4), 0.1
    n.mean((0.1, 2)).linear(3, (0.2, 0))
    return n.w.file((0,), (n.x,))


def test_a_bias_has_one_axis(tmp_path: Path) -> None:
    """Whatever the file says of it, as that of TensorFlow Lite Micro's person detector does."""
    graphs = []
    for axis in (0, 3):
        path = tmp_path / f"{axis}.tflite"
        path.write_bytes(file_with_axis(3, axis))
        graphs.append(int8_graph(path))
    first, second = (graph.layers[graph.nodes[0].layer or ""] for graph in graphs)
    np.testing.assert_array_equal(first.bias, second.bias)


@pytest.mark.parametrize("axis", [-1, 1, 4])
def test_scales_along_no_axis_are_refused(axis: int, tmp_path: Path) -> None:
    path = tmp_path / "wrong.tflite"
    path.write_bytes(file_with_axis(axis, 0))
    with pytest.raises(ConvertError, match=f"w has 4 scales along axis {axis} of 1x3x3x4"):
        load_model(path)


def test_layers_with_a_state_and_composites_are_named(tmp_path: Path) -> None:
    net = Float(4)
    net.op("SVDF", (net.x, net.drawn(3, 4), net.drawn(3, 5)), (1, 3))
    with pytest.raises(ConvertError, match=r"keeps what it has seen .* \(SVDF\)"):
        load_model(net.file(tmp_path))
    net = Float(4)
    net.op("STABLEHLO_COMPOSITE", (net.x,), (1, 4))
    with pytest.raises(ConvertError, match="the op stablehlo_composite is not supported"):
        load_model(net.linear(3).file(tmp_path))


def test_an_unknown_operator_is_named_whatever_it_makes(tmp_path: Path) -> None:
    """A detector's boxes have sizes that nobody knows."""
    net = Float(4).op("DENSIFY", (0,), ())
    with pytest.raises(ConvertError, match="the op densify is not supported"):
        load_model(net.file(tmp_path))


def test_an_input_without_axes_is_a_sentence(tmp_path: Path) -> None:
    w = Writer()
    x = w.tensor("input", (), "float32")
    y = w.tensor("output", (1, 3), "float32")
    w.op("RESHAPE", (x,), (y,))
    path = tmp_path / "none.tflite"
    path.write_bytes(w.file((x,), (y,)))
    with pytest.raises(ConvertError, match="takes an input without axes; it must be an image"):
        load_model(path)
