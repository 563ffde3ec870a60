"""What front-end rules share that write a call with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.lowering import Call, Lowering, Param

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
