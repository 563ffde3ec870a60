"""TFLite files of maps of as many rows, or columns, as channels: what is turned stays so for all readers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from interpreted import interpreted, sample_shape

from lab.attack.keras_networks import normed, turned
from lab.attack.tflite_networks import Float
from microtrain.convert.execute.batched import run_float
from microtrain.convert.frontends.module import load_model
from microtrain.convert.ir import ConvertError

N = 4


def square(*shape: int) -> Float:
    """A map, and a layer that reads it before anything else does."""
    return Float(*shape).conv(N, 1, 1, act=0)


def ended(net: Float) -> Float:
    return net.view(1, math.prod(net.shape)).linear(3)


def flattened() -> Float:
    """In PyTorch's order, with an activation behind the view, as litert-torch has it."""
    net = turned(square(6, 5, 2), 0, 3, 1, 2).view(1, 6 * 5 * N)
    return net.op("LOGISTIC", (net.x,), net.shape).linear(3)


def columns() -> Float:
    """A map of one channel whose columns became rows."""
    net = turned(Float(N, N, N).conv(1, 1, 1, act=0), 0, 3, 2, 1)
    return ended(net.op("ABS", (net.x,), net.shape, "AbsOptions"))


def both_ways() -> Float:
    """An input and the same one turned."""
    net = Float(N, N)
    given = net.x
    net = turned(net, 0, 2, 1)
    return ended(net.op("ADD", (net.x, given), net.shape, "AddOptions").linear(N, 1, N))


def across_channels() -> Float:
    """The sum of the channels, [n, rows, columns], and more columns."""
    net = square(N, N, 2).over("SUM", 3)
    widths = net.w.tensor("p", (3, 2), "int32", np.array([[0, 0], [0, 0], [1, 0]]))
    return net.op("MIRROR_PAD", (net.x, widths), (1, N, N + 1), "MirrorPadOptions", Mode=0).over("MEAN", 1)


def of_columns() -> Float:
    """A mean over what became the columns, of what another layer made of a turned map."""
    net = turned(square(N, 2, 3), 0, 2, 3, 1)
    net.op("SUB", (net.x, net.drawn(2, 1, 1)), net.shape, "SubOptions")
    net.op("MEAN", (net.x, net.whole(3)), (1, 2, N, 1), "ReducerOptions", KeepDims=True)
    return ended(net.op("LOGISTIC", (net.x,), net.shape))


def one_slope() -> Float:
    net = square(N, N, 2)
    slope = net.w.tensor("slope", (), "float32", np.array(0.25, np.float32))
    return ended(net.op("PRELU", (net.x, slope), net.shape))


def batch_of_rows(kind: str) -> Float:
    """Rows that became a batch, each with more numbers in two axes, of which one is turned or cut."""
    net = Float(5, N).linear(N, 1, 5).view(5, N, 1).linear(N, 5, N)
    if kind == "SLICE":
        return ended(net.op(kind, (net.x, net.whole(0, 1, 0), net.whole(5, 2, N)), (5, 2, N), "SliceOptions"))
    return ended(net.op(kind, (net.x, net.whole(1)), net.shape, "ReverseV2Options"))


def stacked() -> Float:
    """Twice the same, of a map of one channel that was turned: where that is plain, it lies otherwise."""
    net = turned(Float(5, N, 3).conv(1, 3, 3, act=0), 0, 3, 2, 1)
    net.op("PACK", (net.x, net.x), (*net.shape, 2), "PackOptions", Axis=4, ValuesCount=2)
    return ended(net.over("MEAN", 4))


def said_of_what_was_turned() -> Float:
    """A comparison of a map of one channel that was turned."""
    net = Float(2, 6, 2)
    net = turned(net.op("BATCH_MATMUL", (net.x, net.drawn(1, 1, 2, 1)), (1, 2, 6, 1)), 0, 3, 2, 1)
    x, half = net.x, net.w.tensor("half", (), "float32", np.array(0.0, np.float32))
    mask = net.w.tensor("mask", net.shape, "bool")
    net.w.op("LESS_EQUAL", (x, half), (mask,))
    net.op("CAST", (mask,), net.shape, "CastOptions")
    return ended(net.op("ADD", (net.x, x), net.shape, "AddOptions"))


