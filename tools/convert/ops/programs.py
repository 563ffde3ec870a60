"""Functions of one number that a model writes out: several steps as the numbers of one node.

A program is run from left to right, on a stack. Each step is its word and what the word takes:

    NUMBER                    the stored number
    LINE factor, shift        the top of the stack times a factor, plus a shift
    SUM times, share          the two at the top: share * (first + times * second)
    PRODUCT                   their product
    FUNCTION which, n, ..     an activation of the top, by its place in the table, and its n numbers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Program = tuple[float, ...]
Value = Callable[..., np.ndarray]
NUMBER, LINE, SUM, PRODUCT, FUNCTION = (float(word) for word in range(5))
LONGEST = 200  # numbers of a program


def line(of: Program, factor: float, shift: float) -> Program:
    return (*of, LINE, factor, shift)


def sum_of(a: Program, b: Program, times: float, share: float) -> Program:
    return (*a, *b, SUM, times, share)


def product(a: Program, b: Program) -> Program:
    return (*a, *b, PRODUCT)


def function(of: Program, which: int, factors: Sequence[float]) -> Program:
    return (*of, FUNCTION, float(which), float(len(factors)), *factors)


def value(x: np.ndarray, program: Sequence[float], functions: Sequence[Value]) -> np.ndarray:
    """What a program makes of numbers; 0 where that is none. functions: the table of activations"""
    with np.errstate(all="ignore"):
        made: np.ndarray = _run(x, program, functions)
    return np.where(np.isnan(made), 0.0, made)


def slope(x: np.ndarray, program: Sequence[float], functions: Sequence[tuple[Value, Value]]) -> np.ndarray:
    """Its derivative; 0 where that has no bound. functions: of each activation value and derivative"""
    both = [_of_dual(*each) for each in functions]
    with np.errstate(all="ignore"):
        made: np.ndarray = _run(_Dual(x, np.ones_like(x)), program, both).slope
    return np.where(np.isfinite(made), made, 0.0)


@dataclass(frozen=True, eq=False)
class _Dual:
    """A value and its derivative, which go through a program side by side."""

    value: np.ndarray
    slope: np.ndarray | float = 0.0

    def __add__(self, other: _Dual | float) -> _Dual:
        b = other if isinstance(other, _Dual) else _Dual(np.asarray(other))
        return _Dual(self.value + b.value, self.slope + b.slope)

    def __mul__(self, other: _Dual | float) -> _Dual:
        b = other if isinstance(other, _Dual) else _Dual(np.asarray(other))
        return _Dual(self.value * b.value, self.slope * b.value + self.value * b.slope)


def _of_dual(value: Value, slope: Value) -> Callable[..., _Dual]:
    return lambda x, *given: _Dual(value(x.value, *given), slope(x.value, *given) * x.slope)


def _run(x: Any, program: Sequence[float], functions: Sequence[Callable[..., Any]]) -> Any:
    """The one thing on the stack at the end. x: an array, or a _Dual"""
    stack: list[Any] = []
    rest = list(program)
    while rest:
        word = rest.pop(0)
        if word == NUMBER:
            stack.append(x)
        elif word == LINE:
            stack.append(stack.pop() * rest.pop(0) + rest.pop(0))
        elif word == SUM:
            b, a, times = stack.pop(), stack.pop(), rest.pop(0)
            stack.append((a + b * times) * rest.pop(0))
        elif word == PRODUCT:
            stack.append(stack.pop() * stack.pop())
        else:
            which, count = int(rest.pop(0)), int(rest.pop(0))
            given, rest = rest[:count], rest[count:]
            stack.append(functions[which](stack.pop(), *given))
    (result,) = stack
    return result
