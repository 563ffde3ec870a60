"""Functions of one number that are rare: one op holds them all, and its first factor says which it is.

What PyTorch cannot derive, or derives as nothing (a step, a rounded number), passes no error on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from microtrain.convert.aten_call import Call

from .calls import one_number

Function = Callable[..., np.ndarray]
TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
ERFC = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807),
    *(-0.18628806, 0.09678418, 0.37409196, 1.00002368, -1.26551223),
)
MOST = 80.0  # of what an exponential is taken


@dataclass(frozen=True)
class Curve:
    """A function and its derivative, of float64 values and of what a call names beside them.

    given  the names of these numbers in the call, and what they are by default; None: they must be said
    """

    value: Function
    slope: Function
    given: tuple[tuple[str, float | None], ...] = ()


def erf_tail(z: np.ndarray) -> np.ndarray:
    """What the error function of z >= 0 lacks of 1, right to 1.2e-7 (Numerical Recipes, 6.2, erfcc)."""
    t = 1.0 / (1.0 + 0.5 * z)
    return np.asarray(t * np.exp(-z * z + np.polyval(ERFC, t)))


def erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(x) * (1.0 - erf_tail(np.abs(x))))


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x))))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(_log_sigmoid(x)))


def _nothing(x: np.ndarray, *_: float) -> np.ndarray:
    return np.zeros_like(x)


def _flat(value: Function, *given: tuple[str, float | None]) -> Curve:
    """A function whose derivative is 0 wherever there is one."""
    return Curve(value, _nothing, given)


def _bounded(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, -MOST, MOST))


LAMBDA = (("lambd", 0.5),)
OTHER = ("other", None)
CURVES: dict[str, Curve] = {  # in the order of their numbers: what is new goes to the end
    "softsign": Curve(lambda x: x / (1 + np.abs(x)), lambda x: (1 + np.abs(x)) ** -2.0),
    "hardshrink": Curve(
        lambda x, most: np.where(np.abs(x) > most, x, 0.0),
        lambda x, most: np.where(np.abs(x) > most, 1.0, 0.0),
        LAMBDA,
    ),
    "softshrink": Curve(
        lambda x, most: np.sign(x) * np.maximum(np.abs(x) - most, 0.0),
        lambda x, most: np.where(np.abs(x) > most, 1.0, 0.0),
        LAMBDA,
    ),
    "threshold": Curve(
        lambda x, least, value: np.asarray(np.where(x > least, x, value)),
        lambda x, least, value: np.where(x > least, 1.0, 0.0),
        (("threshold", None), ("value", None)),
    ),
    "log_sigmoid": Curve(_log_sigmoid, lambda x: _sigmoid(-x)),
    "erf": Curve(erf, lambda x: TWO_OVER_ROOT_PI * np.exp(-x * x)),
    "sin": Curve(np.sin, np.cos),
    "cos": Curve(np.cos, lambda x: -np.sin(x)),
    "atan": Curve(np.arctan, lambda x: 1 / (1 + x * x)),
    "sinh": Curve(lambda x: np.sinh(_bounded(x)), lambda x: np.cosh(_bounded(x))),
    "cosh": Curve(lambda x: np.cosh(_bounded(x)), lambda x: np.sinh(_bounded(x))),
    "asinh": Curve(np.arcsinh, lambda x: 1 / np.sqrt(1 + x * x)),
    "expm1": Curve(lambda x: np.expm1(_bounded(x)), lambda x: np.exp(_bounded(x))),
    "exp2": Curve(lambda x: np.exp2(_bounded(x)), lambda x: math.log(2.0) * np.exp2(_bounded(x))),
    "hard_sigmoid": Curve(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
        lambda x, alpha, beta: np.where(np.abs(2 * (alpha * x + beta) - 1) < 1, alpha, 0.0),
        (("alpha", 0.2), ("beta", 0.5)),
    ),
    "sign": _flat(np.sign),
    "floor": _flat(np.floor),
    "ceil": _flat(np.ceil),
    "round": _flat(np.rint),
    "gt": _flat(lambda x, other: np.where(x > other, 1.0, 0.0), OTHER),
    "ge": _flat(lambda x, other: np.where(x >= other, 1.0, 0.0), OTHER),
    "lt": _flat(lambda x, other: np.where(x < other, 1.0, 0.0), OTHER),
    "le": _flat(lambda x, other: np.where(x <= other, 1.0, 0.0), OTHER),
}
NUMBERS = {name: float(number) for number, name in enumerate(CURVES)}
ALSO = {
    **dict.fromkeys(("arctan",), "atan"),
    "arcsinh": "asinh",
    **dict.fromkeys(("log_sigmoid_forward", "logsigmoid"), "log_sigmoid"),
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le"},
}
MIRRORED = {"gt": "lt", "ge": "le", "greater": "less", "greater_equal": "less_equal"}  # of swapped operands
MIRRORED |= {word: other for other, word in MIRRORED.items()}
NAMES = (*CURVES, *ALSO)
ARGUMENTS = {
    name: " ".join(("self", *(said for said, _ in CURVES[ALSO.get(name, name)].given))) for name in NAMES
}


def value(x: np.ndarray, number: float, *given: float) -> np.ndarray:
    return np.asarray(list(CURVES.values())[int(number)].value(x, *given))


def slope(x: np.ndarray, number: float, *given: float) -> np.ndarray:
    return np.asarray(list(CURVES.values())[int(number)].slope(x, *given))


def factors(call: Call) -> tuple[float, ...]:
    """The number of a call's function, and what the call says beside the activation."""
    op = call.op.rstrip("_") or call.op
    name = ALSO.get(op, op)
    if call.args.get("decimals"):
        raise call.error("round to decimals is not supported; the nearest that is: to whole numbers")
    said = [_number(call, op, *each) for each in CURVES[name].given]
    return (NUMBERS[name], *said)


def _number(call: Call, op: str, name: str, default: float | None) -> float:
    found = one_number(call.get(name, default))
    if found is None:
        raise call.error(f"the op {op} of two maps is not supported; the nearest that is: with one number")
    return found
