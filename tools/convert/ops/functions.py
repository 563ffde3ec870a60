"""Functions of one number that a table of 256 values holds: what PyTorch calls them, their derivatives.

Powers and logarithms have derivatives without a bound. What the table holds of these is the mean over a step
of what is stored, which has one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from microtrain.convert.aten_call import Call
from microtrain.convert.ir import Node
from microtrain.convert.lowering import NO_LIMIT
from microtrain.convert.reference import tflite

from . import curves, programs
from .calls import one_number
from .programs import Program

CLIP = "clamp_between"  # by two limits, either of which may be open
SIGMOID, SILU, LEAKY = "sigmoid", "silu", "leaky_relu"
POWER, LOGARITHM, EXPONENTIAL, ABSOLUTE = "power_of", "log_of", "exp_of", "abs_of"
CURVE = "curve_of"  # whichever of CURVES its first factor says, or a program
PROGRAM = -1.0  # that factor in front of a program
HIGHEST = {"relu": NO_LIMIT, "relu6": 6.0}  # of what they let through
WIDE = (POWER, EXPONENTIAL)  # a few numbers are much larger than their mean
TINY = 1e-30  # in the place of what has no logarithm
MOST_POWER = 3.0  # 8 bits of a cube hold two and a half of the number
NUMBER = f"one number from -{MOST_POWER:g} to {MOST_POWER:g}, but not 0"
SELU = (1.6732632423543772, 1.0507009873554805, 1.0)
EXPONENTS = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
GELU_OUTER, GELU_INNER = math.sqrt(2.0 / math.pi), 0.044715  # of the approximation by tanh
STEEPEST = 32767 / 2.0**14  # of activations that are trained behind


@dataclass(frozen=True)
class Activation:
    """What tells one activation from the others.

    value, slope  the function and its derivative, of float64 values and the node's factors; None: the mean
                  over a step of what is stored
    arguments     names of the call's arguments by position
    factors       the node's factors, from the call
    as_tflite     what TensorFlow Lite's reference kernel makes of int8 values, or None, where it is the
                  nearest
    """

    name: str
    value: Callable[..., np.ndarray]
    slope: Callable[..., np.ndarray] | None
    arguments: str
    factors: Callable[[Call], tuple[float, ...]]
    as_tflite: Callable[..., np.ndarray | None] | None = None


def _leaky_slope(call: Call) -> tuple[float, ...]:
    slope = float(call.get("negative_slope", 0.01))
    if not abs(slope) < STEEPEST:
        raise call.error(f"a slope of {slope:g} is not supported; the nearest that is: one below 2")
    return (slope,)


def _no_factors(call: Call) -> tuple[float, ...]:
    return ()


def _limits(call: Call) -> tuple[float, ...]:
    """Least and greatest of a clamp."""
    least, most = (call.get(name, None) for name in ("min", "max"))
    return float(-NO_LIMIT if least is None else least), float(NO_LIMIT if most is None else most)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without overflow."""
    small = np.exp(-np.minimum(np.abs(x), 80.0))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1.0 + small))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def _normal(x: np.ndarray) -> np.ndarray:
    """Cumulative distribution of the standard normal."""
    tail = 0.5 * curves.erf_tail(np.abs(x) / math.sqrt(2.0))
    return np.asarray(np.where(x < 0, tail, 1.0 - tail))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(GELU_OUTER * (x + GELU_INNER * x**3))


def _gelu_value(x: np.ndarray, approximate: float) -> np.ndarray:
    return np.asarray(0.5 * x * (1.0 + _gelu_tanh(x)) if approximate else x * _normal(x))


def _gelu_slope(x: np.ndarray, approximate: float) -> np.ndarray:
    if not approximate:
        return np.asarray(_normal(x) + x * np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi))
    inner = _gelu_tanh(x)
    steep = GELU_OUTER * (1.0 + 3.0 * GELU_INNER * x**2)
    return np.asarray(0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner**2) * steep)


