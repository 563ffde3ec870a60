"""Front-end rules of sums and products of tokens, whatever the order in which two of them lie."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import NORM, Lowering
from microtrain.convert.nearest import unsupported

from .. import position, scale_values
from ..calls import Natural, one_number
from ..tokens import again, constant_of, numbers, pixels_of, places, sequence, settled, turnable, whole
from . import across
from .token_images import as_image, is_image, is_sequence


def add(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of two views of one order, or of tokens and a constant: a position embedding."""
    a, b = call.x, call.args.get("other")
    if isinstance(a, Act) and isinstance(b, Act):
        return _of_two(low, call, natural, a, b)
    x, constant = (a, b) if isinstance(a, Act) else (b, a)
    if one_number(constant) is not None:
        return _with_number(low, call, natural)
    if not isinstance(constant, Param) or call.get("alpha", 1) != 1:
        raise call.error(
            f"the op {call.op} of tokens and a number is not supported; the nearest that is: a "
            "position embedding, a constant for each token"
        )
    x, table = _table(low, call, x, low.constant(call, constant, "constant"))
    if _is_bias(low, x, table) and not constant.computed:
        bias = Param(constant.name, table[: low.shape(x)[2]].reshape(-1, 1, 1))
        return again(low, natural(low, replace(call, args={"self": whole(low, x), "other": bias})), x)
    made = position.added(low, call, whole(low, x), constant.name, table)
    return again(low, made, x)


def _table(low: Lowering, call: Call, given: Any, constant: Param) -> tuple[Act, np.ndarray]:
    """Tokens, and a constant for each of their numbers, as these lie in memory."""
    x = turnable(low, call, given)
    values = constant_of(call, constant, x.dims)
    if values is None:
        raise call.error(
            f"{constant.name}, of shape {list(constant.value.shape)}, does not fit {list(x.dims)}"
        )
    x = settled(low, call, x)
    table = np.empty(values.size, np.float32)
    table[places(low, x).ravel()] = values.ravel()
    return x, table


