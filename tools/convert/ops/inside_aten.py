"""What a network mostly ends with, inside it: softmax and L2 normalisation, written with other calls.

At the end of a network both are one op of the raw graph, which is left out. Where something reads what they
make, it is made: of exponentials less the largest one, or of the root of the sum of squares.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.ir import Node
from microtrain.convert.lowering import SOFTMAX, Act, Call, Lowering

from .calls import Calls, Natural
from .lengths_aten import UNIT
from .tokens import MOST_NUMBERS, places, whole
from .unflatten_aten import OF_VIEWS

CHANNELS, PIXELS = 1.0, 2.0  # what a softmax runs over: the node's factor
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


def over(low: Lowering, x: Act, axis: int) -> tuple[float, ...]:
    """The factor of a softmax of a view along an axis: over the channels of each pixel, or over all pixels of
    each channel; () of any other one."""
    h, w, c = low.shape(x)
    if low.batch != 1 or x.pad or x.half or math.prod(x.dims) != h * w * c or h * w * c > MOST_NUMBERS:
        return ()
    at = np.moveaxis(places(low, x), axis, -1)
    if at.shape[-1] == c > 1 and not np.ptp(at // c, axis=-1).any():
        return (CHANNELS,)
    return (PIXELS,) if at.shape[-1] == h * w > 1 and not np.ptp(at % c, axis=-1).any() else ()


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
        of = whole(low, Act(node.inputs[0], ()))
        made = Calls(low, Call("", node.name, False, {}), natural)
        known = (_softmax(made, of, node.factors) if node.op == SOFTMAX else _of_length_one(made, of)).tensor
        low.written_out[node.outputs[0]] = known
    return replace(value, tensor=known)


def _softmax(made: Calls, x: Act, factors: tuple[float, ...]) -> Act:
    axes = [1] if factors == (CHANNELS,) else [2, 3]
    shares = made("exp", made("sub", x, made("amax", x, dim=axes, keepdim=True)))
    total = made("sum", shares, dim=axes, keepdim=True)
    found: Act = made("mul", shares, made("reciprocal", total))
    return found


def _of_length_one(made: Calls, x: Act) -> Act:
    squares = made("sum", made("mul", x, x), dim=[1], keepdim=True)
    found: Act = made("mul", x, made("rsqrt", squares))
    return found
