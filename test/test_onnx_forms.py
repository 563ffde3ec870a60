"""ONNX as it is written by hand, and by tools that change files: forms that few exporters write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from test_onnx import constants, load, reference, refusal, saved, softmaxed
from test_other_onnx import TO_FIRST, TO_LAST, differs, drawn, node, within

from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.onnx.constants import folded
from microtrain.convert.frontends.onnx.file import Step
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.aten.upsample import of_onnx

Nodes = Sequence[Any]


def network(folder: Path, nodes: Nodes, dims: Sequence[int], outputs: int, **arrays: Any) -> Path:
    """A convolution that keeps the shape, nodes that make m of c, a head that reads so many numbers."""
    channels, rank, opset = dims[1], len(dims) - 2, arrays.pop("opset", 18)
    first = [node("Conv", ["x", "w0"], ["c"], "first", pads=[1] * 2 * rank)] if rank else []
    first = first or [node("Gemm", ["x", "w0"], ["c"], "first")]
    last = [node("Reshape", ["m", "flat"], ["f"]), node("Gemm", ["f", "w9"], ["y"], "last")]
    shapes = {"w0": (channels, channels, *[3] * rank), "w9": (outputs, 4)}
    rng = np.random.default_rng(7)
    weights = {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    given = constants(flat=np.array([1, -1]), **weights, **arrays)
    return saved(folder / "net.onnx", [*first, *nodes, *last], given, dims, opset=int(opset))


def right_or_refused(path: Path) -> bool:
    """Whether a file converts, with the values of ONNX's evaluator; else a layer is named."""
    graph = _loaded(path)
    if isinstance(graph, str):
        assert "layer " in graph, graph
        return False
    assert differs(path, graph) < 1e-5
    return True


def is_right(path: Path) -> None:
    assert differs(path, load(path)) < 1e-5


SIX = np.arange(-3, 4)
FOLDED: dict[str, tuple[str, dict[str, int], list[Any], Any]] = {
    "CumSum of those before": ("CumSum", {"exclusive": 1}, [SIX, np.array(0)], [0, -3, -5, -6, -6, -5, -3]),
    "CumSum from the end": ("CumSum", {"reverse": 1}, [SIX, np.array(0)], [0, 3, 5, 6, 6, 5, 3]),
    "Mod of C": ("Mod", {"fmod": 1}, [SIX, np.array(2)], [-1, 0, -1, 0, 1, 0, 1]),
    "Mod of Python": ("Mod", {}, [SIX, np.array(2)], [1, 0, 1, 0, 1, 0, 1]),
    "Div toward 0": ("Div", {}, [SIX, np.array(2)], [-1, -1, 0, 0, 0, 1, 1]),
    "Slice without axes": (
        "Slice",
        {},
        [SIX, np.array([5]), np.array([-99]), None, np.array([-2])],
        [2, 0, -2],
    ),
    "Reshape that keeps": ("Reshape", {}, [np.ones((2, 3)), np.array([0, 1, -1])], np.ones((2, 1, 3))),
    "Flatten from behind": ("Flatten", {"axis": -1}, [np.ones((2, 3, 4))], np.ones((6, 4))),
    "Flatten of all": ("Flatten", {"axis": 3}, [np.ones((2, 3, 4))], np.ones((24, 1))),
    "ReduceSum of nothing": ("ReduceSum", {"noop_with_empty_axes": 1}, [SIX], SIX),
}


@pytest.mark.parametrize("name", FOLDED)
def test_arithmetic_of_constants_heeds_attributes(name: str) -> None:
    op, about, given, wanted = FOLDED[name]
    made = folded(Step(op, "", op, (), (), about), given)
    np.testing.assert_array_equal(made, wanted)
    assert made.shape == np.shape(wanted)


