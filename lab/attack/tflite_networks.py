"""Small float TFLite files as Keras and others write them: good ones, of the ops that the front end reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .tflite_files import Writer


class Float:
    """A float network, op by op, with random weights; `x` is the tensor made last, `shape` its own."""

    def __init__(self, *shape: int) -> None:
        self.w, self.rng = Writer(), np.random.default_rng(0)
        self.x, self.shape = self.w.tensor("input", (1, *shape), "float32"), (1, *shape)

    def whole(self, *numbers: int) -> int:
        """A constant of whole numbers."""
        return self.w.tensor("numbers", (len(numbers),), "int32", np.array(numbers))

    def drawn(self, *shape: int) -> int:
        values = self.rng.normal(0, 1.4 / np.prod(shape[1:]) ** 0.5, shape)
        return self.w.tensor("weights", shape, "float32", values.astype(np.float32))

    def op(
        self, kind: str, inputs: Sequence[int], shape: Sequence[int], table: str = "", **about: Any
    ) -> Float:
        made = self.w.tensor("made", shape, "float32")
        self.w.op(kind, inputs, (made,), table, **about)
        self.x, self.shape = made, tuple(shape)
        return self

    def conv(self, c: int, kh: int, kw: int, act: int = 1, spread: int = 1) -> Float:
        """Without padding."""
        _, h, w, c_in = self.shape
        shape = (1, h - kh + 1, w - (kw - 1) * spread, c)
        about = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": act}
        about |= {"DilationHFactor": 1, "DilationWFactor": spread}
        weights = (self.x, self.drawn(c, kh, kw, c_in), self.drawn(c))
        return self.op("CONV_2D", weights, shape, "Conv2DOptions", **about)

    def linear(self, c: int, *before: int) -> Float:
        """Over the last axis. before: the axes of the result before it"""
        weights = (self.x, self.drawn(c, self.shape[-1]), self.drawn(c))
        shape = (*(before or (1,)), c)
        return self.op("FULLY_CONNECTED", weights, shape, "FullyConnectedOptions", KeepNumDims=bool(before))

    def view(self, *shape: int) -> Float:
        return self.op("RESHAPE", (self.x, self.whole(*shape)), shape, "ReshapeOptions")

    def over(self, kind: str, *axes: int) -> Float:
        shape = [d for i, d in enumerate(self.shape) if i not in axes]
        return self.op(kind, (self.x, self.whole(*axes)), shape, "ReducerOptions", KeepDims=False)

    def file(self, folder: Path, name: str = "own") -> Path:
        path = folder / f"{name}.tflite"
        path.write_bytes(self.w.file((0,), (self.x,)))
        return path


def causal() -> Float:
    """Two causal convolutions of Keras over a series, the second dilated."""
    net = Float(12, 3)
    for spread in (1, 2):
        c = net.shape[-1]
        net.op(
            "PAD",
            (net.x, net.w.tensor("p", (3, 2), "int32", np.array([[0, 0], [2 * spread, 0], [0, 0]]))),
            (1, 12 + 2 * spread, c),
            "PadOptions",
        )
        net.op("EXPAND_DIMS", (net.x, net.whole(1)), (1, 1, 12 + 2 * spread, c))
        net.conv(6, 1, 3, spread=spread).view(1, 12, 6)
    return net.over("MEAN", 1).linear(3)


def used_twice() -> Float:
    """A layer that Keras calls twice."""
    net = Float(6, 5, 2).conv(4, 1, 1)
    weights, about = (net.drawn(4, 1, 1, 4), net.drawn(4)), {"Padding": 1, "StrideH": 1, "StrideW": 1}
    about |= {"DilationHFactor": 1, "DilationWFactor": 1}
    for _ in range(2):
        net.op("CONV_2D", (net.x, *weights), net.shape, "Conv2DOptions", **about, FusedActivationFunction=1)
    return net.over("MEAN", 1, 2).linear(3)


def resized(size: tuple[int, int] = (7, 3), half: bool = False, aligned: bool = False) -> Float:
    """Nearest neighbours."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    kind, table = "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"
    about = {"AlignCorners": aligned, "HalfPixelCenters": half}
    net.op(kind, (net.x, net.whole(*size)), (1, *size, 4), table, **about)
    return net.over("MEAN", 1, 2).linear(3)


def last_moment() -> Float:
    net = Float(12, 3).view(1, 1, 12, 3).conv(6, 1, 3).view(1, 10, 6)
    cuts = (net.x, net.whole(0, -1, 0), net.whole(0, 0, 0), net.whole(1, 1, 1))
    masks = {"BeginMask": 5, "EndMask": 7, "ShrinkAxisMask": 2}
    return net.op("STRIDED_SLICE", cuts, (1, 6), "StridedSliceOptions", **masks).linear(3)


