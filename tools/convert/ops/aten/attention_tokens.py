"""Attention of other tokens: of keys that are fewer than queries, or queries that are fewer than keys.

The kernel has a key for each query. Keys that stand several times, each as often as any other, change no
share of their values together. Of queries that stand several times one result is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..tokens import places, view_of
from .across import relabelled
from .resample import chosen, sampled


@dataclass(frozen=True)
class Repeated:
    """Queries, keys and values of as many pixels, in the order of these.

    bias  as it was given, of these
    read  which of the results is that of each query
    """

    parts: tuple[Act, ...]
    bias: np.ndarray | None
    read: np.ndarray


def repeated(low: Lowering, call: Call, parts: Sequence[Act], bias: np.ndarray | None) -> Repeated | None:
    """As many of each as there are queries, or more; None where they are of the same tokens, or cannot be."""
    (queries, keys, values), leads = (part.dims[-2] for part in parts), {part.dims[:-2] for part in parts}
    shapes = [low.shape(part)[:2] for part in parts]
    if len({*shapes}) == 1 or keys != values or len(leads) > 1:
        return None
    pixels = [_pixels(low, part) for part in parts]
    if any(each is None for each in pixels):
        return None
    most = -(-queries // keys) * keys
    shape = next((s for s in shapes if s[0] * s[1] == most), (most, 1))
    often = [np.minimum(np.arange(most), queries - 1), *[np.arange(most) // (most // keys)] * 2]
    made = tuple(_often(low, call, part, shape, each) for part, each in zip(parts, often, strict=True))
    if bias is not None:
        tokens = [
            np.argsort(each)[own] for each, own in zip(pixels[:2], often, strict=False) if each is not None
        ]
        bias = np.broadcast_to(bias, (*leads.pop(), queries, keys))[..., tokens[0][:, None], tokens[1]]
    assert pixels[0] is not None
    return Repeated(made, bias, pixels[0])


def _pixels(low: Lowering, part: Act) -> np.ndarray | None:
    """The pixel of each token, where every sequence has all of a map's pixels in one order."""
    h, w, c = low.shape(part)
    at = places(low, part).reshape(-1, *part.dims[-2:])[:, :, 0] // c
    whole = at.shape[1] == h * w and np.array_equal(np.sort(at[0]), np.arange(h * w)) and (at == at[0]).all()
    return at[0] if whole else None


def _often(low: Lowering, call: Call, part: Act, shape: tuple[int, int], often: np.ndarray) -> Act:
    """A part of a map of another shape. often: which of its own pixels stands at each place"""
    (h, w, c), count = low.shape(part), often.size
    channels = places(low, part).reshape(-1, *part.dims[-2:])[:, :1, :] % c  # of each head
    x = part
    if count != h * w:
        column = relabelled(low, call, part, (h * w, 1, c))
        axes = chosen(often.tolist(), h * w), chosen([0], 1)
        x = sampled(low, replace(call, op="repeat", builtin=False), column, *axes)
    x = relabelled(low, call, x, (*shape, c))
    at = np.arange(count)[:, None] * c + channels
    return view_of(low, x.tensor, at.reshape(*part.dims[:-2], count, part.dims[-1]))
