"""Front-end rules of channels: maps that are joined along them, cut apart, or taken in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..table import Aten
from .resample import chosen, sampled

CONCAT, TAKE = "concat", "take"


def lower_concat(low: Lowering, call: Call) -> Act:
    """cat of images along their channels, or of vectors."""
    given = call.args.get("tensors")
    if not isinstance(given, Sequence) or not given:
        raise call.error(f"the op {call.op} of no list of tensors is not supported")
    maps = [low.activation(call, each) for each in given]
    axis, rank = int(call.get("dim", 0)), len(maps[0].dims)
    if rank > 2:
        maps = [low.image(call, each) for each in maps]
    shapes = [low.shape(each) for each in maps]
    if axis % rank != 1 or len({(len(m.dims), *s[:2]) for m, s in zip(maps, shapes, strict=True)}) > 1:
        dims = ", ".join(str(list(m.dims)) for m in maps)
        raise call.error(
            f"the op {call.op} of {dims} along dimension {axis} is not supported; the nearest that is: "
            "maps of one size, along their channels"
        )
    if rank == 2 and any(s[:2] != (1, 1) for s in shapes):
        raise call.error(
            f"the op {call.op} of flattened maps is not supported; the nearest that is: of the maps"
        )
    if len(maps) == 1:
        return maps[0]
    different = {low.tensor_of(each): each for each in maps}
    if len(different) < len(maps):
        return _some_twice(low, call, maps, list(different.values()))
    c = sum(s[2] for s in shapes)
    joined = (maps[0].dims[0], c, *maps[0].dims[2:])
    return low.emit(call, CONCAT, tuple(maps), (*shapes[0][:2], c), dims=joined)


def _some_twice(low: Lowering, call: Call, maps: Sequence[Act], different: Sequence[Act]) -> Act:
    """Maps of which some are the same, by a list of the channels of those that are not."""
    apart = replace(call, builtin=False, args={"tensors": different, "dim": call.get("dim", 0)})
    begins = np.cumsum([0, *(low.shape(each)[2] for each in different)])
    names = [low.tensor_of(each) for each in different]
    places = [names.index(low.tensor_of(each)) for each in maps]
    channels = [c for place in places for c in range(begins[place], begins[place + 1])]
    return take(low, call, lower_concat(low, apart), channels)


def take(
    low: Lowering, call: Call, x: Act, channels: Sequence[int], own: tuple[int, int] | None = None
) -> Act:
    """Some of an image's channels, in any order.

    own  from which of them on, and up to which, errors come back; None: from all
    """
    h, w, c = low.shape(x)
    if list(channels) == list(range(c)):
        return x
    dims, factors = (x.dims[0], len(channels), *x.dims[2:]), tuple(map(float, own or ()))
    shape = (h, w, len(channels))
    return low.emit(call, TAKE, (x,), shape, dims=dims, channels=tuple(channels), factors=factors)


def of_channels(low: Lowering, call: Call) -> tuple[Act, int]:
    """The image, or the vector, that a call cuts along its channels, and how many there are."""
    x = low.channelled(call, call.x)
    if int(call.get("dim", 0)) % len(x.dims) != 1:
        raise call.error(
            f"the op {call.op} along dimension {call.get('dim', 0)} is not supported; the nearest that is: "
            "along the channels, or slices of rows and columns"
        )
    return x, low.shape(x)[2]


def cut(low: Lowering, call: Call, x: Act, sizes: Sequence[int]) -> list[Act]:
    """The image's channels in groups of these sizes."""
    ends = np.cumsum(sizes).tolist()
    return [take(low, call, x, range(end - n, end)) for end, n in zip(ends, sizes, strict=True)]


