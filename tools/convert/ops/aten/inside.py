"""What a network mostly ends with, inside it: softmax and L2 normalisation, written with other calls.

At the end of a network both are one op of the raw graph, which is left out. Where something reads what they
make, it is made: of exponentials less the largest one, or of the root of the sum of squares.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Node
from microtrain.convert.lowering import SOFTMAX, Lowering

from ..calls import Calls, Natural
from ..tokens import MOST_NUMBERS, places, whole
from .lengths import UNIT
from .unflatten import OF_VIEWS

CHANNELS, PIXELS = 1.0, 2.0  # what a softmax runs over: the node's first factor; its second: 1 of logarithms
READS = ("linear", "matmul", "mm", "bmm", "addmm", "einsum", "layer_norm", "softmax")  # of OF_VIEWS


def settled(low: Lowering, call: Call, natural: Natural) -> Call:
    """A call whose softmaxes and vectors of length 1 are tensors of the network; a view is none of both."""
    name = call.op.rstrip("_")
    if (name in OF_VIEWS and name not in READS) or not low.nodes:
        return call

    def made(value: Any) -> Any:
        if isinstance(value, list):
            return [made(each) for each in value]
        node = _ending(low, value) if isinstance(value, Act) else None
        return value if node is None else _inside(low, value, node, natural)

    return replace(call, args={key: made(value) for key, value in call.args.items()})


def over(low: Lowering, call: Call, x: Act) -> tuple[float, ...]:
    """The factors of a call's softmax of a view: over the channels of each pixel, or over all pixels of each
    channel, and whether it makes logarithms; () of any other one."""
    (h, w, c), axis, logs = low.shape(x), int(call.get("dim", -1)), float("log" in call.op)
    if low.batch != 1 or x.pad or x.half or math.prod(x.dims) != h * w * c or h * w * c > MOST_NUMBERS:
        return ()
    at = np.moveaxis(places(low, x), axis, -1)
    if at.shape[-1] == c > 1 and not np.ptp(at // c, axis=-1).any():
        return (CHANNELS, logs)
    return (PIXELS, logs) if at.shape[-1] == h * w > 1 and not np.ptp(at % c, axis=-1).any() else ()


def _ending(low: Lowering, act: Act) -> Node | None:
    """The node that makes an activation, if it is one that mostly ends a network and can be written out."""
    node = low.maker(low.tensor_of(act))
    if node is None or node.op not in (SOFTMAX, UNIT) or (node.op == SOFTMAX and not node.factors):
        return None
    return node


def _inside(low: Lowering, value: Act, node: Node, natural: Natural) -> Act:
    """What a node makes, by calls that have kernels, once for all that read it."""
    known = low.written_out.get(node.outputs[0])
    if known is None:
        of = whole(low, Act(low.as_made(node.inputs[0]), ()))
        made = Calls(low, Call("", node.name, False, {}), natural)
        known = (_softmax(made, of, node.factors) if node.op == SOFTMAX else _of_length_one(made, of)).tensor
        low.written_out[node.outputs[0]] = known
    return replace(value, tensor=known)


def _softmax(made: Calls, x: Act, factors: tuple[float, ...]) -> Act:
    axes, logs = [1] if factors[0] == CHANNELS else [2, 3], factors[1]
    less = made("sub", x, made("amax", x, dim=axes, keepdim=True))
    shares = made("exp", less)
    total = made("sum", shares, dim=axes, keepdim=True)
    found: Act = (
        made("sub", less, made("log", total)) if logs else made("mul", shares, made("reciprocal", total))
    )
    return found


def _of_length_one(made: Calls, x: Act) -> Act:
    h, w, c = made.low.shape(x)
    squares = made("sum", made("mul", x, x), dim=[1], keepdim=True)
    if h * w > 1:  # of all numbers of a map, which has one length
        inverse = made("rsqrt", made("sum", squares, dim=[2, 3], keepdim=True))
        inverse = made("expand", inverse, size=[-1, c, 1, 1])
    else:
        inverse = made("rsqrt", squares)
    found: Act = made("mul", x, inverse)
    return found
