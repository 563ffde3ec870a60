"""Operators that move numbers, as drawn_tflite.py draws them: views, cuts, lists, larger maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from drawn_tflite import Drawn, Piece


def view(net: Drawn) -> None:
    """Axes that come together, come apart, or are 1."""
    shape, kind = list(net.shape), net.pick("merge", "split", "ones", "flat", "rows", "apart")
    if kind == "merge":
        at = net.axis(1 if net.chance(0.8) else 0)
        net.fit(at + 1 < len(shape))
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif kind == "split":
        at = net.axis()
        small = [n for n in range(2, shape[at]) if shape[at] % n == 0]
        net.fit(bool(small) and len(shape) < 5)
        n = net.pick(*small)
        shape[at : at + 1] = [n, shape[at] // n]
    elif kind == "ones":
        net.fit(len(shape) < 4)
        shape.insert(net.axis(), 1)
    elif kind == "apart":
        net.fit(len(shape) == 2 and shape[0] == 1)
        shape = [1, *_factors(net, shape[1], net.pick(2, 3))]
    elif kind == "flat":
        shape = net.pick([1, math.prod(shape)], [1, 1, math.prod(shape)], [1, math.prod(shape), 1])
    else:
        shape = [math.prod(shape[:-1]), shape[-1]]
    said = list(shape)
    if net.chance(0.3):
        said[net.pick(*range(len(said)))] = -1
    net.op("RESHAPE", (net.x, net.whole(*said)), shape)


def _factors(net: Drawn, n: int, many: int) -> list[int]:
    """Numbers whose product this is."""
    found = []
    for _ in range(many - 1):
        found.append(net.pick(*(d for d in range(1, n + 1) if n % d == 0)))
        n //= found[-1]
    return [*found, n]


def ones(net: Drawn) -> None:
    """EXPAND_DIMS and SQUEEZE."""
    shape = list(net.shape)
    at = [i for i, n in enumerate(shape) if n == 1 and i > 0]
    if at and net.chance(0.6):
        gone = net.pick(*at)
        del shape[gone]
        net.op("SQUEEZE", (net.x,), shape, "SqueezeOptions", SqueezeDims=(gone,))
        return
    net.fit(len(shape) < 4)
    place = int(net.rng.integers(1, len(shape) + 1))
    shape.insert(place, 1)
    net.op("EXPAND_DIMS", (net.x, net.whole(net.said(place, len(shape)))), shape, "ExpandDimsOptions")


def transpose(net: Drawn) -> None:
    rank = len(net.shape)
    net.fit(rank > 2 and net.touched())  # of an input: `first`
    axes = [0, *(1 + int(a) for a in net.rng.permutation(rank - 1))]
    if net.chance(0.1):
        axes = [int(a) for a in net.rng.permutation(rank)]
    net.turned(*axes)
    if net.chance(0.4):  # something, and back
        kept = [net.shape[a] for a in np.argsort(axes)]
        net.op(net.pick("RELU", "LOGISTIC", "ABS", "NEG"), (net.x,), net.shape)
        net.fit(net.shape == tuple(kept[a] for a in axes))
        net.turned(*(int(a) for a in np.argsort(axes)))


def pad(net: Drawn) -> None:
    rank = len(net.shape)
    net.fit(rank > 1)
    kind, value, about = net.pick("PAD", "PADV2", "MIRROR_PAD"), [], {}
    mirror = net.pick(0, 1)
    sides = np.zeros((rank, 2), int)
    last = rank if net.chance(0.3) else rank - 1
    for axis in range(1, max(last, 2)):
        most = 3 if kind != "MIRROR_PAD" else min(2, net.shape[axis] + mirror - 1)
        sides[axis] = net.rng.integers(0, most + 1, 2) * (net.rng.random(2) < 0.6)
    net.fit(bool(sides.any()))
    if kind == "PADV2":
        value = [net.w.tensor("value", (1,), "float32", np.array([net.pick(0.0, 0.0, 0.5)]))]
    if kind == "MIRROR_PAD":
        about = {"Mode": mirror}
    table = {"PAD": "PadOptions", "MIRROR_PAD": "MirrorPadOptions"}.get(kind, "")
    widths = net.w.tensor("p", (rank, 2), "int32", sides)
    net.op(kind, (net.x, widths, *value), np.array(net.shape) + sides.sum(1), table, **about)


def concatenation(net: Drawn) -> None:
    """With an earlier tensor, itself, or a constant."""
    axis = net.axis()
    found = [
        (t, shape[axis])
        for t, shape in net.earlier
        if len(shape) == len(net.shape)
        and all(i == axis or a == b for i, (a, b) in enumerate(zip(shape, net.shape, strict=True)))
    ]
    if net.chance(0.15) or not found:
        own = (*net.shape[:axis], 1, *net.shape[axis + 1 :])
        found = [(net.between(own), 1)]
    parts = [(net.x, net.shape[axis])]
    for _ in range(net.pick(1, 1, 2)):
        parts.insert(net.pick(0, len(parts)), net.pick(*found))
    shape = (*net.shape[:axis], sum(n for _, n in parts), *net.shape[axis + 1 :])
    about = {"Axis": net.said(axis)}
    net.op("CONCATENATION", [t for t, _ in parts], shape, "ConcatenationOptions", **about)


def split(net: Drawn) -> None:
    """Into parts, one of which goes on, or all, in another order."""
    axis = net.axis()
    size, rest = net.shape[axis], list(net.shape)
    net.fit(size > 1)
    at = net.w.tensor("axis", (), "int32", np.array(net.said(axis)))
    if net.chance(0.5):
        many = net.pick(*(n for n in range(2, size + 1) if size % n == 0))
        sizes, kind = [size // many] * many, "SPLIT"
        given: tuple[int, ...] = (at, net.x)
    else:
        first = net.some(size - 1)
        sizes, kind = [first, size - first], "SPLIT_V"
        said = net.pick(sizes, [-1, sizes[1]], [sizes[0], -1])
        given = (net.x, net.whole(*said), at)
    shapes = [(*rest[:axis], n, *rest[axis + 1 :]) for n in sizes]
    parts = net.several(kind, given, shapes, kind.title().replace("_", "") + "Options", NumSplits=len(sizes))
    chosen = net.pick(*range(len(parts)))
    if net.chance(0.5):
        net.at(parts[chosen], shapes[chosen])
        return
    net.op("CONCATENATION", parts[::-1], rest, "ConcatenationOptions", Axis=axis)


def cut(net: Drawn) -> None:
    if net.chance(0.4):
        shape, first, many = list(net.shape), [0] * len(net.shape), [-1] * len(net.shape)
        for axis in {net.axis(), net.axis()}:
            size = shape[axis]
            first[axis] = int(net.rng.integers(0, size))
            shape[axis] = net.some(size - first[axis])
            many[axis] = shape[axis] if first[axis] + shape[axis] < size or net.chance(0.5) else -1
        many = [shape[i] if n == -1 and net.chance(0.5) else n for i, n in enumerate(many)]
        net.op("SLICE", (net.x, net.whole(*first), net.whole(*many)), shape, "SliceOptions")
        return
    _strided(net)


def _strided(net: Drawn) -> None:
    """Steps in both directions, places that go, masks, ends that count from where they begin."""
    rank = len(net.shape)
    begin, end, by = [0] * rank, list(net.shape), [1] * rank
    masks, offset = {"BeginMask": 0, "EndMask": 0, "ShrinkAxisMask": 0}, net.chance(0.15)
    shape: list[int] = []
    chosen = {net.axis(), net.axis()}
    for axis, size in enumerate(net.shape):
        if axis not in chosen:
            if net.chance(0.5):
                masks["BeginMask"] |= 1 << axis
                masks["EndMask"] |= 0 if offset else 1 << axis
            shape.append(size)
            continue
        if net.chance(0.2) and rank > 1:
            begin[axis] = int(net.rng.integers(-size, size))
            end[axis] = 1 if offset else begin[axis] + 1
            masks["ShrinkAxisMask"] |= 1 << axis
            continue
        made = _span(net, axis, size, masks, offset)
        begin[axis], end[axis], by[axis], n = made
        shape.append(n)
    given = (net.x, *(net.whole(*numbers) for numbers in (begin, end, by)))
    net.op("STRIDED_SLICE", given, shape, "StridedSliceOptions", **masks, Offset=offset)


def _span(net: Drawn, axis: int, size: int, masks: dict[str, int], offset: bool) -> tuple[int, int, int, int]:
    """Begin, end, step and count of an axis."""
    step = net.pick(1, 1, 2, 3, -1, -2) if not offset else net.pick(1, 2)
    first, last = sorted(int(n) for n in net.rng.integers(0, size + 1, 2))
    net.fit(first < last)
    begin, end = (first, last) if step > 0 else (last - 1, first - 1)
    if end < 0:
        masks["EndMask"] |= 1 << axis
        end = 0
    elif net.chance(0.15) and not offset:
        masks["BeginMask"] |= 1 << axis
        begin = 0 if step > 0 else size - 1
    count = len(range(size)[slice(begin, None if masks["EndMask"] >> axis & 1 else end, step)])
    net.fit(count > 0)
    if offset:
        return begin, end - begin, step, count
    begin, end = (n - size if 0 < n < size and net.chance(0.25) else n for n in (begin, end))
    return begin, end, step, count


def gather(net: Drawn) -> None:
    """At a list of places, or at one."""
    axis = net.axis()
    before, size, after = net.shape[:axis], net.shape[axis], net.shape[axis + 1 :]
    if net.chance(0.25):
        at = net.w.tensor("place", (), "int32", np.array(net.pick(*range(size))))
        shape: tuple[int, ...] = (*before, *after)
    else:
        many, places = net.some(size + 1), net.pick(1, 1, 1, 2)
        numbers = net.rng.integers(0, size, (2, many)[-places:])
        at = net.w.tensor("places", numbers.shape, "int32", numbers)
        shape = (*before, *numbers.shape, *after)
    net.op("GATHER", (net.x, at), shape, "GatherOptions", Axis=net.said(axis))


def stacked(net: Drawn) -> None:
    """Tensors on an axis of their own, which is taken together, or stays."""
    net.fit(len(net.shape) < 5)
    other = net.like()
    parts = net.pick((net.x, net.x if other is None else other), (net.x if other is None else other, net.x))
    axis = int(net.rng.integers(0, len(net.shape) + 1))
    shape = (*net.shape[:axis], 2, *net.shape[axis:])
    about = {"ValuesCount": 2, "Axis": net.said(axis, len(shape))}
    before = net.shape
    net.op("PACK", parts, shape, "PackOptions", **about)
    if net.chance(0.6) or axis == 0:
        kind = net.pick("MEAN", "SUM", "MEAN", "SUM", "REDUCE_MAX")
        net.op(kind, (net.x, net.whole(axis)), before, "ReducerOptions", KeepDims=False)


def unpacked(net: Drawn) -> None:
    axis = net.axis()
    size, rest = net.shape[axis], (*net.shape[:axis], *net.shape[axis + 1 :])
    about = {"Num": size, "Axis": net.said(axis)}
    parts = net.several("UNPACK", (net.x,), [rest] * size, "UnpackOptions", **about)
    if net.chance(0.5) or size == 1:
        net.at(net.pick(*parts), rest)
        return
    net.op("ADD", net.pick((parts[0], parts[-1]), (parts[-1], parts[0])), rest, "AddOptions")


def resize(net: Drawn) -> None:
    _, h, w, c = net.map()
    kind, table = net.pick(
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
    )
    made = net.pick((2 * h, 2 * w), (3 * h, 2 * w), (h + 2, w + 1), (net.size(), net.size()), (h, 2 * w))
    aligned, half = net.pick((False, False), (True, False), (False, True))
    about: dict[str, Any] = {"AlignCorners": aligned, "HalfPixelCenters": half}
    net.op(kind, (net.x, net.whole(*made)), (1, *made, c), table, **about)


def blocks(net: Drawn) -> None:
    _, h, w, c = net.map()
    n = net.pick(2, 2, 3)
    if c % (n * n) == 0:
        shape = (1, h * n, w * n, c // (n * n))
        net.op("DEPTH_TO_SPACE", (net.x,), shape, "DepthToSpaceOptions", BlockSize=n)
        return
    net.fit(h % n == 0 and w % n == 0)
    net.op("SPACE_TO_DEPTH", (net.x,), (1, h // n, w // n, c * n * n), "SpaceToDepthOptions", BlockSize=n)


def around(net: Drawn) -> None:
    first = net.axis()
    axes = range(first, min(first + net.pick(1, 1, 2), len(net.shape)))
    net.op("REVERSE_V2", (net.x, net.whole(*(net.said(a) for a in axes))), net.shape, "ReverseV2Options")


def tile(net: Drawn) -> None:
    """As UpSampling of Keras, an axis of 1 behind the rows or the columns; or any axis."""
    shape = list(net.shape)
    net.fit(len(shape) in (3, 4))
    at, n = int(net.rng.integers(1, len(shape))), net.pick(2, 3)
    if net.chance(0.4):
        net.view(*shape[: at + 1], 1, *shape[at + 1 :])
        times = [1] * (len(shape) + 1)
        times[at + 1] = n
        net.op("TILE", (net.x, net.whole(*times)), [d * t for d, t in zip(net.shape, times, strict=True)])
        shape[at] *= n
        net.view(*shape)
        return
    times = [n if i == at else 1 for i in range(len(shape))]
    net.op("TILE", (net.x, net.whole(*times)), [d * t for d, t in zip(shape, times, strict=True)])


def broadcast(net: Drawn) -> None:
    """What is said of a map's channels or of its pixels, as large as it, and their product."""
    x, shape = net.x, net.shape
    net.fit(len(shape) > 2)
    axes = net.pick([*range(1, len(shape) - 1)], [len(shape) - 1])
    made = [1 if i in axes else d for i, d in enumerate(shape)]
    net.op("MEAN", (x, net.whole(*axes)), made, "ReducerOptions", KeepDims=True)
    net.op("BROADCAST_TO", (net.x, net.whole(*shape)), shape, "BroadcastToOptions")
    net.op("MUL", net.pick((x, net.x), (net.x, x)), shape, "MulOptions")