def subtract(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of two views of one order, or with a constant for each place, as of a mean image."""
    a, b = call.x, call.args.get("other")
    if one_number(a) is not None or one_number(b) is not None:
        return _with_number(low, call, natural)
    if isinstance(a, Param) or isinstance(b, Param):
        return _with_table(low, call, natural)
    if not isinstance(a, Act) or not isinstance(b, Act):
        return as_image(low, call, natural)
    return _of_two(low, call, natural, a, b)


def _with_table(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of tokens and a constant for each, as a sum: of one of them less than nothing."""
    if call.get("alpha", 1) != 1:
        raise unsupported(call)
    first, taken = call.x, call.args.get("other")
    if call.op.startswith("r"):
        first, taken = taken, first
    if isinstance(taken, Param):
        less = replace(taken, value=-taken.value, computed=True)  # what it learned has no place
        args = {"self": first, "other": less}
    else:
        minus = natural(low, replace(call, op="neg", builtin=False, args={"self": taken}))
        args = {"self": minus, "other": first}
    return add(low, replace(call, op="add", builtin=False, args=args), natural)


def _with_number(low: Lowering, call: Call, natural: Natural) -> Act:
    """Of tokens and one number, in either order."""
    (x,) = (settled(low, call, v) for v in call.args.values() if isinstance(v, Act))
    args = {key: whole(low, x) if isinstance(v, Act) else v for key, v in call.args.items()}
    return again(low, natural(low, replace(call, args=args)), x)


def _is_bias(low: Lowering, x: Act, table: np.ndarray) -> bool:
    """Whether a sum adds one number to each channel, where no layer in front of it has its biases already."""
    maker = low.maker(x.tensor)
    layer = low.layers.get(maker.layer or "") if maker is not None else None
    rows = table.reshape(-1, low.shape(x)[2])
    alike = bool((rows == rows[0]).all())
    return alike and (layer is None or layer.source.bias is None or (maker is not None and maker.op == NORM))


def _of_two(low: Lowering, call: Call, natural: Natural, a: Act, b: Act) -> Any:
    """Both are seen alike, so that their maps are added, or multiplied, as they lie in memory."""
    if low.is_stand_in(a) or low.is_stand_in(b):  # how its numbers lie is not known
        return low.unknown(call, max(a.dims, b.dims, key=lambda dims: (len(dims), math.prod(dims))))
    if a.dims != b.dims and _repeats(a, b):
        found = _of_repeated(low, call, natural, a, b)
        if found is not None or not (is_image(low, a) and is_image(low, b)):
            return found or as_image(low, call, natural)
    a, b = settled(low, call, a), settled(low, call, b)
    if a.dims != b.dims:
        raise call.error(
            f"the op {call.op} of tokens {list(a.dims)} and {list(b.dims)} is not supported; the nearest "
            "that is: of two of one shape, or a map [n, c, h, w] times one factor per channel [n, c, 1, 1]"
        )
    if not _alike(low, a, b):
        a, b = _in_one_order(low, call, a, b)
    if not _alike(low, a, b):
        raise call.error(
            f"the op {call.op} of tensors of shapes {list(a.dims)} and {list(b.dims)} is not supported, as "
            "their numbers lie in different orders; the nearest that is: of two of one shape and order"
        )
    args = {**call.args, "self": whole(low, a), "other": whole(low, b)}
    return again(low, natural(low, replace(call, args=args)), a)


def _repeats(a: Act, b: Act) -> bool:
    """Whether two tensors have one shape where some of their axes are repeated."""
    return len(a.dims) == len(b.dims) > 2 and all(
        m == n or 1 in (m, n) for m, n in zip(a.dims, b.dims, strict=True)
    )


def _alike(low: Lowering, a: Act, b: Act) -> bool:
    """Whether two views are of maps of one shape, and have the same places of these."""
    return low.shape(a) == low.shape(b) and np.array_equal(places(low, a), places(low, b))


def _in_one_order(low: Lowering, call: Call, a: Act, b: Act) -> tuple[Act, Act]:
    """Both in the order of one of them, of that whose last axis is its channels first; else as they are."""
    behind = pixels_of(low, a) is None and pixels_of(low, b) is not None
    for turns_first in (behind, not behind):
        x, like = (a, b) if turns_first else (b, a)
        made = across.alike(low, call, x, places(low, like), low.shape(like))
        if made is not None:
            return (made, b) if turns_first else (a, made)
    first, second = (across.featured(low, call, v)[0] for v in (a, b))
    made = across.alike(low, call, second, places(low, first), low.shape(first))
    return (a, b) if made is None else (first, made)


def multiply(low: Lowering, call: Call, natural: Natural) -> Any:
    """By a number: noted, for attention takes it in. By one for each feature: a scale."""
    a, b = call.x, call.args.get("other")
    if isinstance(a, Act) and isinstance(b, Act):
        return _of_two(low, call, natural, a, b)
    x, by = (a, b) if isinstance(a, Act) else (b, a)
    assert isinstance(x, Act)
    number = _number(by)
    if number is not None and (x is a or call.op.startswith("mul")):
        x = turnable(low, call, x)
        factor = x.factor * (number if call.op.startswith("mul") else 1.0 / number)
        return Act(x.tensor, x.dims, order=numbers(low, x), factor=factor)
    turned_round = x is not a and not call.op.startswith("mul")  # a constant divided by tokens
    if isinstance(by, Param) and not turned_round and not _is_of_features(low, x, by):
        return _by_table(low, call, x, by)
    x, pixels = across.featured(low, call, x)
    features = low.shape(x)[2:]
    if not isinstance(by, Param) or not by.value.shape[-1:] == features == (by.value.size,):
        raise unsupported(call)
    if pixels is None or turned_round:
        raise unsupported(call)
    scale = Param(by.name, by.value.reshape(-1, 1, 1))
    made = natural(low, replace(call, args={**call.args, "self": whole(low, x), "other": scale}))
    return again(low, made, x)


def _is_of_features(low: Lowering, x: Act, by: Param) -> bool:
    """Whether a constant is one number for each feature of tokens, the same for all of them."""
    is_tokens = x.order is not None or is_sequence(low, x)
    return is_tokens and by.value.shape[-1:] == (by.value.size,)


def _by_table(low: Lowering, call: Call, x: Act, by: Param) -> Act:
    """Times a constant for each number, or divided by it, as of a window over time."""
    constant = low.constant(call, by, "constant")
    if not call.op.startswith("mul"):
        if not constant.value.all():
            raise call.error(f"{by.name} has a 0, by which nothing can be divided")
        constant = replace(constant, value=1.0 / constant.value)
    x, table = _table(low, call, x, constant)
    made = scale_values.scaled(low, call, whole(low, x), table.reshape(low.shape(x)))
    return again(low, made, x)


def _of_repeated(low: Lowering, call: Call, natural: Natural, a: Act, b: Act) -> Act | None:
    """Of tokens and what has one number for each of them, for each feature, row or column: as images have it.

    None where it is none of these
    """
    behind = math.prod(b.dims) < math.prod(a.dims)
    small, large = (b, a) if behind else (a, b)
    large = sequence(low, call, large)
    if any(m not in (1, n) for m, n in zip(small.dims, large.dims, strict=True)):
        return None  # each has axes that the other has not, as in an outer product
    small = settled(low, call, small)
    (h, w, c), (rows, columns, channels) = low.shape(large), low.shape(small)
    at = places(low, large)
    row, column, channel = at // c // w, at // c % w, at % c
    if rows not in (1, h) or columns not in (1, w) or channels not in (1, c):
        return None
    wanted = (row * (rows > 1) * columns + column * (columns > 1)) * channels + channel * (channels > 1)
    if not np.array_equal(np.broadcast_to(places(low, small), large.dims), wanted):
        return None
    first, second = (large, small) if behind else (small, large)
    args = {**call.args, "self": whole(low, first), "other": whole(low, second)}
    return again(low, natural(low, replace(call, args=args)), large)


def _number(value: Any) -> float | None:
    return one_number(value) or None
