"""The product of two maps, value by value: a gate, as in gated linear units.

All but kernels and gradient is that of a map times one factor per channel (scale.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from microtrain.convert.aten_call import Call
from microtrain.convert.ir import Node
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import NUMBER, S8, U8, Clamp, ErrorS8

from . import scale
from .calls import Natural
from .functions import SIGMOID
from .scale import MULTIPLY
from .stage import NOT_A_STAGE
from .table import NO_ATEN, Op, in_place_of, no_macs

if TYPE_CHECKING:
    from .tape import Tape

BACKWARD = f"{MULTIPLY}_bwd_x"
SECOND = (1.0,)  # factors of a backward node that makes the error of the second map


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Each factor's error is that of the product times the other, which may be one that was made again."""
    if error is not None:
        a, b = node.inputs
        tape.send(a, Node(BACKWARD, node.name, (error, b), ()))
        tape.send(b, Node(BACKWARD, node.name, (error, a), (), factors=SECOND))


def _call_backward(names: Names, node: Node) -> str:
    error, other = names.graph.tensors[node.inputs[0]], names.at(node.inputs[1])
    sizes = f"{names.struct('scale', node)}, {error.pixels}, {error.channels}"
    ends = f"{int(node.factors == SECOND)}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({sizes}, {names.error(error.name)}, {other}, {ends});"


def glu(low: Lowering, call: Call, natural: Natural) -> Any:
    """The first half of the channels times a gate that the second opens. natural: makes what a call means"""
    halves = {"self": call.x, "chunks": 2, "dim": call.get("dim", -1)}
    made, gate = natural(low, replace(call, op="chunk", args=halves))
    gate = natural(low, replace(call, op=SIGMOID, args={"self": gate}))
    return natural(low, replace(call, op="mul", args={"self": made, "other": gate}))


_SIZED = (scale.Scale, NUMBER, NUMBER)

OPS: tuple[Op, ...] = (
    replace(
        scale.FORWARD,
        name=MULTIPLY,
        macs=no_macs,
        in_place=in_place_of(0, 1),
        kernels={f"{MULTIPLY}_fwd_s8": (None, (*_SIZED, S8, S8, S8, U8))},
        aten=NO_ATEN,  # the rule of mul makes it (scale.py)
        gradient=_gradient,
        kernel=f"{MULTIPLY}_fwd_s8",
        stage=NOT_A_STAGE,
    ),
    replace(
        scale.BACK_TO_MAP,
        name=BACKWARD,
        call=_call_backward,
        macs=no_macs,
        kernels={f"{BACKWARD}_s8": (None, (*_SIZED, ErrorS8, S8, NUMBER, Clamp, ErrorS8))},
    ),
)
