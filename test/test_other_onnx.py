"""ONNX files of other makers than PyTorch: channels last, constants by rows, ONNX Runtime's integers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_onnx import constants, load, quantized_file, reference, refusal, saved, softmaxed

from microtrain.convert.execute.batched import run_float
from microtrain.convert.ir import ConvertError, Graph

node = helper.make_node
RNG = np.random.default_rng(0)
TO_LAST, TO_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def drawn(*shape: int, around: float = 0.0) -> np.ndarray:
    return (RNG.normal(0, 0.4, shape) + around).astype(np.float32)


def within(folder: Path, op: str, given: Sequence[np.ndarray], last: bool = False, **about: Any) -> Path:
    """A network of square maps, five channels of 5x5, in the middle of which stands an op with constants.

    last  it reads its map with the channels last
    """
    names = [f"k{i}" for i in range(len(given))]
    opset, first = about.pop("opset", 18), ["x", "w1", "b1"][: 3 if about.pop("biased", True) else 2]
    nodes = [node("Conv", first, ["c1"], "first", pads=[1, 1, 1, 1])]
    nodes += [node("Transpose", ["c1"], ["t1"], perm=TO_LAST)] if last else []
    nodes += [node(op, ["t1" if last else "c1", *names], ["m"], "middle", **about)]
    nodes += [node("Transpose", ["m"], ["t2"], perm=TO_FIRST)] if last else []
    nodes += [
        node("Conv", ["t2" if last else "m", "w2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w3"], ["y"], "last", transB=1),
    ]
    arrays = {"w1": drawn(5, 3, 3, 3), "b1": drawn(5), "w2": drawn(6, 5, 3, 3), "w3": drawn(4, 6)}
    arrays |= dict(zip(names, given, strict=True))
    return saved(folder / "net.onnx", nodes, constants(**arrays), (1, 3, 5, 5), opset=opset)


def differs(path: Path, graph: Graph) -> float:
    """The largest difference to ONNX's own evaluator, beside the largest number; the logits say something."""
    pixels = np.random.default_rng(1).integers(0, 256, (5, *graph.tensors[graph.input.tensor].shape))
    dims = (5, *(d.dim_value for d in _entry(path)))[1:]
    samples = (pixels / 255.0).transpose(0, 3, 1, 2).reshape(5, *dims[1:])
    wanted = reference(path, samples).reshape(5, -1)
    assert np.ptp(wanted, axis=0).max() > 1e-3
    found = run_float(graph, pixels.astype(np.uint8)).reshape(5, -1)
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _entry(path: Path) -> Any:
    return onnx.load(str(path)).graph.input[0].type.tensor_type.shape.dim


def right_or_refused(path: Path) -> bool:
    """Whether a file converts, with the values of ONNX's evaluator."""
    try:
        graph = load(path)
    except ConvertError as error:
        assert "layer middle" in str(error) or "layer second" in str(error), error
        return False
    assert differs(path, graph) < 1e-5
    return True