def lower_chunk(low: Lowering, call: Call) -> list[Act]:
    if _is_over_pixels(low, call):
        size = low.activation(call, call.x).dims[int(call.get("dim", 0))]
        each = -(-size // max(1, int(call.args["chunks"])))
        return _lines(low, call, [min(each, size - start) for start in range(0, size, each)])
    x, c = of_channels(low, call)
    size = -(-c // max(1, int(call.args["chunks"])))
    return cut(low, call, x, [min(size, c - start) for start in range(0, c, size)])


def lower_split(low: Lowering, call: Call) -> list[Act]:
    lines = _is_over_pixels(low, call)
    x, c = (call.x, call.x.dims[int(call.get("dim", 0))]) if lines else of_channels(low, call)
    given = call.get("split_size", None) or call.get("split_sizes", None) or 0
    if isinstance(given, Sequence):
        sizes = [int(n) for n in given]
    else:
        sizes = [min(int(given), c - start) for start in range(0, c, max(1, int(given)))]
    what = "pixels" if lines else "channels"
    if min(sizes, default=0) < 1 or sum(sizes) != c:
        raise call.error(f"a {call.op} of {c} {what} into {sizes}: each part must have {what}")
    return _lines(low, call, sizes) if lines else cut(low, call, x, sizes)


def _is_over_pixels(low: Lowering, call: Call) -> bool:
    """Whether a call cuts an image along its rows or columns, or a series along time."""
    x = low.activation(call, call.x)
    return len(x.dims) in (3, 4) and int(call.get("dim", 0)) % len(x.dims) > 1


def _lines(low: Lowering, call: Call, sizes: Sequence[int]) -> list[Act]:
    """The image's rows or columns in groups of these sizes."""
    ends = np.cumsum(sizes).tolist()
    apart = replace(call, builtin=False)
    return [_pixels(low, apart, range(end - n, end)) for end, n in zip(ends, sizes, strict=True)]


def lower_slice(low: Lowering, call: Call) -> Act:
    x = low.activation(call, call.x)
    span = slice(call.get("start", None), call.get("end", None), call.get("step", None))
    every = range(x.dims[int(call.get("dim", 0))])
    if every[span] == every:
        return x
    if int(call.get("dim", 0)) % len(x.dims) > 1 and len(x.dims) in (3, 4):
        return _pixels(low, call, every[span])
    x, c = of_channels(low, call)
    chosen = range(c)[span]
    if not chosen:
        raise call.error(f"a {call.op} of {c} channels leaves none")
    return take(low, call, x, chosen)


def _pixels(low: Lowering, call: Call, taken: range) -> Act:
    """Some rows or columns of an image, or some moments of a series."""
    x = low.image(call, call.x)
    sizes = list(low.shape(x)[:2])
    axes = [chosen(range(size), size) for size in sizes]
    at = int(call.get("dim", 0)) % len(x.dims) - 2
    if not taken:
        raise call.error(f"a {call.op} of {sizes[at]} pixels leaves none")
    axes[at] = chosen(taken, sizes[at])
    return sampled(low, call, x, *axes)


def lower_shuffle(low: Lowering, call: Call) -> Act:
    x = low.image(call, call.x)
    groups, c = int(call.args["groups"]), low.shape(x)[2]
    if groups < 1 or c % groups:
        raise call.error(f"a {call.op} of {c} channels in {groups} groups: the groups must be equal")
    return take(low, call, x, shuffled(groups, c // groups))


def shuffled(groups: int, each: int) -> list[int]:
    """Channels [groups][each] in the order [each][groups]."""
    order: list[int] = np.arange(groups * each).reshape(groups, each).T.ravel().tolist()
    return order


def swaps(low: Lowering, x: Act, axes: Sequence[int]) -> bool:
    """Whether a permutation swaps groups and their channels."""
    h, w, c = low.shape(x)
    if len(x.dims) != 5 or x.dims[3:] != (h, w) or list(axes) != [0, 2, 1, 3, 4]:
        return False
    n, groups, each = x.dims[:3]
    return n == low.batch and groups * each == c


def swapped(low: Lowering, call: Call, x: Act, axes: Sequence[int]) -> Act | None:
    """A permutation of an image that was viewed as [n, groups, each, h, w], if it swaps these two."""
    if not swaps(low, x, axes):
        return None
    h, w, c = low.shape(x)
    n, groups, each = x.dims[:3]
    image = Act(x.tensor, (n, c, h, w))
    return Act(take(low, call, image, shuffled(groups, each)).tensor, (n, each, groups, h, w))


CONCAT_ATEN: Mapping[str, Aten] = dict.fromkeys(
    ("cat", "concat", "concatenate"), Aten("tensors dim", lower_concat)
)
TAKE_ATEN: Mapping[str, Aten] = {
    "chunk": Aten("self chunks dim", lower_chunk),
    "split": Aten("self split_size dim", lower_split),
    "split_with_sizes": Aten("self split_sizes dim", lower_split),
    "slice": Aten("self dim start end step", lower_slice),
    "channel_shuffle": Aten("self groups", lower_shuffle),
}
