"""Views of TFLite whose numbers were turned, and what reads a tensor in the file's own order of axes.

As long as nothing was turned, numbers lie in memory as the file's shape says, whatever views it takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.ops.aten import expanded
from microtrain.convert.ops.aten.attention import Scores
from microtrain.convert.ops.aten.expanded import Expanded
from microtrain.convert.ops.aten.pool import of_rows
from microtrain.convert.ops.aten.resample import settled
from microtrain.convert.ops.tokens import numbers, places, turnable, view_of

from ..aten.rules import lower
from .file import Operator
from .values import Walker, channels_first, channelwise, held


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
    if isinstance(value, Expanded):  # in the order of images
        call = Call(op.kind.lower(), name, False, {"self": value})
        value = expanded.made(walk.low, call, value)
    if not isinstance(value, Act):
        return value
    x, at = places_as(walk, op, name, value, walk.file.tensors[op.inputs[place]].shape)
    return view_of(walk.low, x.tensor, at, x.factor)


def each_once(low: Lowering, x: Act) -> bool:
    """Whether no number stands twice in a view."""
    at = numbers(low, x)
    return len(np.unique(at)) == at.size


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


def together(walk: Walker, op: Operator, word: str, name: str, **places: int) -> Any:
    """What a call makes of several inputs of an operator, place by place. places: by the call's arguments"""
    values = {key: walk.value(op.inputs[place]) for key, place in places.items()}
    if as_they_are(walk, list(values.values())):
        rank = len(walk.file.tensors[op.outputs[0]].shape)
        sides = {key: channelwise(v, rank) if isinstance(v, Param) else v for key, v in values.items()}
        return walk.made(word, name, **sides)
    return in_order(walk, word, name, **{key: seen(walk, op, name, place) for key, place in places.items()})


def as_they_are(walk: Walker, values: Sequence[Any]) -> bool:
    """Whether the numbers of several activations lie as a rule of images takes them: all do, or all alike.

    A rule would take a vector's numbers, or those of rows that are a batch, channel by channel.
    """
    acts = [v for v in values if isinstance(v, Act)]
    plain = [act.order is None for act in acts]
    if all(plain) and len({(act.dims, walk.low.shape(act)) for act in acts}) < 2:
        return True
    return all(_of_image(walk.low, act) for act in acts)


def unlike(op: Operator, name: str) -> ConvertError:
    return ConvertError(
        f"layer {name}: {op.kind} of tensors whose numbers lie in different orders is not supported; the "
        "nearest that is: of two of one shape and order, or a sum or product of two"
    )


def _of_image(low: Lowering, act: Act) -> bool:
    """Whether a view has the axes of the map that it is of, or says itself where each number stands."""
    h, w, c = low.shape(act)
    if act.order is not None or act.pad or low.is_stand_in(act):
        return True
    return act.dims[:2] == (low.batch, c) if len(act.dims) > 2 else h * w == 1


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
