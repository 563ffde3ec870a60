"""Ops between plain numbers that models do beside their tensors, mostly with shapes: `x.size(0) // 2`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

SCALARS: dict[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "and_": operator.and_,
    "__is__": operator.is_,
    "__isnot__": operator.is_not,
    "__not__": operator.not_,
    "__and__": lambda a, b: a and b,
    "__or__": lambda a, b: a or b,
    "__getitem__": operator.getitem,
    "len": len,
    "Int": int,
    "Bool": bool,
    "Float": float,
    "NumToTensor": lambda a: a,
    "ScalarImplicit": lambda a: a,
    "format": lambda text, *rest: fill(text, rest),
    "append": lambda items, item: list.append(items, item),
    "_assert_scalar": lambda *rest: None,
    "_assert_tensor_metadata": lambda *rest: None,
    "sym_constrain_range_for_size": lambda *rest: None,
    "warn": lambda *rest: None,
}

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")  # which exist for tensors too
# The same names exist for tensors: these are evaluated only where all arguments are numbers.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, *alpha: a + b,  # texts too: they are part of messages
    "sub": lambda a, b, *alpha: a - b,
    "mul": operator.mul,
    "div": lambda a, b, rounding=None: divided(a, b, rounding),
    "floor_divide": operator.floordiv,
    "neg": operator.neg,
    "min": min,
    "max": max,
    "slice": lambda items, start=None, end=None, step=1: items[start:end:step],
    "list": list,
}


def divided(a: float, b: float, rounding: str | None) -> float:
    """A quotient; rounding: None, "trunc" or "floor"."""
    if rounding is None:
        return a / b
    return a // b if rounding == "floor" or (a < 0) == (b < 0) else -(-a // b)


def applies(op: str, args: list[Any]) -> bool:
    """True where the op is one between numbers or texts (or lists of them), with these arguments."""
    if op in COMPARED:
        return all(_is_plain(a) or isinstance(a, bool) for a in args)
    return op in SCALARS or (op in ARITHMETIC and all(_is_plain(a) for a in args))


def _is_plain(value: Any) -> bool:
    return (
        all(map(_is_plain, value))
        if isinstance(value, list)
        else value is None or isinstance(value, int | float | str)
    )


def evaluate(op: str, args: list[Any]) -> Any:
    """The value of a scalar op. ValueError where a number leaves int64, as it would in torch."""
    if op == "mul" and not all(isinstance(a, int | float) for a in args):
        raise ValueError("a product of lists")
    value = (SCALARS.get(op) or ARITHMETIC[op])(*args)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a number beyond int64")
    return value


def fill(text: str, values: Sequence[Any]) -> str:
    """The text with a value in the place of each {}: nothing else that str.format knows."""
    for value in values:
        text = text.replace("{}", str(value), 1)
    return text