def one_row() -> Float:
    """A series that is convolved as a row, which is a column here, from its end."""
    net = Float(N, 2).view(1, 1, N, 2).conv(3, 1, 3, act=0)
    return ended(net.op("REVERSE_V2", (net.x, net.whole(2)), net.shape, "ReverseV2Options"))


def mean_of_a_vector() -> Float:
    """Features seen as moments of one number, whose mean is a gate for them."""
    net = Float(N + 2, N + 2).linear(N + 2, 1, N + 2).over("MEAN", 1).view(1, N + 2, 1)
    given = net.x
    net.op("MEAN", (net.x, net.whole(1)), (1, 1, 1), "ReducerOptions", KeepDims=True)
    net.op("LOGISTIC", (net.x,), net.shape)
    return ended(net.op("MUL", (given, net.x), (1, N + 2, 1), "MulOptions"))


def padded_vector() -> Float:
    """Zeros before and behind a vector, all of which are seen as rows."""
    net = Float(N, N).linear(N, 1, N).over("MEAN", 1).view(1, 1, N)
    widths = net.w.tensor("p", (3, 2), "int32", np.array([[0, 0], [1, 1], [0, 0]]))
    net.op("PAD", (net.x, widths), (1, 3, N), "PadOptions").view(1, 6, 2)
    return ended(net.op("ABS", (net.x,), net.shape, "AbsOptions"))


def first_channel() -> Float:
    """Of an input, which is none of its own with as many channels as it has columns."""
    net = Float(N, N, N)
    net.op(
        "GATHER", (net.x, net.w.tensor("place", (), "int32", np.array(0))), (1, N, N), "GatherOptions", Axis=3
    )
    return net.over("MEAN", 1).linear(3)


def listed_twice() -> Float:
    """As many features as there were, some of them twice, and a layer behind them."""
    net = Float(N, N).over("MEAN", 1).linear(N)
    return net.op("GATHER", (net.x, net.whole(3, 2, 2, 0)), (1, N), "GatherOptions", Axis=1).linear(3)


def first_features() -> Float:
    """Of rows that are a batch."""
    net = Float(N, 2, 3).linear(3, 1, N, 2).view(2 * N, 3)
    return ended(net.op("GATHER", (net.x, net.whole(0)), (2 * N, 1), "GatherOptions", Axis=1))


def joined_flat() -> Float:
    """Two maps as vectors, side by side, the numbers of which are turned round."""
    net = square(3, 2, N).view(1, 6 * N)
    net.op("CONCATENATION", (net.x, net.x), (1, 12 * N), "ConcatenationOptions", Axis=1)
    return net.op("REVERSE_V2", (net.x, net.whole(1)), net.shape, "ReverseV2Options").linear(3)


def beside_rows_turned_round() -> Float:
    """A sum with rows whose features were turned round, all of them as a batch."""
    net = square(N, N, N).view(N * N, N)
    rows = net.x
    net.op("REVERSE_V2", (rows, net.whole(1)), net.shape, "ReverseV2Options")
    return ended(net.op("ADD", (rows, net.x), net.shape, "AddOptions"))


def repeated_rows() -> Float:
    """Of one place of the last axis of a map, whose columns have no place in memory of their own."""
    net = square(N, N, 2)
    net.op(
        "GATHER", (net.x, net.w.tensor("place", (), "int32", np.array(1))), (1, N, N), "GatherOptions", Axis=3
    )
    net.view(1, N, 1, N).op("TILE", (net.x, net.whole(1, 1, 3, 1)), (1, N, 3, N)).view(1, 3 * N, N)
    return ended(net)


def gate_as_large() -> Float:
    """A mean of each number of the last axis, as large as the turned map that it opens."""
    net = turned(square(N, N, N), 0, 3, 2, 1)
    given = net.x
    net.op("MEAN", (given, net.whole(1, 2)), (1, 1, 1, N), "ReducerOptions", KeepDims=True)
    net.op("BROADCAST_TO", (net.x, net.whole(1, N, N, N)), (1, N, N, N), "BroadcastToOptions")
    return ended(net.op("MUL", (net.x, given), net.shape, "MulOptions"))


