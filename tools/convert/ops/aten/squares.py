"""Normalisations of vectors that forward() writes out: layer norms, and quotients by their own length.

What stands between a vector and its quotient by the root of its squares is no tensor of the network:
distances to its mean, their squares, the mean or sum of those, the root. Only the quotient makes nodes. Those
of maps and tokens are found when the graph is there (frontends/clean/root_means.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from ..calls import Natural, one_number
from ..functions import POWER
from ..scale import PIXELS
from .lengths import LEAST, Length, quotient
from .normalise import normalised
from .pool import CHANNEL_MEAN

NEAREST = "nn.LayerNorm, nn.RMSNorm, or F.normalize at the model's end"
VIEWS = ("to", "float", "type_as", "clone", "contiguous", "expand", "expand_as")
SECOND = "other"


@dataclass(frozen=True)
class Piece:
    """A part of a normalisation over the channels of an activation.

    centred  that activation less its mean over the channels; else the activation itself
    squared  of it the square
    over     "mean" or "sum" of the squares, over the channels
    power    to which that is raised: 0.5 or -0.5, the root that the quotient takes
    mean     what a node has made of its mean
    last     the file sees its channels behind all other axes
    """

    of: Act
    centred: bool = False
    squared: bool = False
    over: str = ""
    eps: float = 0.0
    power: float = 1.0
    mean: Act | None = field(default=None, compare=False)
    last: bool = field(default=False, compare=False)

    @property
    def acts(self) -> tuple[Act, ...]:
        """What a stand-in reads in its place."""
        return (self.of,) if self.mean is None else (self.of, self.mean)

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.of.dims[0], 1, *self.of.dims[2:]) if self.over else self.of.dims


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call makes a part of a normalisation, or reads one."""
    if any(isinstance(v, Piece) for v in call.args.values()):
        return True
    x, other, op = call.x, call.args.get(SECOND), call.op
    if not isinstance(x, Act) or x.order is not None or x.tensor in low.last or low.is_stand_in(x):
        return False
    if len(x.dims) != 2:  # of images and tokens they are found in the graph (frontends/clean/root_means.py)
        return False
    if low.fixed and low.shape(x)[:2] != (1, 1):  # of rows as a batch too, and of maps that are flattened
        return False
    if op == "sub":
        return isinstance(other, Act) and _is_mean_of(low, other, x)
    if op in ("pow", "square", "mul"):
        return op == "square" or other == x or (op == "pow" and _number(call.args.get("exponent")) == 2)
    return op == "var" and _axes(call, x) == [1] and _counts_all(call)


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    """The next part, or the quotient; of a square alone, which is no part, what natural makes of its map."""
    found = _made(low, call)
    alone = {key: v for key, v in call.args.items() if is_square(v)}
    if found is None and alone:
        return natural(
            low, replace(call, args={**call.args, **{k: squared(low, call, v) for k, v in alone.items()}})
        )
    if found is None:
        raise call.error(
            f"the op {call.op.rstrip('_')} of a normalisation that forward() writes out is not supported; "
            f"the nearest that is: {NEAREST}"
        )
    return found


def is_square(value: Any) -> bool:
    """Whether a part is a square and no more, which need not become a normalisation."""
    return isinstance(value, Piece) and value == Piece(value.of, squared=True)


def squared(low: Lowering, call: Call, piece: Piece) -> Act:
    """The square of a map, as a tensor of the network."""
    x, apart = piece.of, replace(call, op="square", builtin=False)
    return low.emit(apart, POWER, (x,), low.shape(x), dims=x.dims, factors=(2.0, 1.0))


def _made(low: Lowering, call: Call) -> Act | Piece | None:
    """What a call makes of a part, or None where that is no part and no quotient."""
    name, x, other = call.op.rstrip("_"), call.x, call.args.get(SECOND)
    if name in ("div", "true_divide") and isinstance(other, Piece):
        inverse = _number(x) == 1 and other.over and other.power == 0.5
        return replace(other, power=-0.5) if inverse else _quotient(low, call, x, other, 0.5)
    if name == "mul" and not (isinstance(x, Piece) and x == other):
        root, of = (x, other) if isinstance(x, Piece) and x.over else (other, x)
        squares = isinstance(x, Act) and x == other
        return Piece(x, squared=True) if squares else _quotient(low, call, of, root, -0.5)
    if name == "add" and not isinstance(x, Piece):
        x, other = other, x
    if name == "sub" and isinstance(x, Act):
        return Piece(x, centred=True, mean=other) if isinstance(other, Act) else None
    if name == "var":
        return Piece(x, centred=True, squared=True, over="mean") if isinstance(x, Act) else None
    piece = x if isinstance(x, Piece) else Piece(x)
    return _next(call, name, piece, other)