def _gelu_factors(call: Call) -> tuple[float, ...]:
    return (1.0 if call.get("approximate", "none") == "tanh" else 0.0,)


def _elu_factors(call: Call) -> tuple[float, ...]:
    """alpha, scale and input_scale, as torch's elu, celu and selu have them."""
    name = call.op.rstrip("_")
    if name == "selu":
        return SELU
    alpha = float(call.get("alpha", 1.0))
    rate = 1.0 / alpha if name == "celu" and alpha else float(call.get("input_scale", 1.0))
    scale = float(call.get("scale", 1.0))
    if not (alpha > 0 and abs(scale) < STEEPEST and abs(alpha * scale * rate) < STEEPEST):
        raise call.error(
            f"{name} of alpha {alpha:g} and scale {scale:g} is not supported; the nearest that is: one of "
            f"alpha 1 and scale 1, whose slopes are below {STEEPEST:g}"
        )
    return (alpha, scale, rate)


def _softplus_factors(call: Call) -> tuple[float, ...]:
    if call.get("beta", 1) != 1:
        raise call.error("softplus with beta is not supported; the nearest that is: one of beta 1")
    return ()


def _elu_value(x: np.ndarray, alpha: float, scale: float, rate: float) -> np.ndarray:
    return np.asarray(scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0) * rate)))


def _elu_slope(x: np.ndarray, alpha: float, scale: float, rate: float) -> np.ndarray:
    return np.asarray(scale * np.where(x > 0, 1.0, alpha * rate * np.exp(np.minimum(x, 0.0) * rate)))


def _mish_slope(x: np.ndarray) -> np.ndarray:
    inner = np.tanh(_softplus(x))
    return np.asarray(inner + x * (1.0 - inner**2) * _sigmoid(x))


def _power_factors(call: Call) -> tuple[float, ...]:
    """Exponent, and what a number is multiplied with before."""
    exponent = one_number(EXPONENTS.get(call.op.rstrip("_"), call.args.get("exponent"))) or 0.0
    if not 0 < abs(exponent) <= MOST_POWER:
        raise call.error(f"such a power is not supported; the nearest that is: an exponent of {NUMBER}")
    if exponent > 2:
        what = f"{call.node_name('pow')} is a power of {exponent:g}, of which small numbers get few steps"
        warnings.warn(f"{what}: see --quantization; mean and deviation side by side keep more", stacklevel=2)
    return exponent, 1.0


def _power(x: np.ndarray, exponent: float, gain: float) -> np.ndarray:
    """Of a fraction, of numbers above 0: others count as 0. What is divided by 0 is out of any range."""
    base = gain * np.asarray(x)
    if exponent < 0:
        base = np.where(np.abs(base) < TINY, TINY, base)
        base = base if exponent == int(exponent) else np.maximum(base, TINY)
        return np.asarray(base**exponent)
    return np.asarray(base ** int(exponent) if exponent == int(exponent) else np.maximum(base, 0) ** exponent)


def _log_factors(call: Call) -> tuple[float, ...]:
    """What is added before, and what the natural logarithm is multiplied with."""
    name = call.op.rstrip("_")
    return float(name == "log1p"), {"log10": 1 / math.log(10), "log2": 1 / math.log(2)}.get(name, 1.0)


def _log(x: np.ndarray, shift: float, gain: float) -> np.ndarray:
    return np.asarray(gain * np.log(np.maximum(x + shift, TINY)))


def _curve(x: np.ndarray, number: float, *given: float) -> np.ndarray:
    return of_program(x, given) if number == PROGRAM else curves.value(x, number, *given)


def of_program(x: np.ndarray, program: Program) -> np.ndarray:
    """What a program makes of numbers."""
    return programs.value(x, program, [each.value for each in ACTIVATIONS.values()])