FLAT = {
    "Flatten": node("Flatten", ["t"], ["f0"]),
    "Flatten of the last": node("Flatten", ["t"], ["f0"], axis=-1),
    "Flatten of none": node("Flatten", ["t"], ["f0"], axis=4),
    "Reshape": node("Reshape", ["t", "flat"], ["f0"]),
}
READ = {
    "Relu": [node("Relu", ["f1"], ["m"])],
    "Slice": [node("Slice", ["f1", "three", "far", "one"], ["m"], "middle")],
    "Gather": [node("Gather", ["f1", "places"], ["m"], "middle", axis=1)],
    "Add": [node("Add", ["f1", "row"], ["m"], "middle")],
    "Mul": [node("Mul", ["f1", "f1r"], ["m"], "middle")],
    "Split": [node("Split", ["f1", "halves"], ["m", "rest"], "middle", axis=1)],
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("flat", FLAT)
def test_a_map_that_is_flattened_with_its_channels_last(flat: str, read: str, tmp_path: Path) -> None:
    """A second view of it, or what takes a part of it, once read it with the channels first."""
    arrays = {
        "three": np.array([3]), "far": np.array([1 << 62]), "one": np.array([1]), "row": drawn(1, 80),
        "places": np.array([7, -1, 0, 30]), "halves": np.array([48, 32]),
    }  # fmt: skip
    front = [
        node("Transpose", ["c"], ["t"], perm=TO_LAST),
        FLAT[flat],
        node("Reshape", ["f0", "flat"], ["f1"]),
    ]
    front += [node("Reshape", ["c", "flat"], ["f1r"])] if read == "Mul" else []
    outputs = {"Slice": 77, "Gather": 4, "Split": 48}.get(read, 80)
    path = network(tmp_path, [*front, *READ[read]], (1, 4, 4, 5), outputs, **arrays)
    right = right_or_refused(path)
    assert right or read not in ("Relu", "Add"), "these convert"


@pytest.mark.parametrize("dims", [(1, 4, 4, 5), (1, 4, 20)])
def test_a_view_that_is_no_map_is_turned(dims: tuple[int, ...], tmp_path: Path) -> None:
    """Its second axis is not the channels: the transposition once was taken for one to channels last."""
    nodes = [
        node("Reshape", ["c", "view"], ["v"]),
        node("Transpose", ["v"], ["t"], "middle", perm=[0, 2, 1]),
        node("Relu", ["t"], ["m"]),
    ]
    path = network(tmp_path, nodes, dims, 80, view=np.array([1, 8, 10]))
    assert right_or_refused(path)
    path = network(tmp_path, nodes, dims, 80, view=np.array([4, 20, 1]))
    assert right_or_refused(path)


SQUARE: dict[str, tuple[Any, dict[str, Any]]] = {
    "MaxPool": (node("MaxPool", ["t"], ["m"], "middle", kernel_shape=[3, 3], pads=[1] * 4), {}),
    "Pad": (node("Pad", ["t", "p"], ["m"], "middle", mode="edge"), {"p": np.array([0, 0, 1, 0, 0, 0, 0, 0])}),
    "BatchNormalization": (
        node("BatchNormalization", ["t", "s", "b", "b", "s"], ["m"], "middle"),
        {"s": drawn(5, around=2), "b": drawn(5)},
    ),
}


@pytest.mark.parametrize("perm", [TO_FIRST, TO_LAST])
@pytest.mark.parametrize("op", SQUARE)
def test_a_map_of_as_many_rows_as_channels_is_turned(op: str, perm: list[int], tmp_path: Path) -> None:
    """It was once taken for the input, whose axes may be declared anew."""
    middle, arrays = SQUARE[op]
    nodes = [node("Transpose", ["c"], ["t"], perm=perm), middle]
    path = network(tmp_path, nodes, (1, 5, 5, 5), 150 if op == "Pad" else 125, **arrays)
    assert right_or_refused(path)


@pytest.mark.parametrize("perm", [TO_FIRST, TO_LAST, [0, 1, 2, 3]])
def test_neighbouring_channels_of_a_map_that_is_turned(perm: list[int], tmp_path: Path) -> None:
    """Of rows or columns, which are channels there. ONNX's evaluator (1.23) sums over the whole map."""
    nodes = [
        node("Transpose", ["c"], ["t"], perm=perm),
        node("LRN", ["t"], ["m"], "middle", size=3, alpha=2.0),
    ]
    path = network(tmp_path, nodes, (1, 5, 5, 5), 125)
    pixels = np.random.default_rng(1).integers(0, 256, (3, 5, 5, 5)).astype(np.uint8)
    run, samples = ReferenceEvaluator(str(path)), (pixels / np.float32(255)).transpose(0, 3, 1, 2)
    made: list[list[np.ndarray]] = [run.run(["t"], {"x": sample[None]}) for sample in samples]  # type: ignore
    t = np.concatenate([each[0] for each in made])
    squares = np.pad(t**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    m = t / (1 + 2 / 3 * sum(squares[:, i : i + 5] for i in range(3))) ** 0.75
    head = next(numpy_helper.to_array(w) for w in onnx.load(str(path)).graph.initializer if w.name == "w9")
    wanted = m.reshape(3, -1) @ head
    assert np.abs(run_float(load(path), pixels) - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("op", ["MatMul", "LayerNormalization"])
def test_a_series_of_as_many_moments_as_channels(op: str, tmp_path: Path) -> None:
    """What works on its last axis works over time."""
    given = {"k": drawn(5, 5)} if op == "MatMul" else {"k": drawn(5, around=2)}
    path = network(tmp_path, [node(op, ["c", "k"], ["m"], "middle")], (1, 5, 5), 25, **given)
    assert right_or_refused(path)


def test_an_input_by_channel_is_no_sequence_of_vectors(tmp_path: Path) -> None:
    """A batch norm of a square series has read its channels: a product over time cannot move them."""
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "b", "s"], ["n"], "middle"),
        node("MatMul", ["n", "k"], ["h"], "second"),
        node("Reshape", ["h", "flat"], ["f"]),
        node("Gemm", ["f", "w"], ["y"], "last"),
    ]
    arrays = constants(
        s=drawn(4, around=2), b=drawn(4), k=drawn(4, 4), w=drawn(16, 3), flat=np.array([1, -1])
    )
    assert right_or_refused(saved(tmp_path / "net.onnx", nodes, arrays, (1, 4, 4)))


