"""Maps that stand many times: `expand` and `expand_as` of what has one row, column or channel.

A product or a sum repeats such a map by itself. Anything else reads it whole, so that it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering
from microtrain.convert.nearest import unsupported

from ..add import repeated
from ..calls import Natural
from .across import as_image

EXPANDS = ("expand", "expand_as", "broadcast_to", "repeat")
REPEATS = ("mul", "add", "sub")  # what reads a map of one pixel, row or channel as often as the other has it
SAME = ("contiguous", "clone", "to", "float", "detach")
SIZES = ("size", "sym_size", "dim")


@dataclass(frozen=True)
class Expanded:
    """An activation [n, c, h, w] as often as dims say, which is no tensor of the network yet."""

    of: Act
    dims: tuple[int, ...]

    @property
    def acts(self) -> tuple[Act]:
        """What a stand-in reads in its place."""
        return (self.of,)


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call expands an image, or reads one that is expanded."""
    if any(isinstance(v, Expanded) for v in _given(call)):
        return True
    x = call.x
    if call.op not in EXPANDS or not isinstance(x, Act) or x.order is not None or x.tensor in low.last:
        return False
    return len(x.dims) > 2 and len(_wanted(call)) == len(x.dims)


def lower(low: Lowering, call: Call, natural: Natural) -> Any:
    name, x = call.op.rstrip("_"), call.x
    if name in EXPANDS and isinstance(x, Act) and not isinstance(x, Expanded):
        return _expanded(low, call, x)
    if isinstance(x, Expanded) and name in SAME:
        return x
    if isinstance(x, Expanded) and name in SIZES:
        at = call.args.get("dim")
        return len(x.dims) if name == "dim" else list(x.dims) if at is None else x.dims[at]
    dims = {v.dims for v in _given(call) if isinstance(v, Act | Expanded)}
    plain = any(isinstance(v, Act) for v in _given(call))
    short = name in REPEATS and len(dims) == 1 and plain and not call.op.endswith("_")
    args = {key: _read(low, call, value, short) for key, value in call.args.items()}
    return natural(low, replace(call, args=args))


def _given(call: Call) -> list[Any]:
    return [v for value in call.args.values() for v in (value if isinstance(value, list) else [value])]


def _wanted(call: Call) -> tuple[int, ...]:
    """The size that a call asks for; none where it repeats more than one row, column or channel."""
    if call.op == "repeat":
        pairs = list(zip(call.args["repeats"], call.x.dims, strict=False))
        alike = len(pairs) == len(call.args["repeats"]) == len(call.x.dims)
        return tuple(int(n) * own for n, own in pairs) if alike and all(1 in pair for pair in pairs) else ()
    other = call.args.get("other")
    size = getattr(other, "dims", ()) if call.op == "expand_as" else call.get("size", None) or ()
    return tuple(int(d) for d in size)


def _expanded(low: Lowering, call: Call, value: Act) -> Act | Expanded:
    x, wanted = low.activation(call, value), _wanted(call)
    dims = tuple(own if d == -1 else d for own, d in zip(x.dims, wanted, strict=True))
    if dims[0] != x.dims[0] or any(own not in (1, d) for own, d in zip(x.dims, dims, strict=True)):
        raise unsupported(call)
    return x if dims == x.dims else Expanded(x, dims)


def _read(low: Lowering, call: Call, value: Any, short: bool) -> Any:
    """An argument as it is read. short: what stands many times is read once"""
    if isinstance(value, list):
        return [_read(low, call, each, short) for each in value]
    if not isinstance(value, Expanded):
        return value
    return value.of if short else made(low, call, value)


def made(low: Lowering, call: Call, value: Expanded) -> Act:
    """The tensor, as large as it stands there."""
    x = low.image(call, as_image(low, call, value.of))
    whole = repeated(low, replace(call, op="expand"), x, replace(x, dims=value.dims))
    if whole.dims != value.dims:
        raise unsupported(replace(call, op="expand"))
    return whole
