"""Front-end rules of tokens that are joined: their features side by side, or tokens behind tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from .. import position
from ..calls import Natural
from ..tokens import numbers, pixels_of, settled, view_of, viewed, whole
from . import across
from .joins import dims_of
from .token_images import is_image, is_other

Vectors = tuple[Act, np.ndarray | None]  # a view of a whole map, and the pixel of each of its vectors


def cat(low: Lowering, call: Call, natural: Natural) -> Any:
    """Tokens and constant ones, one behind the other, or their features; vectors, one of which is a token."""
    given, axis = call.args.get("tensors") or [], int(call.get("dim", 0))
    if all(isinstance(v, Act) and len(v.dims) == 2 for v in given):
        given = [settled(low, call, v) for v in given]
    if all(isinstance(v, Act) and v.order is None and v.tensor not in low.last for v in given):
        given = [across.as_image(low, call, v) if is_other(low, v) else v for v in given]
        if all(is_image(low, v) for v in given):
            return natural(low, replace(call, args={**call.args, "tensors": given}))
    rank = max(len(dims_of(v)) for v in given)
    made = _joined(low, call, natural, given, axis % rank)
    if made is not None:
        return made
    kinds = ("a constant" if isinstance(v, Param) else "tokens" for v in given)
    shapes = " and ".join(f"{kind} {list(dims_of(v))}" for kind, v in zip(kinds, given, strict=True))
    raise call.error(
        f"the op {call.op} of {shapes} along dimension {axis % rank} is not supported; the nearest that is: "
        "tokens of as many features, and constant ones, one behind the other, or features of the same tokens"
    )


def _joined(low: Lowering, call: Call, natural: Natural, given: Sequence[Any], axis: int) -> Act | None:
    """None where neither features nor tokens are joined."""
    rank = len(dims_of(given[0]))
    others = {(*dims_of(v)[:axis], *dims_of(v)[axis + 1 :]) for v in given}
    if len(others) > 1 or any(len(dims_of(v)) != rank for v in given):
        return None
    maps = all(isinstance(v, Act) for v in given)
    if maps and axis < rank - 1:  # features may be another axis than the last
        given = [settled(low, call, v) for v in given]
        if (made := _features(low, call, natural, given, axis)) is not None:
            return made
    found = [across.featured(low, call, v) for v in given if isinstance(v, Act)]
    if any(pixels is None for _, pixels in found):
        return None
    if axis < rank - 1:
        return _one_behind_the_other(low, call, natural, given, axis, found)
    return _features(low, call, natural, [x for x, _ in found], axis) if maps else None


def _features(low: Lowering, call: Call, natural: Natural, given: Sequence[Act], axis: int) -> Act | None:
    """Channels side by side, of the same pixels; None where these are no channels, or others."""
    found = [pixels_of(low, viewed(low, v, np.moveaxis(numbers(low, v), axis, -1))) for v in given]
    pixels, sizes = [each for each in found if each is not None], {low.shape(v)[:2] for v in given}
    alike = len(pixels) == len(given) and all(np.array_equal(pixels[0], other) for other in pixels)
    if len(sizes) > 1 or not alike:
        return None
    made = natural(low, replace(call, args={"tensors": [whole(low, v) for v in given], "dim": 1}))
    c = low.shape(made)[2]
    return view_of(low, made.tensor, np.moveaxis(pixels[0][..., None] * c + np.arange(c), -1, axis))


def _one_behind_the_other(
    low: Lowering, call: Call, natural: Natural, given: Sequence[Any], axis: int, found: list[Vectors]
) -> Act:
    """Tokens of maps and constant ones; in memory the constants come first, whatever the view says."""
    c = low.shape(found[0][0])[2]
    constants = [low.constant(call, v, "token").value.reshape(-1, c) for v in given if isinstance(v, Param)]
    column = whole(low, found[0][0])
    if len(found) > 1:
        shapes = ((low.tensors[x.tensor].pixels, 1, c) for x, _ in found)
        columns = [
            across.relabelled(low, call, x, shape) for (x, _), shape in zip(found, shapes, strict=True)
        ]
        column = natural(low, replace(call, builtin=False, args={"tensors": columns, "dim": 2}))
    if constants:
        name = next(v.name for v in given if isinstance(v, Param))
        column = position.preceded(low, call, whole(low, column), name, np.concatenate(constants))
    of_maps, begin, behind, pixels = iter(found), 0, sum(map(len, constants)), []
    for value in given:
        if isinstance(value, Param):
            count = value.value.size // c
            pixels.append(begin + np.arange(count).reshape(value.value.shape[:-1]))
            begin += count
        else:
            x, own = next(of_maps)
            assert own is not None
            pixels.append(behind + own)
            behind += low.tensors[x.tensor].pixels
    at = np.concatenate(pixels, axis)
    return view_of(low, column.tensor, at[..., None] * c + np.arange(c))