TABLES = ("Add", "Mul", "BatchNormalization", "LayerNormalization", "PRelu")


@pytest.mark.parametrize("op", TABLES)
def test_a_table_of_as_many_columns_as_channels(op: str, tmp_path: Path) -> None:
    """A series that was flattened to [channels, time]: one number a column is none a channel."""
    names = ["t", "row", *["row", "row", "plus"][: 3 if op == "BatchNormalization" else 0]]
    nodes = [node("Flatten", ["c"], ["t"], axis=2), node(op, names, ["m"], "middle")]
    path = network(tmp_path, nodes, (1, 4, 4), 16, row=drawn(4, around=1), plus=np.abs(drawn(4, around=2)))
    right_or_refused(path)


@pytest.mark.parametrize("op", ["InstanceNormalization", "GroupNormalization"])
def test_norms_of_what_became_a_batch(op: str, tmp_path: Path) -> None:
    about: dict[str, Any] = {"num_groups": 2} if op == "GroupNormalization" else {}
    nodes = [node("Reshape", ["c", "view"], ["v"]), node(op, ["v", "s", "b"], ["m"], "middle", **about)]
    given = {"view": np.array([2, 4, 2]), "s": drawn(4, around=2), "b": drawn(4)}
    path = network(tmp_path, nodes, (1, 4, 4), 16, opset=21, **given)
    assert not right_or_refused(path)
    assert "a batch of 2" in refusal(path)


def test_a_group_norm_keeps_the_scale_of_what_is_no_map(tmp_path: Path) -> None:
    """Behind a product over the columns the channels are the rows: the scale was once left out."""
    nodes = [
        node("MatMul", ["c", "k"], ["v"], "second"),
        node("GroupNormalization", ["v", "s", "b"], ["m"], "middle", num_groups=1),
    ]
    given = {"k": drawn(4, 6), "s": drawn(3, around=2), "b": drawn(3)}
    right_or_refused(network(tmp_path, nodes, (1, 3, 5, 4), 90, opset=21, **given))


@pytest.mark.parametrize(
    ("shape", "axis"), [((5,), 1), ((5, 1), 1), ((1,), -1), ((1, 1, 1), 1), ((5, 1, 1), 1)]
)
@pytest.mark.parametrize("last", [False, True])
def test_a_layer_norms_scale_is_spread(shape: tuple[int, ...], axis: int, last: bool, tmp_path: Path) -> None:
    """As all constants in ONNX: along the last axes. Of a square map it was once one a channel."""
    right_or_refused(within(tmp_path, "LayerNormalization", [drawn(*shape, around=2)], last, axis=axis))


