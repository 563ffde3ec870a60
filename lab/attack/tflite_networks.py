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


NETWORKS = (
    *(causal, last_moment, any_batch, one_slope, parts, each_moment, lone_norm, channels_first),
    *(gated, made_larger),
)
