"""Calls that make constants of constants: they are worked out here, in NumPy, and the graph has none of them.

Nothing is larger than MOST, and all of a file together than MOST_IN_ALL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.base import weight_norm
from microtrain.base.errors import one_line
from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from . import reparametrized, resized
from .constant_rules import (
    ARITHMETIC,
    FRESH,
    KERNELS,
    MAKING,
    OTHERS,
    PRODUCTS,
    RESIZED,
    SHAPES,
    SINGLE,
    TURNS,
    VIEWS,
    array,
    dims_of,
    new_sides,
    rule_of,
    sizes,
    x_of,
)

MOST, MOST_IN_ALL = 1 << 22, 1 << 27  # numbers of a constant, and of all that a file makes
MOST_PRODUCTS = 1 << 30  # of a product of matrices
PLACES = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy")  # say nothing of numbers


def concerns(call: Call) -> bool:
    """Whether a call makes a constant of constants, in a way that is understood."""
    op = call.op
    if op.endswith("_"):
        return _is_ours(call.x) and concerns(replace(call, op=op.rstrip("_")))
    if op in MAKING:
        of_any = op.endswith("_like") or op.startswith("new_")
        known = (isinstance(call.x, Act | Param) or not of_any) and (op not in FRESH or _is_filled(call))
        return known and all(_is_plain(v) for name, v in _told(call).items() if name not in ("self", "input"))
    known = any(op in rules for rules in (SHAPES, ARITHMETIC, SINGLE, OTHERS, RESIZED))
    given = given_to(call)
    plain = all(isinstance(v, Param | int | float | str | None) for v in given)
    return known and plain and (op in ARITHMETIC or any(isinstance(v, Param) for v in given))


def _is_ours(value: Any) -> bool:
    """Whether a constant was made here, and may be written: all SHAPES share memory where PyTorch's do."""
    return isinstance(value, Param) and value.computed and bool(value.value.flags.writeable)


def _told(call: Call) -> dict[str, Any]:
    """The arguments that numbers depend on."""
    return {name: value for name, value in call.args.items() if name not in PLACES}


def given_to(call: Call) -> list[Any]:
    """Arguments, those of lists too."""
    values = _told(call).values()
    return [v for value in values for v in (value if isinstance(value, list) else [value])]


def _is_filled(call: Call) -> bool:
    """Whether there are numbers in lists of equal lengths."""
    data = call.args.get("data", call.args.get("s"))
    try:
        found = np.asarray(data, np.float64)
    except (ValueError, TypeError):
        return False
    return data is not None and bool(found.size and np.isfinite(found).all())


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def made(low: Lowering, call: Call) -> Param | list[Param]:
    """The constant that such a call makes, named after the first one in it; some make several.

    Errors  LayerError where it is larger than MOST, or cannot be
    """
    if call.op.endswith("_"):
        found = made(low, replace(call, op=call.op.rstrip("_")))
        if not isinstance(found, Param) or found.value.shape != call.x.value.shape:
            raise call.error(f"{call.op} of a constant changes its shape; write it without changing in place")
        call.x.value[...] = found.value
        same: Param = call.x
        return same
    constants = [v for v in given_to(call) if isinstance(v, Param)]
    name = weight_norm.plain(constants[0].name) if constants else call.node_name(call.op)
    views = call.op in VIEWS and not any(v.computed for v in constants)
    with np.errstate(all="ignore"):
        try:
            _check(low, call, _count(call, [np.asarray(v.value) for v in constants]))
            if call.op in SHAPES and (matrix := _turned(call)) is not None:
                return matrix
            if (normed := reparametrized.learnable(call)) is not None:
                return normed
            found = rule_of(call)(call)
        except (ValueError, IndexError, TypeError, KeyError, OverflowError, np.exceptions.AxisError) as error:
            why = f"not without {error.args[0]}" if isinstance(error, KeyError) else one_line(str(error))
            raise call.error(f"{call.op} of constants cannot be worked out: {why}") from error
    if isinstance(found, list):
        return [Param(name, np.asarray(each), computed=True) for each in found]
    return Param(name, np.asarray(found), computed=not views)


def _turned(call: Call) -> Param | None:
    """A matrix with its axes the other way round, or as it is; None for other views."""
    x, dims = call.x, [int(d) % 2 for d in call.get("dims", (1, 0))]
    if call.op not in TURNS or not isinstance(x, Param) or x.value.ndim != 2:
        return None
    straight = dims == [0, 1] if call.op == "permute" else call.get("dim0", 0) % 2 == call.get("dim1", 1) % 2
    return x if straight else x.t


def _count(call: Call, arrays: Sequence[np.ndarray]) -> float:
    """How many numbers the call makes, or more."""
    op, own = call.op, [float(a.size) for a in arrays]
    if op == "arange":
        steps = (call.args["end"] - call.get("start", 0)) / (call.get("step", 1) or 1)
        return max(float(steps), 0.0)
    if op in MAKING:
        side = float(call.get("steps", 0) or call.get("n", 0))
        return side * (side if op == "eye" else 1) or float(
            math.prod(dims_of(call) if op.endswith("_like") else sizes(call))
        )
    if op in ("repeat", "expand", "broadcast_to"):
        return math.prod(map(float, map(abs, sizes(call)))) * (own[0] if op == "repeat" else 1.0)
    if op in RESIZED:
        return resized.count(x_of(call).shape, new_sides(call), MOST / MOST_PRODUCTS)
    if op in ("cat", "stack", "meshgrid"):
        return sum(own) if op != "meshgrid" else len(own) * math.prod(own)
    if op == "index":
        return _looked_up(call)
    if op == "embedding":
        return own[0] / len(array(call.args["weight"])) * own[1]
    if op in ("outer", "ger"):
        return math.prod(own)
    if op in (*PRODUCTS, *KERNELS, "linear"):
        return own[0] * own[1] / (MOST_PRODUCTS / MOST)
    return float(math.prod(np.broadcast_shapes(*(a.shape for a in arrays)))) if op in ARITHMETIC else max(own)


def _looked_up(call: Call) -> float:
    """How many numbers x[indices] has, or more: what is left of x for each place."""
    indices = [np.asarray(array(i)) if i is not None else None for i in call.args["indices"]]
    named = [
        (place, side) for place, side in zip(indices, x_of(call).shape, strict=False) if place is not None
    ]
    rows = float(math.prod(np.broadcast_shapes(*(place.shape for place, _ in named))))
    sides = float(math.prod(side for place, side in named if place.dtype.kind in "iu"))
    return rows * float(x_of(call).size) / max(1.0, sides)


def _check(low: Lowering, call: Call, count: float) -> None:
    low.computed += int(min(count, MOST_IN_ALL + 1))
    if count > MOST:
        raise call.error(f"a constant of {count:,.0f} numbers is too large; {MOST:,} are the most")
    if low.computed > MOST_IN_ALL:
        raise call.error(f"the model makes more than {MOST_IN_ALL:,} numbers of constants; store them in it")