def any_batch() -> Float:
    """Flatten of Keras where the batch is open: a shape that is computed."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    whole, rows, shape = (
        net.w.tensor(name, dims, "int32") for name, dims in (("s", (4,)), ("n", ()), ("r", (2,)))
    )
    net.w.op("SHAPE", (net.x,), (whole,), "ShapeOptions", OutType=2)
    net.w.op(
        "STRIDED_SLICE",
        (whole, net.whole(0), net.whole(1), net.whole(1)),
        (rows,),
        "StridedSliceOptions",
        ShrinkAxisMask=1,
    )
    many = net.w.tensor("many", (), "int32", np.array(48))
    net.w.op("PACK", (rows, many), (shape,), "PackOptions", ValuesCount=2, Axis=0)
    return net.op("RESHAPE", (net.x, shape), (1, 48), "ReshapeOptions").linear(3)


def one_slope() -> Float:
    net = Float(6, 5, 2).conv(4, 3, 3, act=0)
    slope = net.w.tensor("slope", (1, 1, 4), "float32", np.full((1, 1, 4), 0.25, np.float32))
    return net.op("PRELU", (net.x, slope), net.shape).over("REDUCE_MAX", 1, 2).linear(3)


def from_offsets() -> Float:
    """Slices whose ends count from where they begin, from behind too; a begin that is masked is 0."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    first = (net.x, net.whole(0, 2, -4, -3), net.whole(1, 4, 4, 3), net.whole(1, 1, 1, 1))
    net.op("STRIDED_SLICE", first, (1, 4, 4, 3), "StridedSliceOptions", Offset=True)
    cuts = (net.x, net.whole(0, 1, 1, 1), net.whole(1, 3, 3, 2), net.whole(1, 1, 2, 1))
    net.op("STRIDED_SLICE", cuts, (1, 3, 2, 2), "StridedSliceOptions", Offset=True, BeginMask=2)
    return net.view(1, 12).linear(3)


def parts() -> Float:
    """Channels that are split, cut in two ways, and joined again."""
    net = Float(6, 5, 2).conv(8, 3, 3)
    first, second = (net.w.tensor(name, (1, 4, 3, 4), "float32") for name in ("first", "second"))
    net.w.op(
        "SPLIT",
        (net.w.tensor("axis", (), "int32", np.array(3)), net.x),
        (first, second),
        "SplitOptions",
        NumSplits=2,
    )
    net.op("SLICE", (first, net.whole(0, 0, 0, 1), net.whole(1, 4, 3, -1)), (1, 4, 3, 3), "SliceOptions")
    sliced = net.x
    cuts = (second, net.whole(0, 0, 0, 0), net.whole(0, 0, 0, 2), net.whole(1, 1, 1, 1))
    net.op("STRIDED_SLICE", cuts, (1, 4, 3, 2), "StridedSliceOptions", BeginMask=7, EndMask=7)
    net.op("CONCATENATION", (sliced, net.x), (1, 4, 3, 5), "ConcatenationOptions", Axis=3)
    return net.conv(4, 3, 3).view(1, 8).linear(3)


def each_moment() -> Float:
    """A linear layer over each moment, then over all of them."""
    return Float(7, 5).linear(6, 1, 7).view(1, 42).linear(3)


def lone_norm() -> Float:
    """A batch norm behind a ReLU, as products and sums."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    return (
        net.op("MUL", (net.x, net.drawn(4)), net.shape, "MulOptions")
        .op("ADD", (net.x, net.drawn(4)), net.shape, "AddOptions", FusedActivationFunction=1)
        .conv(3, 1, 1, act=0)
        .over("MEAN", 1, 2)
    )


def channels_first() -> Float:
    """An input in PyTorch's order, which is turned first of all."""
    net = Float(2, 6, 5)
    net.op("TRANSPOSE", (net.x, net.whole(0, 2, 3, 1)), (1, 6, 5, 2), "TransposeOptions")
    return net.conv(4, 3, 3).over("MEAN", 1, 2).linear(3)


