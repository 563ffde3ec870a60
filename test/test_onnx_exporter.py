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
from test_onnx import constants, load, saved
from test_other_onnx import differs, drawn, node, right_or_refused

from microtrain.convert.ir import ConvertError

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