def _next(call: Call, name: str, x: Piece, other: Any) -> Piece | None:
    """The part that a call makes of the one before it."""
    if name in VIEWS:
        return x
    square = name in ("square", "mul") or (name == "pow" and _number(call.args.get("exponent")) == 2)
    if square and not x.squared:
        return replace(x, squared=True)
    if name in ("mean", "sum") and x.squared and not x.over and _axes(call, x.of) == [1] and _keeps(call):
        return replace(x, over=name)
    number = _number(other)
    if name == "add" and x.over and x.power == 1 and number is not None and number >= 0:
        return replace(x, eps=x.eps + number)
    least = _number(call.args.get("min"))
    if name in ("clamp", "clamp_min", "maximum", "add") and x.over and x.power > 0:
        small = number if least is None else least
        return x if small is not None and 0 <= small <= LEAST else None
    if name in ("minimum", "clamp", "clamp_max") and x.over and x.power < 0:  # of a reciprocal
        most = _number(call.args.get("max", other))
        return x if most is not None and most >= 1 / LEAST else None
    power = {"sqrt": 0.5, "rsqrt": -0.5, "pow": _number(call.args.get("exponent")), "reciprocal": -1.0}.get(
        name
    )
    if x.over and power is not None and abs(x.power * power) == 0.5:
        return replace(x, power=x.power * power)
    return None


def _quotient(low: Lowering, call: Call, value: Any, root: Any, power: float) -> Act | None:
    """A map less its mean over the root of its variance; or a vector over its own length."""
    if not isinstance(root, Piece) or root.power != power or not root.over:
        return None
    given = value.of if isinstance(value, Piece) else value
    same = isinstance(given, Act) and _is_same(low, given, root.of)
    if not same or isinstance(value, Piece) != root.centred:
        return None
    if isinstance(value, Act) and root.over == "mean":
        return by_root_mean(low, replace(call, builtin=False), value, root.eps)
    if isinstance(value, Act):
        return quotient(low, call, Length(value)) if root.eps <= LEAST else None
    if root.over != "mean" or value.squared:
        return None
    channels = low.shape(root.of)[2]
    plain = Param(f"{call.node_name('normalised')}.weight", np.ones(channels, np.float32), computed=True)
    args = {"input": root.of, "eps": root.eps, "weight": plain}
    made = normalised(low, replace(call, op="layer_norm", builtin=False, args=args), 1, apart=True)
    low.frozen.pop()  # a scale of 1 is none of forward()'s; that of the map comes behind, and learns
    return replace(made, dims=root.of.dims)


def _is_same(low: Lowering, a: Act, b: Act) -> bool:
    """Whether both hold the same numbers, whatever they are called."""
    return low.tensor_of(a) == low.tensor_of(b) and replace(a, tensor=b.tensor) == b


def by_root_mean(low: Lowering, call: Call, x: Act, eps: float) -> Act:
    """A vector over the root of its mean square (frontends/clean/root_means.py)."""
    one = (*low.shape(x)[:2], 1)
    mean = low.emit(call, CHANNEL_MEAN, (squared(low, call, Piece(x)),), one)
    root = low.emit(call, POWER, (low.scaled(call, mean, 1.0, eps),), one, factors=(-0.5, 1.0))
    return low.emit(call, PIXELS, (x, root), low.shape(x), dims=x.dims)


def _is_mean_of(low: Lowering, mean: Act, x: Act) -> bool:
    """True for the mean of a map over its channels, [n, 1, h, w]."""
    made = low.maker(low.tensor_of(mean))
    of = made is not None and made.op == CHANNEL_MEAN and made.inputs == (low.tensor_of(x),)
    return of and mean.dims == (x.dims[0], 1, *x.dims[2:])


def _axes(call: Call, x: Act) -> list[int]:
    given = call.get("dim", None)
    return [int(a) % len(x.dims) for a in ([given] if isinstance(given, int) else given or [])]


def _keeps(call: Call) -> bool:
    return bool(call.get("keepdim", False))


def _counts_all(call: Call) -> bool:
    """Whether a variance divides by how many numbers there are, and stands where they were."""
    correction = call.args.get("correction")
    apart = call.get("unbiased", True) if correction is None else bool(correction)
    return not apart and _keeps(call)


def _number(value: Any) -> float | None:
    number = one_number(value)
    return number if number is not None and math.isfinite(number) else None


ARGUMENTS = {  # by position, for files that name none
    "pow": "self exponent",
    **dict.fromkeys(("square", "sqrt", "rsqrt", "reciprocal"), "self"),
}
