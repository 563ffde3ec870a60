"""Front-end rules of calls that a few others make: the larger of two maps, quotients, choices, flips.

Each is written with calls that have rules of their own, so that it learns and streams as they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import unsupported

from ..calls import Calls, Natural, same_number
from ..tokens import numbers, turnable, viewed
from . import joins
from .channels import take
from .expanded import Expanded
from .lengths import NORMS
from .resample import chosen, sampled

FINEST_EPS = float(np.finfo(np.float32).eps)  # of a norm that names none
LARGER = {**dict.fromkeys(("maximum", "max", "fmax"), 1.0), **dict.fromkeys(("minimum", "min", "fmin"), -1.0)}


@dataclass(frozen=True)
class Rule:
    """How calls of some names are written with others.

    applies  to such a call: of other arguments it is another rule's
    written  what it computes
    """

    names: tuple[str, ...]
    applies: Callable[[Lowering, Call], bool]
    written: Callable[[Calls, Call], Any]


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call is one of these, of activations."""
    return _rule(low, call) is not None


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    rule = _rule(low, call)
    assert rule is not None, call.op
    if call.op.endswith("_") and rule.written is not _as_it_is:
        raise call.error(
            f"the op {call.op} is not supported; the nearest that is: {call.op.rstrip('_')}, "
            "which writes a new map"
        )
    return rule.written(Calls(low, call, natural), call)


def _rule(low: Lowering, call: Call) -> Rule | None:
    op = call.op.rstrip("_")
    return next((rule for rule in RULES if op in rule.names and rule.applies(low, call)), None)


def _is_map(value: Any) -> bool:
    return isinstance(value, Act | Expanded)


def _of_a_map(low: Lowering, call: Call) -> bool:
    return isinstance(call.x, Act)


def _of_two(low: Lowering, call: Call) -> bool:
    other = call.args.get("other")
    return other is not None and (_is_map(call.x) or _is_map(other))


def _larger(made: Calls, call: Call) -> Any:
    """a + relu(b - a), or the smaller: a - relu(a - b); of one number it is a limit."""
    a, b, sign = call.x, call.args["other"], LARGER[call.op]
    for x, value in ((a, b), (b, a)):
        if (limit := same_number(value)) is not None:
            limits = {"min" if sign > 0 else "max": limit}
            return made.natural(made.low, replace(call, op="clamp", args={"self": x, **limits}))
    a, b = (b, a) if isinstance(a, Param) else (a, b)
    if sign > 0:
        return made("add", a, made("relu", made("sub", b, a)))
    return made("sub", a, made("relu", made("sub", a, b)))


def _along_axes(low: Lowering, call: Call) -> bool:
    return isinstance(call.x, Act) and call.args.get("dim") is not None


def _smallest(made: Calls, call: Call) -> Any:
    """The largest of what has the other sign; `min` has the places too, which nothing reads."""
    args = {**call.args, "self": made("neg", call.x)}
    least = made("neg", made.natural(made.low, replace(call, op="amax", args=args)))
    return (least, None) if call.op == "min" else least


def _by_a_map(low: Lowering, call: Call) -> bool:
    return _is_map(call.args.get("other")) and call.args.get("rounding_mode") is None


def _quotient(made: Calls, call: Call) -> Any:
    """A map, or a number, times the reciprocal of a map."""
    x, other = call.x, call.args["other"]
    of = other.of if isinstance(other, Expanded) else other
    inverse = made("reciprocal", of)
    inverse = replace(other, of=inverse) if isinstance(other, Expanded) else inverse
    if not _is_map(x):
        return inverse if same_number(x) == 1.0 else made("mul", inverse, x)
    return made("mul", x, inverse)


def _plus_product(made: Calls, call: Call) -> Any:
    """self + value * tensor1 * tensor2, or a quotient of these."""
    op = "mul" if call.op.startswith("addcmul") else "div"
    product, value = made(op, call.args["tensor1"], call.args["tensor2"]), float(call.get("value", 1))
    return made("add", call.x, product if value == 1 else made("mul", product, value))