SHAPES = [(5,), (5, 1), (5, 1, 1), (1, 5, 1, 1), (1, 1, 5, 1), (1, 1, 1, 5), (5, 5), (5, 5, 1), (1, 1, 1, 1)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_a_constant_by_rows_is_none_by_channels(op: str, last: bool, tmp_path: Path) -> None:
    """A map of as many rows as channels: a constant [5, 1] was once taken for one a channel."""
    whole = {
        shape for shape in SHAPES if right_or_refused(within(tmp_path, op, [drawn(*shape, around=2)], last))
    }
    by_channel = {(5,), (1, 1, 1, 5)} if last else {(5, 1, 1), (1, 5, 1, 1)}
    assert whole >= by_channel | {(1, 1, 1, 1)}


def test_slopes_by_rows_are_none_by_channels(tmp_path: Path) -> None:
    assert right_or_refused(within(tmp_path, "PRelu", [drawn(5, 1, 1)]))
    assert right_or_refused(within(tmp_path, "PRelu", [drawn(5)], last=True))
    for shape, last in (((5, 1), False), ((5, 1, 1), True)):
        assert right_or_refused(within(tmp_path, "PRelu", [drawn(*shape)], last))


SPREAD = [drawn(5, around=2), drawn(5), drawn(5), np.abs(drawn(5, around=2))]
OF_MAPS = [
    ("MaxPool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("AveragePool", [], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("BatchNormalization", SPREAD, {}),
    ("InstanceNormalization", SPREAD[:2], {}),
    ("SpaceToDepth", [], {"blocksize": 1}),
]


@pytest.mark.parametrize(("op", "given", "about"), OF_MAPS)
def test_an_op_of_maps_takes_the_axes_that_it_sees(
    op: str, given: list[np.ndarray], about: dict[str, Any], tmp_path: Path
) -> None:
    """Of a map with its channels last these reach over columns and channels: a pooling, say."""
    assert right_or_refused(within(tmp_path, op, given, **about))
    right_or_refused(within(tmp_path, op, given, last=True, **about))


def test_channels_that_come_last_are_padded_and_resized_beside(tmp_path: Path) -> None:
    pads = np.array([0, 1, 2, 0, 0, 0, 1, 0])
    assert right_or_refused(within(tmp_path, "Pad", [pads], last=True))
    nothing, factors = np.array([], np.float32), np.array([1, 1, 2, 1], np.float32)
    about = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    assert right_or_refused(within(tmp_path, "Resize", [nothing, factors], last=True, **about))
    two = [np.array([1, 2, 1, 0]), np.array(0, np.float32), np.array([-1, -2])]
    assert right_or_refused(within(tmp_path, "Pad", two)), "its last input says of which axes"


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_mean_over_one_side_with_the_channels_last(axis: int, keep: int, tmp_path: Path) -> None:
    """What lies behind it is read in the file's order: of the mean over columns it was once not."""
    nodes = [
        node("Conv", ["x", "w1"], ["c1"]),
        node("Relu", ["c1"], ["r1"]),
        node("Transpose", ["r1"], ["t1"], perm=TO_LAST),
        node("ReduceMean", ["t1"], ["m"], axes=[axis], keepdims=keep),
        node("Reshape", ["m", "flat"], ["f"]),
        node("MatMul", ["f", "w2"], ["y"]),
    ]
    features = 5 * (6 if axis == 1 else 4)
    arrays = constants(w1=drawn(5, 3, 3, 3), w2=drawn(features, 4), flat=np.array([1, -1]))
    path = saved(tmp_path / "net.onnx", nodes, arrays, (1, 3, 6, 8))
    assert differs(path, load(path)) < 1e-5


def test_attributes_of_activations_count(tmp_path: Path) -> None:
    path = within(tmp_path, "Selu", [], alpha=1.0, gamma=1.5)
    assert differs(path, load(path)) < 1e-5
    assert "Cast of activations to whole numbers" in refusal(
        within(tmp_path, "Cast", [], to=TensorProto.INT32)
    )
    path = within(tmp_path, "Cast", [], to=TensorProto.FLOAT)
    assert differs(path, load(path)) < 1e-5


def integers(folder: Path, zero: int, scale: float = 0.03, pairs: int = 1) -> Path:
    """What ONNX Runtime writes: a ReLU or clip behind a layer is left out where the integers cut anyway.

    pairs  of QuantizeLinear and DequantizeLinear behind the layer, one for each reader
    """
    arrays: dict[str, Any] = {"w": drawn(5, 3, 3, 3), "v": drawn(5, 5, 1, 1), "h": drawn(4, 5)}
    arrays |= {f"{t}_z": np.uint8(z) for t, z in {"x": 0, "a": zero, "b": 128, "p": 128, "y": 0}.items()}
    scales = {"x": 1 / 255, "a": scale, "b": 0.04, "p": 0.02, "y": 0.02}
    arrays |= {f"{t}_s": np.float32(s) for t, s in scales.items()}
    nodes = []

    def coded(tensor: str, made: str, copy: str = "") -> str:
        q, d, about = f"{tensor}_q{copy}", f"{tensor}_d{copy}", [f"{tensor}_s", f"{tensor}_z"]
        nodes.append(node("QuantizeLinear", [made, *about], [q]))
        nodes.append(node("DequantizeLinear", [q, *about], [d]))
        return d

    nodes.append(node("Conv", [coded("x", "x"), "w"], ["a"], "first"))
    read = [coded("a", "a", str(i)) for i in range(pairs)]
    nodes.append(node("Conv", [read[0], "v"], ["b"], "second"))
    if pairs > 1:
        nodes.append(node("Add", [coded("b", "b"), read[1]], ["c"], "sum"))
    nodes.append(node("GlobalAveragePool", ["c" if pairs > 1 else coded("b", "b")], ["p"]))
    nodes.append(node("Flatten", [coded("p", "p")], ["f"]))
    nodes.append(node("Gemm", ["f", "h"], ["z"], "last", transB=1))
    return saved(
        folder / "net.onnx", nodes, constants(**arrays), (1, 3, 6, 6), outputs=[coded("y", "z")], opset=19
    )


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_relu_that_the_integers_make_is_one(pairs: int, tmp_path: Path) -> None:
    """Without it a gradient went through what is cut, and the float model had no ReLU at all."""
    graph = load(integers(tmp_path, 0, pairs=pairs))
    first, *_, head = graph.nodes
    assert (first.act, head.act) == ("relu", "none"), "what makes the logits is not cut"
    assert len(graph.nodes) == 3 + pairs, "once for all of its readers"
    assert load(integers(tmp_path, 0, 6 / 255, pairs)).nodes[0].act == "relu6"
    assert load(integers(tmp_path, 100, pairs=pairs)).nodes[0].act == "none"


def test_an_image_that_is_scaled_and_rounded_has_no_relu(tmp_path: Path) -> None:
    arrays = {"k": np.float32(1 / 255), "w": drawn(5, 3, 3, 3), "h": drawn(4, 5)}
    arrays |= {"s1": np.float32(1), "s2": np.float32(1 / 255), "z": np.uint8(0)}
    nodes = [
        node("QuantizeLinear", ["x", "s1", "z"], ["a"]),
        node("DequantizeLinear", ["a", "s1", "z"], ["b"]),
        node("Mul", ["b", "k"], ["c"]),
        node("QuantizeLinear", ["c", "s2", "z"], ["d"]),
        node("DequantizeLinear", ["d", "s2", "z"], ["e"]),
        node("Conv", ["e", "w"], ["f"]),
        node("GlobalAveragePool", ["f"], ["g"]),
        node("Flatten", ["g"], ["i"]),
        node("Gemm", ["i", "h"], ["y"], transB=1),
    ]
    path = saved(tmp_path / "net.onnx", nodes, constants(**arrays), (1, 3, 6, 7), opset=19)
    graph = load(path)
    assert [n.op for n in graph.nodes] == ["conv2d", "avgpool", "head"]
    pixels = np.random.default_rng(1).integers(0, 256, (5, 6, 7, 3)).astype(np.uint8)
    wanted = reference(path, pixels.transpose(0, 3, 1, 2).astype(np.float32)).reshape(5, 4)
    np.testing.assert_allclose(run_float(graph, pixels).reshape(5, 4), wanted, atol=1e-4)


def test_other_integers_are_sentences(tmp_path: Path) -> None:
    model = onnx.load(str(quantized_file(tmp_path)))
    zero = next(t for t in model.graph.initializer if t.name == "r_z")
    zero.CopyFrom(numpy_helper.from_array(np.array(0, np.uint16), "r_z"))
    path = tmp_path / "wide.onnx"
    path.write_bytes(model.SerializeToString())
    assert "r_z holds uint16 numbers; only int8 and uint8" in refusal(path)
    weight = constants(w=np.zeros((5, 3, 1, 1), np.float32))
    fused = [node("FusedConv", ["x", "w"], ["y"], "conv", domain="com.microsoft")]
    assert "before a runtime optimised it" in refusal(saved(path, fused, weight, (1, 3, 4, 4)))


def test_an_input_in_integers_is_what_the_file_says(tmp_path: Path) -> None:
    """Bytes, and integers whose scale only a DequantizeLinear says, were taken for pixels from 0 to 1."""
    rest = [
        node("Conv", ["r", "w"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("GlobalAveragePool", ["d"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "h"], ["y"], transB=1),
    ]
    arrays = {"w": drawn(5, 3, 3, 3), "h": drawn(4, 5), "s": np.float32(0.02), "z": np.int8(-28)}
    pixels = np.random.default_rng(1).integers(0, 256, (5, 6, 7, 3)).astype(np.uint8)
    first = node("Cast", ["x"], ["r"], to=TensorProto.FLOAT)
    coded = node("DequantizeLinear", ["x", "s", "z"], ["r"])
    for kind, begin, real in (
        (TensorProto.UINT8, first, pixels.astype(np.float32)),
        (TensorProto.INT8, coded, (pixels.astype(np.float32) - 100) * np.float32(0.02)),
    ):
        path = saved(tmp_path / "net.onnx", [begin, *rest], constants(**arrays), (1, 3, 6, 7))
        model = onnx.load(str(path))
        model.graph.input[0].type.tensor_type.elem_type = kind
        path.write_bytes(model.SerializeToString())
        found = run_float(load(path), pixels).reshape(5, 4)
        same = node("Identity", ["x"], ["r"])
        plain = saved(tmp_path / "plain.onnx", [same, *rest], constants(**arrays), (1, 3, 6, 7))
        wanted = reference(plain, real.transpose(0, 3, 1, 2)).reshape(5, 4)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def learned(folder: Path, model: Any, x: np.ndarray, y: np.ndarray, **about: Any) -> Path:
    """What skl2onnx writes of a model that has learned."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = skl2onnx.to_onnx(model.fit(x, y), x[:1], target_opset=15, **about)
    path = folder / "learned.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def test_labels_of_scikit_learn_may_be_names_or_several(tmp_path: Path) -> None:
    neural = pytest.importorskip("sklearn.neural_network", reason="scikit-learn is not installed")
    pixels = np.random.default_rng(2).integers(0, 256, (80, 1, 1, 4)).astype(np.uint8)
    x = (pixels.reshape(80, 4) / 255.0).astype(np.float32)
    model = neural.MLPClassifier((7,), max_iter=20, random_state=0)
    names = np.array(["walk", "run", "rest"])[(x[:, 0] > x[:, 1]).astype(int) + (x[:, 2] > 0.5)]
    found = run_float(load(learned(tmp_path, model, x, names)), pixels).reshape(80, 3)
    np.testing.assert_allclose(softmaxed(found), model.predict_proba(x), atol=1e-4)
    several = (x[:, :3] > 0.5).astype(int)
    path = learned(tmp_path, model, x, several, options={"zipmap": False})
    found = run_float(load(path), pixels).reshape(80, 3)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), model.predict_proba(x), atol=1e-4)


def test_what_scikit_learn_does_to_features_is_named(tmp_path: Path) -> None:
    """The choice of features was once taken for a label, and MatMul refused for reading it."""
    neural = pytest.importorskip("sklearn.neural_network", reason="scikit-learn is not installed")
    from sklearn.feature_selection import SelectKBest
    from sklearn.pipeline import make_pipeline

    x = RNG.uniform(0, 1, (40, 4)).astype(np.float32)
    model = make_pipeline(SelectKBest(k=2), neural.MLPClassifier((7,), max_iter=20))
    text = refusal(learned(tmp_path, model, x, x[:, 1] > 0.5))
    assert "ArrayFeatureExtractor is not supported" in text and "behind scalers and PCA" in text


Steps = list[tuple[str, list[str], str, dict[str, Any]]]  # op, inputs, output, attributes


def squeezed_by_convolutions() -> tuple[Steps, dict[str, Any]]:
    """Squeeze and excitation: the mean stays a map, and is turned to and fro around its convolutions."""
    steps: Steps = [
        ("ReduceMean", ["r"], "m", {"axes": [1, 2]}),
        ("Transpose", ["m"], "m1", {"perm": TO_FIRST}),
        ("Conv", ["m1", "v1"], "m2", {}),
        ("Transpose", ["m2"], "m3", {"perm": TO_LAST}),
        ("Relu", ["m3"], "m4", {}),
        ("Transpose", ["m4"], "m5", {"perm": TO_FIRST}),
        ("Conv", ["m5", "v2"], "m6", {}),
        ("Transpose", ["m6"], "m7", {"perm": TO_LAST}),
        ("Sigmoid", ["m7"], "s", {}),
        ("Mul", ["r", "s"], "z", {}),
    ]
    return steps, {"v1": drawn(3, 5, 1, 1), "v2": drawn(5, 3, 1, 1)}


def squeezed_by_layers() -> tuple[Steps, dict[str, Any]]:
    """The same with dense layers, behind which a vector is a map of one pixel, channels last."""
    steps: Steps = [
        ("ReduceMean", ["r"], "m", {"axes": [1, 2], "keepdims": 0}),
        ("MatMul", ["m", "v1"], "m1", {}),
        ("Sigmoid", ["m1"], "s", {}),
        ("Reshape", ["s", "whole"], "s1", {}),
        ("Mul", ["r", "s1"], "z", {}),
    ]
    return steps, {"v1": drawn(5, 5), "whole": np.array([-1, 1, 1, 5])}


def repeated_twice() -> tuple[Steps, dict[str, Any]]:
    """UpSampling2D of Keras: rows and then columns, each on an axis of its own behind theirs."""
    steps: Steps = [
        ("Unsqueeze", ["r", "second"], "u", {}),
        ("Tile", ["u", "rows"], "u1", {}),
        ("Reshape", ["u1", "taller"], "u2", {}),
        ("Unsqueeze", ["u2", "third"], "u3", {}),
        ("Tile", ["u3", "columns"], "u4", {}),
        ("Reshape", ["u4", "wider"], "z", {}),
    ]
    about = {"second": [2], "rows": [1, 1, 2, 1, 1], "taller": [-1, 8, 6, 5]}
    about |= {"third": [3], "columns": [1, 1, 1, 3, 1], "wider": [-1, 8, 18, 5]}
    return steps, {name: np.array(numbers) for name, numbers in about.items()}


@pytest.mark.parametrize("make", [squeezed_by_convolutions, squeezed_by_layers, repeated_twice])
def test_what_keras_does_with_channels_last(
    make: Callable[[], tuple[Steps, dict[str, Any]]], tmp_path: Path
) -> None:
    """In front of the first Transpose the image is scaled, one number a channel."""
    middle, arrays = make()
    steps: Steps = [
        ("Mul", ["x", "k"], "x1", {}),
        ("Sub", ["x1", "l"], "x2", {}),
        ("Transpose", ["x2"], "t", {"perm": TO_FIRST}),
        ("Conv", ["t", "w1"], "c", {}),
        ("Transpose", ["c"], "c1", {"perm": TO_LAST}),
        ("Relu", ["c1"], "r", {}),
        *middle,
        ("Transpose", ["z"], "z1", {"perm": TO_FIRST}),
        ("Conv", ["z1", "w2"], "z2", {}),
        ("Relu", ["z2"], "z3", {}),
        ("GlobalAveragePool", ["z3"], "z4", {}),
        ("Flatten", ["z4"], "z5", {}),
        ("MatMul", ["z5", "w3"], "y", {}),
    ]
    arrays |= {"k": drawn(3, around=2), "l": drawn(3), "w1": drawn(5, 3, 3, 3), "w2": drawn(6, 5, 2, 2)}
    arrays["w3"] = drawn(6, 4)
    nodes = [node(op, given, [made], made, **about) for op, given, made, about in steps]
    path = saved(tmp_path / "net.onnx", nodes, constants(**arrays), ["n", 6, 8, 3])
    graph = load(path)
    assert graph.tensors[graph.input.tensor].shape == (6, 8, 3) and len(set(graph.input.gain)) == 3
    pixels = np.random.default_rng(1).integers(0, 256, (5, 6, 8, 3)).astype(np.uint8)
    wanted = reference(path, pixels / 255.0).reshape(5, 4)
    np.testing.assert_allclose(run_float(graph, pixels).reshape(5, 4), wanted, atol=1e-5)
    assert np.ptp(wanted, axis=0).max() > 1e-3


def series_of(nodes: list[Any], arrays: dict[str, Any], folder: Path) -> None:
    """Compare a network of a series [n, 12, 3], as Keras has it, with ONNX's own evaluator."""
    path = saved(folder / "net.onnx", nodes, constants(**arrays), ["n", 12, 3])
    pixels = np.random.default_rng(1).integers(0, 256, (5, 12, 3)).astype(np.uint8)
    wanted = reference(path, pixels / 255.0).reshape(5, 4)
    graph = load(path)
    found = run_float(graph, pixels.reshape(5, *graph.tensors[graph.input.tensor].shape))
    np.testing.assert_allclose(found.reshape(5, 4), wanted, atol=1e-5)
    assert np.ptp(wanted, axis=0).max() > 1e-3


def test_moments_that_are_taken_for_a_batch(tmp_path: Path) -> None:
    """Dense of Keras over each moment of a series."""
    nodes = [
        node("Reshape", ["x", "flat"], ["f"]),
        node("MatMul", ["f", "w1"], ["m"], "each"),
        node("Reshape", ["m", "back"], ["b"]),
        node("Relu", ["b"], ["r"]),
        node("ReduceMean", ["r"], ["p"], axes=[1], keepdims=0),
        node("MatMul", ["p", "w2"], ["y"], "last"),
    ]
    arrays = {"w1": drawn(3, 6), "w2": drawn(6, 4), "flat": np.array([-1, 3]), "back": np.array([-1, 12, 6])}
    series_of(nodes, arrays, tmp_path)


def test_a_series_that_is_a_row_is_padded_in_time(tmp_path: Path) -> None:
    """A causal convolution of Keras, and a batch norm that nothing takes in."""
    nodes = [
        node("Unsqueeze", ["x", "first"], ["u"]),
        node("Transpose", ["u"], ["t"], perm=TO_FIRST),
        node("Conv", ["t", "w1"], ["c"]),
        node("Squeeze", ["c", "rows"], ["s"]),
        node("Relu", ["s"], ["r"]),
        node("Mul", ["r", "k"], ["m"], "norm"),
        node("Pad", ["m", "before"], ["p"], "causal"),
        node("Unsqueeze", ["p", "rows"], ["q"]),
        node("Conv", ["q", "w2"], ["d"], dilations=[1, 2]),
        node("Squeeze", ["d", "rows"], ["e"]),
        node("GlobalAveragePool", ["e"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("MatMul", ["f", "w3"], ["y"]),
    ]
    arrays: dict[str, Any] = {"w1": drawn(5, 3, 1, 3), "w2": drawn(6, 5, 1, 3), "w3": drawn(6, 4)}
    arrays |= {"first": np.array([1]), "rows": np.array([2]), "before": np.array([0, 0, 4, 0, 0, 0])}
    series_of(nodes, {**arrays, "k": drawn(1, 5, 1, around=2)}, tmp_path)


def test_a_mean_over_columns_that_is_turned_afterwards(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w1"], ["c1"]),
        node("ReduceMean", ["c1"], ["m"], axes=[3], keepdims=1),
        node("Transpose", ["m"], ["t"], perm=TO_LAST),
        node("Reshape", ["t", "flat"], ["f"]),
        node("MatMul", ["f", "w2"], ["y"]),
    ]
    arrays = constants(w1=drawn(5, 3, 3, 3), w2=drawn(20, 4), flat=np.array([1, -1]))
    path = saved(tmp_path / "net.onnx", nodes, arrays, (1, 3, 6, 8))
    assert differs(path, load(path)) < 1e-5


def test_one_number_for_all_is_no_bias(tmp_path: Path) -> None:
    """What learned of a layer could not go back there: a number has no place for one a channel."""
    path = within(tmp_path, "Add", [np.array(0.3, np.float32)])
    assert load(path).layers["first"].source.bias == "first.bias", "it has biases of its own"
    path = within(tmp_path, "Add", [np.array(0.3, np.float32)], biased=False)
    source = load(path).layers["first"].source
    assert (source.bias, source.bn) == (None, "middle")
    path = within(tmp_path, "Add", [drawn(5, 1, 1)], biased=False)
    assert load(path).layers["first"].source.bias == "k0"


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_larger_of_a_map_and_a_number_is_a_limit(op: str, tmp_path: Path) -> None:
    path = within(tmp_path, op, [np.array(0.1, np.float32)])
    assert differs(path, load(path)) < 1e-5
    whole = {shape for shape in SHAPES if right_or_refused(within(tmp_path, op, [drawn(*shape)]))}
    assert whole >= {(5, 1, 1), (1, 5, 1, 1), (1, 1, 1, 1)}
    for shape in SHAPES:
        right_or_refused(within(tmp_path, op, [drawn(*shape)], last=True))


@pytest.mark.parametrize("op", ["Sum", "Mean"])
def test_a_sum_of_any_number_of_maps(op: str, tmp_path: Path) -> None:
    for parts in (["c"], ["c", "s"], ["c", "s", "t"]):
        nodes = [
            node("Conv", ["x", "w1"], ["c"]),
            node("Sigmoid", ["c"], ["s"]),
            node("Tanh", ["c"], ["t"]),
            node(op, parts, ["m"], "middle"),
            node("Flatten", ["m"], ["f"]),
            node("Gemm", ["f", "w2"], ["y"], transB=1),
        ]
        arrays = constants(w1=drawn(5, 3, 3, 3), w2=drawn(4, 5 * 3 * 3))
        path = saved(tmp_path / "net.onnx", nodes, arrays, (1, 3, 5, 5))
        assert differs(path, load(path)) < 1e-5


def test_a_graph_that_goes_round_in_circles_ends(tmp_path: Path) -> None:
    nodes = [node("Identity", ["x"], ["a"]), node("Identity", ["a"], ["a"]), node("Relu", ["b"], ["y"])]
    assert "which no node before makes" in refusal(saved(tmp_path / "net.onnx", nodes, [], (1, 3, 6, 6)))


def test_what_drops_at_random_is_refused(tmp_path: Path) -> None:
    half, yes = np.array(0.5, np.float32), np.array(True)
    assert "Dropout in training mode" in refusal(within(tmp_path, "Dropout", [half, yes]))
    path = within(tmp_path, "Dropout", [half])
    assert differs(path, load(path)) < 1e-5
