"""Operators of ONNX with random attributes and inputs, each of which a network may go on with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from drawn_onnx import SIDES, Net, conv, gemm, window
from onnx import TensorProto

Draw = Callable[[Net, str], str]  # what it appends to a tensor; what is no network of ONNX raises


def _transposed(net: Net, x: str) -> str:
    c, sides = net.shape(x)[1], net.shape(x)[2:]
    kernel, strides = ([net.one((1, 2, 3)) for _ in sides] for _ in range(2))
    about: dict[str, Any] = {"pads": [0] * 2 * len(sides)}
    if net.chance():
        about["output_padding"] = [net.one((0, s - 1)) for s in strides]
    if net.chance(0.3):
        about["pads"] = [min(1, k - 1) for k in kernel] * 2
    weights = [net.drawn(c, net.one(SIDES), *kernel)]
    weights += [net.drawn(net.arrays[weights[0]].shape[1])] if net.chance() else []
    return net.add("ConvTranspose", x, *weights, kernel_shape=kernel, strides=strides, **about)


def _pool(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        about = window(net, x)
        if op == "AveragePool":
            about["count_include_pad"] = int(net.chance())
        elif about.get("auto_pad", "").startswith("SAME") or "pads" in about:
            about.pop("auto_pad", None)  # the evaluator is wrong where sides differ
            about["pads"] = [min(net.one((0, k // 2)) for k in about["kernel_shape"])] * 2 * (net.rank(x) - 2)
            about["ceil_mode"] = int(net.chance(0.2) and not any(about["pads"]))
        return net.add(op, x, **about)

    return draw


def _beside(net: Net, x: str) -> str:
    """Another tensor, or a constant of a shape that goes with it."""
    dims = net.shape(x)
    same = [name for name in net.held if name not in ("x", x) and net.shape(name) == dims]
    if same and net.chance(0.4):
        return str(net.one(same))
    if net.chance(0.3):  # one line of the same
        axis = int(net.rng.integers(1, len(dims)))
        place = int(net.rng.integers(dims[axis]))
        return net.add("Slice", x, net.whole(place), net.whole(place + 1), net.whole(axis))
    shape = [d if net.chance(0.4) else 1 for d in dims]
    if net.chance(0.3):
        shape = [1, dims[1], *[1] * (len(dims) - 2)]
    first = net.one((0, 0, 1, len(dims) - 1, len(dims)))
    if x == "x":  # a small factor would be taken for that of pixels, with a warning
        return net.positive(*shape[first:])
    return net.drawn(*shape[first:], around=net.one((0.0, 1.5)))


def _arithmetic(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        other = _beside(net, x)
        if op == "Div" and other in net.arrays:
            other = net.positive(*net.arrays[other].shape)
        swap = net.chance(0.3) and not (op == "Div" and other in net.arrays)
        return net.add(op, *((other, x) if swap and op != "Div" else (x, other)))

    return draw


def _several(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        same = [name for name in net.held if name != x and net.shape(name) == net.shape(x)] or [x]
        return net.add(op, x, *(net.one(same) for _ in range(net.one((1, 2)))))

    return draw


def _alone(op: str, **about: Any) -> Draw:
    def draw(net: Net, x: str) -> str:
        chosen = {name: net.one(values) for name, values in about.items() if net.chance(0.7)}
        return net.add(op, x, **chosen)

    return draw


def _whole(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        if net.rank(x) != 4:  # the evaluator's maximum of a series has another shape
            raise ValueError("no map")
        return net.add(op, x)

    return draw


def _norm(net: Net, x: str) -> str:
    c = net.shape(x)[1]
    about: dict[str, Any] = {"epsilon": net.one((1e-5, 1e-2))} if net.chance() else {}
    return net.add(
        "BatchNormalization", x, net.positive(c), net.drawn(c), net.drawn(c), net.positive(c), **about
    )


def _instance(net: Net, x: str) -> str:
    c = net.shape(x)[1]
    if math.prod(net.shape(x)[2:]) < 3:
        raise ValueError("nothing is left")
    return net.add("InstanceNormalization", x, net.positive(c), net.drawn(c), epsilon=1e-2)


def _layer_norm(net: Net, x: str) -> str:
    dims, axis = net.shape(x), net.one((-1, -1, 1)) if net.rank(x) > 2 else -1
    if math.prod(dims[axis:]) < 3:
        raise ValueError("nothing is left")
    over = dims[axis:]
    net.opset = max(net.opset, 18)
    bias = [net.drawn(*over)] if net.chance() else []
    return net.add("LayerNormalization", x, net.positive(*over), *bias, axis=axis, epsilon=1e-2)


def _clip(net: Net, x: str) -> str:
    limits = [net.constant(np.float32(v)) for v in (net.one((-0.3, 0.0, -1.0)), net.one((0.5, 6.0, 1.0)))]
    kept = net.one((limits, limits[:1], ["", limits[1]]))
    return net.add("Clip", x, *kept)


def _bound(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        other = net.constant(np.float32(net.one((-0.2, 0.1)))) if net.chance() else _beside(net, x)
        return net.add(op, *((x, other) if net.chance() else (other, x)))

    return draw


def _slope(net: Net, x: str) -> str:
    c, rank = net.shape(x)[1], net.rank(x)
    return net.add("PRelu", x, net.drawn(*net.one(((1,), (c, *[1] * (rank - 2)))), around=0.2))


def _compared(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        sides = (x, net.constant(np.float32(0.1)))
        mask = net.add(op, *(sides if net.chance() else sides[::-1]))
        if net.chance(0.3):
            mask = net.add("Not", mask)
        if net.chance(0.3):
            return net.add("Cast", mask, to=TensorProto.FLOAT)
        other = net.constant(np.float32(0.3)) if net.chance() else _scaled(net, x)
        return net.add("Where", mask, *((x, other) if net.chance() else (other, x)))

    return draw


def _scaled(net: Net, x: str) -> str:
    return net.add("Mul", x, net.constant(np.float32(net.one((0.5, -1.5)))))


def _reduce(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        rank = net.rank(x)
        over = net.one([[a] for a in range(1, rank)] + [list(range(2, rank)), list(range(1, rank))])
        over = [a - rank if net.chance(0.3) else a for a in over]
        about: dict[str, Any] = {"keepdims": int(net.chance())} if net.chance(0.8) else {}
        if op == "ReduceSum" or net.opset >= 18:
            return net.add(op, x, net.whole(*over), **about)
        return net.add(op, x, axes=over, **about)

    return draw


def _reshape(net: Net, x: str) -> str:
    dims = net.shape(x)
    size, rank = math.prod(dims), net.one((2, 3, 3, 4))
    new = [1]
    for _ in range(rank - 2):
        new.append(net.one([d for d in range(1, size + 1) if size % d == 0 and d < 60]))
        size //= new[-1]
    new.append(size)
    place = int(net.rng.integers(1, rank))
    given = [-1 if i == place and net.chance() else d for i, d in enumerate(new)]
    old = [*dims, 0, 0]
    return net.add(
        "Reshape", x, net.whole(*(0 if d == old[i] and net.chance(0.3) else d for i, d in enumerate(given)))
    )


def _squeeze(net: Net, x: str) -> str:
    dims = net.shape(x)
    if net.chance() and 1 in dims[1:]:
        return net.add("Squeeze", x, net.whole(net.one([i for i, d in enumerate(dims) if d == 1 and i])))
    if len(dims) > 3:
        raise ValueError("no axis more")
    return net.add("Unsqueeze", x, net.whole(net.one((1, 2, -1))))


def _transpose(net: Net, x: str) -> str:
    rank = net.rank(x)
    perm = [0, *(int(a) + 1 for a in net.rng.permutation(rank - 1))]
    return net.add("Transpose", x, perm=perm)


def _around(net: Net, x: str) -> str:
    """Channels last, something, and back: as files of Keras have it."""
    rank = net.rank(x)
    if rank < 3:
        raise ValueError("a vector")
    turned = net.add("Transpose", x, perm=[0, *range(2, rank), 1])
    draw: Draw = net.one([d for name, d in DRAWS.items() if name not in SHAPELY])
    made = draw(net, turned)
    if net.rank(made) != rank:
        return made
    return net.add("Transpose", made, perm=[0, rank - 1, *range(1, rank - 1)])


def _pad(net: Net, x: str) -> str:
    rank, mode = net.rank(x), net.one(("constant", "constant", "reflect", "edge"))
    pads = [0 if axis < net.one((1, 2, 2)) else net.one((0, 1)) for _ in range(2) for axis in range(rank)]
    value = [net.constant(np.float32(net.one((0.0, 0.25))))] if mode == "constant" and net.chance() else []
    return net.add("Pad", x, net.whole(*pads), *value, mode=mode)


def _resize(net: Net, x: str) -> str:
    rank, sides = net.rank(x), net.shape(x)[2:]
    about = {"mode": net.one(("nearest", "linear"))}
    about["coordinate_transformation_mode"] = net.one(("asymmetric", "half_pixel", "align_corners"))
    if about["mode"] == "nearest":
        about["nearest_mode"] = net.one(("floor", "round_prefer_floor", "ceil"))
    times = net.one((2, 2, 3))
    if net.chance():
        scales = net.constant(np.array([1, 1, *[times] * (rank - 2)], np.float32))
        return net.add("Resize", x, "", scales, **about)
    return net.add("Resize", x, "", "", net.whole(*net.shape(x)[:2], *(times * s for s in sides)), **about)


def _tile(net: Net, x: str) -> str:
    rank = net.rank(x)
    axis = int(net.rng.integers(1, rank))
    return net.add("Tile", x, net.whole(*(2 if a == axis else 1 for a in range(rank))))


def _blocks(op: str) -> Draw:
    def draw(net: Net, x: str) -> str:
        about = {"mode": net.one(("DCR", "CRD"))} if op == "DepthToSpace" and net.chance() else {}
        c, *sides = net.shape(x)[1:]
        if (op == "DepthToSpace" and c % 4) or (op != "DepthToSpace" and (sides[0] % 2 or sides[1] % 2)):
            raise ValueError("no blocks")
        return net.add(op, x, blocksize=2, **about)

    return draw


def _concat(net: Net, x: str) -> str:
    dims = net.shape(x)
    axis = int(net.rng.integers(1, len(dims)))
    alike = [
        name for name in net.held
        if net.rank(name) == len(dims) and name != x
        and all(a == b for i, (a, b) in enumerate(zip(net.shape(name), dims, strict=True)) if i != axis)
    ]  # fmt: skip
    parts = [x, *(net.one(alike) for _ in range(net.one((1, 1, 2))))]
    return net.add("Concat", *parts, axis=axis - len(dims) if net.chance(0.3) else axis)


def _split(net: Net, x: str) -> str:
    rank = net.rank(x)
    axis = net.one([a for a in range(1, rank) if net.shape(x)[a] > 1])
    first = int(net.rng.integers(1, net.shape(x)[axis]))
    sizes = (first, net.shape(x)[axis] - first)
    made = net.add("Split", x, net.whole(*sizes), outputs=2, axis=axis)
    left, right = made, f"{made}.1"
    if net.chance(0.4):
        return net.add("Concat", right, left, axis=axis)
    if sizes[0] == sizes[1] and net.chance():
        return net.add("Mul", left, net.add("Sigmoid", right))
    return str(net.one((left, right)))


def _slice(net: Net, x: str) -> str:
    rank = net.rank(x)
    axis = int(net.rng.integers(1, rank))
    side, step = net.shape(x)[axis], net.one((1, 1, 1, 2, -1))
    start, end = net.one((0, 1, -side)), net.one((side, 1 << 40, -1, side - 1))
    if step < 0:
        start, end = side - 1, -(1 << 40)
    more = [net.whole(step)] if step != 1 or net.chance(0.3) else []
    return net.add("Slice", x, net.whole(start), net.whole(end), net.whole(axis), *more)


def _gather(net: Net, x: str) -> str:
    rank = net.rank(x)
    axis = int(net.rng.integers(1, rank))
    side = net.shape(x)[axis]
    if net.chance(0.3) and rank > 2:
        return net.add("Gather", x, net.constant(np.int64(net.one((0, -1, side - 1)))), axis=axis)
    places = [int(net.rng.integers(-side, side)) for _ in range(net.one((1, 2, side)))]
    return net.add("Gather", x, net.whole(*places), axis=axis)


def _softmax(net: Net, x: str) -> str:
    return net.add("Softmax", x, axis=net.one((-1, 1, net.rank(x) - 1)))


def _attention(net: Net, x: str) -> str:
    """Scores of a sequence with itself."""
    if net.rank(x) != 3 or min(net.shape(x)[1:]) < 2:
        raise ValueError("no sequence")
    c = net.shape(x)[2]
    q, k, v = (net.add("MatMul", x, net.drawn(c, 4)) for _ in range(3))
    scores = net.add("MatMul", q, net.add("Transpose", k, perm=[0, 2, 1]))
    scores = net.add(net.one(("Mul", "Div")), scores, net.constant(np.float32(net.one((0.5, 2.0)))))
    return net.add("MatMul", net.add("Softmax", scores, axis=-1), v)


def _written_gelu(net: Net, x: str) -> str:
    half, root = net.constant(np.float32(0.5)), net.constant(np.float32(math.sqrt(2)))
    inner = net.add("Erf", net.add("Div", x, root))
    outer = net.add("Add", inner, net.constant(np.float32(1.0)))
    if net.chance():
        return net.add("Mul", net.add("Mul", x, outer), half)
    return net.add("Mul", x, net.add("Mul", half, outer))


def _written_norm(net: Net, x: str) -> str:
    if net.shape(x)[-1] < 3:
        raise ValueError("nothing is left")
    over: dict[str, Any] = {"axes": [-1]} if net.opset < 18 else {}
    more = [] if over else [net.whole(-1)]
    less = net.add("Sub", x, net.add("ReduceMean", x, *more, **over))
    square = net.add("Pow", less, net.constant(np.float32(2))) if net.chance() else net.add("Mul", less, less)
    more = [] if over else [net.whole(-1)]
    mean = net.add("Add", net.add("ReduceMean", square, *more, **over), net.constant(np.float32(1e-2)))
    made = net.add("Div", less, net.add("Sqrt", mean))
    return net.add("Mul", made, net.positive(net.shape(x)[-1])) if net.chance() else made


DRAWS: dict[str, Draw] = {
    "Conv": conv,
    "ConvTranspose": _transposed,
    "Gemm": gemm,
    **{op: _pool(op) for op in ("MaxPool", "AveragePool")},
    **{op: _whole(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    **{op: _arithmetic(op) for op in ("Add", "Sub", "Mul", "Div")},
    **{op: _several(op) for op in ("Sum", "Mean")},
    **{op: _bound(op) for op in ("Max", "Min")},
    **{op: _alone(op) for op in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Softplus", "Neg", "Abs", "Exp")},
    **{op: _alone(op) for op in ("Softsign", "Erf", "Sin", "Atan", "Identity", "Dropout", "Selu")},
    "LeakyRelu": _alone("LeakyRelu", alpha=(0.1, 0.3)),
    "Elu": _alone("Elu", alpha=(0.5, 1.0)),
    "Celu": _alone("Celu", alpha=(0.5, 2.0)),
    "HardSigmoid": _alone("HardSigmoid", alpha=(0.2, 1 / 6, 0.3), beta=(0.5, 0.4)),
    "Shrink": _alone("Shrink", lambd=(0.5, 0.1), bias=(0.0, 0.5)),
    "BatchNormalization": _norm,
    "InstanceNormalization": _instance,
    "LayerNormalization": _layer_norm,
    "Clip": _clip,
    "PRelu": _slope,
    **{op: _compared(op) for op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    **{op: _reduce(op) for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceLogSumExp")},
    "Flatten": _alone("Flatten", axis=(1, -1, 2)),
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "around": _around,
    "Pad": _pad,
    "Resize": _resize,
    "Tile": _tile,
    **{op: _blocks(op) for op in ("DepthToSpace", "SpaceToDepth")},
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Softmax": _softmax,
    "attention": _attention,
    "a GELU written out": _written_gelu,
    "a norm written out": _written_norm,
}
SHAPELY = ("around", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "BatchNormalization",
           "InstanceNormalization", "Resize", "DepthToSpace", "SpaceToDepth", "GlobalAveragePool",
           "GlobalMaxPool", "PRelu")  # which channels last are none  # fmt: skip
