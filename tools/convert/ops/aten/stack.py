"""Front-end rules of maps, or vectors, that are stacked along a new axis, and their mean or sum over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from ..calls import Calls, Natural

CONCATS = ("cat", "concat", "concatenate")
NEAREST = "their mean or sum over the axis along which they stand, or cat, of maps along their channels"


@dataclass(frozen=True)
class Stacked:
    """Activations of one shape along an axis of their own, which are no tensor of the network."""

    acts: tuple[Act, ...]
    axis: int


def concerns(low: Lowering, call: Call) -> bool:
    """Whether a call stacks activations, or reads some that are stacked."""
    given = call.args.get("tensors")
    if isinstance(given, list) and given and all(isinstance(each, Act) for each in given):
        return call.op == "stack" or (call.op in CONCATS and _parts(low, call, given) is not None)
    return any(isinstance(value, Stacked) for value in call.args.values())


def lower(low: Lowering, call: Call, natural: Natural) -> Act | Stacked:
    stack, name = call.x, call.op.rstrip("_")
    if not any(isinstance(value, Stacked) for value in call.args.values()):
        return _stacked(low, call)
    if not isinstance(stack, Stacked):
        raise call.error(of_stacked(name))
    axes = call.get("dim", None)
    over = list(axes) if isinstance(axes, Sequence) else [axes]
    rank = len(stack.acts[0].dims) + 1
    if name not in ("mean", "sum") or len(over) != 1 or over[0] is None or call.get("keepdim", False):
        raise call.error(of_stacked(name))
    if int(over[0]) % rank != stack.axis:
        raise call.error(of_stacked(f"{name} over another axis"))
    made, total = Calls(low, call, natural), stack.acts[0]
    for each in stack.acts[1:]:
        total = made("add", total, each)
    return total if name == "sum" else made("div", total, float(len(stack.acts)))


def of_stacked(what: str) -> str:
    """What is said of an op that reads stacked tensors."""
    return f"the op {what} of stacked tensors is not supported; the nearest that is: {NEAREST}"


def _stacked(low: Lowering, call: Call) -> Stacked:
    given = call.args["tensors"]
    rank = len(given[0].dims) + (call.op == "stack")
    parts = given if call.op == "stack" else _parts(low, call, given)
    if parts is None or len({part.dims for part in parts}) > 1:
        raise call.error(f"{call.op} of tensors of several shapes; they must have one")
    return Stacked(tuple(parts), int(call.get("dim", 0)) % rank)


def _parts(low: Lowering, call: Call, given: Sequence[Act]) -> list[Act] | None:
    """What exporters write of stack: activations along an axis that each was given for it; else None."""
    axis = int(call.get("dim", 0)) % len(given[0].dims)
    if len({act.dims for act in given}) > 1 or given[0].dims[axis] != 1:
        return None
    parts = [replace(act, dims=(*act.dims[:axis], *act.dims[axis + 1 :])) for act in given]
    of_channels = axis == 1 and _is_whole(low, given[0])
    return parts if all(_is_whole(low, part) for part in parts) and not of_channels else None


def _is_whole(low: Lowering, act: Act) -> bool:
    """True for dims of the tensor itself: an image, a series of one column, or a vector."""
    h, w, c = low.shape(act)
    if act.order is not None or act.tensor in low.last:
        return False
    own = (low.batch, c, h, w)
    return act.dims == own or (w == 1 and act.dims == own[:3]) or (h == w == 1 and act.dims == own[:2])
