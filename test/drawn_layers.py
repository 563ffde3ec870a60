"""Operators that compute, as drawn_tflite.py draws them: layers, poolings, sums, means, attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn_tflite import Drawn, Piece

from lab.attack.keras_networks import normed as normed_of_keras
from lab.attack.litert_networks import normed as normed_of_pytorch
from microtrain.convert.frontends.tflite.names import UNARY

ACTS = (0, 0, 1, 2, 3)
BINARY = {
    **{kind: f"{kind.title()}Options" for kind in ("ADD", "SUB", "MUL", "DIV")},
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
}
FUSES = ("ADD", "SUB", "MUL", "DIV")
POSITIVE = ("LOG", "SQRT", "RSQRT")


def window(net: Drawn, dilates: bool) -> tuple[list[int], list[int], dict[str, Any]]:
    """Sides of a window, of what it makes, and options."""
    same, about = net.chance(0.5), dict[str, Any]()
    sides, made = list[int](), list[int]()
    alike = net.chance(0.4)
    for key, size in zip("HW", net.map()[1:3], strict=True):
        if not (alike and sides):
            k, stride = net.pick(1, 2, 3, 3), net.pick(1, 1, 1, 2, 3)
            apart = net.pick(1, 1, 1, 2) if dilates else 1
        reach = (k - 1) * apart
        sides.append(k)
        made.append(-(-(size - (0 if same else reach)) // stride))
        about[f"Stride{key}"] = stride
        about |= {f"Dilation{key}Factor": apart} if dilates else {}
    net.fit(min(made) > 0)
    return sides, made, {"Padding": 0 if same else 1, **about}


def bias(net: Drawn, c: int) -> tuple[int, ...]:
    """Of a linear layer, or none; TFLite's own convolutions want some."""
    options: tuple[tuple[int, ...], ...] = ((net.drawn(c),), (net.drawn(c),), (-1,), ())
    return options[int(net.rng.integers(4))]


def halved(net: Drawn, *shape: int) -> int:
    """Weights; now and then in float16, which come out of a DEQUANTIZE."""
    if net.chance(0.9):
        return net.drawn(*shape)
    values = net.rng.normal(0, 1.4 / np.prod(shape[1:]) ** 0.5, shape).astype(np.float16)
    stored, made = net.w.tensor("half", shape, "float16", values), net.w.tensor("weights", shape, "float32")
    net.kinds.append("DEQUANTIZE")
    net.w.op("DEQUANTIZE", (stored,), (made,), "DequantizeOptions")
    return made