def _has_beta(low: Lowering, call: Call) -> bool:
    return _is_map(call.x) and call.get("beta", 1) != 1


def _softplus(made: Calls, call: Call) -> Any:
    """softplus(beta x) / beta"""
    beta = float(call.args["beta"])
    return made("div", made("softplus", made("mul", call.x, beta)), beta)


def _among_maps(low: Lowering, call: Call) -> bool:
    return any(_is_map(value) for value in call.args.values())


def _where(made: Calls, call: Call) -> Any:
    return _choice(made, call, "condition", "self", "other")


def _masked(made: Calls, call: Call) -> Any:
    return _choice(made, call, "mask", "value", "self")


def _choice(made: Calls, call: Call, *names: str) -> Any:
    """b + mask * (a - b), where the mask is 1 or 0. names: of the arguments mask, a and b"""
    mask, a, b = (call.args.get(name) for name in names)
    if not isinstance(mask, Act) or a is None or b is None:
        raise unsupported(call)
    first, second = same_number(a), same_number(b)
    if first is not None and second is not None:
        scaled = made("mul", mask, first - second) if first != second + 1 else mask
        return made("add", scaled, second) if second else scaled
    if second == 0:
        return made("mul", a, mask)
    difference = made("rsub", b, first) if first is not None else made("sub", a, b)
    return made("add", made("mul", difference, mask), b)


def _norm(made: Calls, call: Call) -> Any:
    """The root of a sum of squares, a sum of absolute values, or the largest of these."""
    order, axes = call.get("ord", call.get("p", 2)), call.get("dim", None)
    about = {"dim": axes, "keepdim": call.get("keepdim", False)}
    if axes is None or order not in (1, 2, "fro", math.inf):
        raise call.error(
            f"the op {call.op} of order {order} over {axes} is not supported; the nearest that is: one of "
            "order 1, 2 or infinity, over dimensions by their numbers"
        )

    if order in (2, "fro"):
        return made("sqrt", made("sum", made("mul", call.x, call.x), **about))
    return made("sum" if order == 1 else "amax", made("abs", call.x), **about)


def _root_mean(made: Calls, call: Call) -> Any:
    """RMSNorm: a quotient by the root of a mean square, a norm after all (frontends/clean/root_means.py)."""
    x, over = made.low.activation(call, call.x), [int(d) for d in call.args["normalized_shape"]]
    if over != [x.dims[-1]]:
        raise call.error(
            f"{call.op} over the last {len(over)} of the dimensions {list(x.dims)} is not supported; the "
            "nearest that is: one over the last dimension, the features of each token"
        )
    mean = made("mean", made("mul", x, x), dim=[-1], keepdim=True)
    eps = call.get("eps", None)
    found = made("mul", x, made("rsqrt", made("add", mean, FINEST_EPS if eps is None else float(eps))))
    weight = call.args.get("weight")
    return found if weight is None else made("mul", found, weight)


def _log_of_sum(made: Calls, call: Call) -> Any:
    """logsumexp, of exponentials less the largest one."""
    axes = call.args["dim"]
    about = {"dim": axes, "keepdim": True}
    most = made("amax", call.x, **about)
    total = made("sum", made("exp", made("sub", call.x, most)), **about)
    found = made("add", made("log", total), most)
    return found if call.get("keepdim", False) else made("squeeze", found, dim=axes)


def _of_the_input(low: Lowering, call: Call) -> bool:
    return isinstance(call.x, Act) and low.is_input(call.x)


def _never(made: Calls, call: Call) -> Param:
    """Which numbers are no numbers, or infinite: none of a sample's."""
    return Param(call.node_name(call.op), np.zeros(call.x.dims, np.bool_), computed=True)


