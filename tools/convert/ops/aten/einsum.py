"""Front-end rules of einsum: a linear layer over any axes, a product with what is repeated, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from ..calls import Natural
from ..tokens import numbers, turnable, viewed
from . import across, attention
from .attention import Scores, no_einsum

MOST_PARTS = 16  # of a sum of layers
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the axes that an ellipsis stands for


def einsum(low: Lowering, call: Call, natural: Natural) -> Any:
    """Of an activation and weights, in either order; else of two activations."""
    tensors = call.args.get("tensors") or []
    if any(isinstance(v, Scores) for v in tensors) or len(tensors) != 2:
        return attention.einsum(low, call)
    call = _spelled_out(call, tensors)
    letters, out = attention.letters_of(call)
    constants = [i for i, v in enumerate(tensors) if isinstance(v, Param)]
    if len(constants) == 1:
        place = constants[0]
        x = turnable(low, call, tensors[1 - place])
        weight = low.constant(call, tensors[place], "weight")
        return _with_weights(low, call, natural, (x, letters[1 - place]), (weight, letters[place]), out)
    if not constants and set(letters[0]) > set(letters[1]) >= set(letters[1]) & set(out):
        return _repeated(low, call, natural, letters, out)
    if not constants and set(letters[1]) > set(letters[0]):
        turned = replace(call, args={**call.args, "tensors": tensors[::-1]})
        return _repeated(low, turned, natural, letters[::-1], out)
    return attention.einsum(low, call)


def _spelled_out(call: Call, tensors: Sequence[Any]) -> Call:
    """The call with letters in the place of an ellipsis, for the axes of the first operand that has one."""
    text = str(call.args.get("equation", "")).replace(" ", "")
    for operand, given in zip(text.partition("->")[0].split(","), tensors, strict=False):
        rank = len(given.dims) if isinstance(given, Act) else given.value.ndim
        if "..." in operand and 0 <= rank - len(operand) + 3 <= len(LETTERS):
            text = text.replace("...", LETTERS[: rank - len(operand) + 3])
    return replace(call, args={**call.args, "equation": text})


def _with_weights(
    low: Lowering, call: Call, natural: Natural, given: tuple[Act, str], by: tuple[Param, str], out: str
) -> Act:
    """A linear layer over the axes that both have and the result has not; without such axes a product."""
    (x, left), (weight, right) = given, by
    inner = "".join(c for c in right if c in left and c not in out)
    made = "".join(c for c in right if c not in left)
    kept = "".join(c for c in left if c not in inner)
    if len(x.dims) != len(left) or weight.value.ndim != len(right) or {*out} != {*kept, *made}:
        raise no_einsum(call)
    if not inner and not made:
        shape = [weight.value.shape[right.index(c)] if c in right else 1 for c in left]
        turned = weight.value.transpose([right.index(c) for c in left if c in right])
        factor = replace(weight, value=turned.reshape(shape))
        found = natural(low, replace(call, op="mul", args={"self": x, "other": factor}))
        return _in_order(low, call, found, left, out)
    if not inner or set(right) - set(inner + made):
        raise no_einsum(call)
    whole = _in_order(low, call, x, left, kept + inner)
    sizes = whole.dims[: len(kept)]
    x = viewed(low, whole, numbers(low, whole).reshape(*sizes, -1))
    if len(inner) > 1 and whole.dims[len(kept)] <= MOST_PARTS and _lies_apart(low, x):
        return _by_parts(low, call, natural, (whole, kept + inner), by, out)
    args = {"input": x, "weight": _matrix(weight, right, inner, made)}
    found = natural(low, replace(call, op="linear", args=args))
    dims = (*sizes, *(weight.value.shape[right.index(c)] for c in made))
    return _in_order(low, call, viewed(low, found, numbers(low, found).reshape(dims)), kept + made, out)


def _lies_apart(low: Lowering, x: Act) -> bool:
    """Whether a view of a whole map has a last axis that no linear layer reads at once."""
    return math.prod(x.dims) == math.prod(low.shape(x)) and across.spread(low, x) is None


def _by_parts(
    low: Lowering, call: Call, natural: Natural, given: tuple[Act, str], by: tuple[Param, str], out: str
) -> Act:
    """A sum of layers, one for each place of an axis, as ST-GCN has one for each kind of neighbours."""
    (x, left), (weight, right) = given, by
    letter = next(c for c in left if c in right and c not in out)
    at, place, total = left.index(letter), right.index(letter), None
    for part in range(x.dims[at]):
        own = weight.value.take(part, place)
        name = f"{weight.name.removesuffix('.weight')}.{part}.weight"
        matrix = Param(name, np.ascontiguousarray(own), computed=True)
        seen = viewed(low, x, numbers(low, x).take(part, at))
        letters = left.replace(letter, ""), right.replace(letter, "")
        made = _with_weights(low, call, natural, (seen, letters[0]), (matrix, letters[1]), out)
        added = replace(call, op="add", builtin=False, args={"self": total, "other": made})
        total = made if total is None else natural(low, added)
    assert total is not None
    return total


def _matrix(weight: Param, letters: str, inner: str, made: str) -> Param:
    """Weights as a linear layer has them, [made, inner]; those in no order of a matrix are computed."""
    straight = letters == made + inner
    has_place = weight.value.ndim == 2 or (
        weight.origin is not None and letters in (inner + made, made + inner)
    )
    weight = replace(weight, computed=weight.computed or not has_place)
    if straight:
        return replace(weight, value=weight.value.reshape(math.prod(weight.value.shape[: len(made)]), -1))
    turned = weight.value.transpose([letters.index(c) for c in inner + made])
    return replace(weight, value=turned.reshape(math.prod(turned.shape[: len(inner)]), -1)).t


def _repeated(low: Lowering, call: Call, natural: Natural, letters: Sequence[str], out: str) -> Act:
    """A product with what is repeated along some axes, and its sum over those that the result has not."""
    large, small = letters
    x, other = (turnable(low, call, v) for v in call.args["tensors"])
    if len(x.dims) != len(large) or len(other.dims) != len(small) or set(out) - set(large):
        raise no_einsum(call)
    other = _in_order(low, call, other, small, "".join(c for c in large if c in small))
    shape = [x.dims[i] if c in small else 1 for i, c in enumerate(large)]
    other = viewed(low, other, numbers(low, other).reshape(shape))
    found = natural(low, replace(call, op="mul", args={"self": x, "other": other}))
    over = [i for i, c in enumerate(large) if c not in out]
    if over:
        found = natural(low, replace(call, op="sum", builtin=False, args={"self": found, "dim": over}))
    return _in_order(low, call, found, "".join(c for c in large if c in out), out)


def _in_order(low: Lowering, call: Call, x: Act, letters: str, wanted: str) -> Act:
    """A view whose axes are in the order of some letters."""
    act = turnable(low, call, x)
    return viewed(low, act, np.transpose(numbers(low, act), [letters.index(c) for c in wanted]))
