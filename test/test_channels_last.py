"""Maps of as many rows, columns and channels, which come last in a file: no axis is taken for another.

What one op makes, the next one reads along an axis by its number. It has the values of ONNX's evaluator,
or TFLite's interpreter, or is one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreted import interpreted
from onnx import helper
from test_onnx import constants, load, reference, saved
from test_other_onnx import series_of

from lab.attack.tflite_networks import Float
from microtrain.convert.execute.batched import run_float
from microtrain.convert.ir import ConvertError

node = helper.make_node
SIDE = 6
RNG = np.random.default_rng(0)
MIDDLES: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {
    "Abs": ({}, {}),
    "Softplus": ({}, {}),
    "Pow": ({"e": np.array(2, np.float32)}, {}),
    "ReduceL2": ({}, {"axes": [3], "keepdims": 1}),
    "LpNormalization": ({}, {"axis": 3}),
    "LayerNormalization": ({"g": np.ones(SIDE, np.float32)}, {"axis": -1}),
    "Softmax": ({}, {"axis": 3}),
    "Slice": ({k: np.array([n]) for k, n in (("s", 1), ("t", 5), ("a", 1), ("by", 2))}, {}),
    "Gather": ({"i": np.array([3, 0, 5])}, {"axis": 1}),
    "Mul": ({"k": RNG.uniform(0.5, 1.5, (SIDE, 1, 1)).astype(np.float32)}, {}),
    "Transpose": ({}, {"perm": [0, 2, 1, 3]}),
}
REFUSED = {"Mul", "Transpose", "Gather", "LpNormalization"}  # of rows, and lengths of pixels
READERS = {"ReduceMean": (1, 2, 3), "ReduceMax": (1, 3), "ReduceL2": (3,)}


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("reader", READERS)
def test_an_axis_behind_an_op_is_that_of_the_file(middle: str, reader: str, tmp_path: Path) -> None:
    given, about = MIDDLES[middle]
    arrays = {f"given_{name}": value for name, value in given.items()}
    said = 0
    for axis in READERS[reader]:
        path = tmp_path / "net.onnx"
        nodes = [
            node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
            node("Conv", ["t", "w"], ["c"]),
            node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]),
            node(middle, ["l", *arrays], ["m"], **about),
            node(reader, ["m"], ["r"], axes=[axis], keepdims=0),
            node("Flatten", ["r"], ["f"]),
        ]
        weights = {"w": RNG.normal(0, 0.5, (SIDE, 3, 3, 3)).astype(np.float32), **arrays}
        features = _features(nodes, weights, path)
        weights["h"] = RNG.normal(0, 0.4, (3, features)).astype(np.float32)
        nodes.append(node("Gemm", ["f", "h"], ["y"], transB=1))
        saved(path, nodes, constants(**weights), (1, 8, 8, 3), opset=17)
        pixels = RNG.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
        try:
            found = run_float(load(path), pixels).reshape(4, 3)
        except ConvertError as error:
            assert "\n" not in str(error).strip() or "obstacles" in str(error)
            continue
        wanted = reference(path, pixels / 255.0)
        np.testing.assert_allclose(found, wanted, atol=2e-5 * max(1.0, np.abs(wanted).max()))
        said += 1
    assert said or middle in REFUSED, "one of them converts"


def test_a_causal_series_of_keras_and_its_last_moment(tmp_path: Path) -> None:
    """TCN by tf2onnx: zeros before a series with its channels last, a row of a map, of which one is read."""
    nodes = [
        node("Unsqueeze", ["x", "first"], ["u"]),
        node("Transpose", ["u"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w1"], ["c"]),
        node("Squeeze", ["c", "rows"], ["s"]),
        node("Transpose", ["s"], ["l"], perm=[0, 2, 1]),
        node("Pad", ["l", "before"], ["p"], "causal"),
        node("Unsqueeze", ["p", "first"], ["q"]),
        node("Transpose", ["q"], ["v"], perm=[0, 3, 1, 2]),
        node("Conv", ["v", "w2"], ["d"], dilations=[1, 2]),
        node("Squeeze", ["d", "rows"], ["e"]),
        node("Slice", ["e", "last", "end", "axis"], ["m"]),
        node("Squeeze", ["m", "axis"], ["f"]),
        node("MatMul", ["f", "w3"], ["y"]),
    ]
    sizes = (("w1", (5, 3, 1, 3)), ("w2", (6, 5, 1, 3)), ("w3", (6, 4)))
    arrays = {name: RNG.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes}
    arrays |= {"first": np.array([1]), "rows": np.array([2]), "before": np.array([0, 4, 0, 0, 0, 0])}
    arrays |= {"last": np.array([-1]), "end": np.array([1 << 31]), "axis": np.array([2])}
    series_of(nodes, arrays, tmp_path)


def test_a_choice_by_what_is_not_so(tmp_path: Path) -> None:
    """tf.where by tf2onnx: both maps times a comparison and its contrary."""
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Conv", ["x", "v"], ["d"]),
        node("Greater", ["c", "zero"], ["more"]),
        node("Not", ["more"], ["less"]),
        node("Cast", ["more"], ["a"], to=1),
        node("Cast", ["less"], ["b"], to=1),
        node("Mul", ["a", "c"], ["e"]),
        node("Mul", ["b", "d"], ["f"]),
        node("Add", ["e", "f"], ["g"]),
        node("GlobalAveragePool", ["g"], ["p"]),
        node("Flatten", ["p"], ["q"]),
        node("Gemm", ["q", "h"], ["y"], transB=1),
    ]
    sizes = (("w", (4, 3, 3, 3)), ("v", (4, 3, 3, 3)), ("h", (3, 4)))
    arrays = {name: RNG.normal(0, 0.5, shape).astype(np.float32) for name, shape in sizes}
    path = saved(tmp_path / "net.onnx", nodes, constants(**arrays, zero=np.float32(0)), (1, 3, 8, 8))
    pixels = RNG.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
    wanted = reference(path, pixels.transpose(0, 3, 1, 2) / 255.0)
    np.testing.assert_allclose(run_float(load(path), pixels).reshape(4, 3), wanted, atol=2e-5)


def maps_of_tflite() -> dict[str, Float]:
    """The same of TFLite, whose maps are always so: what takes an axis away, turns axes or views them."""
    found = {}
    for axis in (1, 2, 3):
        net, left = Float(8, 8, 3).conv(SIDE, 3, 3), [SIDE] * 2
        place = net.w.tensor("place", (), "int32", np.array(2))
        found[f"one of axis {axis}"] = net.op(
            "GATHER", (net.x, place), (1, *left), "GatherOptions", Axis=axis
        )
    for axes in ((0, 1, 3, 2), (0, 3, 2, 1), (0, 2, 1, 3)):
        net = Float(8, 8, 3).conv(SIDE, 3, 3)
        net.op("TRANSPOSE", (net.x, net.whole(*axes)), net.shape, "TransposeOptions")
        found[f"turned {axes}"] = net.op("RELU", (net.x,), net.shape)
    for shape in ((1, 12, 3, SIDE), (1, SIDE, 36), (1, 36, SIDE), (1, SIDE, SIDE, 2, 3)):
        found[f"as {shape}"] = Float(8, 8, 3).conv(SIDE, 3, 3).view(*shape)
    padded = Float(8, 8, 3).conv(SIDE, 3, 3)
    widths = padded.w.tensor("p", (4, 2), "int32", np.array([[0, 0], [1, 2], [0, 0], [0, 0]]))
    found["padded"] = padded.op("PAD", (padded.x, widths), (1, 9, SIDE, SIDE), "PadOptions")
    return found


PARTS = ("one of axis 1", "one of axis 2")  # some tokens, which a flat layer does not read
ENDS: dict[str, Callable[[Float], Float]] = {
    "flat": lambda net: net,
    "a bias for each of the last axis": lambda net: net.op(
        "ADD", (net.x, net.drawn(net.shape[-1])), net.shape, "AddOptions"
    ),
    "a bias for each of the last two": lambda net: net.op(
        "ADD", (net.x, net.drawn(*net.shape[-2:])), net.shape, "AddOptions"
    ),
    "a layer over the last axis": lambda net: net.linear(4, *net.shape[:-1]),
    "the mean over axis 1": lambda net: net.over("MEAN", 1),
    "the mean over axis 2": lambda net: net.over("MEAN", 2),
    "the mean over 2, the largest over 1": lambda net: net.over("MEAN", 2).over("REDUCE_MAX", 1),
    "a softmax": lambda net: net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("middle", maps_of_tflite())
def test_an_axis_of_tflite_is_that_of_the_file(middle: str, end: str, tmp_path: Path) -> None:
    net = ENDS[end](maps_of_tflite()[middle])
    path = net.view(1, int(np.prod(net.shape))).linear(3).file(tmp_path)
    pixels = RNG.integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
    wanted = interpreted(path, pixels)
    try:
        found = run_float(load(path), pixels).reshape(4, 3)
    except ConvertError as error:
        assert end != "flat" or middle in PARTS, error
        assert "damaged" not in str(error), error
        return
    np.testing.assert_allclose(found, wanted, atol=2e-5 * max(1.0, np.abs(wanted).max()))


def _features(nodes: list[Any], weights: dict[str, np.ndarray], path: Path) -> int:
    """How many numbers the last node makes."""
    body = [*nodes, node("Identity", ["f"], ["y"])]
    saved(path, body, constants(**weights), (1, 8, 8, 3), opset=17)
    return int(reference(path, RNG.random((1, 8, 8, 3))).size)