def gated() -> Float:
    """A map times what opens for it, as in gated linear units."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    kept = net.x
    net.conv(4, 1, 1, act=0).op("LOGISTIC", (net.x,), net.shape)
    net.op("MUL", (kept, net.x), net.shape, "MulOptions").conv(3, 1, 1, act=0)
    return net.over("MEAN", 1, 2).linear(3)


def made_larger() -> Float:
    """UpSampling2D of Keras, by 2 and 3."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    about: dict[str, Any] = {"AlignCorners": False, "HalfPixelCenters": True}
    kind, table = "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"
    net.op(kind, (net.x, net.whole(8, 9)), (1, 8, 9, 4), table, **about)
    return net.conv(3, 2, 2).over("MEAN", 1, 2).linear(3)


def transposed() -> Float:
    """Conv2DTranspose of Keras, by 2 and 1; the shape of what it makes is worked out in the file."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    shape, batch, sizes = (net.w.tensor(name, (n,), "int32") for name, n in (("of", 4), ("n", 1), ("all", 4)))
    net.w.op("SHAPE", (net.x,), (shape,), "ShapeOptions", OutType=2)
    net.w.op("SLICE", (shape, net.whole(0), net.whole(1)), (batch,), "SliceOptions")
    net.w.op("CONCATENATION", (batch, net.whole(8, 3, 3)), (sizes,), "ConcatenationOptions", Axis=0)
    about = {"Padding": 0, "StrideH": 2, "StrideW": 1}
    weights = (sizes, net.drawn(3, 3, 2, 4), net.x, net.drawn(3))
    net.op("TRANSPOSE_CONV", weights, (1, 8, 3, 3), "TransposeConvOptions", **about)
    return net.conv(3, 2, 2).over("MEAN", 1, 2).linear(3)


def blocks() -> Float:
    """tf.nn.space_to_depth and depth_to_space."""
    net = Float(8, 6, 2).conv(8, 3, 3)
    net.op("DEPTH_TO_SPACE", (net.x,), (1, 12, 8, 2), "DepthToSpaceOptions", BlockSize=2).conv(3, 1, 1)
    net.op("SPACE_TO_DEPTH", (net.x,), (1, 3, 2, 48), "SpaceToDepthOptions", BlockSize=4)
    return net.conv(3, 1, 1).over("MEAN", 1, 2).linear(3)


def averaged() -> Float:
    """AveragePooling2D of Keras with padding="same": windows at the border count fewer pixels."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    about = {"Padding": 0, "StrideH": 2, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 3}
    net.op("AVERAGE_POOL_2D", (net.x,), (1, 4, 6, 4), "Pool2DOptions", **about)
    return net.conv(3, 1, 1).over("MEAN", 1, 2).linear(3)


def smoothly_larger(**where: bool) -> Float:
    """UpSampling2D(interpolation="bilinear") of Keras, and what older converters made of it.

    where  the pixels of the larger map lie
    """
    net = Float(6, 5, 2).conv(4, 3, 3)
    net.op("RESIZE_BILINEAR", (net.x, net.whole(8, 9)), (1, 8, 9, 4), "ResizeBilinearOptions", **where)
    return net.conv(3, 2, 2, act=0).over("MEAN", 1, 2).linear(3)


def smooth() -> Float:
    return smoothly_larger(AlignCorners=False, HalfPixelCenters=True)


def cornered() -> Float:
    return smoothly_larger(AlignCorners=True, HalfPixelCenters=False)


def lopsided() -> Float:
    return smoothly_larger(AlignCorners=False, HalfPixelCenters=False)


def mirrored(mode: int = 0) -> Float:
    """tf.pad(mode="REFLECT"), or with 1 "SYMMETRIC"."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    widths = net.w.tensor("p", (4, 2), "int32", np.array([[0, 0], [2, 1], [0, 2], [0, 0]]))
    net.op("MIRROR_PAD", (net.x, widths), (1, 10, 8, 4), "MirrorPadOptions", Mode=mode)
    return net.conv(3, 2, 2).over("MEAN", 1, 2).linear(3)


def mirrored_whole() -> Float:
    return mirrored(1)


def padded_first() -> Float:
    """Zeros around a map that a pooling reads."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    widths = net.w.tensor("p", (4, 2), "int32", np.array([[0, 0], [1, 0], [0, 2], [0, 0]]))
    net.op("PAD", (net.x, widths), (1, 8, 8, 4), "PadOptions")
    about = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    net.op("MAX_POOL_2D", (net.x,), (1, 4, 4, 4), "Pool2DOptions", **about)
    return net.conv(3, 1, 1).over("MEAN", 1, 2).linear(3)


