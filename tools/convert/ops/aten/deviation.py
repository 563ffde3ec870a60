"""Standard deviation and variance over a map or over time, as statistics pooling takes them.

No kernel of their own: distances to the mean, their squares and the root are ops that there are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..calls import Calls, Natural
from ..functions import POWER
from ..tokens import again
from .pool import of_rows

BOTH = "_mean"  # ends the name of what also returns the mean
ARGUMENTS = dict.fromkeys(("std", "var", "std_mean", "var_mean"), "self dim unbiased keepdim")


def concerns(call: Call) -> bool:
    return call.op in ARGUMENTS and isinstance(call.x, Act)


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    x, keep = low.activation(call, call.x), bool(call.get("keepdim", False))
    axes = call.get("dim", None)
    over = [axes] if isinstance(axes, int) else list(axes or range(1, len(x.dims)))
    over = [axis % len(x.dims) for axis in over]
    if x.order is None and min(over) < 2 and (over != [1] or len(x.dims) < 3):
        raise call.error(
            f"the op {call.op} over the channels and more is not supported; the nearest that is: over a map, "
            "over time, or over the channels of an image"
        )
    h, w, c = low.shape(x)
    if x.order is None and x.dims == (low.batch, c, h * w) and w > 1 and over == [2]:
        return _flat(
            low, replace(call, args={**call.args, "self": replace(x, dims=(low.batch, c, h, w))}), natural
        )
    count = math.prod(x.dims[axis] for axis in over)
    correction = call.args.get("correction")
    less = (1 if call.get("unbiased", True) else 0) if correction is None else float(correction)
    if count <= less:
        raise call.error(f"a deviation of {count} numbers, less {less:g}, is not a number; take more")

    made = Calls(low, call, natural)
    mean = made("mean", x, dim=over, keepdim=True)
    apart = made("sub", x, mean)
    squares = _power(low, call, apart, 2.0, 1.0)
    over_all = made("mean", squares, dim=over, keepdim=keep)
    power = 0.5 if call.op.startswith("std") else 1.0
    ending = _power(low, call, over_all, power, count / (count - less))
    if not call.op.endswith(BOTH):
        return ending
    return ending, mean if keep else replace(mean, dims=ending.dims)


def _power(low: Lowering, call: Call, x: Act, power: float, gain: float) -> Act:
    """(gain * x) ** power, seen as x is."""
    x = of_rows(low, call, x) if x.half else x
    made = low.emit(call, POWER, (x,), low.shape(x), dims=x.dims, factors=(power, gain))
    return made if x.order is None and x.tensor not in low.last else again(low, made, x)


def _flat(low: Lowering, call: Call, natural: Natural) -> Any:
    """Over the pixels of a map, which forward() has in one axis."""
    keep = bool(call.get("keepdim", False))
    made = lower(low, replace(call, args={**call.args, "dim": [2, 3], "keepdim": False}), natural)
    results = made if isinstance(made, tuple) else (made,)
    seen = tuple(replace(act, dims=(*act.dims, 1) if keep else act.dims) for act in results)
    return seen if isinstance(made, tuple) else seen[0]
