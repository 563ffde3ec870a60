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
    model = onnx.load(str(path))
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, (1, 5, 1, 18)))
    path.write_bytes(model.SerializeToString())
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
    model = onnx.load(str(path))
    for name in ("s", "f"):
        size = helper.make_tensor_value_info(name, TensorProto.FLOAT, (TIME, 1, UNITS))
        model.graph.value_info.append(size)
    path.write_bytes(model.SerializeToString())
    return path


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