def conv(net: Drawn) -> None:
    """In groups too."""
    (kh, kw), sides, about = window(net, True)
    c_in = net.shape[-1]
    groups = net.pick(1, 1, 1, *(n for n in (2, 3) if c_in % n == 0))
    c = net.size() * groups
    given = (net.x, halved(net, c, kh, kw, c_in // groups), net.drawn(c))
    net.op(
        "CONV_2D", given, (1, *sides, c), "Conv2DOptions", **about, FusedActivationFunction=net.pick(*ACTS)
    )


def depthwise(net: Drawn) -> None:
    (kh, kw), sides, about = window(net, True)
    many = net.pick(1, 1, 2, 3)
    c = net.shape[-1] * many
    values = net.rng.normal(0, 1.4 / (kh * kw) ** 0.5, (1, kh, kw, c)).astype(np.float32)
    given = (net.x, net.w.tensor("weights", values.shape, "float32", values), net.drawn(c))
    about |= {"DepthMultiplier": many, "FusedActivationFunction": net.pick(*ACTS)}
    net.op("DEPTHWISE_CONV_2D", given, (1, *sides, c), "DepthwiseConv2DOptions", **about)


def transposed(net: Drawn) -> None:
    _, h, w, c_in = net.map()
    same, c, kernel, strides, made = net.chance(0.5), net.size(), [], [], []
    for size in (h, w):
        k, stride = net.pick(1, 2, 3, 4), net.pick(1, 2, 2, 3)
        kernel.append(k)
        strides.append(stride)
        made.append((size - 1) * stride + (1 if same else k) + net.pick(*range(stride)))
    values = net.rng.normal(0, 1.4 / (math.prod(kernel) * c_in) ** 0.5, (c, *kernel, c_in)).astype(np.float32)
    sizes, weights = net.whole(1, *made, c), net.w.tensor("weights", values.shape, "float32", values)
    about = {"Padding": 0 if same else 1, "StrideH": strides[0], "StrideW": strides[1]}
    given = (sizes, weights, net.x, *net.pick((net.drawn(c),), ()))
    about["FusedActivationFunction"] = net.pick(*ACTS)
    net.op("TRANSPOSE_CONV", given, (1, *made, c), "TransposeConvOptions", **about)


def pool(net: Drawn) -> None:
    if net.chance(0.3):
        net.map()
        padded = [[0, 0], [net.pick(0, 1), 1], [1, net.pick(0, 1)], [0, 0]]
        widths = net.w.tensor("p", (4, 2), "int32", np.array(padded))
        least = net.w.tensor("least", (1,), "float32", np.array([-np.inf], np.float32))
        shape = [n + sum(side) for n, side in zip(net.shape, padded, strict=True)]
        given = net.pick((net.x, widths, least), (net.x, widths))
        net.op("PADV2" if len(given) > 2 else "PAD", given, shape, "" if len(given) > 2 else "PadOptions")
        kind = "MAX_POOL_2D"
    else:
        kind = net.pick("AVERAGE_POOL_2D", "MAX_POOL_2D")
    (kh, kw), sides, about = window(net, False)
    about |= {"FilterHeight": kh, "FilterWidth": kw, "FusedActivationFunction": net.pick(*ACTS)}
    net.op(kind, (net.x,), (1, *sides, net.shape[-1]), "Pool2DOptions", **about)


def linear(net: Drawn) -> None:
    """Over the last axis, whose rows stay or become a batch, or over all there is."""
    c, shape = net.size(), net.shape
    whole = shape[0] == 1 and net.chance(0.25)
    features = math.prod(shape) if whole else shape[-1]
    kept = not whole and net.chance(0.7)
    made = (*shape[:-1], c) if kept else (math.prod(shape) // features, c)
    given = (net.x, halved(net, c, features), *bias(net, c))
    about = {"KeepNumDims": kept, "FusedActivationFunction": net.pick(*ACTS)}
    net.op("FULLY_CONNECTED", given, made, "FullyConnectedOptions", **about)


def by_constant(net: Drawn) -> None:
    kind, shape, at = net.pick(*BINARY), net.shape, net.axis(0)
    tail = shape[int(net.rng.integers(len(shape))) :]
    own = tuple(n if axis == at else 1 for axis, n in enumerate(shape))
    last = (*[1] * (len(shape) - 1), shape[-1])
    of = net.pick((), (1,), shape[-1:], shape[-1:], last, tail, own, own[1:])
    constant, about = net.between(of), {}
    if kind in FUSES:
        about["FusedActivationFunction"] = net.pick(*ACTS)
    if net.chance(0.3):
        if kind == "DIV":
            net.positive()
        given = (constant, net.x)
    else:
        given = (net.x, constant)
    net.op(kind, given, np.broadcast_shapes(shape, of), BINARY[kind], **about)


def joined(net: Drawn) -> None:
    """A sum or product with an earlier tensor of a shape that goes with it."""
    kind, found = net.pick(*BINARY), []
    for tensor, shape in net.earlier:
        try:
            made = np.broadcast_shapes(shape, net.shape)
        except ValueError:
            continue
        found.append((tensor, made))
    net.fit(bool(found))
    other, made = net.pick(*found)
    if kind == "DIV":
        x = net.x
        of = next(shape for t, shape in net.earlier if t == other)
        net.at(other, of).positive()
        other, net.x = net.x, x
    both = (net.x, other) if kind == "DIV" or net.chance(0.5) else (other, net.x)
    about = {"FusedActivationFunction": net.pick(*ACTS)} if kind in FUSES else {}
    net.op(kind, both, made, BINARY[kind], **about)


def gate(net: Drawn) -> None:
    """What is said of a tensor along some of its axes, beside it."""
    x, shape = net.x, net.shape
    if len(net.shape) > 1:
        reduced(net)
    if net.chance(0.4) and len(net.shape) > 1:
        linear(net)
    net.squashed()
    try:
        made = np.broadcast_shapes(shape, net.shape)
    except ValueError:
        net.fit(False)
    kind = net.pick("MUL", "MUL", "ADD", "SUB", "MAXIMUM")
    given = net.pick((x, net.x), (net.x, x))
    net.op(kind, given, made, BINARY[kind])


def unary(net: Drawn) -> None:
    kind = net.pick(*UNARY, "RELU_0_TO_1", "LEAKY_RELU", "GELU", "PRELU", "POW")
    if kind in POSITIVE:
        net.positive()
    if kind == "EXP":
        net.squashed()
    table, about = "", {}
    given: tuple[int, ...] = (net.x,)
    if kind == "LEAKY_RELU":
        table, about = "LeakyReluOptions", {"Alpha": float(net.rng.uniform(0.1, 0.6))}
    if kind == "GELU":
        table, about = "GeluOptions", {"Approximate": net.chance(0.5)}
    if kind == "PRELU":
        c = net.shape[-1:]
        ones = [1] * (len(net.shape) - 2)
        given = (net.x, net.between(net.pick((), (1,), c, (*ones, *c), net.shape[1:]), 0.1, 0.7))
    if kind == "POW":
        given = (net.x, net.w.tensor("two", (), "float32", np.array(net.pick(1, 2, 3))))
        table = "PowOptions"
    net.op(kind, given, net.shape, table, **about)


def reduced(net: Drawn) -> None:
    kind, rank = net.pick("MEAN", "MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), len(net.shape)
    net.fit(rank > 1)
    inner = list(range(1, rank - 1))
    one = [net.axis()]
    axes = net.pick(
        *[inner or one] * 3, one, one, [rank - 1], list(range(net.pick(1, 1, 0), rank)), [0, *inner]
    )
    keep = net.chance(0.5)
    shape = [1 if i in axes else d for i, d in enumerate(net.shape) if keep or i not in axes]
    said = net.whole(*(net.said(a) for a in axes))
    net.op(kind, (net.x, said), shape, "ReducerOptions", KeepDims=keep)


def softmax(net: Drawn) -> None:
    net.fit(net.shape[-1] > 1)
    kind, table, about = net.pick(
        ("SOFTMAX", "SoftmaxOptions", {"Beta": 1.0}), ("LOG_SOFTMAX", "LogSoftmaxOptions", {})
    )
    net.op(kind, (net.x,), net.shape, table, **about)


def by_matrix(net: Drawn) -> None:
    """A matrix of constants."""
    net.fit(len(net.shape) > 1)
    c, c_in, flips = net.size(), net.shape[-1], net.chance(0.5)
    ones = (1,) * net.pick(0, len(net.shape) - 2)
    matrix = net.drawn(*ones, c, c_in) if flips else net.between((*ones, c_in, c), -1, 1)
    about = {"AdjX": False, "AdjY": flips}
    net.op("BATCH_MATMUL", (net.x, matrix), (*net.shape[:-1], c), "BatchMatMulOptions", **about)


def attention(net: Drawn) -> None:
    """Of the tokens there are, in one head or several, of a layer for each or of one that is split."""
    net.fit(len(net.shape) == 3 and net.shape[0] == 1)
    _, t, _ = net.shape
    x, each, many = net.x, net.pick(1, 2, 3), net.pick(1, 2)
    c = each * many
    roles, shape = [], net.shape
    for order in ((0, 2, 1, 3), (0, 2, 1, 3), (0, 2, 1, 3)):
        net.at(x, shape).linear(c, 1, t)
        if many > 1:
            net.view(1, t, many, each)
            net.turned(*order)
        roles.append(net.x)
    batch = (1, many) if many > 1 else (1,)
    q, k, v = roles
    net.op("BATCH_MATMUL", (q, k), (*batch, t, t), "BatchMatMulOptions", AdjX=False, AdjY=True)
    if net.chance(0.6):
        net.op("MUL", (net.x, net.number(each**-0.5)), net.shape, "MulOptions")
    net.op("SOFTMAX", (net.x,), net.shape, "SoftmaxOptions", Beta=1.0)
    net.op("BATCH_MATMUL", (net.x, v), (*batch, t, each), "BatchMatMulOptions", AdjX=False, AdjY=False)
    if many > 1:
        net.turned(0, 2, 1, 3)
        net.view(1, t, c)
    if c == shape[-1]:
        net.op("ADD", (x, net.x), shape, "AddOptions")


def norm(net: Drawn) -> None:
    """Of each token, or of the channels of each pixel, in pieces."""
    net.fit(len(net.shape) > 1 and net.shape[-1] > 1)
    if net.chance(0.4) and len(net.shape) == 3 and net.shape[0] == 1:
        normed_of_pytorch(net, affine=net.chance(0.6))
    else:
        normed_of_keras(net, net.pick(1e-3, 0.1))


def length(net: Drawn) -> None:
    net.fit(net.shape[-1] > 1)
    net.op("L2_NORMALIZATION", (net.x,), net.shape, "L2NormOptions")


def compared(net: Drawn) -> None:
    """A comparison with a number or with another tensor, and what is chosen by it, or its 1 and 0."""
    other = net.like()
    by = other if other is not None and net.chance(0.6) else net.number(0.2137)
    kind, table = net.pick(
        ("GREATER", "GreaterOptions"),
        ("LESS", "LessOptions"),
        ("GREATER_EQUAL", "GreaterEqualOptions"),
        ("LESS_EQUAL", "LessEqualOptions"),
    )
    x, more = net.x, net.w.tensor("more", net.shape, "bool")
    net.w.op(kind, net.pick((x, by), (by, x)), (more,), table)
    net.kinds.append(kind)
    if net.chance(0.3):
        net.op("CAST", (more,), net.shape, "CastOptions", InDataType=6, OutDataType=0)
        net.op("ADD", (net.x, x), net.shape, "AddOptions")
        return
    beside = by if by == other else net.between(net.pick((), net.shape[-1:]))
    net.op("SELECT_V2", (more, *net.pick((x, beside), (beside, x))), net.shape, "SelectV2Options")


def summed(net: Drawn) -> None:
    x, other = net.x, net.like()
    net.fit(other is not None)
    assert other is not None
    net.op("ADD_N", net.pick((x, other), (other, x, other), (x, x, other)), net.shape, "AddNOptions")


def residual(net: Drawn) -> None:
    """A layer over the last axis, and its input beside it."""
    x, shape = net.x, net.shape
    net.fit(len(shape) > 1)
    linear_over(net, shape[-1])
    kind = net.pick("ADD", "MUL", "SUB")
    net.op(
        kind, net.pick((x, net.x), (net.x, x)), shape, BINARY[kind], FusedActivationFunction=net.pick(*ACTS)
    )


def linear_over(net: Drawn, c: int) -> None:
    given = (net.x, net.drawn(c, net.shape[-1]), net.drawn(c))
    net.op("FULLY_CONNECTED", given, (*net.shape[:-1], c), "FullyConnectedOptions", KeepNumDims=True)


PIECES: dict[str, Piece] = {
    piece.__name__: piece
    for piece in (
        *(conv, depthwise, transposed, pool, linear, by_constant, joined, gate, unary, reduced, softmax),
        *(by_matrix, attention, norm, length, compared, summed, residual),
    )
}
