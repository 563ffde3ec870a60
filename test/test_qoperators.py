"""ONNX files that compute with integers: the numbers of their operators, each worked out by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from test_model_copy import Session, agree
from test_onnx import refusal, saved

from lab.attack.onnx_integers import CLASSES, RUNTIME, SCALES, SHAPE, dynamic, qoperators
from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.quantize.int8 import quantize

UNIT = SCALES["y"][0]
Array = np.ndarray


def number(x: Array, scale: Array, zero: Array) -> Array:
    return np.asarray((x.astype(np.float64) - zero.astype(np.float64)) * scale)


def coded(x: Array, scale: Array, zero: Array) -> Array:
    kind = np.iinfo(zero.dtype)
    return np.asarray(np.clip(np.rint(x / scale) + zero, kind.min, kind.max), zero.dtype)


def operator(name: str, run: Callable[..., Array]) -> type:
    """One of ONNX Runtime's own operators, for ONNX's evaluator."""
    return type(name, (OpRun,), {"op_domain": RUNTIME, "_run": lambda self, *x, **about: (run(*x, **about),)})


def averaged(x: Array, size: int) -> Array:
    n, c, h, w = x.shape
    return np.asarray(x.reshape(n, c, h // size, size, w // size, size).mean((3, 5)))


def gemm(*x: Array, transB: int = 0, alpha: float = 1.0) -> Array:
    a, sa, za, b, sb, zb, bias, sy, zy = x
    products = (a.astype(int) - za) @ (b.astype(int).T - zb)
    return coded(alpha * (products + bias) * sa * sb, sy, zy)


OPERATORS = [
    operator("QLinearAdd", lambda *x: coded(number(*x[:3]) + number(*x[3:6]), *x[6:])),
    operator("QLinearMul", lambda *x: coded(number(*x[:3]) * number(*x[3:6]), *x[6:])),
    operator("QLinearSigmoid", lambda *x: coded(1 / (1 + np.exp(-number(*x[:3]))), *x[3:])),
    operator("QLinearLeakyRelu", lambda *x, alpha: coded(np.maximum(v := number(*x[:3]), alpha * v), *x[3:])),
    operator(
        "QLinearConcat",
        lambda *x, axis: coded(
            np.concatenate([number(*x[i : i + 3]) for i in range(2, len(x), 3)], axis), *x[:2]
        ),
    ),
    operator("QLinearAveragePool", lambda *x, **_: coded(averaged(number(*x[:3]), 2), *x[3:])),
    operator(
        "QLinearGlobalAveragePool", lambda *x, **_: coded(number(*x[:3]).mean((2, 3), keepdims=True), *x[3:])
    ),
    operator("QGemm", gemm),
]


def expected(path: Path, x: Array) -> Array:
    run: Any = ReferenceEvaluator(str(path), new_ops=OPERATORS)
    return np.concatenate([run.run(None, {"x": each[None].astype(np.float32)})[0] for each in x])


@pytest.mark.filterwarnings("ignore:.*computes with integers")
@pytest.mark.parametrize("unsigned", [True, False])
def test_a_file_of_integers_answers_as_its_operators(unsigned: bool, tmp_path: Path) -> None:
    path = qoperators(tmp_path / "net.onnx", unsigned=unsigned)
    graph = quantize(load_model(path).graph, {})
    stored = np.random.default_rng(6).integers(0, 256, (40, *SHAPE[1:], SHAPE[0])).astype(np.uint8)
    scale, zero = SCALES["x"]
    wanted = expected(path, (stored.transpose(0, 3, 1, 2).astype(np.float64) - zero) * scale)
    zero = SCALES["y"][1]
    ends = (-zero * UNIT, (255 - zero) * UNIT)
    found = np.clip(np.rint(run_int8(graph, stored).reshape(40, CLASSES) / UNIT) * UNIT, *ends)
    assert np.abs(found - wanted).max() <= 1.01 * UNIT
    assert (np.abs(found - wanted) < 0.01 * UNIT).mean() > 0.8 and len(np.unique(wanted)) > 20


@pytest.mark.filterwarnings("ignore:.*computes with integers")
def test_older_files_are_read_as_well(tmp_path: Path) -> None:
    """Of opset 12, which ONNX's own converter makes newer first."""
    now, older = (qoperators(tmp_path / f"of{opset}.onnx", opset) for opset in (19, 12))
    with pytest.warns(UserWarning, match="is of opset 12"):
        found = load_model(older).graph
    stored = np.random.default_rng(6).integers(0, 256, (9, *SHAPE[1:], SHAPE[0])).astype(np.uint8)
    a, b = (run_int8(quantize(g, {}), stored) for g in (load_model(now).graph, found))
    np.testing.assert_array_equal(a, b)