def test_sequences_that_end_early_are_a_sentence(tmp_path: Path) -> None:
    """Their lengths were once not read."""
    nodes = [
        node("Transpose", ["c"], ["t"], perm=[2, 0, 1]),
        node("GRU", ["t", "k", "r", "", "n"], ["h", "m"], "middle", hidden_size=3, linear_before_reset=1),
    ]
    weights = {"k": drawn(1, 9, 4), "r": drawn(1, 9, 3)}
    for length in (6, 4):
        path = network(tmp_path, nodes, (1, 4, 6), 3, n=np.array([length], np.int32), **weights)
        assert right_or_refused(path) == (length == 6)
    assert "shorter than the 6 moments" in refusal(path)


@pytest.mark.parametrize("mode", ["constant", "wrap", "reflect"])
def test_what_is_cut_and_padded_at_once(mode: str, tmp_path: Path) -> None:
    """The cut comes first: of what is wrapped around, say. ONNX's evaluator takes it in two steps."""
    pads, far = np.array([0, 0, -1, 2, 0, 0, 2, -1]), 1 << 62
    arrays = {"p": pads, "q": np.maximum(pads, 0), "s": np.array([1, 0]), "e": np.array([far, -1])}
    steps = [
        node("Slice", ["c", "s", "e", "axes"], ["cut"]),
        node("Pad", ["cut", "q"], ["m"], "middle", mode=mode),
    ]
    arrays |= {"opset": np.array(19), "axes": np.array([2, 3])}
    (tmp_path / "steps").mkdir()
    dims, outputs = (1, 4, 5, 6), 4 * 6 * 7
    wanted = network(tmp_path / "steps", steps, dims, outputs, **arrays)
    found = network(tmp_path, [node("Pad", ["c", "p"], ["m"], "middle", mode=mode)], dims, outputs, **arrays)
    assert differs(wanted, load(found)) < 1e-5


def test_a_padding_with_a_number_that_also_cuts_is_a_sentence(tmp_path: Path) -> None:
    """It was once one with zeros."""
    given = [np.array([0, 0, -1, 2, 0, 0, 2, 0]), np.array(0.5, np.float32)]
    assert "padding with 0.5 is not supported" in refusal(within(tmp_path, "Pad", given))


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_a_transposed_convolution_ends_where_its_windows_do(auto: str, tmp_path: Path) -> None:
    """Windows smaller than the stride leave no zeros behind the last, as ONNX Runtime has it."""
    nodes = [node("ConvTranspose", ["c", "k"], ["m"], "middle", strides=[3, 3], auto_pad=auto)]
    graph = load(network(tmp_path, nodes, (1, 4, 2, 3), 2 * 5 * 8, k=drawn(4, 2, 2, 2)))
    assert graph.tensors[graph.nodes[-1].inputs[0]].shape == (5, 8, 2), "not 6x9"


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Max"])
@pytest.mark.parametrize("dims", [[1, 4, 1], [1, 4]])
def test_what_has_fewer_axes_stands_along_the_last_ones(op: str, dims: list[int], tmp_path: Path) -> None:
    """Factors [n, c, 1] beside a map [n, c, h, w] are one a row: they were once one a channel."""
    gate = [node("GlobalAveragePool", ["c"], ["p"]), node("Sigmoid", ["p"], ["s"])]
    gate += [node("Reshape", ["s", "size"], ["g"])]
    for x, outputs in (("c", 64), ("p", 16)):
        nodes = [*gate, node(op, [x, "g"], ["m"], "middle")]
        path = network(tmp_path, nodes, (1, 4, 4, 4), outputs, size=np.array(dims))
        right_or_refused(path)


def test_limits_that_are_computed_are_a_sentence(tmp_path: Path) -> None:
    """They were once left out."""
    nodes = [node("GlobalAveragePool", ["c"], ["l"]), node("Clip", ["c", "l"], ["m"], "middle")]
    assert "Clip by limits that are computed" in refusal(network(tmp_path, nodes, (1, 4, 5, 5), 100))


def test_a_softmax_over_the_batch_is_a_sentence(tmp_path: Path) -> None:
    """It makes ones of all logits; it was once taken for one over the classes."""
    nodes = [node("Gemm", ["x", "w"], ["l"], "last"), node("Softmax", ["l"], ["y"], "end", axis=0)]
    assert "over the batch" in refusal(saved(tmp_path / "net.onnx", nodes, constants(w=drawn(6, 3)), (1, 6)))


