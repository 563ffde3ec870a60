"""Where the heads and the tokens of attention lie in the maps that it reads, and one map of all its heads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from .channels import CONCAT, TAKE


def split(
    low: Lowering, call: Call, parts: Sequence[Act], views: Sequence[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The pixels [sequences and heads, tokens], and of each part the first channel of each head."""
    pixels, starts = [], []
    for part, at in zip(parts, views, strict=True):
        c = low.shape(part)[2]
        pixel, first = at[:, :, 0] // c, at[:, :, 0] % c
        straight = np.array_equal(at, at[:, :, :1] + np.arange(at.shape[2])) and (first == first[:, :1]).all()
        if not straight or (first + at.shape[2] > c).any():
            raise call.error(
                "attention whose heads are no channels that follow one another is not supported; the nearest "
                "that is: heads of equal parts of the features"
            )
        pixels.append(pixel)
        starts.append(first[:, 0])
    if any(low.shape(part)[:2] != low.shape(parts[0])[:2] for part in parts) or not all(
        np.array_equal(pixels[0], other) for other in pixels[1:]
    ):
        raise call.error(
            "attention between different tokens is not supported; the nearest that is: self-attention, whose "
            "queries, keys and values are of the same tokens"
        )
    return pixels[0], starts


def steps_of(pixels: np.ndarray, h: int, w: int) -> tuple[int, int] | None:
    """How far the pixels of a sequence lie apart, 1 and 1 where all pixels are one; None: not equally."""
    own = np.unique(pixels[(pixels == 0).any(axis=1)][0]) if (pixels == 0).any() else pixels[0]
    rows, columns = np.unique(own // w), np.unique(own % w)
    down = int(rows[1] - rows[0]) if len(rows) > 1 else h
    across = int(columns[1] - columns[0]) if len(columns) > 1 else w
    grid = np.arange(h * w).reshape(h, w)
    wanted = {grid[i::down, j::across].tobytes() for i in range(down) for j in range(across)}
    found = {np.sort(each).tobytes() for each in pixels}
    return (down, across) if not (h % down or w % across) and found == wanted else None


def heads_of(call: Call, pixels: np.ndarray, starts: list[np.ndarray], size: int) -> list[int]:
    """The first channel of the queries of each head, in their order; each head has all sequences."""
    heads = sorted({int(s) for s in starts[0]})
    sequences = len({each.tobytes() for each in np.sort(pixels, axis=1)})
    places = {(int(a), *(int(s) for s in rest)) for a, *rest in zip(*starts, strict=True)}
    apart = all(b - a >= size for a, b in pairwise(heads))
    if len(places) != len(heads) or not apart or sequences * len(heads) != len(pixels):
        raise call.error(
            "attention whose heads share features is not supported; the nearest that is: heads of equal parts"
        )
    return heads


def joined(
    low: Lowering, call: Call, parts: Sequence[Act], starts: list[np.ndarray], heads: list[int]
) -> Act:
    """One map with the queries of all heads, then the keys, then the values."""
    h, w, _ = low.shape(parts[0])
    order = [[int(s[list(starts[0]).index(head)]) for head in heads] for s in starts]
    wanted = [
        [c for start in each for c in range(start, start + part.dims[-1])]
        for each, part in zip(order, parts, strict=True)
    ]
    taken: list[tuple[Act, list[int]]] = []
    for part, each in zip(parts, wanted, strict=True):
        if taken and low.tensor_of(taken[-1][0]) == low.tensor_of(part):
            taken[-1][1].extend(each)
        else:
            taken.append((part, list(each)))
    maps = [_taken(low, call, part, channels) for part, channels in taken]
    if len(maps) == 1:
        return maps[0]
    if len({m.tensor for m in maps}) < len(maps):
        raise call.error(
            "attention whose queries and values are one part of a tensor, and keys of another one, is not "
            "supported; the nearest that is: one linear layer for all three, or one for each"
        )
    return low.emit(call, CONCAT, tuple(maps), (h, w, sum(len(each) for each in wanted)))


def _taken(low: Lowering, call: Call, x: Act, channels: list[int]) -> Act:
    h, w, c = low.shape(x)
    image = Act(x.tensor, (low.batch, c, h, w))
    if channels == list(range(c)):
        return image
    return low.emit(call, TAKE, (image,), (h, w, len(channels)), channels=tuple(channels))
