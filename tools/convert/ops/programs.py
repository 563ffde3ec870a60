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

import numpy as np

Program = tuple[float, ...]
Value = Callable[..., np.ndarray]
Dual = tuple[np.ndarray, np.ndarray]  # a value and its derivative
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


def run(x: np.ndarray, program: Sequence[float], functions: Sequence[tuple[Value, Value]]) -> Dual:
    """What a program makes of numbers, 0 where that is none, and its derivative, 0 where that has no bound.

    functions  the table of activations: of each its value and its derivative
    """
    stack: list[Dual] = []
    rest = list(program)
    with np.errstate(all="ignore"):
        while rest:
            word = rest.pop(0)
            if word == NUMBER:
                stack.append((np.asarray(x), np.ones_like(x)))
            elif word == LINE:
                factor, shift, (value, slope) = rest.pop(0), rest.pop(0), stack.pop()
                stack.append((factor * value + shift, factor * slope))
            elif word == SUM:
                times, share, (b, db), (a, da) = rest.pop(0), rest.pop(0), stack.pop(), stack.pop()
                stack.append((share * (a + times * b), share * (da + times * db)))
            elif word == PRODUCT:
                (b, db), (a, da) = stack.pop(), stack.pop()
                stack.append((a * b, da * b + a * db))
            else:
                which, count = int(rest.pop(0)), int(rest.pop(0))
                given, rest = rest[:count], rest[count:]
                (inner, along), (function_of, slope_of) = stack.pop(), functions[which]
                stack.append((function_of(inner, *given), slope_of(inner, *given) * along))
        ((value, slope),) = stack
        return np.where(np.isnan(value), 0.0, value), np.where(np.isfinite(slope), slope, 0.0)