@pytest.mark.parametrize("form", ["1 - p", "p, 1 - p", "p - 1", "1 - p, p"])
def test_what_is_made_of_probabilities_at_the_end(form: str, tmp_path: Path) -> None:
    """As scikit-learn has two classes it is left out; anything else is not, where it once was."""
    nodes = [node("Gemm", ["x", "w"], ["l"], "last"), node("Sigmoid", ["l"], ["p"])]
    nodes += [node("Sub", ["one", "p"] if form != "p - 1" else ["p", "one"], ["q"], "end")]
    both = {"p, 1 - p": ["p", "q"], "1 - p, p": ["q", "p"]}.get(form)
    nodes += [node("Concat", both, ["y"], axis=1)] if both else [node("Identity", ["q"], ["y"])]
    arrays = constants(w=drawn(6, 1, around=0.3), one=np.float32(1))
    path = saved(tmp_path / "net.onnx", nodes, arrays, (1, 6))
    graph = _loaded(path)
    if form == "1 - p, p":
        samples = np.random.default_rng(0).integers(0, 256, (4, 1, 1, 6)).astype(np.uint8)
        logits = run_float(graph, samples)
        wanted = reference(path, samples.reshape(4, 6) / 255.0)
        np.testing.assert_allclose(softmaxed(np.hstack([0 * logits, logits])), wanted, atol=1e-5)
    else:
        assert isinstance(graph, str) or not graph.ending, "it is not left out with what makes p"


def test_forms_of_a_linear_layer(tmp_path: Path) -> None:
    for shape in ((), (1,), (1, 1), (5,), (1, 5)):
        nodes = [node("Gemm", ["c", "k", "b"], ["m"], "middle", beta=2.0)]
        is_right(network(tmp_path, nodes, (1, 4), 5, k=drawn(4, 5), b=drawn(*shape)))
    nodes = [node("Gemm", ["c", "k", "b"], ["m"], "middle", beta=0.0)]
    is_right(network(tmp_path, nodes, (1, 4), 5, k=drawn(4, 5), b=drawn(5)))
    is_right(
        network(tmp_path, [node("MatMul", ["c", "k"], ["m"], "middle")], (1, 4, 6), 20, k=drawn(1, 6, 5))
    )
    square = [node("Mul", ["c", "c"], ["q"]), node("Gemm", ["q", "k"], ["m"], "middle")]
    is_right(network(tmp_path, square, (1, 4), 5, k=drawn(4, 5)))
    vector = [node("MatMul", ["c", "k"], ["m"], "middle")]
    assert "a matrix, of two axes" in refusal(network(tmp_path, vector, (1, 4, 6), 4, k=drawn(6)))


@pytest.mark.parametrize("op", ["HardSigmoid", "LeakyRelu", "Elu", "ThresholdedRelu", "Clip", "Max"])
def test_what_reads_a_square_keeps_its_attributes(op: str, tmp_path: Path) -> None:
    """A square may begin a normalisation; what reads it else was called by its name alone."""
    about: dict[str, Any] = {} if op in ("Clip", "Max") else {"alpha": 0.3}
    names = ["q", "limit"] if op in ("Clip", "Max") else ["q"]
    nodes = [node("Mul", ["c", "c"], ["q"]), node(op, names, ["m"], "middle", **about)]
    path = network(tmp_path, nodes, (1, 4), 4, opset=20, limit=np.float32(0.05))
    assert right_or_refused(path) or op == "ThresholdedRelu"


def test_a_reduction_over_no_axes_changes_nothing(tmp_path: Path) -> None:
    for op in ("ReduceMean", "ReduceMax"):
        nodes = [node(op, ["c"], ["m"], "middle", noop_with_empty_axes=1)]
        is_right(network(tmp_path, nodes, (1, 4, 5, 5), 100))


def test_what_nobody_reads_is_left_out(tmp_path: Path) -> None:
    nodes = [node("NonZero", ["c"], ["nowhere"]), node("Relu", ["c"], ["m"], "middle")]
    is_right(network(tmp_path, nodes, (1, 4, 5, 5), 100))


@pytest.mark.parametrize("dims", [[6], [3, 8, 8]])
def test_an_input_without_a_batch_is_a_sentence(dims: list[int], tmp_path: Path) -> None:
    nodes = [node("Unsqueeze", ["x", "first"], ["u"]), node("Flatten", ["u"], ["f"])]
    nodes += [node("Gemm", ["f", "w"], ["y"], "last")]
    arrays = constants(first=np.array([0]), w=drawn(int(np.prod(dims)), 3))
    assert "without an axis for the batch" in refusal(saved(tmp_path / "net.onnx", nodes, arrays, dims))


