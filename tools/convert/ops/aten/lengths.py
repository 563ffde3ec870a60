"""L2 normalisation: a vector of activations divided by its Euclidean length, as embeddings end with.

The length is no tensor of the network; only the quotient is a node, of the raw graph alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import NO_LENGTH

from ..tokens import places, settled, view_of, whole

UNIT = "normalisation of length"  # of the raw graph alone: at its end it is left out
NORMS = ("linalg_vector_norm", "norm", "frobenius_norm")
WHOLE = "l2_normalize"  # length and quotient in one
BOUNDS = ("clamp_min", "clamp", "maximum", "add")  # of a number that is there against division by nothing
VIEWS = ("expand", "expand_as", "unsqueeze", "to", "float", "clone", "contiguous")
LEAST = 1e-3  # such a number is not larger


@dataclass(frozen=True)
class Length:
    """The Euclidean length of a vector, whatever number of times it stands there."""

    of: Act

    @property
    def acts(self) -> tuple[Act]:
        """What a stand-in reads in its place."""
        return (self.of,)


def concerns(call: Call) -> bool:
    """Whether a call makes a length, or reads one."""
    of_vector = call.op in NORMS and isinstance(call.x, Act) and len(call.x.dims) == 2
    whole = call.op == WHOLE and isinstance(call.x, Act)
    return of_vector or whole or any(isinstance(v, Length) for v in call.args.values())


def lower(low: Lowering, call: Call) -> Act | Length:
    if call.op in NORMS:
        return _length(low, call)
    if call.op == WHOLE:
        return quotient(low, call, _length(low, call))
    name, other = call.op.rstrip("_"), call.args.get("other")
    if name in ("div", "true_divide") and isinstance(other, Length):
        return quotient(low, call, other)
    given = next(v for v in call.args.values() if isinstance(v, Length))
    if name in VIEWS or (name in BOUNDS and all(_is_small(v) for v in call.args.values() if v is not given)):
        return given
    raise _refused(call)


def _is_small(value: Any) -> bool:
    number = value.value.item() if isinstance(value, Param) and value.value.size == 1 else value
    return number is None or (isinstance(number, int | float) and 0 <= number <= LEAST)


def _length(low: Lowering, call: Call) -> Length:
    x = low.activation(call, call.x)
    given = call.get("dim", None)
    axes = [1] if given is None and low.batch == 1 else [given] if isinstance(given, int) else given or []
    order = call.get("ord", call.get("p", 2))
    if len(x.dims) != 2 or [int(a) % 2 for a in axes] != [1] or order not in (2, 2.0, "fro"):
        raise _refused(call)
    if x.dims[0] != low.batch and not low.is_stand_in(x):
        raise call.error(
            f"the length of each row of a view {list(x.dims)} is not supported; the nearest that is: that of "
            f"the vector of each sample, [{low.batch}, features], or of the channels of each pixel"
        )
    return Length(x)


def quotient(low: Lowering, call: Call, length: Length) -> Act:
    """A vector by its own length."""
    x = low.activation(call, call.x)
    if low.tensor_of(x) != low.tensor_of(length.of):
        raise _refused(call)
    if x.order is None and low.shape(x)[:2] == (1, 1):
        return low.emit(call, UNIT, (x,), low.shape(x), dims=x.dims)
    x = settled(low, call, x)
    made = low.emit(call, UNIT, (whole(low, x),), low.shape(x))
    return view_of(low, made.tensor, places(low, x))


def _refused(call: Call) -> Exception:
    return call.error(
        f"the op {call.op.rstrip('_')} of an L2 normalisation is not supported; the nearest that is: "
        f"{NO_LENGTH}"
    )


ARGUMENTS = {  # by position, for files that name none
    "linalg_vector_norm": "self ord dim keepdim",
    **dict.fromkeys(("norm", "frobenius_norm"), "self p dim keepdim"),
    "expand_as": "self other",
}
