"""Front-end rules of maps that are joined: along rows and columns, flattened, or with constants beside."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from ..calls import Calls, same_number
from ..tokens import turnable, view_of
from .across import as_image, relabelled
from .resample import NOTHING, chosen, fits, sampled

NAMES = ("cat", "concat", "concatenate")


def beside_constants(low: Lowering, call: Call) -> bool:
    """Whether a call joins one map and constants along the channels."""
    given = call.args.get("tensors")
    if not isinstance(given, list) or sum(isinstance(v, Act) for v in given) != 1 or len(given) < 2:
        return False
    (x,) = (v for v in given if isinstance(v, Act))
    plain = x.order is None and x.tensor not in low.last and int(call.get("dim", 0)) % len(x.dims) == 1
    rest = [v for v in given if v is not x]
    return plain and all(
        isinstance(v, Param)
        and (same_number(v) is not None or len(x.dims) > 2)
        and v.value.dtype.kind == "f"
        and v.value.ndim == len(x.dims)
        and (v.value.shape[0], *v.value.shape[2:]) == (x.dims[0], *x.dims[2:])
        for v in rest
    )


def padded(made: Calls, call: Call) -> Any:
    """A map with channels of constants before and behind it, from the inside out.

    Where these are not all one number, as coordinates (CoordConv, Liu et al. 2018), they are zeros first.
    """
    given = call.args["tensors"]
    at = next(i for i, v in enumerate(given) if isinstance(v, Act))
    found, sides = given[at], [0, 0] * (len(given[at].dims) - 2)
    for i in (*range(at)[::-1], *range(at + 1, len(given))):
        count = given[i].value.shape[1]
        widths = [count, 0] if i < at else [0, count]
        found = made("pad", found, pad=sides + widths, value=same_number(given[i]) or 0.0)
    if all(same_number(v) is not None for v in given if isinstance(v, Param)):
        return found
    parts = [
        v.value if isinstance(v, Param) and same_number(v) is None else np.zeros(dims_of(v), np.float32)
        for v in given
    ]
    table = Param(call.node_name("constants"), np.concatenate(parts, axis=1), computed=True)
    return made("add", found, table)


def dims_of(value: Act | Param) -> tuple[int, ...]:
    return value.value.shape if isinstance(value, Param) else value.dims


def _maps(call: Call) -> list[Act]:
    """What a call joins, if these are several activations and nothing else; else nothing."""
    given = call.args.get("tensors")
    several = isinstance(given, list) and len(given) > 1 and all(isinstance(v, Act) for v in given)
    return given if several and isinstance(given, list) else []


def behind_each_other(low: Lowering, call: Call) -> bool:
    """Whether a call joins images along their rows or columns."""
    given = _maps(call)
    if not given:
        return False
    ranks, axis = {len(v.dims) for v in given}, int(call.get("dim", 0))
    plain = all(v.order is None and v.tensor not in low.last and not v.pad and not v.half for v in given)
    maps = all(v.dims[:2] == (low.batch, low.shape(v)[2]) for v in given if len(v.dims) > 2)
    return plain and maps and len(ranks) == 1 and max(ranks) in (3, 4) and axis % max(ranks) > 1


def joined(made: Calls, call: Call) -> Any:
    """Maps one behind the other along an axis: each with zeros where the others are, and their sum."""
    low = made.low
    given = [low.image(call, as_image(low, call, v)) for v in call.args["tensors"]]
    axis = int(call.get("dim", 0)) % len(given[0].dims)
    if len({(*v.dims[:axis], *v.dims[axis + 1 :]) for v in given}) > 1:
        dims = ", ".join(str(list(v.dims)) for v in given)
        raise call.error(f"the op {call.op} of {dims} along dimension {axis}: the other sizes must be equal")
    total, begin, found = sum(v.dims[axis] for v in given), 0, None
    fits(call, total)
    for x in given:
        sizes = list(low.shape(x)[:2])
        axes = [chosen(range(size), size) for size in sizes]
        size = sizes[axis - 2]
        axes[axis - 2] = chosen([i - begin if 0 <= i - begin < size else NOTHING for i in range(total)], size)
        part = sampled(low, replace(call, builtin=False), x, *axes)
        found, begin = part if found is None else made("add", found, part), begin + size
    return found


def beside_nothing(low: Lowering, call: Call) -> bool:
    """Whether constants without a number are among what a call joins, as class tokens that are none."""
    given = call.args.get("tensors")
    if not isinstance(given, list) or not any(isinstance(v, Act) for v in given):
        return False
    return any(isinstance(v, Param) and not v.value.size for v in given)


def without_nothing(made: Calls, call: Call) -> Any:
    rest = [v for v in call.args["tensors"] if not (isinstance(v, Param) and not v.value.size)]
    return made("cat", None, tensors=rest, dim=call.get("dim", 0)) if len(rest) > 1 else rest[0]


def flattened(low: Lowering, call: Call) -> bool:
    """Whether a call joins vectors, of which some are flattened maps, as pyramids of poolings end (SPP)."""
    given = _maps(call)
    if not given:
        return False
    plain = all(v.order is None and v.factor == 1 and not v.pad and not v.half for v in given)
    vectors = all(v.dims == (low.batch, math.prod(low.shape(v))) for v in given)
    return plain and vectors and low.batch == 1 and any(low.shape(v)[:2] != (1, 1) for v in given)


def one_behind_the_other(made: Calls, call: Call) -> Act:
    """The pixels of all maps in one column, of as many channels as divide those of each."""
    low, given = made.low, [turnable(made.low, call, v) for v in call.args["tensors"]]
    shapes = [low.shape(v) for v in given]
    channels = math.gcd(*(c for _, _, c in shapes))
    rows = [math.prod(shape) // channels for shape in shapes]
    parts = [relabelled(low, call, v, (n, 1, channels)) for v, n in zip(given, rows, strict=True)]
    column = made("cat", None, tensors=parts, dim=2)
    begin, places = 0, []
    for h, w, c in shapes:
        places.append(begin + np.arange(h * w * c).reshape(h * w, c).T.ravel())
        begin += h * w * c
    return view_of(low, column.tensor, np.concatenate(places)[None])


RULES = (
    (beside_nothing, without_nothing),
    (behind_each_other, joined),
    (beside_constants, padded),
    (flattened, one_behind_the_other),
)
