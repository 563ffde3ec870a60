"""ONNX files as torch.onnx.export writes them since PyTorch 2.9, whose exporter goes through torch.export.

The files are built here, node for node as that exporter writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_onnx import constants, load, reference, saved
from test_other_onnx import differs, drawn, node, right_or_refused

from microtrain.convert.execute.batched import run_float
from microtrain.convert.ir import ConvertError, Graph

OPSET = 20  # its default


def between(
    folder: Path, middle: Sequence[Any], about: dict[str, np.ndarray], batch: Any = 1, opset: int = OPSET
) -> Path:
    """A network of images 3x6x5, between whose two convolutions nodes make m of c, five channels."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c"], "first", pads=[1, 1, 1, 1]),
        *middle,
        node("Conv", ["m", "w2"], ["c2"], "second", pads=[1, 1, 1, 1]),
        node("Relu", ["c2"], ["r"]),
        node("ReduceMean", ["r", "sides"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w3"], ["y"], "last", transB=1),
    ]
    arrays = {"w1": drawn(5, 3, 3, 3), "b1": drawn(5), "w2": drawn(6, 5, 3, 3), "w3": drawn(4, 6)}
    arrays |= {"sides": np.array([-1, -2])} | about
    return saved(folder / "net.onnx", nodes, constants(**arrays), (batch, 3, 6, 5), opset=opset)


def sized(path: Path, **sizes: tuple[int, ...]) -> Path:
    """The file with the sizes of tensors, which the exporter writes of all."""
    model = onnx.load(str(path))
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in sizes.items()]
    model.graph.value_info.extend(infos)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_batch_that_is_left_open_is_one_axis_of_the_shape(tmp_path: Path) -> None:
    """Shape of some axes was taken for that of all, and views behind it were refused."""
    middle = [
        node("Shape", ["c"], ["n"], start=0, end=1),
        node("Concat", ["n", "flat"], ["to"], axis=0),
        node("Reshape", ["c", "to"], ["v"], allowzero=1),
        node("Concat", ["n", "whole"], ["back"], axis=0),
        node("Reshape", ["v", "back"], ["m"], allowzero=1),
    ]
    about = {"flat": np.array([5, 30]), "whole": np.array([5, 6, 5])}
    path = between(tmp_path, middle, about, batch="batch")
    assert differs(path, load(path)) < 1e-5


def listed(places: list[int], axis: int, back: list[int]) -> tuple[list[Any], dict[str, np.ndarray]]:
    to_front = [axis, *(a for a in range(4) if a != axis)]
    middle = [
        node("Transpose", ["c"], ["t"], perm=to_front),
        node("GatherND", ["t", "places"], ["g"], "middle", batch_dims=0),
        node("Transpose", ["g"], ["m"], perm=back),
    ]
    return middle, {"places": np.array(places)[:, None]}


@pytest.mark.parametrize(("axis", "back"), [(1, [1, 0, 2, 3]), (2, [1, 2, 0, 3]), (3, [1, 2, 3, 0])])
def test_a_list_of_places_along_one_axis(axis: int, back: list[int], tmp_path: Path) -> None:
    """`x[:, [4, 1, 1, 0, 2]]`"""
    path = between(tmp_path, *listed([4, 1, 1, 0, -3], axis, back))
    assert differs(path, load(path)) < 1e-5


def test_places_that_come_back_elsewhere_are_no_list_along_one_axis(tmp_path: Path) -> None:
    """As many rows as channels, in each other's place."""
    middle, about = listed([4, 1, 1, 0, 2], 2, [1, 0, 2, 3])
    right_or_refused(between(tmp_path, middle, about))
    outside, about = listed([5, 1, 1, 0, 2], 1, [1, 0, 2, 3])
    with pytest.raises(ConvertError, match=r"layer middle: GatherND of places \[5, 1, 1, 0, 2\] of 5"):
        load(between(tmp_path, outside, about))


def test_places_along_two_axes_are_a_sentence(tmp_path: Path) -> None:
    middle = [node("GatherND", ["c", "places"], ["m"], "middle", batch_dims=0)]
    with pytest.raises(ConvertError, match=r"layer middle: GatherND of places .* of several axes"):
        load(between(tmp_path, middle, {"places": np.zeros((1, 5, 2), np.int64)}))


