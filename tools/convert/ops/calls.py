"""What front-end rules share that write a call with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Call, Param
from microtrain.convert.ir import Layer, Source
from microtrain.convert.lowering import Lowering

FINEST = 127.0  # of the only weight of a channel, 1
Natural = Callable[[Lowering, Call], Any]  # lowers any call by its own rule


@dataclass(frozen=True)
class Calls:
    """Makes other calls in the place of one, which bear the name of its layer."""

    low: Lowering
    call: Call
    natural: Natural

    def __call__(self, op: str, x: Any, other: Any = None, **about: Any) -> Any:
        """What a call of x makes, and of another operand where there is one; about: its other arguments."""
        operands = {"self": x} if other is None else {"self": x, "other": other}
        call = replace(self.call, op=op, builtin=False, args={**operands, **about})
        return self.natural(self.low, call)


def one_number(value: Any) -> float | None:
    """A number, or a constant that is one; else None."""
    value = value.value if isinstance(value, Param) else value
    if not isinstance(value, int | float | np.ndarray) or np.size(value) != 1:
        return None
    return float(np.ravel(value)[0])


def same_number(value: Any) -> float | None:
    """A number, or a constant of equal ones."""
    alike = isinstance(value, Param) and value.value.size and not np.ptp(value.value)
    return float(value.value.flat[0]) if alike else one_number(value)


def frozen(low: Lowering, name: str, weight: np.ndarray, bias: np.ndarray | None = None) -> str:
    """The name of a layer of ones and zeros [c_out, kh, kw, c_in], or [c, kh, kw] of each channel alone.

    bias  of each output channel; None: zeros
    """
    name = f"{len(low.nodes)}.{name}" if name in low.layers else name
    channels = len(weight)
    scales = np.full(channels, 1.0 / FINEST)
    bias = np.zeros(channels) if bias is None else bias
    low.layers[name] = Layer(weight, bias.astype(np.float32), Source(""), scales)
    return name