def test_a_batch_that_is_fixed_is_named(tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "two"], ["f"], "middle"), node("Gemm", ["f", "w"], ["y"], "last")]
    arrays = constants(two=np.array([2, 12]), w=drawn(12, 3))
    assert "for batches of 2" in refusal(saved(tmp_path / "net.onnx", nodes, arrays, (2, 3, 2, 2)))


@pytest.mark.parametrize(
    ("factor", "rounding", "inputs", "taken"),
    [
        (0.6, "floor", 10, [0, 2, 3, 5, 6, 8]),
        (2.7, "round_prefer_ceil", 8, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7]),
        (1.5, "round_prefer_floor", 9, [0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 8]),
    ],
)
def test_nearest_pixels_are_those_of_onnx_runtime(
    factor: float, rounding: str, inputs: int, taken: list[int]
) -> None:
    """Of places halfway between two pixels its float32 decides; these are its answers (1.32)."""
    places = of_onnx("half_pixel", rounding)
    assert list(places(inputs, len(taken), float(np.float32(factor)))) == taken


def test_zeros_around_a_map_that_is_flattened_with_its_channels_last(tmp_path: Path) -> None:
    """It was once called a damaged file, as were the two below."""
    nodes = [
        node("Transpose", ["c"], ["t"], perm=TO_LAST),
        node("Pad", ["t", "p"], ["q"]),
        node("Reshape", ["q", "flat"], ["m"]),
    ]
    is_right(network(tmp_path, nodes, (1, 4, 4, 5), 4 * 5 * 7, p=np.array([0, 1, 0, 0, 0, 0, 2, 0])))


def test_an_expansion_by_fewer_axes(tmp_path: Path) -> None:
    is_right(network(tmp_path, [node("Expand", ["c", "n"], ["m"])], (1, 4, 4, 5), 80, n=np.array([4, 5])))


def test_two_endings_inside_a_network_are_two_sentences(tmp_path: Path) -> None:
    nodes = [node("Softmax", ["c"], ["s"], "one", axis=2), node("Softmax", ["s"], ["m"], "two", axis=3)]
    assert "2 layers (one, two)" in refusal(network(tmp_path, nodes, (1, 4, 4, 5), 80))


def test_functions_of_a_file_are_named_as_such(tmp_path: Path) -> None:
    path = network(tmp_path, [node("Gate", ["c"], ["m"], "middle", domain="own")], (1, 4, 5, 5), 100)
    model, about = onnx.load(str(path)), [helper.make_opsetid("", 18)]
    body = [node("Sigmoid", ["a"], ["s"]), node("Mul", ["a", "s"], ["b"])]
    model.functions.append(helper.make_function("own", "Gate", ["a"], ["b"], body, about))
    model.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(model, str(path))
    assert "inline_local_functions" in refusal(path)
    onnx.save(onnx.inliner.inline_local_functions(model), str(path))
    is_right(path)


def _loaded(path: Path) -> Any:
    """The graph of a file, or why it has none."""
    try:
        return load(path)
    except ConvertError as error:
        return str(error)


def test_a_gelu_behind_a_gate_reads_no_label(tmp_path: Path) -> None:
    """What stands behind probabilities may be a label of them: the GELU's last step was not found."""
    nodes = [
        node("Sigmoid", ["c"], ["s"]),
        node("Div", ["s", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["a"]),
        node("Mul", ["s", "a"], ["h"]),
        node("Mul", ["h", "half"], ["m"], "middle"),
    ]
    numbers = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    is_right(network(tmp_path, nodes, (1, 4, 3, 5), 60, **numbers))


def test_rows_in_place_of_channels_are_no_blocks(tmp_path: Path) -> None:
    """Half as many rows as before, and as many channels as columns were: once taken for SpaceToDepth."""
    nodes = [
        node("ReduceMax", ["c", "one"], ["r"], "reduced"),
        node("Transpose", ["r"], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["v"], "middle"),
        node("Tile", ["v", "twice"], ["m"]),
    ]
    arrays = {"one": np.array([1]), "w": drawn(2, 5, 1, 1), "twice": np.array([1, 1, 2, 1])}
    assert right_or_refused(network(tmp_path, nodes, (1, 4, 2, 5), 8, **arrays))