def _curve_slope(x: np.ndarray, number: float, *given: float) -> np.ndarray:
    if number != PROGRAM:
        return curves.slope(x, number, *given)
    bounded: dict[str, Callable[..., np.ndarray]] = {LOGARITHM: _no_slope, POWER: _slope_of_power}
    table = [(each.value, each.slope or bounded[name]) for name, each in ACTIVATIONS.items()]
    return programs.slope(x, given, table)


def _no_slope(x: np.ndarray, *given: float) -> np.ndarray:
    raise ValueError("no program holds what has no bound")


def _slope_of_power(x: np.ndarray, exponent: float, gain: float) -> np.ndarray:
    """Where it has a bound: of what is no root, nor near a pole."""
    base = gain * np.asarray(x)
    base = base if exponent == int(exponent) else np.maximum(base, TINY)
    return np.asarray(exponent * gain * base ** (exponent - 1))


def is_steep(node: Node) -> bool:
    """Whether a node's derivative has no bound near 0, as that of a root or a logarithm."""
    return node.op == LOGARITHM or (node.op == POWER and 0 < node.factors[0] < 1)


def has_pole(node: Node) -> bool:
    """Whether a node divides by a number: what comes too near to 0 is said of it alone."""
    return node.op == POWER and node.factors[0] < 0


_ELU = (_elu_value, _elu_slope, "self alpha scale input_scale", _elu_factors)

ACTIVATIONS = {
    each.name: each
    for each in (
        Activation(
            CLIP,
            lambda x, least, most: np.clip(x, least, most),
            lambda x, least, most: np.where((x > least) & (x < most), 1.0, 0.0),
            "self min max",
            _limits,
            tflite.clip,
        ),
        Activation(SIGMOID, _sigmoid, lambda x: _sigmoid(x) * (1.0 - _sigmoid(x)), "self", _no_factors),
        Activation("tanh", np.tanh, lambda x: 1.0 - np.tanh(x) ** 2, "self", _no_factors),
        Activation(
            SILU,
            lambda x: x * _sigmoid(x),
            lambda x: _sigmoid(x) * (1.0 + x * (1.0 - _sigmoid(x))),
            "self",
            _no_factors,
            tflite.times_logistic,
        ),
        Activation("gelu", _gelu_value, _gelu_slope, "self approximate", _gelu_factors),
        Activation("mish", lambda x: x * np.tanh(_softplus(x)), _mish_slope, "self", _no_factors),
        Activation("softplus", _softplus, _sigmoid, "self beta threshold", _softplus_factors),
        *(Activation(name, *_ELU) for name in ("elu", "selu", "celu")),
        Activation(
            LEAKY,
            lambda x, slope: np.where(x > 0, x, slope * x),
            lambda x, slope: np.where(x > 0, 1.0, slope),
            "self negative_slope",
            _leaky_slope,
            tflite.leaky,
        ),
        Activation(
            "hardswish",
            lambda x: x * np.clip(x + 3, 0, 6) / 6,
            lambda x: np.where(x < -3, 0.0, np.where(x <= 3, x / 3 + 0.5, 1.0)),
            "self",
            _no_factors,
            tflite.hard_swish,
        ),
        Activation(
            "hardsigmoid",
            lambda x: np.clip(x + 3, 0, 6) / 6,
            lambda x: np.where(abs(x) < 3, 1 / 6, 0.0),
            "self",
            _no_factors,
        ),
        Activation(ABSOLUTE, np.abs, np.sign, "self", _no_factors, tflite.absolute),
        Activation(EXPONENTIAL, np.exp, np.exp, "self", _no_factors),
        Activation(POWER, _power, None, "self exponent", _power_factors, tflite.of_itself),
        Activation(LOGARITHM, _log, None, "self", _log_factors),
        Activation(CURVE, _curve, _curve_slope, "self", curves.factors),
    )
}
OF_ONE = {name: each.value for name, each in ACTIVATIONS.items() if each.factors is _no_factors}
OF_ONE |= {name: each.value for name, each in curves.CURVES.items() if not each.given}