def rows_of_a_turned_map() -> Float:
    """A layer over the last axis, behind which rows and columns are a batch."""
    net = turned(square(3, N, 2), 0, 2, 1, 3)
    weights = (net.x, net.drawn(N, N), net.drawn(N))
    return ended(net.op("FULLY_CONNECTED", weights, (3 * N, N), "FullyConnectedOptions", KeepNumDims=False))


def repeated_features() -> Float:
    """Each moment's one number twice, which is no map of as many rows, and turned round."""
    net = Float(N, N).linear(1, 1, N)
    net.op("TILE", (net.x, net.whole(1, 1, 2)), (1, N, 2))
    return ended(net.op("REVERSE_V2", (net.x, net.whole(2)), net.shape, "ReverseV2Options"))


def padded_series() -> Float:
    """Zeros before a series whose mean is taken."""
    net = Float(N, N)
    widths = net.w.tensor("p", (3, 2), "int32", np.array([[0, 0], [2, 0], [0, 0]]))
    return net.op("PAD", (net.x, widths), (1, N + 2, N), "PadOptions").over("MEAN", 1).linear(3)


def seen_apart() -> Float:
    """A last axis of one that is taken away again: rows stay rows."""
    net = Float(N, N)
    net.op("EXPAND_DIMS", (net.x, net.whole(3)), (1, N, N, 1), "ExpandDimsOptions")
    made = net.w.tensor("part", (1, N, N), "float32")
    net.w.op("UNPACK", (net.x,), (made,), "UnpackOptions", Num=1, Axis=3)
    net.x, net.shape = made, (1, N, N)
    return net.over("MEAN", 1).linear(3)


def squared_features() -> Float:
    """Squares of a vector, which are no part of a norm: with an activation of their own, and a matrix's."""
    net = Float(N, N).over("MEAN", 1).linear(N)
    net.op("MUL", (net.x, net.x), net.shape, "MulOptions", FusedActivationFunction=2)
    net.op("SQUARE", (net.x,), net.shape, "SquareOptions")
    about = {"AdjX": False, "AdjY": True}
    return net.op("BATCH_MATMUL", (net.x, net.drawn(N, N)), net.shape, "BatchMatMulOptions", **about).linear(
        3
    )


def features_with_axes() -> Float:
    """A linear layer over all of a map, of which the file keeps the axes."""
    net = Float(1, 1, 2 * N).linear(N, 1, 1, 1)
    return ended(net.op("REVERSE_V2", (net.x, net.whole(2, 3)), net.shape, "ReverseV2Options"))


def norm_of_a_part() -> Float:
    """Over the moments of the first channel, of which there are as many as channels."""
    net = Float(N, N).linear(N, 1, N)
    place = net.w.tensor("place", (), "int32", np.array(0))
    net.op("GATHER", (net.x, place), (1, N), "GatherOptions", Axis=2)
    return normed(net).linear(3)


CONVERT = {
    "a batch of rows, cut": lambda: batch_of_rows("SLICE"),
    "a batch of rows, turned round": lambda: batch_of_rows("REVERSE_V2"),
    "flattened": flattened,
    "columns": columns,
    "both ways": both_ways,
    "across channels": lambda: across_channels().linear(3),
    "of columns": of_columns,
    "stacked": stacked,
    "said of what was turned": said_of_what_was_turned,
    "one row": one_row,
    "one slope": one_slope,
    "mean of a vector": mean_of_a_vector,
    "padded vector": padded_vector,
    "first channel": first_channel,
    "listed twice": listed_twice,
    "first features": first_features,
    "joined flat": joined_flat,
    "beside rows turned round": beside_rows_turned_round,
    "repeated rows": repeated_rows,
    "gate as large": gate_as_large,
    "rows of a turned map": rows_of_a_turned_map,
    "repeated features": repeated_features,
    "padded series": padded_series,
    "seen apart": seen_apart,
    "norm of a part": norm_of_a_part,
    "squared features": squared_features,
    "features with axes": features_with_axes,
}


