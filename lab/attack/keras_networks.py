"""Small float TFLite files as Keras writes them: attention, norms, shuffles and open batches in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .tflite_networks import Float


def turned(net: Float, *axes: int) -> Float:
    shape = [net.shape[a] for a in axes]
    return net.op("TRANSPOSE", (net.x, net.whole(*axes)), shape, "TransposeOptions")


def shuffled() -> Float:
    """ShuffleNet: channels in groups, which change places with their members."""
    net = Float(8, 7, 2).conv(6, 3, 3).view(1, 6, 5, 2, 3)
    return turned(net, 0, 1, 2, 4, 3).view(1, 6, 5, 6).conv(4, 3, 3).over("MEAN", 1, 2).linear(3)


def normed(net: Float, epsilon: float = 1e-3) -> Float:
    """LayerNormalization over the last axis, in nine pieces, with a scale and a shift."""
    x, shape, c = net.x, net.shape, net.shape[-1]
    one, last = (*shape[:-1], 1), net.whole(len(shape) - 1)
    net.op("MEAN", (x, last), one, "ReducerOptions", KeepDims=True)
    mean = net.x
    net.op("NEG", (mean,), one, "NegOptions")
    less = net.x
    net.op("SQUARED_DIFFERENCE", (x, mean), shape, "SquaredDifferenceOptions")
    net.op("MEAN", (net.x, last), one, "ReducerOptions", KeepDims=True)
    eps = net.w.tensor("eps", (), "float32", np.array(epsilon))
    net.op("ADD", (net.x, eps), one, "AddOptions").op("RSQRT", (net.x,), one)
    scale = net.w.tensor("gamma", (1,) * (len(shape) - 1) + (c,), "float32", net.rng.uniform(0.5, 1.5, c))
    net.op("MUL", (net.x, scale), shape, "MulOptions")
    factor = net.x
    net.op("MUL", (less, factor), shape, "MulOptions").op("ADD", (net.x, net.drawn(c)), shape, "AddOptions")
    rest = net.x
    net.op("MUL", (x, factor), shape, "MulOptions")
    return net.op("ADD", (net.x, rest), shape, "AddOptions")


def norm_of_a_map() -> Float:
    return normed(Float(8, 7, 2).conv(6, 3, 3)).conv(4, 3, 3).over("MEAN", 1, 2).linear(3)


def grouped(net: Float, groups: int, affine: bool = True, act: int = 0) -> Float:
    """GroupNormalization: a view of five axes, and the scale in the factor. act: of the last sum"""
    _, h, w, c = net.shape
    five, one = (1, h, w, groups, c // groups), (1, 1, 1, groups, 1)
    own = (1, 1, 1, groups, c // groups)
    given, over = net.view(*five).x, net.whole(1, 2, 4)
    mean = net.op("MEAN", (given, over), one, "ReducerOptions", KeepDims=True).x
    less = net.op("NEG", (mean,), one, "NegOptions").x
    net.op("SUB", (given, mean), five, "SubOptions").op("SQUARE", (net.x,), five, "SquareOptions")
    net.op("MEAN", (net.x, over), one, "ReducerOptions", KeepDims=True)
    eps = net.w.tensor("eps", (), "float32", np.array(1e-3))
    net.op("ADD", (net.x, eps), one, "AddOptions").op("RSQRT", (net.x,), one)
    if affine:
        gain = net.w.tensor("gamma", own, "float32", net.rng.uniform(0.5, 1.5, own))
        net.op("MUL", (net.x, gain), own, "MulOptions")
    factor, sizes = net.x, own if affine else one
    rest = net.op("MUL", (less, factor), sizes, "MulOptions").x
    if affine:
        shift = net.w.tensor("beta", own, "float32", net.rng.normal(size=own))
        rest = net.op("ADD", (rest, shift), own, "AddOptions").x
    net.op("MUL", (given, factor), five, "MulOptions")
    net.op("ADD", (net.x, rest), five, "AddOptions", FusedActivationFunction=act)
    return net.view(1, h, w, c)


def groups_of_channels() -> Float:
    """With a ReLU in the last sum, and without a scale; in a branch too, whose map others read as well."""
    net = grouped(Float(8, 7, 2).conv(6, 3, 3, act=0), 2, act=1).conv(6, 3, 3)
    before, shape = net.x, net.shape
    net = grouped(net, 3, affine=False).op("ADD", (net.x, before), shape, "AddOptions")
    return grouped(net, 6).conv(4, 2, 2).over("MEAN", 1, 2).linear(3)


def heads(net: Float, x: int, many: int, *axes: int) -> int:
    """Queries, keys or values of tokens, with an axis of heads, and a bias for each number of each head."""
    _, t, c = net.shape
    net.x = x
    about = {"KeepNumDims": True}
    net.op("FULLY_CONNECTED", (x, net.drawn(c, c), -1), (1, t, c), "FullyConnectedOptions", **about)
    net.view(1, t, many, c // many)
    net.op("ADD", (net.x, net.drawn(many, c // many)), net.shape, "AddOptions")
    turned(net, *axes)
    made, net.shape = net.x, (1, t, c)
    return made


def attention() -> Float:
    """MultiHeadAttention over a series, and what a transformer has around it."""
    net = normed(Float(7, 5).linear(6, 1, 7))
    x, (_, t, c) = net.x, net.shape
    q, k = heads(net, x, 2, 0, 2, 1, 3), heads(net, x, 2, 0, 2, 3, 1)
    net.op("BATCH_MATMUL", (q, k), (1, 2, t, t), "BatchMatMulOptions")
    factor = net.w.tensor("factor", (), "float32", np.array(3**-0.5))
    net.op("MUL", (net.x, factor), net.shape, "MulOptions")
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0)
    shares, net.shape = net.x, (1, t, c)
    v = heads(net, x, 2, 0, 2, 1, 3)
    net.op("BATCH_MATMUL", (shares, v), (1, 2, t, c // 2), "BatchMatMulOptions")
    turned(net, 0, 2, 1, 3).view(1, t, c)
    net.op("ADD", (net.x, x), net.shape, "AddOptions")
    return net.over("MEAN", 1).linear(3)


def woven(d: int = 2, more: int = 3) -> Float:
    """A dilated Conv1D with padding="same", where the batch is open: in batches of every d-th moment."""
    net = Float(11, 3)
    t = 11 + 2 + more
    pads = net.w.tensor("pads", (1, 2), "int32", np.array([[2, more]]))
    crops = net.w.tensor("crops", (1, 2), "int32", np.array([[0, more - 2]]))
    net.op("SPACE_TO_BATCH_ND", (net.x, net.whole(d), pads), (1, t // d, 3), "SpaceToBatchNDOptions")
    net.op("RESHAPE", (net.x, net.whole(-1, 1, t // d, 3)), (1, 1, t // d, 3))
    about = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    none = net.w.tensor("none", (6,), "float32", np.zeros(6))
    weights = (net.x, net.drawn(6, 1, 3, 3), none)
    net.op("CONV_2D", weights, (1, 1, t // d - 2, 6), "Conv2DOptions", **about)
    net.op("RESHAPE", (net.x, net.whole(-1, t // d - 2, 6)), (1, t // d - 2, 6))
    net.op("BATCH_TO_SPACE_ND", (net.x, net.whole(d), crops), (1, 11, 6), "BatchToSpaceNDOptions")
    net.op("ADD", (net.x, net.drawn(6)), net.shape, "AddOptions", FusedActivationFunction=1)
    return net.over("MEAN", 1).linear(3)


def open_batch() -> Float:
    """Dense over each moment, where the batch is open: moments become a batch, whose sizes are worked out."""
    net = Float(7, 5)
    of, some, many, last, two, three = (
        net.w.tensor(name, shape, "int32")
        for name, shape in (
            ("of", (3,)),
            ("some", (2,)),
            ("n", ()),
            ("c", ()),
            ("two", (2,)),
            ("three", (3,)),
        )
    )
    net.w.op("SHAPE", (net.x,), (of,), "ShapeOptions", OutType=2)
    net.w.op("GATHER", (of, net.whole(0, 1)), (some,), "GatherOptions", Axis=0)
    net.w.op("REDUCE_PROD", (some, net.whole(0)), (many,), "ReducerOptions")
    rest = net.w.tensor("rest", (1,), "int32")
    net.w.op("GATHER", (of, net.whole(2)), (rest,), "GatherOptions", Axis=0)
    net.w.op("REDUCE_PROD", (rest, net.whole(0)), (last,), "ReducerOptions")
    net.w.op("PACK", (many, last), (two,), "PackOptions", ValuesCount=2, Axis=0)
    net.w.op("CONCATENATION", (some, net.whole(6)), (three,), "ConcatenationOptions", Axis=0)
    flat = net.w.tensor("flat", (1, 1), "float32", signature=(-1, -1))
    net.w.op("RESHAPE", (net.x, two), (flat,), "ReshapeOptions")
    made = net.w.tensor("made", (1, 6), "float32", signature=(-1, 6))
    net.w.op("FULLY_CONNECTED", (flat, net.drawn(6, 5), -1), (made,), "FullyConnectedOptions")
    net.x = made
    net.op("RESHAPE", (net.x, three), (1, 7, 6), "ReshapeOptions")
    net.op("ADD", (net.x, net.drawn(6)), net.shape, "AddOptions", FusedActivationFunction=1)
    return net.over("MEAN", 1).linear(3)


def split(
    net: Float, kind: str, inputs: Sequence[int], shapes: Sequence[Sequence[int]], **about: Any
) -> list[int]:
    """Several results of an operator. about: its options, with their table"""
    parts = [net.w.tensor("part", shape, "float32") for shape in shapes]
    net.w.op(kind, inputs, parts, **about)
    return parts


def lists() -> Float:
    """Channels in parts of several sizes, in another order, and mirrored rows; maps that are stacked."""
    net = Float(8, 7, 2).conv(6, 3, 3)
    places = (net.x, net.whole(4, 0, 1, 5, 3))
    net.op("GATHER", places, (1, 6, 5, 5), "GatherOptions", Axis=3)
    sizes, axis = net.whole(2, -1), net.w.tensor("axis", (), "int32", np.array(3))
    shapes = ((1, 6, 5, 2), (1, 6, 5, 3))
    first, second = split(net, "SPLIT_V", (net.x, sizes, axis), shapes, table="SplitVOptions", NumSplits=2)
    net.op("CONCATENATION", (second, first), (1, 6, 5, 5), "ConcatenationOptions", Axis=3).conv(4, 3, 3)
    x = net.x
    net.op("REVERSE_V2", (x, net.whole(1)), net.shape, "ReverseV2Options")
    net.op("PACK", (x, net.x), (2, 1, 4, 3, 4), "PackOptions", ValuesCount=2, Axis=0)
    net.op("MEAN", (net.x, net.whole(0)), (1, 4, 3, 4), "ReducerOptions")
    return net.conv(4, 2, 2).over("MEAN", 1, 2).linear(3)


def row_by_row() -> Float:
    """SimpleRNN(unroll=True): the moments one by one, and a state that begins with zeros."""
    net = Float(4, 5)
    moments = split(net, "UNPACK", (net.x,), [(1, 5)] * 4, table="UnpackOptions", Num=4, Axis=1)
    weights, recurrent, bias = net.drawn(6, 5), net.drawn(6, 6), net.drawn(6)
    zero = net.w.tensor("zero", (), "float32", np.array(0))
    net.op("FILL", (net.whole(1, 6), zero), (1, 6), "FillOptions")
    for moment in moments:
        state, dense = net.x, "FullyConnectedOptions"
        net.op("FULLY_CONNECTED", (moment, weights, bias), (1, 6), dense)
        new = net.x
        net.op("FULLY_CONNECTED", (state, recurrent, -1), (1, 6), dense)
        net.op("ADD", (new, net.x), (1, 6), "AddOptions").op("TANH", (net.x,), (1, 6))
    return net.linear(3)


def halves() -> Float:
    """A vector in halves, one of which opens the other; PReLU of a vector."""
    net = Float(6, 5, 2).conv(6, 3, 3).over("MEAN", 1, 2).linear(8)
    slopes = net.w.tensor("slopes", (8,), "float32", net.rng.uniform(0.1, 0.6, 8))
    net.op("PRELU", (net.x, slopes), net.shape)
    axis = net.w.tensor("axis", (), "int32", np.array(1))
    a, b = split(net, "SPLIT", (axis, net.x), ((1, 4), (1, 4)), table="SplitOptions", NumSplits=2)
    net.op("LOGISTIC", (b,), (1, 4))
    return net.op("MUL", (a, net.x), (1, 4), "MulOptions").linear(3)


def channelled() -> Float:
    """ECA: a convolution over the channels of a vector, which opens those of a map."""
    net = Float(8, 7, 2).conv(6, 3, 3)
    x, shape = net.x, net.shape
    net.over("MEAN", 1, 2).view(1, 1, 6, 1)
    weights = (net.x, net.drawn(1, 1, 3, 1), net.drawn(1))
    about = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    net.op("CONV_2D", weights, net.shape, "Conv2DOptions", **about).op("LOGISTIC", (net.x,), net.shape)
    net.view(1, 1, 1, 6).op("MUL", (x, net.x), shape, "MulOptions")
    return net.conv(4, 3, 3).over("MEAN", 1, 2).linear(3)


def chosen() -> Float:
    """The larger of two maps by a comparison, its softmax over the channels, a power, and a sum of three."""
    net = Float(8, 7, 2).conv(6, 3, 3, act=0)
    a, shape = net.x, net.shape
    net.conv(6, 1, 1, act=0)
    b, more = net.x, net.w.tensor("more", shape, "bool")
    net.w.op("GREATER", (a, b), (more,), "GreaterOptions")
    net.op("SELECT_V2", (more, a, b), shape, "SelectV2Options")
    larger = net.x
    net.op("SOFTMAX", (larger,), shape, "SoftmaxOptions", Beta=1.0)
    two = net.w.tensor("two", (), "float32", np.array(2.0))
    net.op("POW", (net.x, two), shape, "PowOptions")
    net.op("ADD_N", (net.x, larger, a), shape, "AddNOptions").conv(4, 3, 3, act=0)
    return net.over("REDUCE_MIN", 1, 2).linear(3)


def lengths() -> Float:
    """Channels of each pixel over their Euclidean length, and the squared distance to another map."""
    net = Float(8, 7, 2).conv(6, 3, 3, act=0)
    x, shape = net.x, net.shape
    net.op("L2_NORMALIZATION", (x,), shape, "L2NormOptions")
    net.op("SQUARED_DIFFERENCE", (x, net.x), shape, "SquaredDifferenceOptions").conv(4, 3, 3)
    return net.over("MEAN", 1, 2).linear(3)


def half_precision() -> Float:
    """Weights in float16, which come out of a DEQUANTIZE each."""
    net = Float(8, 7, 2)
    for c in (4, 6):
        values = net.rng.uniform(-0.3, 0.5, (c, 3, 3, net.shape[-1])).astype(np.float16)
        stored = net.w.tensor("half", values.shape, "float16", values)
        weights = net.w.tensor("weights", values.shape, "float32")
        net.w.op("DEQUANTIZE", (stored,), (weights,), "DequantizeOptions")
        about = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
        _, h, w, _ = net.shape
        shape, given = (1, h - 2, w - 2, c), (net.x, weights, net.drawn(c))
        net.op("CONV_2D", given, shape, "Conv2DOptions", **about, FusedActivationFunction=1)
    return net.over("MEAN", 1, 2).linear(3)


def viewed_at_the_end() -> Float:
    """MobileNet of keras.applications: logits of a convolution, viewed in a shape that is worked out."""
    net = Float(8, 7, 2).conv(6, 3, 3)
    net.op("MEAN", (net.x, net.whole(1, 2)), (1, 1, 1, 6), "ReducerOptions", KeepDims=True).conv(
        3, 1, 1, act=0
    )
    of, batch, sizes = (
        net.w.tensor(name, shape, "int32") for name, shape in (("of", (4,)), ("n", ()), ("s", (2,)))
    )
    net.w.op("SHAPE", (net.x,), (of,), "ShapeOptions", OutType=2)
    ends = (of, net.whole(0), net.whole(1), net.whole(1))
    net.w.op("STRIDED_SLICE", ends, (batch,), "StridedSliceOptions", ShrinkAxisMask=1)
    three = net.w.tensor("three", (), "int32", np.array(3))
    net.w.op("PACK", (batch, three), (sizes,), "PackOptions", ValuesCount=2, Axis=0)
    return net.op("RESHAPE", (net.x, sizes), (1, 3), "ReshapeOptions")


def flattened_in_another_order() -> Float:
    """A flattened map in PyTorch's order of channels, as converters of its models write it."""
    net = Float(8, 7, 2).conv(6, 3, 3).conv(4, 3, 3)
    return turned(net, 0, 3, 1, 2).view(1, 48).linear(3)


def one_bias() -> Float:
    """Two layers that read one tensor of biases."""
    net = Float(8, 7, 2)
    bias, about = net.drawn(4), {"Padding": 1, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": 1}
    about |= {"DilationHFactor": 1, "DilationWFactor": 1}
    for shape in ((1, 6, 5, 4), (1, 4, 3, 4)):
        weights = (net.x, net.drawn(4, 3, 3, net.shape[-1]), bias)
        net.op("CONV_2D", weights, shape, "Conv2DOptions", **about)
    return net.over("MEAN", 1, 2).linear(3)


NETWORKS = (
    *(shuffled, norm_of_a_map, attention, woven, open_batch, lists, row_by_row, halves, channelled, chosen),
    *(lengths, half_precision, viewed_at_the_end, one_bias, flattened_in_another_order, groups_of_channels),
)
