"""Calls that are another one by another name: axes that are moved, lengths of cuts, others' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from microtrain.convert.aten_call import Act, Call, Param

ARGUMENTS = {
    **dict.fromkeys(("movedim", "moveaxis"), "self source destination"),
    "swapaxes": "self axis0 axis1",
    "swapdims": "self dim0 dim1",
    "mT": "self",
    "narrow": "self dim start length",
    **dict.fromkeys(("reshape_as", "view_as"), "self other"),
}


def plain(call: Call) -> Call:
    """The call by the name that it has elsewhere; others as they are."""
    name = call.op.rstrip("_")
    if name in ("movedim", "moveaxis") and isinstance(call.x, Act | Param):
        return replace(call, op="permute", args={"self": call.x, "dims": _moved(call)})
    if name in ("swapaxes", "swapdims"):
        first, second = (call.args[word] for word in ARGUMENTS[name].split()[1:])
        return replace(call, op="transpose", args={"self": call.x, "dim0": first, "dim1": second})
    if name == "mT":
        return replace(call, op="transpose", args={"self": call.x, "dim0": -2, "dim1": -1})
    if name == "narrow" and isinstance(call.x, Act | Param):
        dim, start, length = (int(call.args[word]) for word in ARGUMENTS[name].split()[1:])
        part = {"self": call.x, "dim": dim, "start": start, "end": start + length}
        return replace(call, op="slice", args=part)
    if name in ("reshape_as", "view_as") and isinstance(other := call.args.get("other"), Act | Param):
        dims = other.dims if isinstance(other, Act) else other.value.shape
        return replace(call, op="reshape", args={"self": call.x, "shape": list(dims)})
    return call


def _moved(call: Call) -> list[int]:
    """The axes in the order in which a move leaves them."""
    rank = len(call.x.dims) if isinstance(call.x, Act) else call.x.value.ndim
    there, here = (_several(call.args[word], rank) for word in ("destination", "source"))
    left = iter(axis for axis in range(rank) if axis not in here)
    at = dict(zip(there, here, strict=True))
    return [at[place] if place in at else next(left) for place in range(rank)]


def _several(value: Any, rank: int) -> list[int]:
    axes = value if isinstance(value, Sequence) else [value]
    return [int(axis) % rank for axis in axes]
