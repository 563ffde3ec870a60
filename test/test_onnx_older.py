"""ONNX files of opsets 7 to 12, as PyTorch, Keras and PaddlePaddle wrote them for years."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from test_model_copy import Session
from test_onnx import constants, export, refusal, saved
from torch_networks import NETWORKS, images_for, randomise, torch_logits

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import Graph
from microtrain.convert.verify import verify

SHAPE = (1, 3, 6, 5)


def load(path: Path) -> Graph:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verify(load_model(path).graph)


@pytest.mark.parametrize("opset", [9, 10, 11, 12])
@pytest.mark.parametrize("name", NETWORKS)
def test_pytorchs_export_has_pytorchs_values(name: str, opset: int, tmp_path: Path) -> None:
    net = randomise(NETWORKS[name](), 7)
    images = images_for(net, 4, 1)
    found = run_float(load(export(net, tmp_path / "net.onnx", opset)), images)
    wanted = torch_logits(net, images)
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-4)


def convolved(*nodes: Any) -> list[Any]:
    """Nodes from y to z behind a convolution, and a linear layer over what they make of a map."""
    ends = [
        helper.make_node("Flatten", ["z"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "m", "c"], ["out"], transB=1),
    ]
    first = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return [first, *nodes, *ends]


def by(op: str, inputs: str = "y", outputs: str = "z", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _softmax(x: np.ndarray) -> np.ndarray:
    """Over all axes from the second on, as it was before opset 13."""
    e = np.exp(x.reshape(len(x), -1) - x.max())
    return np.asarray((e / e.sum(1, keepdims=True)).reshape(x.shape))


def _between(x: np.ndarray) -> np.ndarray:
    """Twice as large, between neighbours from the first pixel on: what is behind the last is it."""
    for axis in (2, 3):
        last = x.take([-1], axis)
        halves = (x + np.concatenate([np.delete(x, 0, axis), last], axis)) / 2
        shape = [n * (2 if at == axis else 1) for at, n in enumerate(x.shape)]
        x = np.stack([x, halves], axis + 1).reshape(shape)
    return x


def _upsampled(x: np.ndarray) -> np.ndarray:
    return x.repeat(2, 2).repeat(2, 3)


# name -> opset, nodes, constants beside those of the layers, how many numbers z has, what it is of y
FORMS: dict[str, tuple[int, list[Any], dict[str, np.ndarray], int, Any]] = {
    "Clip": (9, [by("Clip", min=-0.2, max=0.5)], {}, 120, lambda y: y.clip(-0.2, 0.5)),
    "Pad": (
        10,
        [by("Pad", pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="constant", value=0.0)],
        {},
        224,
        lambda y: np.pad(y, ((0, 0), (0, 0), (1, 0), (2, 1))),
    ),
    "Slice": (9, [by("Slice", axes=[2], starts=[1], ends=[5])], {}, 80, lambda y: y[:, :, 1:5]),
    "Upsample": (
        9,
        [by("Upsample", "y s", mode="nearest")],
        {"s": np.array([1, 1, 2, 2], np.float32)},
        480,
        _upsampled,
    ),
    "Upsample, linear": (
        9,
        [by("Upsample", "y s", mode="linear")],
        {"s": np.array([1, 1, 2, 2], np.float32)},
        480,
        _between,
    ),
    "Resize to fewer": (
        10,
        [by("Resize", "y s", mode="nearest")],
        {"s": np.array([1, 1, 0.5, 0.6], np.float32)},
        36,
        lambda y: y[:, :, [0, 2, 4]][:, :, :, [0, 1, 3]],
    ),
    "Resize": (
        10,
        [by("Resize", "y s", mode="nearest")],
        {"s": np.array([1, 1, 2, 2], np.float32)},
        480,
        _upsampled,
    ),
    "ReduceMean": (11, [by("ReduceMean", axes=[2, 3])], {}, 4, lambda y: y.mean((2, 3))),
    "ReduceSum": (11, [by("ReduceSum", axes=[2, 3])], {}, 4, lambda y: y.sum((2, 3))),
    "Dropout": (11, [by("Dropout", ratio=0.5)], {}, 120, lambda y: y),
    "Squeeze": (
        11,
        [by("GlobalAveragePool", "y", "p"), by("Squeeze", "p", "z", axes=[3])],
        {},
        4,
        lambda y: y.mean((2, 3)),
    ),
    "Unsqueeze": (
        11,
        [
            by("ReduceMean", "y", "p", axes=[2, 3], keepdims=0),
            by("Unsqueeze", "p", "u", axes=[2, 3]),
            by("Mul", "y u"),
        ],
        {},
        120,
        lambda y: y * y.mean((2, 3), keepdims=True),
    ),
    "Split": (
        11,
        [by("Split", "y", "a b", axis=1, split=[1, 3]), by("Concat", "b a", axis=1)],
        {},
        120,
        lambda y: np.concatenate([y[:, 1:], y[:, :1]], 1),
    ),
    "Softmax": (
        11,
        [by("GlobalAveragePool", "y", "p"), by("Softmax", "p", "s"), by("Mul", "y s")],
        {},
        120,
        lambda y: y * _softmax(y.mean((2, 3), keepdims=True)),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_was_said_otherwise(name: str, tmp_path: Path) -> None:
    """Attributes that are inputs today, and operators of another name or meaning."""
    opset, nodes, given, numbers, meaning = FORMS[name]
    rng = np.random.default_rng(1)
    w, m = rng.normal(0, 0.4, (4, 3, 3, 3)), rng.normal(0, 0.3, (3, numbers))
    about = {"w": w.astype(np.float32), "m": m.astype(np.float32), "c": np.ones(3, np.float32)}
    arrays = constants(**about, **given)
    graph = load(saved(tmp_path / "net.onnx", convolved(*nodes), arrays, SHAPE, outputs=["out"], opset=opset))
    images = rng.integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
    padded = np.pad(images.transpose(0, 3, 1, 2) / 255.0, ((0, 0), (0, 0), (1, 1), (1, 1)))
    taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", taps, w.astype(np.float32).astype(np.float64))
    wanted = meaning(y).reshape(4, -1) @ m.astype(np.float32).T + 1
    np.testing.assert_allclose(run_float(graph, images).reshape(4, 3), wanted, rtol=1e-3, atol=1e-4)


def test_it_is_said_once(tmp_path: Path) -> None:
    path = export(randomise(NETWORKS["mobilenet"](), 7), tmp_path / "net.onnx", 11)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        load_model(path)
    assert [str(w.message) for w in said] == ["net.onnx is of opset 11; it is read as one of 13"]


@pytest.mark.parametrize("classes", [5, 7])
def test_what_is_learned_goes_into_a_newer_copy(classes: int, tmp_path: Path) -> None:
    path = export(randomise(NETWORKS["mobilenet"](), 7), tmp_path / "net.onnx", 11)
    session = Session(path, classes, rate=0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.copy(tmp_path / "out.onnx")
    written = onnx.load(str(tmp_path / "out.onnx"))
    assert [o.version for o in written.opset_import] == [13]
    run = ReferenceEvaluator(written)
    name, samples = run.input_names[0], session.images.transpose(0, 3, 1, 2) / 255.0
    answers: list[Any] = [run.run(None, {name: x[None].astype(np.float32)}) for x in samples]
    found = np.concatenate([made[0] for made in answers])
    wanted = session.logits()
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.98


def test_what_cannot_be_made_newer_is_a_sentence(tmp_path: Path) -> None:
    path, relu = tmp_path / "net.onnx", [by("Relu", "x", "y")]
    assert "is of opset 6; 13 to 22 are supported" in refusal(saved(path, relu, [], [1, 4], opset=6))
    assert "is of opset 9, and cannot be made newer (" in refusal(
        saved(path, [by("Relu", "nowhere", "y")], [], [1, 4], opset=9)
    )
    apart = TensorProto(name="m", data_type=TensorProto.FLOAT, dims=[4, 4])
    apart.data_location = TensorProto.EXTERNAL
    apart.external_data.add(key="location", value="weights.bin")
    sentence = refusal(saved(path, [by("MatMul", "x m", "y")], [apart], [1, 4], opset=11))
    assert "is of opset 11 and has weights in a file beside it; 13 to 22" in sentence
