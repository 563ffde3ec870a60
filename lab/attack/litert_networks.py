"""Small float TFLite files as PyTorch's converter (litert-torch) writes them: inputs and views in the order
NCHW, paddings in front of what turns them, norms in pieces over vectors, tokens without an axis for a sample.
"""

from __future__ import annotations

import numpy as np

from .keras_networks import turned
from .tflite_networks import Float

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def padded(
    net: Float,
    *sides: tuple[int, int],
    kind: str = "PAD",
    value: float | None = None,
    scale: tuple[float, ...] = (),
) -> Float:
    """sides: before and behind each axis. value: of PADV2, with a scale one of int16"""
    widths = net.w.tensor("widths", (len(sides), 2), "int32", np.array(sides))
    dtype = "int16" if scale else "float32"
    given = () if value is None else (net.w.tensor("value", (1,), dtype, np.array([value]), scale),)
    shape = [n + sum(side) for n, side in zip(net.shape, sides, strict=True)]
    return net.op(kind, (net.x, widths, *given), shape, "" if given else "PadOptions")


def largest(net: Float, kh: int, kw: int, stride: int) -> Float:
    """A max pooling without padding of its own."""
    _, h, w, c = net.shape
    shape = (1, (h - kh) // stride + 1 if kh > 1 else h, (w - kw) // stride + 1, c)
    about = {"FilterHeight": kh, "FilterWidth": kw, "StrideH": stride if kh > 1 else 1, "StrideW": stride}
    return net.op("MAX_POOL_2D", (net.x,), shape, "Pool2DOptions", Padding=1, **about)


def ended(net: Float) -> Float:
    return net.over("MEAN", 1, 2).linear(3)


def pooled(value: float = -np.inf, scale: tuple[float, ...] = ()) -> Float:
    """What no maximum takes stands around the map that a ResNet pools first. value, scale: as in padded()"""
    net = turned(Float(2, 9, 8), *TO_LAST).conv(5, 3, 3, act=0)
    sides = ((0, 0), (1, 1), (1, 1), (0, 0))
    return ended(largest(padded(net, *sides, kind="PADV2", value=value, scale=scale), 3, 3, 2).conv(4, 2, 2))


def pooled_series() -> Float:
    """The same of a series, which is one row of pixels."""
    net = turned(Float(3, 20).view(1, 3, 1, 20), *TO_LAST).conv(6, 1, 5, act=0)
    net = padded(net, (0, 0), (0, 0), (1, 1), (0, 0), kind="PADV2", value=-np.inf)
    return ended(largest(net, 1, 3, 2).conv(4, 1, 3))


def causal() -> Float:
    """Paddings of [n, c, time], which is seen as one row and turned behind them."""
    net = Float(3, 20)
    for spread in (1, 2):
        c, t = net.shape[1:]
        net = padded(net, (0, 0), (0, 0), (2 * spread, 0)).view(1, c, 1, t + 2 * spread)
        net = turned(turned(net, *TO_LAST).conv(6, 1, 3, spread=spread), *TO_FIRST).view(1, 6, 20)
    return net.over("MEAN", 2).linear(3)


def padded_first() -> Float:
    """An input in the order NCHW that is padded on one side before it is turned."""
    net = padded(Float(3, 8, 7), (0, 0), (0, 0), (0, 1), (0, 2))
    return ended(turned(net, *TO_LAST).conv(4, 3, 3).conv(4, 2, 2))


def padded_last() -> Float:
    """Zeros around a map that is turned to NCHW for its mean; and a sum over axes of 1."""
    net = turned(Float(2, 9, 8), *TO_LAST).conv(5, 3, 3)
    net = turned(padded(net, (0, 0), (0, 1), (1, 1), (0, 0)), *TO_FIRST).over("MEAN", 2, 3)
    return net.view(1, 5, 1, 1).over("SUM", 2, 3).linear(3)


def scaled() -> Float:
    """A series less one number, times another, and then seen as a map."""
    net = Float(9, 8)
    for kind, number in (("SUB", 0.3), ("MUL", 2.5)):
        constant = net.w.tensor("number", (1,), "float32", np.array([number]))
        net.op(kind, (net.x, constant), net.shape, f"{kind.title()}Options")
    return ended(net.view(1, 9, 8, 1).conv(5, 3, 3).conv(4, 2, 2))


def normed(net: Float, affine: bool = True, across: bool = False) -> Float:
    """LayerNorm of tokens [1, t, c]: means over the axis of the sample too, as vectors of t numbers.

    across  the mean stays a vector, and is taken from each number of a token, of which there are as many
    """
    x, shape = net.x, net.shape
    _, t, c = shape

    def mean() -> int:
        net.op("MEAN", (net.x, net.whole(0, 2)), (t,), "ReducerOptions", KeepDims=False)
        return net.x

    def number(value: float) -> int:
        return net.w.tensor("number", (1,), "float32", np.array([value]))

    centre = mean()
    middle = centre if across else net.view(1, t, 1).x
    net.op("SQUARED_DIFFERENCE", (x, middle), shape, "SquaredDifferenceOptions")
    net.op("ADD", (mean(), number(1e-3)), (t,), "AddOptions").op("RSQRT", (net.x,), (t,))
    factor = net.x
    net.op("MUL", (factor, centre), (t,), "MulOptions")
    less = net.op("SUB", (number(0.0), net.x), (t,), "SubOptions").view(1, t, 1).x
    net.x, net.shape = factor, (t,)
    net.view(1, t, 1).op("MUL", (x, net.x), shape, "MulOptions")
    net.op("ADD", (net.x, less), shape, "AddOptions")
    if affine:
        gain = net.w.tensor("gain", (c,), "float32", net.rng.uniform(0.5, 1.5, c))
        net.op("MUL", (net.x, gain), shape, "MulOptions")
        net.op("ADD", (net.x, net.drawn(c)), shape, "AddOptions")
    return net


def grouped(net: Float, groups: int) -> Float:
    """GroupNorm of [1, c, ...]: a view by groups has the statistics, which scale and shift the map itself."""
    x, shape, c = net.x, net.shape, net.shape[1]
    rest = int(np.prod(shape[2:]))
    view, one, own = (1, groups, c // groups, rest), (1, groups, 1, 1), (1, groups, c // groups, 1)
    flat, sides = (1, c, *(1,) * (len(shape) - 2)), net.whole(2, 3)
    given = net.view(*view).x
    mean = net.op("MEAN", (given, sides), one, "ReducerOptions", KeepDims=True).x
    less = net.op("SUB", (given, mean), view, "SubOptions").x
    net.op("MUL", (less, less), view, "MulOptions")
    net.op("MEAN", (net.x, sides), (1, groups), "ReducerOptions", KeepDims=False)
    eps = net.w.tensor("eps", (), "float32", np.array(1e-5))
    net.op("ADD", (net.x, eps), (1, groups), "AddOptions").view(*one).op("RSQRT", (net.x,), one)
    gain = net.w.tensor("gain", own, "float32", net.rng.uniform(0.5, 1.5, own))
    factor = net.op("MUL", (net.x, gain), own, "MulOptions").x
    minus = net.w.tensor("minus", (), "float32", np.array(-1.0))
    net.op("MUL", (mean, minus), one, "MulOptions").op("MUL", (net.x, factor), own, "MulOptions")
    shift = net.w.tensor("shift", own, "float32", net.rng.normal(size=own))
    added = net.op("ADD", (net.x, shift), own, "AddOptions").view(*flat).x
    net.x, net.shape = factor, own
    scaled = net.view(*flat).x
    net.op("MUL", (x, scaled), shape, "MulOptions")
    return net.op("ADD", (net.x, added), shape, "AddOptions")


def instances(net: Float) -> Float:
    """InstanceNorm2d of a map in the order NCHW; the sample's axis is one of those that are averaged."""
    x, shape, c = net.x, net.shape, net.shape[1]
    one, over = (1, c, 1, 1), net.whole(0, 2, 3)
    mean = net.op("MEAN", (x, over), one, "ReducerOptions", KeepDims=True).x
    less = net.op("SUB", (x, mean), shape, "SubOptions").x
    net.op("MUL", (less, less), shape, "MulOptions")
    net.op("MEAN", (net.x, over), (c,), "ReducerOptions", KeepDims=False)
    eps = net.w.tensor("eps", (), "float32", np.array(1e-5))
    net.op("ADD", (net.x, eps), (c,), "AddOptions").view(*one).op("RSQRT", (net.x,), one)
    net.op("MUL", (less, net.x), shape, "MulOptions")
    gain = net.w.tensor("gain", one, "float32", net.rng.uniform(0.5, 1.5, one))
    net.op("MUL", (net.x, gain), shape, "MulOptions")
    return net.op("ADD", (net.x, net.drawn(*one)), shape, "AddOptions")


def groups_of_channels() -> Float:
    """Of a map in the order NCHW, group by group and channel by channel."""
    net = turned(turned(Float(2, 9, 8), *TO_LAST).conv(6, 3, 3, act=0), *TO_FIRST)
    net = turned(turned(grouped(net, 2), *TO_LAST).conv(4, 2, 2, act=0), *TO_FIRST)
    return ended(turned(instances(net), *TO_LAST).conv(4, 2, 2))


def groups_of_a_series() -> Float:
    net = turned(Float(3, 20).view(1, 3, 1, 20), *TO_LAST).conv(6, 1, 5, act=0)
    net = grouped(turned(net, *TO_FIRST).view(1, 6, 16), 3).view(1, 6, 1, 16)
    return ended(turned(net, *TO_LAST).conv(4, 1, 3))


def norm_of_a_map() -> Float:
    """ConvNeXt's: pixels are tokens while they are normalised. The biases have four axes."""
    net = normed(turned(Float(2, 8, 7), *TO_LAST).conv(5, 3, 3).view(1, 30, 5)).view(1, 6, 5, 5)
    bias = net.w.tensor("bias", (1, 1, 1, 6), "float32", net.rng.normal(size=6))
    weights = (net.x, net.drawn(6, 5), bias)
    net.op("FULLY_CONNECTED", weights, (1, 6, 5, 6), "FullyConnectedOptions", KeepNumDims=True)
    return ended(net.conv(4, 2, 2))


def bare_norm() -> Float:
    """As many tokens as numbers in each, without a scale."""
    return normed(Float(6, 5).linear(6, 1, 6), affine=False).over("MEAN", 1).linear(3)


def halves() -> Float:
    """ShuffleNet's blocks: groups of channels change places, one half is convolved, both come together."""
    net = turned(Float(2, 8, 7), *TO_LAST).conv(6, 3, 3)
    for _ in range(2):
        net = turned(turned(net, *TO_FIRST).view(1, 2, 3, 6, 5), 0, 2, 1, 3, 4).view(1, 6, 6, 5)
        net = turned(net, *TO_LAST)
        whole, parts = net.x, []
        for begin in (0, 3):
            at = (net.whole(0, 0, 0, begin), net.whole(1, 6, 5, 3))
            net.x, net.shape = whole, (1, 6, 5, 6)
            parts.append(net.op("SLICE", (net.x, *at), (1, 6, 5, 3), "SliceOptions").x)
        parts[1] = net.conv(3, 1, 1).x
        net.op("CONCATENATION", parts, (1, 6, 5, 6), "ConcatenationOptions", Axis=3)
    return ended(net.conv(4, 2, 2))


def attention() -> Float:
    """MultiheadAttention: [t, c] without an axis for the sample, heads whose scores get one with
    their biases, and lose it."""
    net = Float(7, 5)
    t, c, many = 7, 6, 2
    net.linear(c, t)
    first = net.x
    heads = []
    for order in ((1, 0, 2), (1, 2, 0), (1, 0, 2)):
        net.x, net.shape = first, (t, c)
        heads.append(turned(net.linear(c, t).view(t, many, c // many), *order).x)
    q, k, v = heads
    net.op("BATCH_MATMUL", (q, k), (many, t, t), "BatchMatMulOptions")
    net.op("ADD", (net.x, net.drawn(1, many, t, t)), (1, many, t, t), "AddOptions")
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0).view(many, t, t)
    net.op("BATCH_MATMUL", (net.x, v), (many, t, c // many), "BatchMatMulOptions")
    turned(net, 1, 0, 2).view(t, c).linear(c, t)
    net.op("ADD", (first, net.x), (t, c), "AddOptions")
    net = normed(net.view(1, t, c))
    last = net.x
    net.linear(c, t)
    net.op("ADD", (last, net.x), (1, t, c), "AddOptions")
    return net.over("MEAN", 1).linear(3)


def pixels() -> Float:
    """Pixels as tokens in both orders: a factor for each channel, a class token, and a map of the others."""
    net = turned(Float(2, 8, 7), *TO_LAST).conv(5, 3, 3)
    net = turned(turned(net, *TO_FIRST).view(1, 5, 30), 0, 2, 1)
    gain = net.w.tensor("gain", (1, 1, 5), "float32", net.rng.uniform(0.5, 1.5, 5))
    net.op("MUL", (net.x, gain), net.shape, "MulOptions")
    token = net.w.tensor("token", (1, 1, 5), "float32", net.rng.normal(size=5))
    net.op("CONCATENATION", (token, net.x), (1, 31, 5), "ConcatenationOptions", Axis=1)
    net = normed(net)
    every, parts = net.x, []
    for begin, size in ((0, 1), (1, 30)):
        at = (net.whole(0, begin, 0), net.whole(1, size, 5))
        net.x, net.shape = every, (1, 31, 5)
        net.op("SLICE", (net.x, *at), (1, size, 5), "SliceOptions")
        parts.append(net.x)
    net = turned(turned(net, 0, 2, 1).view(1, 5, 6, 5), *TO_LAST).conv(4, 3, 3)
    net = turned(turned(net, *TO_FIRST).view(1, 4, 12), 0, 2, 1)
    rest = net.x
    net.x, net.shape = parts[0], (1, 1, 5)
    net.linear(4, 1, 1)
    net.op("CONCATENATION", (net.x, rest), (1, 13, 4), "ConcatenationOptions", Axis=1)
    return net.over("MEAN", 1).linear(3)


def behind_a_token(net: Float, sides: tuple[int, int]) -> Float:
    """Tokens with one before them, normalised, and those behind it as a map again."""
    c, many = net.shape[-1], sides[0] * sides[1]
    token = net.w.tensor("token", (1, 1, c), "float32", net.rng.normal(size=c))
    net.op("CONCATENATION", (token, net.x), (1, many + 1, c), "ConcatenationOptions", Axis=1)
    at = (net.whole(0, 1, 0), net.whole(1, many, c))
    net = normed(net)
    return net.op("SLICE", (net.x, *at), (1, many, c), "SliceOptions").view(1, *sides, c)


def strided() -> Float:
    """Tokens that are pixels again, of an even number of rows, for strides with TFLite's padding."""
    net = behind_a_token(turned(Float(2, 8, 6), *TO_LAST).conv(5, 3, 3).view(1, 24, 5), (6, 4))
    about = {"Padding": 0, "StrideH": 2, "StrideW": 2, "DilationHFactor": 1, "DilationWFactor": 1}
    weights = (net.x, net.drawn(4, 3, 3, 5), net.drawn(4))
    net.op("CONV_2D", weights, (1, 3, 2, 4), "Conv2DOptions", **about)
    net = behind_a_token(net.view(1, 6, 4), (3, 2))
    about = {"FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2, "Padding": 0}
    return ended(net.op("MAX_POOL_2D", (net.x,), (1, 2, 1, 4), "Pool2DOptions", **about))


def parted() -> Float:
    """Queries, keys and values as parts of one layer over pixels; a factor for each channel of NCHW."""
    t, c, many = 20, 6, 2
    net = turned(Float(2, 7, 6), *TO_LAST).conv(c, 3, 3).view(1, t, c)
    first, parts = net.x, []
    net.linear(3 * c, 1, t)
    whole = net.x
    for begin, order in ((0, (0, 2, 1, 3)), (c, (0, 2, 3, 1)), (2 * c, (0, 2, 1, 3))):
        at = (net.whole(0, 0, begin), net.whole(1, t, c))
        net.x, net.shape = whole, (1, t, 3 * c)
        net.op("SLICE", (net.x, *at), (1, t, c), "SliceOptions").view(1, t, many, c // many)
        parts.append(turned(net, *order).x)
    net.op("BATCH_MATMUL", parts[:2], (1, many, t, t), "BatchMatMulOptions")
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0)
    net.op("BATCH_MATMUL", (net.x, parts[2]), (1, many, t, c // many), "BatchMatMulOptions")
    turned(net, 0, 2, 1, 3).view(1, t, c)
    net.op("ADD", (first, net.x), (1, t, c), "AddOptions")
    turned(net, 0, 2, 1).view(1, c, 5, 4)
    gain = net.w.tensor("gain", (1, c, 1, 1), "float32", net.rng.uniform(0.5, 1.5, c))
    net.op("MUL", (net.x, gain), net.shape, "MulOptions")
    return ended(turned(net, *TO_LAST).conv(4, 2, 2))


NETWORKS = (
    *(pooled, pooled_series, causal, padded_first, scaled, norm_of_a_map, bare_norm, halves, attention),
    *(pixels, strided, parted, padded_last, groups_of_channels, groups_of_a_series),
)
