"""Front-end rule of vectors that are seen as maps, as between the two halves of an autoencoder.

A view says nothing of what reads it, so the map is made where something wants an image. In which order
the vector's numbers stand in it is noted at the node; frontends/clean/ordered.py puts them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import Shape
from microtrain.convert.lowering import Lowering

from ..table import Aten

UNFLATTEN = "unflatten"
OF_VIEWS = (  # calls to which it is all one whether a view is an image
    *("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"),
    *("permute", "transpose", "t", "expand", "select", "unbind"),
    *("size", "sym_size", "dim", "dtype", "device"),
    *("contiguous", "clone", "detach", "detach_copy", "alias", "identity", "to", "float", "_to_copy"),
    *("dropout", "dropout2d", "feature_dropout", "alpha_dropout", "native_dropout"),
    *("linear", "matmul", "mm", "bmm", "addmm", "einsum", "layer_norm", "softmax"),
    "scaled_dot_product_attention",
)
OVER_PIXELS = ("conv", "pool", "pad", "upsample", "norm", "shuffle", "cat")  # are in the names of other calls


def made(low: Lowering, call: Call) -> Call:
    """A call whose images are maps, where they are views of vectors."""
    if call.op.rstrip("_") in OF_VIEWS or _is_group_norm(low, call):
        return call

    over_pixels = any(word in call.op for word in OVER_PIXELS)

    def seen(value: Any) -> Any:
        if isinstance(value, list):
            return [seen(each) for each in value]
        if not isinstance(value, Act) or (is_last(value) and not over_pixels):
            return value
        return _map(low, call, value)

    return replace(call, args={name: seen(value) for name, value in call.args.items()})


def is_last(view: Act) -> bool:
    """Whether a view has all its numbers in the last axis, as a vector of features [n, 1, 1, c] has."""
    return len(view.dims) > 2 and set(view.dims[1:-1]) == {1} and view.dims[-1] > 1


def _is_group_norm(low: Lowering, call: Call) -> bool:
    """True for an instance norm of a view [n, groups, rest] of a vector, as exporters write a group norm."""
    x, scale = call.args.get("input"), call.args.get("weight")
    if call.op != "instance_norm" or not isinstance(x, Act) or len(x.dims) != 3:
        return False
    return not isinstance(scale, Param) or scale.value.size != x.dims[1]


def _map(low: Lowering, call: Call, view: Act) -> Act:
    """The map that a view of a vector as an image is of; others as they are."""
    if len(view.dims) not in (3, 4) or view.pad or view.half or view.factor != 1 or low.is_stand_in(view):
        return view
    batch, c, h, w = (*view.dims, 1)[:4]
    numbers, in_a_row = c * h * w, c == w == 1  # a vector to convolve (conv.py)
    is_vector = batch == low.batch and low.shape(view) == (1, 1, numbers) and not low.is_input(view)
    if in_a_row or h * w == 1 or not is_vector:
        return view
    order = np.arange(numbers) if view.order is None else view.order.ravel()
    if not np.array_equal(np.sort(order), np.arange(numbers)):
        return view
    return replace(of_vector(low, call, view, (h, w, c), order.reshape(c, h, w)), dims=view.dims)


def of_vector(low: Lowering, call: Call, x: Act, shape: Shape, order: np.ndarray | None = None) -> Act:
    """A vector as a map of a shape (h, w, c), once for all that read it.

    order  which of its numbers stand in the map, [c, h, w]; None: as they stand in memory
    """
    channels = None if order is None else in_memory(order)
    factors = tuple(float(n) for n in shape)
    of = (UNFLATTEN, (low.tensor_of(x),), channels, factors)
    for node in low.nodes:
        if (node.op, node.inputs, node.channels, node.factors) == of:
            return Act(low.as_made(node.outputs[0]), (low.batch, shape[2], *shape[:2]))
    apart = replace(call, op=UNFLATTEN, builtin=False)
    return low.emit(apart, UNFLATTEN, (x,), shape, channels=channels, factors=factors)


def in_memory(order: np.ndarray) -> tuple[int, ...] | None:
    """Which numbers of a vector the memory of a map has, one behind the other; None: as they come.

    order  of them in the map, [c, h, w]
    """
    at = order.transpose(1, 2, 0).ravel()
    return None if (at == np.arange(at.size)).all() else tuple(at.tolist())


ATEN: Mapping[str, Aten] = {}  # of calls, it is a view (tokens.reshaped)
