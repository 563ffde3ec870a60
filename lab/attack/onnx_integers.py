"""Small ONNX files that compute with integers, as ONNX Runtime writes them: quantize_static() with QOperator,
and quantize_dynamic(), whose scales come with each sample."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RUNTIME = "com.microsoft"
CLASSES = 3
SHAPE = (2, 8, 8)
SCALES = {  # and zero points, as of uint8
    **{"x": (0.02, 100), "c": (0.03, 0), "d": (0.025, 120), "s": (1 / 256, 0), "g": (0.02, 30)},
    **{"a": (0.03, 70), "l": (0.03, 66), "t": (0.03, 60), "m": (0.02, 50), "p": (0.012, 55)},
    **{"h": (0.02, 90), "y": (0.04, 128)},
}


class _File:
    """Nodes and constants of a file."""

    def __init__(self, opset: int) -> None:
        self.opset, self.nodes, self.arrays = opset, list[Any](), list[Any]()
        self.rng = np.random.default_rng(3)

    def constant(self, name: str, value: Any) -> str:
        self.arrays.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, inputs: Iterable[str], output: str, **about: Any) -> str:
        domain = RUNTIME if op.startswith(("QLinear", "QGemm")) and op not in STANDARD else ""
        self.nodes.append(
            helper.make_node(op, list(inputs), [output], f"the_{output}", domain=domain, **about)
        )
        return output

    def saved(self, path: Path, dims: tuple[int, ...]) -> Path:
        entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, *dims))
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, CLASSES))
        graph = helper.make_graph(self.nodes, "g", [entry], [result], self.arrays)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(RUNTIME, 1)]
        path.write_bytes(helper.make_model(graph, opset_imports=opsets).SerializeToString())
        return path


STANDARD = ("QLinearConv", "QLinearMatMul")


def qoperators(path: Path, opset: int = 19, unsigned: bool = True) -> Path:
    """Every operator of QOperator in one network: weights with a scale for each channel or for all, biases of
    32 bits, a padding by the zero point and one by 0."""
    f, kind, less = _File(opset), np.uint8 if unsigned else np.int8, 0 if unsigned else 128
    for name, (scale, zero) in SCALES.items():
        f.constant(f"{name}_s", np.float32(scale))
        f.constant(f"{name}_z", kind(zero - less))

    def of(name: str, tensor: str = "") -> tuple[str, str, str]:
        return (tensor or f"{name}_q", f"{name}_s", f"{name}_z")

    def weight(name: str, shape: tuple[int, ...], scales: int) -> tuple[str, str, str]:
        f.constant(name, f.rng.integers(-127, 128, shape).astype(np.int8))
        scale = f.rng.uniform(0.004, 0.01, scales).astype(np.float32)
        f.constant(f"{name}_s", scale if scales > 1 else scale[0])
        f.constant(f"{name}_z", np.zeros(scales, np.int8) if scales > 1 else np.int8(0))
        return (name, f"{name}_s", f"{name}_z")

    def bias(name: str, size: int) -> str:
        return f.constant(name, f.rng.integers(-900, 900, size).astype(np.int32))

    pads = f.constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    f.node("QuantizeLinear", ("x", "x_s", "x_z"), "x_q")
    f.node("Pad", ("x_q", pads, f.constant("filled", kind(100 - less))), "x_p")
    both = (*of("x", "x_p"), *weight("w", (4, 2, 3, 3), 4), "c_s", "c_z", bias("b", 4))
    f.node("QLinearConv", both, "c_q")
    f.node("MaxPool", ("c_q",), "c_m", kernel_shape=[2, 2], strides=[2, 2])
    f.node("Pad", ("c_m", pads) if unsigned else ("c_m", pads, "c_z"), "c_p")
    own = (*of("c", "c_p"), *weight("v", (4, 1, 3, 3), 1), "d_s", "d_z")
    f.node("QLinearConv", own, "d_q", group=4)
    f.node("QLinearSigmoid", (*of("d"), "s_s", "s_z"), "s_q")
    f.node("QLinearMul", (*of("d"), *of("s"), "g_s", "g_z"), "g_q")
    f.node("QLinearAdd", (*of("g"), *of("c", "c_m"), "a_s", "a_z"), "a_q")
    f.node("QLinearLeakyRelu", (*of("a"), "l_s", "l_z"), "l_q", alpha=0.125)
    f.node("QLinearConcat", ("t_s", "t_z", *of("l"), *of("c", "c_m")), "t_q", axis=1)
    f.node("QLinearAveragePool", (*of("t"), "m_s", "m_z"), "m_q", kernel_shape=[2, 2], strides=[2, 2])
    f.node("QLinearGlobalAveragePool", (*of("m"), "p_s", "p_z"), "p_q")
    f.node("Flatten", ("p_q",), "p_f")
    f.node("QLinearMatMul", (*of("p", "p_f"), *weight("u", (8, 6), 6), "h_s", "h_z"), "h_q")
    last = (*of("h"), *weight("k", (CLASSES, 6), CLASSES), bias("e", CLASSES), "y_s", "y_z")
    f.node("QGemm", last, "y_q", transB=1, alpha=0.5)
    f.node("DequantizeLinear", of("y"), "y")
    return f.saved(path, SHAPE)


def dynamic(path: Path, opset: int = 17) -> Path:
    """A convolution and a matrix whose inputs are scaled as they come."""
    f = _File(opset)

    def product(op: str, x: str, shape: tuple[int, ...], y: str) -> str:
        weight = f.constant(f"{y}_w", f.rng.integers(0, 256, shape).astype(np.uint8))
        scale, zero = f.constant(f"{y}_s", np.float32(0.01)), f.constant(f"{y}_z", np.uint8(120))
        parts = [f"{x}_{part}" for part in ("q", "scale", "zero")]
        f.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts, f"the_{x}_q"))
        f.node(op, (parts[0], weight, parts[2], zero), f"{y}_i")
        f.node("Cast", (f"{y}_i",), f"{y}_c", to=TensorProto.FLOAT)
        return f.node("Mul", (f"{y}_c", f.node("Mul", (parts[1], scale), f"{y}_u")), y)

    product("ConvInteger", "x", (4, 2, 3, 3), "c")
    f.node("Add", ("c", f.constant("b", f.rng.normal(0, 0.3, (1, 4, 1, 1)).astype(np.float32))), "d")
    f.node("Relu", ("d",), "r")
    f.node("GlobalAveragePool", ("r",), "p")
    f.node("Flatten", ("p",), "l")
    product("MatMulInteger", "l", (4, CLASSES), "y")
    return f.saved(path, SHAPE)
