"""The ONNX front end: exports of PyTorch and scikit-learn, NHWC graphs, QDQ, and bad files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import damaged
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch_networks import NETWORKS, images_for, randomise, torch_logits

from microtrain.convert.execute.batched import run_float, run_int8
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.verify import verify


def export(net: torch.nn.Module, path: Path, opset: int = 17) -> Path:
    """PyTorch's own export."""
    shape: tuple[int, ...] = net.shape  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(1, *shape),), str(path), opset_version=opset, dynamo=False)
    return path


def load(path: Path) -> Graph:
    return verify(load_model(path).graph)


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("name", NETWORKS)
def test_pytorchs_export_has_pytorchs_values(name: str, opset: int, tmp_path: Path) -> None:
    net = randomise(NETWORKS[name](), seed=3)
    images = images_for(net, 4, seed=4)
    expected = torch_logits(net, images)
    found = run_float(load(export(net, tmp_path / "net.onnx", opset)), images)
    assert np.abs(found - expected).max() / np.abs(expected).max() < 1e-5


def constants(**arrays: Any) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]


def saved(
    path: Path,
    nodes: Sequence[Any],
    arrays: Sequence[TensorProto],
    dims: Sequence[Any],
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> Path:
    """A file of these nodes; its input is x, float."""
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph(nodes, "g", [entry], results, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    path.write_bytes(model.SerializeToString())
    return path


def reference(path: Path, x: np.ndarray) -> np.ndarray:
    """What ONNX's own evaluator makes of a batch, sample by sample."""
    run = ReferenceEvaluator(str(path))
    outputs: list[Any] = [run.run(None, {run.input_names[0]: each[None].astype(np.float32)}) for each in x]
    return np.concatenate([made[0] for made in outputs])


def keras_like(folder: Path) -> Path:
    """As tf2onnx writes Keras: an NHWC input that is turned, a flatten in that order, MatMul and Add."""
    rng = np.random.default_rng(0)
    arrays = constants(
        w=rng.normal(0, 0.4, (5, 2, 3, 3)).astype(np.float32),
        b=rng.normal(0, 0.4, 5).astype(np.float32),
        m=rng.normal(0, 0.3, (60, 4)).astype(np.float32),
        c=rng.normal(0, 0.3, 4).astype(np.float32),
        shape=np.array([-1, 60]),
    )
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w", "b"], ["v"], strides=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["v"], ["r"]),
        helper.make_node("Transpose", ["r"], ["u"], perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["u", "shape"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Add", ["g", "c"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    return saved(folder / "keras.onnx", nodes, arrays, ["batch", 6, 7, 2])


def softmaxed(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def test_nhwc_graph_of_keras(tmp_path: Path) -> None:
    path = keras_like(tmp_path)
    graph = load(path)
    assert graph.tensors[graph.input.tensor].shape == (6, 7, 2)
    images = np.random.default_rng(1).integers(0, 256, (5, 6, 7, 2)).astype(np.uint8)
    found = softmaxed(run_float(graph, images).reshape(5, 4))
    np.testing.assert_allclose(found, reference(path, images / 255.0), atol=1e-5)
    assert graph.layers["MatMul_5"].source.bias == "c", "what is added behind a product is its bias"


def test_scikit_learns_mlp(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    neural = pytest.importorskip("sklearn.neural_network", reason="scikit-learn is not installed")
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 1, (80, 6)).astype(np.float32)
    labels = (x[:, 0] > x[:, 1]).astype(int) + (x[:, 2] > 0.5)
    for classes, y in ((3, labels), (2, labels > 0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = neural.MLPClassifier((7,), max_iter=20, random_state=0).fit(x, y)
            made = skl2onnx.to_onnx(model, x[:1], options={"zipmap": False}, target_opset=15)
        path = tmp_path / "mlp.onnx"
        path.write_bytes(made.SerializeToString())
        pixels = np.rint(x * 255).astype(np.uint8).reshape(80, 1, 1, 6)
        found = run_float(load(path), pixels).reshape(80, -1)
        wanted = model.predict_proba(np.rint(x * 255) / 255.0)
        if classes == 3:
            np.testing.assert_allclose(softmaxed(found), wanted, atol=1e-4)
        else:
            np.testing.assert_allclose(1 / (1 + np.exp(-found[:, 0])), wanted[:, 1], atol=1e-4)


def test_scikit_learns_scaler_is_the_networks_own(tmp_path: Path) -> None:
    """StandardScaler in front of an MLP, as a pipeline has it: features of other sizes."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    neural = pytest.importorskip("sklearn.neural_network", reason="scikit-learn is not installed")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pixels = np.random.default_rng(2).integers(0, 256, (80, 1, 1, 3)).astype(np.uint8)
    x = (pixels.reshape(80, 3) / 255.0).astype(np.float32)
    model = make_pipeline(StandardScaler(), neural.MLPRegressor(hidden_layer_sizes=(7,), max_iter=20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x * np.array([1.0, 0.1, 3.0], np.float32), x[:, 0] - x[:, 1])
        made = skl2onnx.to_onnx(model, x[:1], target_opset=15)
    (tmp_path / "mlp.onnx").write_bytes(made.SerializeToString())
    graph = load(tmp_path / "mlp.onnx")
    assert len(set(graph.input.gain)) == 3 and [n.op for n in graph.nodes] == ["conv2d", "head"]
    np.testing.assert_allclose(run_float(graph, pixels).ravel(), model.predict(x), atol=1e-4)


def test_series_and_gate(tmp_path: Path) -> None:
    """A one-dimensional network with a gate that is a SiLU, and a mean over time."""
    rng = np.random.default_rng(3)
    arrays = constants(
        w=rng.normal(0, 0.4, (6, 3, 5)).astype(np.float32),
        v=rng.normal(0, 0.4, (6, 1, 3)).astype(np.float32),
        m=rng.normal(0, 0.3, (4, 6)).astype(np.float32),
        c=rng.normal(0, 0.3, 4).astype(np.float32),
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[2, 2], strides=[2]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Mul", ["a", "s"], ["g"]),
        helper.make_node("Conv", ["g", "v"], ["d"], group=6, pads=[0, 1]),
        helper.make_node("MaxPool", ["d"], ["p"], kernel_shape=[2], strides=[2]),
        helper.make_node("GlobalAveragePool", ["p"], ["q"]),
        helper.make_node("Flatten", ["q"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "c"], ["y"], transB=1),
    ]
    path = saved(tmp_path / "series.onnx", nodes, arrays, [1, 3, 20])
    graph = load(path)
    assert [n.op for n in graph.nodes] == ["conv2d", "silu", "dwconv2d", "maxpool", "avgpool", "head"]
    images = np.random.default_rng(4).integers(0, 256, (5, 20, 1, 3)).astype(np.uint8)
    samples = (images / 255.0)[:, :, 0].transpose(0, 2, 1)
    np.testing.assert_allclose(run_float(graph, images).reshape(5, 4), reference(path, samples), atol=1e-5)


def test_a_gate_that_is_turned_round_is_no_end(tmp_path: Path) -> None:
    """`1 - s` was once taken for scikit-learn's probabilities, and the network cut off there."""
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Sub", ["one", "s"], ["g"]),
        helper.make_node("Mul", ["a", "g"], ["m"]),
        helper.make_node("GlobalAveragePool", ["m"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["y"], transB=1),
    ]
    drawn = {"w": rng.normal(0, 0.5, (5, 2, 1, 1)), "v": rng.normal(0, 0.5, (3, 5))}
    arrays = constants(one=np.float32(1), **{name: a.astype(np.float32) for name, a in drawn.items()})
    path = saved(tmp_path / "gate.onnx", nodes, arrays, (1, 2, 6, 4))
    images = rng.integers(0, 256, (1, 6, 4, 2)).astype(np.uint8)
    pixels = (images.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    np.testing.assert_allclose(
        run_float(load(path), images).reshape(1, 3), reference(path, pixels), atol=1e-5
    )


def quantized_file(folder: Path) -> Path:
    """QDQ as ONNX Runtime writes it: uint8 activations, int8 weights with a scale a channel, int32 biases."""
    rng = np.random.default_rng(5)
    scales = {"x": (0.02, 100), "r": (0.03, 0), "p": (0.011, 0), "y": (0.05, 130)}
    arrays, nodes = [], []
    for name, (scale, zero) in scales.items():
        arrays += constants(**{f"{name}_s": np.float32(scale), f"{name}_z": np.uint8(zero)})
    weight = rng.integers(-127, 128, (4, 2, 3, 3)).astype(np.int8)
    sw = rng.uniform(0.002, 0.01, 4).astype(np.float32)
    head = rng.integers(-127, 128, (3, 4)).astype(np.int8)
    arrays += constants(w=weight, w_s=sw, w_z=np.zeros(4, np.int8), h=head, h_s=np.float32(0.01))
    arrays += constants(
        h_z=np.int8(0), b=rng.integers(-900, 900, 4).astype(np.int32), b_s=sw * np.float32(0.02)
    )
    arrays += constants(b_z=np.zeros(4, np.int32), c=rng.normal(0, 0.2, 3).astype(np.float32))

    def coded(name: str, made: str) -> str:
        """Behind a tensor its two nodes."""
        quantization = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [made, *quantization], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *quantization], [f"{name}_d"]))
        return f"{name}_d"

    x = coded("x", "x")
    nodes.append(helper.make_node("DequantizeLinear", ["w", "w_s", "w_z"], ["w_d"], axis=0))
    nodes.append(helper.make_node("DequantizeLinear", ["b", "b_s", "b_z"], ["b_d"], axis=0))
    nodes.append(helper.make_node("DequantizeLinear", ["h", "h_s", "h_z"], ["h_d"]))
    nodes.append(helper.make_node("Conv", [x, "w_d", "b_d"], ["v"], pads=[1, 1, 1, 1], strides=[2, 2]))
    nodes.append(helper.make_node("Relu", ["v"], ["r0"]))
    r = coded("r", "r0")
    nodes.append(helper.make_node("GlobalAveragePool", [r], ["p0"]))
    p = coded("p", "p0")
    nodes.append(helper.make_node("Flatten", [p], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", "h_d", "c"], ["y0"], transB=1))
    return saved(folder / "qdq.onnx", nodes, arrays, [1, 2, 6, 6], outputs=[coded("y", "y0")], opset=19)


def test_qdq_file_keeps_its_integers(tmp_path: Path) -> None:
    path = quantized_file(tmp_path)
    loaded = load_model(path)
    graph = quantize(loaded.graph, {})
    assert [n.op for n in graph.nodes] == ["conv2d", "dwconv2d", "head"], "the mean has a scale of its own"
    held = {a.name: numpy_helper.to_array(a) for a in onnx.load(str(path)).graph.initializer}
    first, last = graph.layers["Conv_5"], graph.layers["Gemm_13"]
    np.testing.assert_array_equal(first.weight, held["w"].transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(first.bias, held["b"])
    np.testing.assert_array_equal(np.float32(last.weight_scale), np.full(3, held["h_s"]))
    stored = np.random.default_rng(6).integers(0, 256, (12, 6, 6, 2)).astype(np.uint8)
    real = (stored.astype(np.float64) - 100) * 0.02
    wanted = reference(path, real.transpose(0, 3, 1, 2))
    found = np.rint(run_int8(graph, stored).reshape(12, 3) / 0.05) * 0.05
    assert np.abs(found - wanted).max() <= 0.0501, "one unit"
    assert len(np.unique(wanted)) > 8, "the logits say something"


def refusal(path: Path) -> str:
    with pytest.raises(ConvertError) as caught:
        load_model(path)
    text = str(caught.value)
    assert "\n" not in text.strip() and len(text) < 400, text
    return text


def test_bad_files_are_sentences(tmp_path: Path) -> None:
    data = keras_like(tmp_path).read_bytes()
    path = tmp_path / "bad.onnx"
    path.write_bytes(data[: len(data) // 2])
    refusal(path)
    path.write_bytes(b"\x08\x07\x12\x07pytorch")
    assert "holds no graph" in refusal(path)
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    assert "opset 6" in refusal(saved(path, relu, [], [1, 4], opset=6))
    assert "leaves the size of its input open" in refusal(saved(path, relu, [], [1, "n"]))
    assert "input of shape" in refusal(saved(path, relu, [], [1, 2, 3, 4, 5]))
    lstm = [helper.make_node("LSTM", ["x"], ["y"])]
    assert "lstm" in refusal(saved(path, lstm, [], [1, 4]))


def test_weights_beside_the_file(tmp_path: Path) -> None:
    whole = onnx.load(str(keras_like(tmp_path)))
    path = tmp_path / "split.onnx"
    onnx.save(whole, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    images = np.random.default_rng(1).integers(0, 256, (2, 6, 7, 2)).astype(np.uint8)
    expected = run_float(load(tmp_path / "keras.onnx"), images)
    np.testing.assert_array_equal(run_float(load(path), images), expected)
    (tmp_path / "w.bin").rename(tmp_path / "gone.bin")
    assert "not beside it" in refusal(path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 40)
    assert "not all there" in refusal(path)
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"../wb"))
    assert "not a file in its own folder" in refusal(path)


def test_declared_sizes_are_not_believed(tmp_path: Path) -> None:
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 20])
    matmul = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = saved(tmp_path / "huge.onnx", matmul, [huge], [1, 4])
    assert "more than fits" in refusal(path)
    fill = [helper.make_node("ConstantOfShape", ["n"], ["w"]), *matmul]
    path = saved(path, fill, constants(n=np.array([1 << 20, 1 << 20])), [1, 4])
    assert "more than fits" in refusal(path)


def test_damaged_bytes_never_escape_as_another_exception(tmp_path: Path) -> None:
    files = [make(tmp_path).read_bytes() for make in (keras_like, quantized_file)]
    refused = damaged.refused(files, tmp_path / "damaged.onnx", load_model, trials=160, places=3)
    assert 10 < refused < 160, "some are refused, some only change a weight"


@pytest.mark.parametrize("name", ["reshape", "squeeze"])
def test_an_image_that_is_turned_and_then_reshaped_is_one(name: str, tmp_path: Path) -> None:
    """Tokens are turned for these too: taken for them, such a file is refused."""
    rng, dims = np.random.default_rng(0), (1, 6, 6 if name == "reshape" else 1, 3)
    first = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])]
    last = helper.make_node("Gemm", ["f", "w"], ["y"], "fc", transB=1)
    if name == "reshape":
        nodes = [*first, helper.make_node("Reshape", ["t", "s"], ["f"]), last]
        arrays = constants(s=np.array([1, -1]), w=rng.normal(size=(5, 108)).astype(np.float32))
    else:
        names = (
            ("Squeeze", ["t", "a"]),
            ("Conv", ["m0", "k"]),
            ("GlobalAveragePool", ["m1"]),
            ("Flatten", ["m2"]),
        )
        made = [helper.make_node(op, given, [f"m{i}"], f"n{i}") for i, (op, given) in enumerate(names)]
        nodes = [*first, *made, helper.make_node("Gemm", ["m3", "w"], ["y"], "fc", transB=1)]
        weights = (rng.normal(size=size).astype(np.float32) for size in ((4, 3, 3), (5, 4)))
        arrays = constants(a=np.array([3]), **dict(zip("kw", weights, strict=True)))
    path = saved(tmp_path / "net.onnx", nodes, arrays, dims)
    images = rng.integers(0, 256, (3, *dims[1:])).astype(np.uint8)
    want = reference(path, images / np.float32(255))
    np.testing.assert_allclose(run_float(load(path), images).reshape(want.shape), want, atol=1e-4)