def _by_no_mask(low: Lowering, call: Call) -> bool:
    given = [call.args.get("mask"), *call.get("indices", [])]
    masks = [m for m in given if m is not None]
    return (
        isinstance(call.x, Act)
        and bool(masks)
        and all(isinstance(m, Param) and m.value.dtype == np.bool_ and not m.value.any() for m in masks)
    )


def _as_it_is(made: Calls, call: Call) -> Act:
    kept: Act = call.x
    return kept


# ---------------------------------------------------------------- places


def _flipped(made: Calls, call: Call) -> Act:
    dims, rank = call.x.dims, len(call.x.dims)
    return _placed(
        made, call, {int(d) % rank: list(range(dims[int(d)]))[::-1] for d in _several(call.args["dims"])}
    )


def _rolled(made: Calls, call: Call) -> Act:
    dims, axes = call.x.dims, _several(call.get("dims", None) or [])
    if not axes:
        raise call.error("roll of all numbers one behind the other is not supported; name its dims")
    shifts = dict(zip((int(d) % len(dims) for d in axes), _several(call.args["shifts"]), strict=True))
    return _placed(
        made, call, {axis: np.roll(np.arange(dims[axis]), int(by)).tolist() for axis, by in shifts.items()}
    )


def _indexed(made: Calls, call: Call) -> Act:
    return _listed(made, call, dict(enumerate(call.args["indices"])))


def _selected(made: Calls, call: Call) -> Act:
    return _listed(made, call, {int(call.args["dim"]) % len(call.x.dims): call.args["index"]})


def _listed(made: Calls, call: Call, lists: dict[int, Any]) -> Act:
    """What stands at the places that one constant list names, of the lists of each axis."""
    found = [(axis, value) for axis, value in lists.items() if value is not None]
    if len(found) != 1:
        raise call.error(
            f"the op {call.op} by several lists is not supported; the nearest that is: by one of them"
        )
    ((axis, places),) = found
    if not isinstance(places, Param) or places.value.dtype.kind not in "iu" or places.value.ndim != 1:
        raise call.error(
            f"the op {call.op} by what is no list of whole numbers is not supported; "
            "the nearest that is: by a constant list of places"
        )
    return _placed(made, call, {axis: [int(i) % call.x.dims[axis] for i in places.value]})


def _is_several_times(low: Lowering, call: Call) -> bool:
    """Of more than one row, column or channel; others are noted (expanded.py)."""
    if not isinstance(call.x, Act):
        return False
    times = call.args.get("repeats", call.args.get("dims"))
    pairs = list(zip(times, call.x.dims, strict=False)) if isinstance(times, Sequence) else []
    return call.op != "repeat" or any(n != 1 < d for n, d in pairs)


def _several_times(made: Calls, call: Call) -> Act:
    """All places of some axes, once more behind the last."""
    dims, times = call.x.dims, _several(call.args.get("repeats", call.args.get("dims")))
    times = [1] * (len(dims) - len(times)) + times
    if len(times) > len(dims) or times[0] != 1:
        raise call.error(
            f"the op {call.op} of {list(dims)} by {times} is not supported; the nearest that is: along the "
            "channels, rows or columns"
        )
    return _placed(made, call, {axis: [*range(dims[axis])] * n for axis, n in enumerate(times) if n != 1})


def _each_several_times(made: Calls, call: Call) -> Act:
    """Each place of an axis, as often as a whole number says, one behind the other."""
    times, axis = call.args.get("repeats"), call.get("dim", None)
    if not isinstance(times, int) or axis is None or not int(axis) % len(call.x.dims):
        raise call.error(
            f"the op {call.op} without an axis, or by a list, is not supported; the nearest that is: of one "
            "axis, by a whole number"
        )
    axis = int(axis) % len(call.x.dims)
    return _placed(made, call, {axis: [i for i in range(call.x.dims[axis]) for _ in range(times)]})