def more_channels() -> Float:
    """Zeros in front of the channels and behind them, and channels that are mirrored."""
    net = Float(6, 5, 2).conv(4, 3, 3)
    widths = net.w.tensor("p", (4, 2), "int32", np.array([[0, 0], [0, 0], [0, 0], [1, 2]]))
    net.op("PAD", (net.x, widths), (1, 4, 3, 7), "PadOptions").conv(4, 2, 2)
    widths = net.w.tensor("p", (4, 2), "int32", np.array([[0, 0], [0, 0], [0, 0], [2, 1]]))
    net.op("MIRROR_PAD", (net.x, widths), (1, 3, 2, 7), "MirrorPadOptions", Mode=0)
    return net.conv(3, 1, 1).over("MEAN", 1, 2).linear(3)


def log_shares() -> Float:
    """Logarithms of probabilities of each pixel, which a layer reads."""
    net = Float(6, 5, 2).conv(4, 3, 3, act=0)
    net.op("LOG_SOFTMAX", (net.x,), net.shape, "LogSoftmaxOptions").conv(3, 2, 2, act=0)
    return net.over("MEAN", 1, 2).linear(3)


def attentive() -> Float:
    """Spatial attention: a map times what its channels' mean and maximum say of each pixel."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    x, (_, h, w, c) = net.x, net.shape
    said = []
    for kind in ("MEAN", "REDUCE_MAX"):
        net.op(kind, (x, net.whole(3)), (1, h, w, 1), "ReducerOptions", KeepDims=True)
        said.append(net.x)
    net.op("CONCATENATION", said, (1, h, w, 2), "ConcatenationOptions", Axis=3).conv(1, 1, 1, act=0)
    net.op("LOGISTIC", (net.x,), net.shape)
    net.op("MUL", (x, net.x), (1, h, w, c), "MulOptions").conv(3, 1, 1)
    return net.over("MEAN", 1, 2).linear(3)


def differences() -> Float:
    """A map less another, and one that is turned round."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    x = net.x
    net.op("LOGISTIC", (x,), net.shape)
    net.op("SUB", (x, net.x), net.shape, "SubOptions")
    net.op("NEG", (net.x,), net.shape, "NegOptions").conv(3, 1, 1)
    return net.over("MEAN", 1, 2).linear(3)


def loudness() -> Float:
    """Absolute values, roots of mean squares, and their logarithms, as of vibration."""
    net = Float(9, 8, 2).conv(4, 3, 3, act=0)
    net.op("ABS", (net.x,), net.shape, "AbsOptions").conv(4, 1, 1, act=0)
    net.op("SQUARE", (net.x,), net.shape, "SquareOptions").over("MEAN", 1, 2)
    net.op("SQRT", (net.x,), net.shape)
    net.op("EXP", (net.x,), net.shape, "ExpOptions")
    net.op("LOG", (net.x,), net.shape)
    return net.linear(3)


def squeezed() -> Float:
    """Squeeze and excitation by dense layers: a vector beside a map, without a view of it."""
    net = Float(9, 8, 2).conv(4, 3, 3)
    x, shape = net.x, net.shape
    net.over("MEAN", 1, 2).linear(4)
    net.op("LOGISTIC", (net.x,), net.shape)
    net.op("MUL", (x, net.x), shape, "MulOptions").conv(3, 1, 1)
    return net.over("MEAN", 1, 2).linear(3)


def repeated() -> Float:
    """UpSampling2D of Keras: rows and columns that stand several times on axes of their own."""
    net = Float(6, 5, 2).conv(4, 3, 3).view(1, 4, 1, 3, 4)
    net.op("TILE", (net.x, net.whole(1, 1, 2, 1, 1)), (1, 4, 2, 3, 4)).view(1, 8, 3, 1, 4)
    net.op("TILE", (net.x, net.whole(1, 1, 1, 3, 1)), (1, 8, 3, 3, 4)).view(1, 8, 9, 4).conv(4, 2, 2)
    return net.over("MEAN", 1, 2).linear(3)


def without_a_batch() -> Float:
    """A sum of two vectors, one of which lost its axis of one."""
    net = Float(6, 5, 2).conv(4, 3, 3).over("MEAN", 1, 2)
    mean = net.x
    net.linear(4)
    made = net.x
    net.x, net.shape = mean, (1, 4)
    net.linear(4).view(4)
    return net.op("ADD", (made, net.x), (1, 4), "AddOptions", FusedActivationFunction=1).linear(3)


NETWORKS = (
    *(causal, last_moment, any_batch, one_slope, parts, from_offsets, each_moment, lone_norm, channels_first),
    *(gated, made_larger, averaged, smooth, cornered, lopsided, mirrored, mirrored_whole, padded_first),
    *(attentive, more_channels, log_shares, differences, used_twice, resized, transposed, blocks, loudness),
    *(squeezed, repeated, without_a_batch),
)