def test_scales_that_come_with_a_sample_leave_floats(tmp_path: Path) -> None:
    path = dynamic(tmp_path / "net.onnx")
    with pytest.warns(UserWarning, match="ConvInteger, DynamicQuantizeLinear, MatMulInteger"):
        loaded = load_model(path)
    pixels = np.random.default_rng(1).integers(0, 256, (20, *SHAPE[1:], SHAPE[0])).astype(np.uint8)
    wanted = expected(path, pixels.transpose(0, 3, 1, 2) / 255.0)
    found = run_float(loaded.graph, pixels).reshape(20, CLASSES)
    assert np.abs(found - wanted).max() < 0.02 * np.ptp(wanted), "what rounding each sample costs"
    held = {t.name: numpy_helper.to_array(t).astype(int) for t in onnx.load(str(path)).graph.initializer}
    weights = (held["y_w"] - held["y_z"]).T * 0.01
    np.testing.assert_allclose(loaded.graph.layers["the_y_i"].weight.reshape(weights.shape), weights, 1e-6)


@pytest.mark.filterwarnings("ignore:.*computes with integers")
@pytest.mark.parametrize("make", [qoperators, dynamic])
def test_what_is_trained_goes_back_in_numbers(make: Callable[[Path], Path], tmp_path: Path) -> None:
    session = Session(make(tmp_path / "model.onnx"), CLASSES)
    session.copy(tmp_path / "out.onnx")
    run: Any = ReferenceEvaluator(str(tmp_path / "out.onnx"))
    x = session.images.transpose(0, 3, 1, 2)
    scale, zero = SCALES["x"] if make is qoperators else (1 / 255, 0)
    real = ((x.astype(np.float64) - zero) * scale).astype(np.float32)
    found = np.concatenate([run.run(None, {"x": each[None]})[0] for each in real])
    agree(found, session.logits(), 0.1 * np.abs(session.logits()).max())


NODE = helper.make_node
ENDS = [NODE("DequantizeLinear", ["r", "s", "z"], ["y"])]
BEGINS = [NODE("QuantizeLinear", ["x", "s", "z"], ["q"])]
POOL = NODE(
    "QLinearGlobalAveragePool", ["q", "s", "z", "s", "z"], ["r"], "p", domain=RUNTIME, channels_last=1
)
REFUSED = {
    "padding": (
        [*BEGINS, NODE("Pad", ["q", "pads"], ["r"], "wider"), *ENDS],
        "layer wider: padding with -0.3 is not",
    ),
    "numbers": ([*BEGINS, NODE("Relu", ["q"], ["r"], "act"), *ENDS], "layer act: Relu of integers is not"),
    "channels last": ([*BEGINS, POOL, *ENDS], "layer p: QLinearGlobalAveragePool with its channels last"),
    "whose": ([NODE("ConvInteger", ["x", "w"], ["y"], "c")], "layer c: ConvInteger is supported behind"),
    "computed": (
        [
            *BEGINS,
            NODE("Abs", ["s"], ["t"]),
            NODE("QLinearConv", ["q", "t", "z", "w", "s", "z", "s", "z", "b"], ["r"], "c"),
            *ENDS,
        ],
        "t is computed; make scales and weights constants",
    ),
    "joined": (
        [
            *BEGINS,
            NODE("QuantizeLinear", ["x", "u", "z"], ["v"]),
            NODE("Concat", ["q", "v"], ["r"], "both", axis=1),
            *ENDS,
        ],
        "layer both: Concat of integers is not supported",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_integers_for_numbers_is_a_sentence(name: str, tmp_path: Path) -> None:
    nodes, sentence = REFUSED[name]
    arrays = {"s": np.float32(0.1), "u": np.float32(0.2), "z": np.uint8(3), "b": np.zeros(2, np.int32)}
    arrays |= {"w": np.zeros((2, 2, 1, 1), np.int8), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    constants = [numpy_helper.from_array(np.asarray(a), key) for key, a in arrays.items()]
    assert sentence in refusal(saved(tmp_path / "net.onnx", nodes, constants, (1, 2, 4, 4)))