def woven(net: Drawn) -> None:
    """A dilated convolution in batches of every d-th row and column."""
    _, h, w, c = net.map()
    d, k, n = net.pick(2, 3), net.pick(2, 3), net.size()
    reach = (k - 1) * d
    same = net.chance(0.5)
    before = reach // 2 if same else 0
    sides = []
    for size in (h, w):
        whole = size + (reach if same else 0)
        sides.append((before, -(-whole // d) * d - size - before, -(-whole // d), -(-whole // d) * d - whole))
    out = [size if same else size - reach for size in (h, w)]
    net.fit(min(out) > 0 and d * d * math.prod(s[2] for s in sides) * max(c, n) <= 700)
    pads = net.w.tensor("pads", (2, 2), "int32", np.array([side[:2] for side in sides]))
    crops = net.w.tensor("crops", (2, 2), "int32", np.array([(0, side[3]) for side in sides]))
    many, block = d * d, net.whole(d, d)
    inner = [side[2] for side in sides]
    net.op("SPACE_TO_BATCH_ND", (net.x, block, pads), (many, *inner, c), "SpaceToBatchNDOptions")
    about = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    none = net.w.tensor("none", (n,), "float32", np.zeros(n))
    made = [side - k + 1 for side in inner]
    weights = (net.x, net.drawn(n, k, k, c), net.pick(none, net.drawn(n)))
    net.op("CONV_2D", weights, (many, *made, n), "Conv2DOptions", **about)
    net.op("BATCH_TO_SPACE_ND", (net.x, block, crops), (1, *out, n), "BatchToSpaceNDOptions")
    net.op("ADD", (net.x, net.drawn(n)), net.shape, "AddOptions", FusedActivationFunction=1)


PIECES: dict[str, Piece] = {
    piece.__name__: piece
    for piece in (
        *(view, ones, transpose, pad, concatenation, split, cut, gather, stacked, unpacked, resize, blocks),
        *(around, tile, broadcast, woven),
    )
}
