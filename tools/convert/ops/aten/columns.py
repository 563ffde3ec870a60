"""A batch norm of a flattened map: a scale and a shift for each number, which the next linear layer takes.

What it makes is no tensor of the network. The layer's weights are computed then, and stay frozen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from ..calls import Natural

SAME = ("dropout", "feature_dropout", "alpha_dropout", "contiguous", "clone", "detach", "identity", "flatten")
NEAREST = "a linear layer right behind it, or a batch norm in front of what flattens the map"


@dataclass(frozen=True, eq=False)
class Columns:
    """A flattened map times a factor and plus a shift for each of its numbers, in the order of the view."""

    of: Act
    factor: np.ndarray
    shift: np.ndarray

    @property
    def acts(self) -> tuple[Act]:
        """What a stand-in reads in its place."""
        return (self.of,)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.of.dims


def refused(call: Call) -> Exception:
    """What is said of other calls than a linear layer."""
    return call.error(
        f"the op {call.op.rstrip('_')} of a batch norm behind what flattens a map is not supported; the "
        f"nearest that is: {NEAREST}"
    )


def concerns(call: Call) -> bool:
    """Whether a call reads what such a batch norm makes."""
    return any(isinstance(v, Columns) for v in call.args.values())


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    x, name = call.x, call.op.rstrip("_")
    if isinstance(x, Columns) and name in SAME:
        return x
    if not isinstance(x, Columns) or name != "linear":
        raise refused(call)
    weight, bias = low.constant(call, call.args.get("weight"), "weight"), call.args.get("bias")
    offset = 0.0 if bias is None else low.constant(call, bias, "bias").value
    wide = weight.value.astype(np.float64)
    made = replace(weight, value=(wide * x.factor).astype(np.float32), computed=True, origin=None)
    shifted = Param(
        f"{weight.name.removesuffix('.weight')}.bias", (offset + wide @ x.shift).astype(np.float32)
    )
    args = {"input": x.of, "weight": made, "bias": replace(shifted, computed=True)}
    return natural(low, replace(call, args=args))
