"""Quantized ONNX files with floats in between, as ONNX Runtime leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper
from test_onnx import constants, reference, saved

from microtrain.convert.execute.batched import run_int8
from microtrain.convert.frontends.clean.known_scales import with_known_scales
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph, Input, Layer, Node, Source, Tensor, Window
from microtrain.convert.normalisation import as_stored
from microtrain.convert.ops.functions import ACTIVATIONS, POWER, SIGMOID
from microtrain.convert.quantize.int8 import quantize

SCALES = {"x": (0.02, -8), "v": (0.03, 5), "e": (2 / 255, 0), "s": (2 / 255, -128), "m": (0.03, -90)}
SCALES |= {"g": (0.02, -110), "c": (0.02, -70), "p": (0.008, 0), "y": (0.02, 9)}


def with_floats_between(folder: Path) -> Path:
    """A GELU in pieces, all but its first one quantized, and a hyperbolic tangent that is not, beside a map
    that is, in a concatenation."""
    rng, nodes, arrays = np.random.default_rng(2), [], []
    for name, (scale, zero) in SCALES.items():
        arrays += constants(**{f"{name}_s": np.float32(scale), f"{name}_z": np.int8(zero)})
    for name, number in (("one", 1.0), ("half", 0.5)):
        own = {name: np.int8(127), f"{name}_s": np.float32(number / 127), f"{name}_z": np.int8(0)}
        arrays += constants(**own)
        nodes.append(helper.make_node("DequantizeLinear", list(own), [f"{name}_d"]))
    arrays += constants(
        w=rng.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32),
        h=rng.normal(0, 0.5, (3, 8)).astype(np.float32),
        root=np.float32(2**0.5),
    )

    def made(name: str, op: str, *inputs: str, coded: bool = True, **about: Any) -> str:
        """A step, and its two nodes behind it."""
        nodes.append(helper.make_node(op, inputs, [name], name, **about))
        if not coded:
            return name
        quantization = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *quantization], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *quantization], [f"{name}_d"]))
        return f"{name}_d"

    quantization = ["x_s", "x_z"]
    nodes.append(helper.make_node("QuantizeLinear", ["x", *quantization], ["x_q"]))
    nodes.append(helper.make_node("DequantizeLinear", ["x_q", *quantization], ["x_d"]))
    v = made("v", "Conv", "x_d", "w", pads=[1, 1, 1, 1])
    e = made("e", "Erf", made("d", "Div", v, "root", coded=False))
    g = made("g", "Mul", made("m", "Mul", v, made("s", "Add", e, "one_d")), "half_d")
    both = made("c", "Concat", g, made("t", "Tanh", v, coded=False), axis=1)
    p = made("p", "GlobalAveragePool", both)
    made("y", "Gemm", made("f", "Flatten", p, coded=False), "h", transB=1)
    return saved(folder / "between.onnx", nodes, arrays, [1, 2, 6, 6], outputs=["y_d"], opset=19)


def test_floats_between_need_no_calibration(tmp_path: Path) -> None:
    path = with_floats_between(tmp_path)
    graph = quantize(load_model(path).graph, {})
    assert [n.op in ACTIVATIONS for n in graph.nodes[:4]] == [False, True, True, False], "a GELU is one op"
    stored = np.random.default_rng(6).integers(0, 256, (40, 6, 6, 2)).astype(np.uint8)
    real = (stored.astype(np.float64) - 128 + 8) * 0.02
    wanted = reference(path, real.transpose(0, 3, 1, 2))
    found = run_int8(graph, stored).reshape(40, 3)
    assert np.abs(found - wanted).max() <= 0.0401 and len(np.unique(wanted)) > 20, "two units"


def test_an_average_has_the_scale_of_the_file(tmp_path: Path) -> None:
    """Behind a function that has none there: the scale of that was taken, 16 steps in the place of 255."""
    rng, arrays, nodes = np.random.default_rng(2), [], []
    for name, (scale, zero) in {
        "x": (0.02, -8),
        "v": (0.02, 5),
        "p": (0.0005, -100),
        "y": (0.0005, 3),
    }.items():
        arrays += constants(**{f"{name}_s": np.float32(scale), f"{name}_z": np.int8(zero)})
    arrays += constants(
        w=rng.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32), h=rng.normal(0, 0.5, (3, 4)).astype(np.float32)
    )

    def coded(name: str, made: str) -> str:
        by = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [made, *by], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *by], [f"{name}_d"]))
        return f"{name}_d"

    nodes.append(helper.make_node("Conv", [coded("x", "x"), "w"], ["v"], pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Tanh", [coded("v", "v")], ["t"]))
    nodes.append(helper.make_node("GlobalAveragePool", ["t"], ["p"]))
    nodes.append(helper.make_node("Flatten", [coded("p", "p")], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", "h"], ["y"], transB=1))
    path = saved(tmp_path / "net.onnx", nodes, arrays, [1, 2, 6, 6], outputs=[coded("y", "y")], opset=19)
    graph = quantize(load_model(path).graph, {})
    means = graph.tensors[graph.nodes[-1].inputs[0]]
    assert (means.scale, means.zero) == (float(np.float32(0.0005)), -100)


def test_of_a_reciprocal_the_values_say_nothing() -> None:
    """Those around 0 would make the range, and nothing would be left of the others."""
    for op, factors, known in ((SIGMOID, (), True), (POWER, (-1.0, 1.0), False)):
        tensors = {"v": Tensor("v", (1, 1, 4), given=(0.01, -3)), "y": Tensor("y", (1, 1, 4))}
        nodes = (Node(op, "f", ("v",), ("y",), factors=factors),)
        graph = Graph(
            "g", Input("x", (1.0,), (0.0,)), "y", tensors | {"x": Tensor("x", (1, 1, 1))}, nodes, {}
        )
        assert (with_known_scales(graph).tensors["y"].given is not None) == known


def test_what_has_the_other_sign_has_the_mirrored_zero() -> None:
    """So that each of the 256 values has one."""
    weight, none = -np.ones((4, 1, 1), np.float32), np.zeros(4, np.float32)
    x, y = Tensor("x", (1, 1, 4), given=(0.01, -3)), Tensor("y", (1, 1, 4))
    nodes = (Node("dwconv2d", "f", ("x",), ("y",), layer="f", window=Window(1, 1)),)
    graph = Graph(
        "g",
        Input("x", (1.0,) * 4, (0.0,) * 4),
        "y",
        {"x": x, "y": y},
        nodes,
        {"f": Layer(weight, none, Source(""))},
    )
    assert with_known_scales(graph).tensors["y"].given == (0.01, 2)
    stored = np.arange(256, dtype=np.uint8).reshape(64, 1, 1, 4)
    made = run_int8(
        quantize(with_known_scales(graph).replace(input=as_stored(0.01, -3, 4).behind(graph.input)), {}),
        stored,
    )
    np.testing.assert_array_equal(made.ravel(), 127 - stored.ravel().astype(int))