@pytest.mark.parametrize("name", CONVERT)
def test_a_square_map_of_a_file(name: str, tmp_path: Path) -> None:
    net = CONVERT[name]()
    path = net.file(tmp_path)
    graph = load_model(path).graph
    shape = graph.tensors["input"].shape
    pixels = np.random.default_rng(0).integers(0, 256, (3, *shape)).astype(np.uint8)
    wanted = interpreted(path, pixels.reshape(3, *sample_shape(path)))
    found = run_float(graph, pixels).reshape(wanted.shape)
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()


def shares_turned() -> Float:
    """A product with the shares of attention, turned: a token takes what the others look for in it."""
    net = Float(N, N).linear(N, 1, N)
    tokens, about = net.x, "BatchMatMulOptions"
    net.op("BATCH_MATMUL", (tokens, tokens), net.shape, about, AdjX=False, AdjY=True)
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0)
    return ended(net.op("BATCH_MATMUL", (net.x, tokens), net.shape, about, AdjX=True, AdjY=False))


def rows_of_length_one() -> Float:
    net = square(N, N, 2).view(N, N * N)
    return ended(net.op("L2_NORMALIZATION", (net.x,), net.shape, "L2NormOptions"))


def more_rows() -> Float:
    """Of a map of one row: a series, as Keras' Conv2D reads it."""
    net = Float(N, N).view(1, 1, N, N).conv(N, 1, 1)
    kind, about = "RESIZE_NEAREST_NEIGHBOR", {"AlignCorners": False, "HalfPixelCenters": True}
    made = (1, N, N, N)
    return ended(net.op(kind, (net.x, net.whole(N, N)), made, "ResizeNearestNeighborOptions", **about))


def rows_as_a_batch() -> Float:
    """The mean of each row's columns beside the map, along whose columns it would lie."""
    net = square(N, N, N)
    given = net.x
    net.view(N, N, N)
    net.op("MEAN", (net.x, net.whole(1)), (N, 1, N), "ReducerOptions", KeepDims=True)
    return ended(net.op("MAXIMUM", (net.x, given), (1, N, N, N), "MaximumMinimumOptions"))


def rows_of_one() -> Float:
    """A transposed convolution over one row of pixels that makes three of it."""
    net = Float(N, N).view(1, 1, N, N)
    weights, about = net.drawn(N, 3, 1, N), {"Padding": 1, "StrideH": 1, "StrideW": 1}
    given = (net.whole(1, 3, N, N), weights, net.x)
    return ended(net.op("TRANSPOSE_CONV", given, (1, 3, N, N), "TransposeConvOptions", **about))


def stacked_unlike() -> Float:
    """Rows and rows whose features were turned round, on an axis of their own."""
    net = square(N, N, N).view(N * N, N)
    rows = net.x
    net.op("REVERSE_V2", (rows, net.whole(1)), net.shape, "ReverseV2Options")
    net.op("PACK", (rows, net.x), (N * N, 2, N), "PackOptions", ValuesCount=2, Axis=1)
    return ended(net.over("SUM", 1))


REFUSED: dict[str, tuple[Callable[[], Float], str]] = {
    "shares turned": (shares_turned, "the op matmul on the scores of attention"),
    "rows as a batch": (rows_as_a_batch, r"MAXIMUM of \[4, 1, 4\] and \[1, 4, 4, 4\] is not supported"),
    "more rows": (more_rows, "adds rows to a map of one row"),
    "rows of one": (rows_of_one, "layer deconv1: TRANSPOSE_CONV adds rows to a map of one row"),
    "stacked unlike": (stacked_unlike, "PACK of tensors whose numbers lie in different orders"),
    "rows of length one": (rows_of_length_one, r"the length of each row of a view \[4, 16\]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_square_map_is_not(name: str, tmp_path: Path) -> None:
    """Each converted once: shares as they were, rows as columns or a batch, one length for all rows."""
    make, text = REFUSED[name]
    with pytest.raises(ConvertError, match=text):
        load_model(make().file(tmp_path))