def test_what_is_cast_like_another_tensor_is_as_it_was(tmp_path: Path) -> None:
    middle = [
        node("CastLike", ["c", "real"], ["d"]),
        node("CastLike", ["whole", "c"], ["k"]),
        node("Mul", ["d", "k"], ["m"], "middle"),
    ]
    about = {"real": np.zeros((), np.float32), "whole": np.array([3, -2, 1, 5, 2])[:, None, None]}
    path = between(tmp_path, middle, about)
    assert differs(path, load(path)) < 1e-5
    middle[0] = node("CastLike", ["c", "whole"], ["d"], "middle")
    with pytest.raises(ConvertError, match="layer middle: CastLike of activations to whole numbers"):
        load(between(tmp_path, middle, about))


@pytest.mark.parametrize("op", ["Max", "Min", "Sum"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_largest_of_any_number_of_constants(op: str, count: int, tmp_path: Path) -> None:
    """One or three of them were called a damaged file."""
    names = [f"k{i}" for i in range(count)]
    middle = [node(op, names, ["k"]), node("Mul", ["c", "k"], ["m"], "middle")]
    path = between(tmp_path, middle, {name: drawn(5, 1, 1) for name in names})
    assert differs(path, load(path)) < 1e-5


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_constants_by_their_length(op: str, tmp_path: Path) -> None:
    """Weights whose norm has a limit, as networks for brain waves have them."""
    middle = [
        node(op, ["k", "over"], ["far"], keepdims=1),
        node("Div", ["k", "far"], ["d"]),
        node("Conv", ["c", "d"], ["m"], "middle"),
    ]
    path = between(tmp_path, middle, {"k": drawn(5, 5, 1, 1), "over": np.array([1, 2, 3])})
    assert differs(path, load(path)) < 1e-5


@pytest.mark.parametrize("training", [0, 1])
def test_weights_that_a_batch_norm_standardises(training: int, tmp_path: Path) -> None:
    """Weight standardisation as timm writes it (NFNet): each filter is a channel of a batch of one."""
    params = ["scale", "shift", "mean", "var"]
    made = ["s", "rm", "rv"] if training else ["s"]
    middle = [
        node("Reshape", ["k", "flat"], ["v"]),
        node("BatchNormalization", ["v", *params], made, training_mode=training, epsilon=1e-3),
        node("Reshape", ["s", "whole"], ["w"]),
        node("Conv", ["c", "w"], ["m"], "middle", pads=[1, 1, 1, 1]),
    ]
    about = {"k": drawn(5, 5, 3, 3), "flat": np.array([1, 5, 45]), "whole": np.array([5, 5, 3, 3])}
    about |= {"scale": drawn(5, around=1), "shift": drawn(5), "mean": drawn(5), "var": drawn(5) ** 2 + 0.1}
    path = between(tmp_path, middle, about)
    assert differs(path, load(path)) < 1e-5


def test_an_unknown_op_on_a_series_is_a_sentence(tmp_path: Path) -> None:
    """The convolution behind it was looked at without an end, and the file called damaged."""
    nodes = [
        node("Conv", ["x", "w1"], ["c"], "first"),
        node("Unsqueeze", ["c", "row"], ["u"]),
        node("Hardmax", ["u"], ["h"], "middle"),
        node("Squeeze", ["h", "row"], ["s"]),
        node("Conv", ["s", "w2"], ["d"], "second"),
        node("GlobalAveragePool", ["d"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w3"], ["y"], "last", transB=1),
    ]
    arrays = constants(w1=drawn(5, 3, 3), w2=drawn(6, 5, 3), w3=drawn(4, 6), row=np.array([2]))
    path = saved(tmp_path / "net.onnx", nodes, arrays, (1, 3, 20), opset=OPSET)
    sized(path, h=(1, 5, 1, 18))
    with pytest.raises(ConvertError, match="layer middle: the op hardmax is not supported"):
        load(path)


TIME, FEATURES, UNITS = 5, 4, 3


def unrolled(
    folder: Path, backward: bool, read: str = "moment", zeros: bool = False, wrong: str = ""
) -> Path:
    """nn.RNN, one moment after the other, and a head.

    backward  it goes from the last moment to the first
    read      what the head reads: the second "moment" of its results, or its "state" in the end
    zeros     the first moment multiplies a state of zeros, as where the batch is left open
    wrong     what is not as in nn.RNN: a "matrix", a "bias", the "start", the "order", a "moment" left out
    """
    arrays = {"w": drawn(FEATURES, UNITS), "a": drawn(UNITS), "r": drawn(UNITS, UNITS), "b": drawn(UNITS)}
    arrays |= {
        "none": np.zeros((1, 1, UNITS), np.float32),
        "start": arrays["b"][None, None] + (wrong == "start"),
    }
    arrays |= {"other matrix": drawn(UNITS, UNITS), "other bias": drawn(UNITS), "h": drawn(UNITS, 2)}
    arrays |= {f"n{t}": np.array([t]) for t in range(TIME + 1)}
    arrays |= {"end": np.array([-1]), "far": np.array([-(1 << 63)]), "one": np.array(1)}
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("MatMul", ["t", "w"], ["v"], "product"),
        node("Add", ["v", "a"], ["s"], "sum"),
        *([node("Slice", ["s", "end", "far", "n0", "end"], ["f"])] if backward else []),
        *([node("MatMul", ["none", "r"], ["z"]), node("Add", ["z", "b"], ["q0"])] if zeros else []),
    ]
    for t in range(TIME):
        if t:
            matrix, bias = (
                f"other {word}" if (wrong, t) == (word, 2) else name
                for word, name in (("matrix", "r"), ("bias", "b"))
            )
            nodes += [
                node("MatMul", [f"h{t - 1}", matrix], [f"m{t}"]),
                node("Add", [f"m{t}", bias], [f"q{t}"]),
            ]
        nodes += [
            node("Slice", ["f" if backward else "s", f"n{t}", f"n{t + 1}", "n0"], [f"c{t}"]),
            node("Squeeze", [f"c{t}", "n0"], [f"x{t}"]),
            node("Add", [f"q{t}" if t or zeros else "start", f"x{t}"], [f"p{t}"]),
            node("Tanh", [f"p{t}"], [f"h{t}"]),
        ]
    made = [f"h{t}" for t in range(wrong == "moment", TIME)]
    nodes += [
        node("Concat", made[::-1] if backward != (wrong == "order") else made, ["j"], axis=0),
        node("Gather", ["j", "one"], ["g"], axis=0),
        node("Squeeze", [made[-1], "n0"], ["e"]),
        node("Gemm", ["g" if read == "moment" else "e", "h"], ["y"]),
    ]
    path = saved(folder / "net.onnx", nodes, constants(**arrays), (1, TIME, FEATURES), opset=OPSET)
    return sized(path, s=(TIME, 1, UNITS), f=(TIME, 1, UNITS))


def of_rows(path: Path, graph: Graph) -> float:
    """The largest difference to ONNX's own evaluator."""
    pixels = np.random.default_rng(1).integers(0, 256, (6, TIME, FEATURES)).astype(np.uint8)
    wanted = np.concatenate([reference(path, p[None] / 255.0) for p in pixels])
    found = run_float(graph, pixels.reshape(6, *graph.tensors[graph.input.tensor].shape)).reshape(
        wanted.shape
    )
    return float(np.abs(found - wanted).max())


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("read", ["moment", "state"])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_recurrent_layer_that_is_written_out_is_one(
    backward: bool, read: str, zeros: bool, tmp_path: Path
) -> None:
    path = unrolled(tmp_path, backward, read, zeros)
    graph = load(path)
    assert of_rows(path, graph) < 1e-5
    assert any("gru" in each.op for each in graph.nodes), "each moment by itself"


@pytest.mark.parametrize("wrong", ["matrix", "bias", "start", "order", "moment"])
def test_what_is_nearly_a_recurrent_layer_is_none(wrong: str, tmp_path: Path) -> None:
    path = unrolled(tmp_path, backward=False, wrong=wrong)
    try:
        graph = load(path)
    except ConvertError as error:
        assert "is not supported" in str(error) or "does not fit" in str(error), error
    else:
        assert of_rows(path, graph) < 1e-5


def pooled(equal: bool, wrong: bool = False) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Averages over rows of a map of six, as F.adaptive_avg_pool2d has them, of all five columns.

    equal  to five rows, whose windows have two each: a mean. Else to four, and then the windows of the
           columns, to three, have one pixel or two: a sum of them, of which a mask leaves some out
    wrong  one place is another
    """
    tall, wide = (5, 5) if equal else (4, 3)
    starts = [[i * n // m for i in range(m)] for n, m in ((6, tall), (5, wide))]
    ends = [[-(-(i + 1) * n // m) for i in range(m)] for n, m in ((6, tall), (5, wide))]
    counts = [np.subtract(e, s) for s, e in zip(starts, ends, strict=True)]
    places = [
        np.minimum(np.array(s)[:, None] + np.arange(count.max()), n - 1)
        for s, count, n in zip(starts, counts, (6, 5), strict=True)
    ]
    if wrong:
        places[0][1, 0] -= 1
    at = np.stack(np.broadcast_arrays(places[0][:, :, None, None], places[1]), -1)
    middle = [
        node("Transpose", ["c"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "places"], ["g"], "middle", batch_dims=0),
        node("Transpose", ["g"], ["i"], perm=[4, 5, 0, 1, 2, 3]),
    ]
    if equal:
        return [*middle, node("ReduceMean", ["i", "over"], ["m"], keepdims=0)], {
            "places": at,
            "over": np.array([-3, -1]),
        }
    masks = [np.arange(count.max()) >= count[:, None] for count in counts]
    about = {"places": at, "rows": masks[0][:, :, None, None], "columns": masks[1]}
    about |= {"none": np.zeros((), np.float32)} | {str(i): np.array(i) for i in range(3)}
    about |= {"counts": np.outer(*counts).astype(np.float32)}
    middle += [node("Where", ["rows", "none", "i"], ["j"]), node("Where", ["columns", "none", "j"], ["k"])]
    sums: list[str] = []
    for row, column in np.ndindex(int(counts[0].max()), int(counts[1].max())):
        made = f"p{row}{column}"
        middle += [node("Gather", ["k", str(row)], [f"r{made}"], axis=3)]
        middle += [node("Gather", [f"r{made}", str(column)], [made], axis=4)]
        sums.append(made)
        if len(sums) > 1:
            middle.append(node("Add", sums[-2:], [f"s{made}"]))
            sums = [f"s{made}"]
    return [*middle, node("Div", [sums[0], "counts"], ["m"])], about


@pytest.mark.parametrize("equal", [False, True])
def test_averages_over_windows_of_different_sizes(equal: bool, tmp_path: Path) -> None:
    path = sized(between(tmp_path, *pooled(equal)), c=(1, 5, 6, 5))
    assert differs(path, load(path)) < 1e-5
    nearly = sized(between(tmp_path, *pooled(equal, wrong=True)), c=(1, 5, 6, 5))
    with pytest.raises(ConvertError, match="layer middle: GatherND of places"):
        load(nearly)


def test_averages_of_a_map_whose_axes_are_turned(tmp_path: Path) -> None:
    """Channels become rows (DiCENet): the exporter joins that with the turn of its list of places."""
    middle, about = pooled(equal=True)
    middle[0] = node("Transpose", ["c"], ["t"], perm=[1, 3, 0, 2])
    middle.append(node("Conv", ["m", "wide"], ["n"]))
    rows, columns = np.arange(4)[:, None] + np.arange(2), np.arange(5)[:, None]  # of five rows four averages
    about["places"] = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns), -1)
    about["wide"] = drawn(5, 6, 1, 1)
    path = between(tmp_path, middle, about)
    model = onnx.load(str(path))
    next(n for n in model.graph.node if n.name == "second").input[0] = "n"
    path.write_bytes(model.SerializeToString())
    sized(path, c=(1, 5, 6, 5))
    assert differs(path, load(path)) < 1e-5


def test_a_row_of_windows_is_a_series(tmp_path: Path) -> None:
    """adaptive_avg_pool1d: the series is seen as a row, and then as a series again."""
    nodes = [
        node("Conv", ["x", "w1"], ["s"], "first"),
        node("Unsqueeze", ["s", "row"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=[2, 3, 0, 1]),
        node("GatherND", ["t", "places"], ["g"], "middle"),
        node("Transpose", ["g"], ["i"], perm=[3, 4, 0, 1, 2]),
        node("ReduceMean", ["i", "last"], ["m"], keepdims=0),
        node("Squeeze", ["m", "row"], ["v"]),
        node("Flatten", ["v"], ["f"]),
        node("Gemm", ["f", "w2"], ["y"], "last", transB=1),
    ]
    columns = np.arange(5)[:, None] + np.arange(2)  # of six moments five averages
    arrays = {"w1": drawn(5, 3, 3), "w2": drawn(4, 25), "row": np.array([2]), "last": np.array([-1])}
    arrays["places"] = np.stack([np.zeros_like(columns), columns], -1)[None]
    path = saved(tmp_path / "net.onnx", nodes, constants(**arrays), (1, 3, 8), opset=OPSET)
    graph = load(sized(path, c=(1, 5, 1, 6)))
    pixels = np.random.default_rng(1).integers(0, 256, (6, 3, 8)).astype(np.uint8)
    wanted = np.concatenate([reference(path, p[None] / 255.0) for p in pixels])
    found = run_float(graph, pixels.transpose(0, 2, 1)[:, :, None]).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 1e-5


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_side_by_side(stride: int, tmp_path: Path) -> None:
    """F.unfold, kernels of 2x3."""
    tall, wide = (6 - 2) // stride + 1, (5 - 3) // stride + 1
    middle = [
        node("Gather", ["c", "rows"], ["g"], axis=2),
        node("Gather", ["g", "columns"], ["h"], "middle", axis=4),
        node("Transpose", ["h"], ["t"], perm=[0, 1, 2, 4, 3, 5]),
        node("Reshape", ["t", "to"], ["u"]),
        node("Reshape", ["u", "map"], ["m"]),
        node("Conv", ["m", "wide"], ["n"]),
    ]
    about = {"rows": np.arange(2)[:, None] + stride * np.arange(tall)}
    about |= {"columns": np.arange(3)[:, None] + stride * np.arange(wide), "wide": drawn(5, 30, 1, 1)}
    about |= {"to": np.array([1, 30, tall * wide]), "map": np.array([1, 30, tall, wide])}
    path = between(tmp_path, middle, about)
    model = onnx.load(str(path))
    next(n for n in model.graph.node if n.name == "second").input[0] = "n"
    path.write_bytes(model.SerializeToString())
    sized(path, c=(1, 5, 6, 5), u=(1, 30, tall * wide))
    assert differs(path, load(path)) < 1e-5


def test_all_numbers_as_another_shape(tmp_path: Path) -> None:
    """aten's as_strided, as a mean over time ends: all by their places, which is a view. Others are none."""
    for places, fits in ((np.arange(5)[None], True), (np.arange(5)[None, ::-1], False)):
        nodes = [
            node("Conv", ["x", "w1"], ["c"], "first"),
            node("ReduceMean", ["c", "over"], ["p"]),
            node("Reshape", ["p", "all"], ["f"]),
            node("Gather", ["f", "places"], ["g"], "middle", axis=0),
            node("Gemm", ["g", "w2"], ["y"], "last", transB=1),
        ]
        arrays = {"w1": drawn(5, 3, 3, 3), "w2": drawn(4, 5), "over": np.array([2, 3]), "all": np.array([-1])}
        arrays["places"] = places.copy()
        path = saved(tmp_path / "net.onnx", nodes, constants(**arrays), (1, 3, 6, 5), opset=OPSET)
        if fits:
            assert differs(path, load(path)) < 1e-5
        else:
            with pytest.raises(ConvertError, match=r"layer middle: Gather of places .* in several rows"):
                load(path)


def test_a_second_result_that_is_not_made_names_its_layer(tmp_path: Path) -> None:
    """The places of a pooling's maxima, as nn.MaxUnpool2d reads them."""
    pool = node("MaxPool", ["c"], ["p", "places"], "middle", kernel_shape=[1, 1])
    middle = [
        pool,
        node("Cast", ["places"], ["r"], "cast", to=TensorProto.FLOAT),
        node("Add", ["p", "r"], ["m"]),
    ]
    with pytest.raises(ConvertError, match="layer middle: result 2 of MaxPool is not supported"):
        load(between(tmp_path, middle, {}))


def test_layers_over_tokens_are_called_after_their_modules(tmp_path: Path) -> None:
    """Whose weights the file has turned, under a name of its own; two of one module after their nodes."""
    middle = [
        node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]),
        *(
            node("MatMul", [x, w], [y], f"node_{y}")
            for x, w, y in (("t", "a", "u"), ("u", "b", "v"), ("v", "d", "w"))
        ),
        node("Transpose", ["w"], ["m"], perm=[0, 3, 1, 2]),
    ]
    path = between(tmp_path, middle, {name: drawn(5, 5) for name in "abd"})
    model = onnx.load(str(path))
    for each, module in zip(model.graph.node[2:5], ("body.mix", "attn", "attn"), strict=True):
        said = f"['', 'body', '{module}', 'linear']"
        each.metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=said))
    path.write_bytes(model.SerializeToString())
    assert [n.layer for n in load(path).nodes if n.layer][1:4] == ["body.mix", "node_v", "node_w"]
