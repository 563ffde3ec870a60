"""Views of TFLite whose numbers were turned, and what reads a tensor in the file's own order of axes.

As long as nothing was turned, numbers lie in memory as the file's shape says, whatever views it takes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.pool import of_rows
from microtrain.convert.ops.aten.resample import settled
from microtrain.convert.ops.tokens import numbers, places, turnable, view_of

from ..aten.rules import lower
from .file import Operator
from .values import Walker, channels_first, held


def places_of(walk: Walker, op: Operator, name: str, place: int = 0) -> tuple[Act, np.ndarray]:
    """An activation that an operator reads, and where in memory each number of it stands, in its shape."""
    act, shape = walk.value(op.inputs[place]), walk.file.tensors[op.inputs[place]].shape
    return places_as(walk, op, name, act, shape)


def places_as(
    walk: Walker, op: Operator, name: str, act: Any, shape: tuple[int, ...]
) -> tuple[Act, np.ndarray]:
    """The same of an activation that is seen in a shape. Zeros around it are made."""
    if isinstance(act, Act) and act.pad:
        act = settled(walk.low, Call(op.kind.lower(), name, False, {"self": act})).x
    x = turnable(walk.low, Call(op.kind.lower(), name, True, {"self": act}), act)
    of_some = math.prod(x.dims) < math.prod(walk.low.shape(x))  # of the first channels
    if x.order is not None or (of_some and x.dims == channels_first(shape)):
        return x, np.moveaxis(places(walk.low, x), 1, -1) if len(shape) > 2 else places(walk.low, x)
    if math.prod(shape) != math.prod(walk.low.shape(x)):
        raise ConvertError(f"layer {name}: {op.kind} reads {list(shape)}, which was made of another shape")
    return x, np.arange(math.prod(shape)).reshape(shape)


def seen(walk: Walker, op: Operator, name: str, place: int = 0) -> Any:
    """What an operator reads, in the file's own order of axes, as rules of tokens take it."""
    value = walk.value(op.inputs[place])
    if not isinstance(value, Act):
        return value
    x, at = places_of(walk, op, name, place)
    return view_of(walk.low, x.tensor, at, x.factor)


def in_order(walk: Walker, word: str, name: str, **args: Any) -> Any:
    """What a call makes of values as seen() gives them."""
    call = Call(word, name, True, args)

    def back(made: Any) -> Any:
        if isinstance(made, list):
            return [back(each) for each in made]
        if not isinstance(made, Act):
            return made
        made = of_rows(walk.low, call, made) if made.half else made
        return held(walk.low, made.tensor, places(walk.low, made), made.factor)

    return back(lower(walk.low, call))


def turned(walk: Walker, op: Operator, name: str, axes: list[int]) -> Act:
    x, at = places_of(walk, op, name)
    return held(walk.low, x.tensor, at.transpose(axes), x.factor)


def reshaped(walk: Walker, op: Operator, name: str, shape: tuple[int, ...]) -> Act:
    """A view of what was turned."""
    x, at = places_of(walk, op, name)
    return held(walk.low, x.tensor, at.reshape(shape), x.factor)


def softmax(walk: Walker, op: Operator, name: str) -> Any:
    """Over the last axis: at the end of a network, inside it, or of the scores of attention."""
    beta = float(op.options.get("Beta", 1.0))
    if beta not in (0.0, 1.0):
        raise ConvertError(
            f"layer {name}: {op.kind} with a beta of {beta:g} is not supported; the nearest that is: a "
            "product with that number before it"
        )
    word = "log_softmax" if op.kind == "LOG_SOFTMAX" else "softmax"
    return in_order(walk, word, name, self=seen(walk, op, name), dim=-1)


def product(walk: Walker, op: Operator, name: str) -> Any:
    """Queries and keys, shares and values; or an activation and a matrix of constants."""
    sides = [seen(walk, op, name, place) for place in (0, 1)]
    for place, key in enumerate(("AdjX", "AdjY")):
        side = sides[place]
        if op.options.get(key) and isinstance(side, Act):
            order = numbers(walk.low, side).swapaxes(-1, -2)
            sides[place] = replace(side, dims=order.shape, order=order)
        elif op.options.get(key) and isinstance(side, Scores):
            sides[place] = lower(
                walk.low, Call("transpose", name, True, {"self": side, "dim0": -1, "dim1": -2})
            )
    x, weight = sides
    if isinstance(weight, Param) and isinstance(x, Act):
        return _matrix(walk, op, name, x, weight)
    return in_order(walk, "matmul", name, self=x, other=weight)


def _matrix(walk: Walker, op: Operator, name: str, x: Act, weight: Param) -> Any:
    """A linear layer whose weights are [inputs, outputs], or the other way round."""
    shape, straight = weight.value.shape, bool(op.options.get("AdjY"))
    if math.prod(shape[:-2]) != 1:
        raise ConvertError(
            f"layer {name}: {op.kind} with {math.prod(shape[:-2])} matrices of constants is not supported; "
            "the nearest that is: one matrix"
        )
    flat = weight.value.reshape(shape[-2:])

    def back(m: np.ndarray) -> np.ndarray:
        return (m if straight else m.T).reshape(shape)

    home = walk.at_home(op, 1, f"{name}.weight", flat if straight else flat.T, back)
    made = in_order(walk, "linear", name, input=x, weight=home)
    walk.keep_scale(name, walk.file.tensors[op.inputs[1]])
    return made