def _between(low: Lowering, call: Call) -> bool:
    """Whether differences are taken of a map's own numbers alone."""
    return _of_a_map(low, call) and call.args.get("prepend") is None and call.args.get("append") is None


def _differences(made: Calls, call: Call) -> Any:
    """Of each number and the one before it along an axis, n times over."""
    x, dim = call.x, int(call.get("dim", -1))
    for _ in range(int(call.get("n", 1))):
        later, before = ({"start": 1, "end": None}, {"start": 0, "end": -1})
        x = made("sub", *(made("slice", x, dim=dim, **part) for part in (later, before)))
    return x


def _several(value: Any) -> list[int]:
    return [int(v) for v in value] if isinstance(value, Sequence) else [int(value)]


def _placed(made: Calls, call: Call, places: dict[int, list[int]]) -> Act:
    """An image with channels, rows and columns in another order; of any other view just that order.

    places  of each axis, as the result has them one behind the other
    """
    low, x = made.low, made.low.activation(call, call.x)
    h, w, c = low.shape(x)
    is_image = x.order is None and x.tensor not in low.last and x.dims[:2] == (low.batch, c)
    if 0 in places and x.dims[0] == 1:
        places = {axis: own for axis, own in places.items() if axis}
    if not is_image or len(x.dims) < 3:
        order = numbers(low, turnable(low, call, x))
        for axis, own in places.items():
            order = order.take(own, axis)
        return viewed(low, x, order)
    x = low.image(call, x)
    if 1 in places:
        x = take(low, replace(call, builtin=False), x, places[1])
    axes = [chosen(places.get(axis, range(size)), size) for axis, size in ((2, h), (3, w))]
    return sampled(low, call, x, *axes)


RULES = (
    Rule(tuple(LARGER), _of_two, _larger),
    Rule(("amin", "min"), _along_axes, _smallest),
    Rule(("div", "true_divide"), _by_a_map, _quotient),
    Rule(("addcmul", "addcdiv"), _among_maps, _plus_product),
    Rule(("softplus",), _has_beta, _softplus),
    Rule(("where",), _among_maps, _where),
    Rule(("isnan", "isinf"), _of_the_input, _never),
    Rule(("nan_to_num",), _of_the_input, _as_it_is),
    Rule(("masked_fill", "index_put"), _by_no_mask, _as_it_is),
    Rule(("masked_fill",), _among_maps, _masked),
    Rule(NORMS, _of_a_map, _norm),
    Rule(("rms_norm", "_fused_rms_norm"), _of_a_map, _root_mean),
    Rule(("logsumexp",), _along_axes, _log_of_sum),
    *(Rule(joins.NAMES, *each) for each in joins.RULES),
    Rule(("flip",), _of_a_map, _flipped),
    Rule(("roll",), _of_a_map, _rolled),
    Rule(("diff",), _between, _differences),
    Rule(("repeat", "tile"), _is_several_times, _several_times),
    Rule(("repeat_interleave",), _of_a_map, _each_several_times),
    Rule(("index",), _of_a_map, _indexed),
    Rule(("index_select",), _of_a_map, _selected),
)
ARGUMENTS = {  # by position, for files that name none
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), "self other"),
    **dict.fromkeys(("amin", "min", "logsumexp"), "self dim keepdim"),
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), "input normalized_shape weight eps"),
    **dict.fromkeys(("addcmul", "addcdiv"), "self tensor1 tensor2 value"),
    "where": "condition self other",
    "masked_fill": "self mask value",
    "index_put": "self indices values",
    **dict.fromkeys(("isnan", "isinf", "nan_to_num"), "self"),
    **dict.fromkeys(("flip", "tile"), "self dims"),
    "repeat_interleave": "self repeats dim",
    "roll": "self shifts dims",
    "diff": "self n dim prepend append",
    "index": "self indices",
    "index_select": "self dim index",
}
