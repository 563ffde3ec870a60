"""What forward() changes in place where others see it.

A part of a tensor lies in that one's memory in PyTorch. Here it has its own, so what is written to it must
not be read by the whole's name, nor what is written to the whole by the part's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import ConvertError
from microtrain.convert.lowering import Lowering
from microtrain.convert.ops import tokens
from microtrain.convert.ops.tokens import numbers, places

from . import constants

CUTS = (
    *("slice", "narrow", "select", "chunk", "split", "split_with_sizes", "tensor_split", "unbind"),
    *("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unfold", "expand", "expand_as"),
)
AS_THEY_LIE = ("reshape", "flatten", "contiguous")  # views where numbers follow one another
VIEWS = (  # of the same memory
    *CUTS,
    *(op for op in tokens.VIEWS if op not in AS_THEY_LIE),
    *("t", "transpose", "permute", "detach", "alias", "identity", "to", "type_as", "float"),
    *("dropout", "dropout2d", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
)
OF_SHAPES = ("size", "sym_size", "dim", "dtype", "device", "requires_grad", "is_floating_point")


def watched(low: Lowering, call: Call, rule: Callable[[Lowering, Call], Any]) -> Any:
    """What a rule makes of a call. ConvertError where that reads what has changed in PyTorch alone."""
    if call.op not in OF_SHAPES:
        for act in _acts(call.args.values()):
            _check(low, call, act)
    made = rule(low, call)
    if not call.op.endswith("_"):
        return _apart(low, call, made)
    if _acts([call.x]) and not _is_same(call.x, made):
        return _written(low, call, made)
    return made


def _is_same(x: Any, made: Any) -> bool:
    """Whether nothing was written: dropout_() of a network that is not trained, squeeze_() and others."""
    return (
        isinstance(x, Act) and isinstance(made, Act) and made.tensor == x.tensor and made.factor == x.factor
    )


def _acts(values: Any) -> list[Act]:
    """The activations among values, in lists and in what a rule has noted too."""
    found = list[Act]()
    for value in values:
        inner = value if isinstance(value, list | tuple) else getattr(value, "acts", ())
        found += [value] if isinstance(value, Act) else _acts(inner)
    return found


def _check(low: Lowering, call: Call, act: Act) -> None:
    for writer, there in low.written.get(low.held(act.tensor), ()):
        if np.isin(_places(low, act), there).any():
            raise call.error(
                f"{call.op.rstrip('_')} reads what {writer} has changed through a part or a view; write "
                "that without changing in place, and put parts together with torch.cat"
            )


def _apart(low: Lowering, call: Call, made: Any, at: int = 0) -> Any:
    """What a rule makes, where PyTorch has memory of its own for it or for what is noted, by another name."""
    if isinstance(made, list | tuple):
        return type(made)(_apart(low, call, each, i) for i, each in enumerate(made))
    if not isinstance(made, Act):
        known = {act.tensor for v in call.args.values() if not isinstance(v, Act) for act in _acts([v])}
        return _noted(made, lambda act: act if act.tensor in known else low.kept(act))
    x = next((act for act in _acts(call.args.values()) if act.tensor == made.tensor), None)
    is_view = call.op in VIEWS or call.op in AS_THEY_LIE
    if x is None and is_view and isinstance(call.x, Act):
        low.parts[made.tensor], low.cuts[made.tensor] = call.x.tensor, (call, at, made)
    if x is None or call.op in VIEWS or (is_view and x.order is None and x.tensor not in low.parts):
        return made
    apart = low.copied(made)
    if is_view:
        low.parts[apart.tensor] = x.tensor
    return apart


def _noted(value: Any, changed: Callable[[Act], Act]) -> Any:
    """What a rule has noted of activations, of changed ones."""
    if not hasattr(value, "acts") or not is_dataclass(value) or isinstance(value, type):
        return value

    def made(own: Any) -> Any:
        several = isinstance(own, tuple)
        return tuple(made(each) for each in own) if several else changed(own) if isinstance(own, Act) else own

    return replace(value, **{each.name: made(getattr(value, each.name)) for each in fields(value)})


def _places(low: Lowering, act: Act) -> np.ndarray:
    """Places of a view in memory; all of them where it is more than a view."""
    plain = act.pad is None and not act.half
    return places(low, act) if plain else np.arange(low.tensors[act.tensor].elements)


def _written(low: Lowering, call: Call, made: Any) -> Any:
    """What an op makes that writes to its first argument: all names of that stand for it from here on.

    What that is a part of has changed too, and so have parts of it, and other names where these cannot stand
    for what was made: they must not be read.
    """
    writer, x = call.node_name(call.op.rstrip("_")), call.x
    made = _noted(made, low.copied) if not isinstance(made, Act) else made
    if not isinstance(x, Act):
        _note(low, writer, [act.tensor for act in _acts([x])])
        return made
    others, own = _beside(low, x), _places(low, x)
    if isinstance(made, Act) and made.tensor == x.tensor:
        made = low.copied(made)
    if own.size < low.tensors[x.tensor].elements:
        low.written.setdefault(low.held(x.tensor), []).append((writer, own))
    elif isinstance(made, Act) and _stands_for(low, made, x):
        low.current[low.held(x.tensor)] = made.tensor
    else:
        others.append(x.tensor)
    _note(low, writer, others)
    return made


def _beside(low: Lowering, x: Act) -> list[str]:
    """All that a tensor is a part of, and all other parts of that in which numbers of it stand."""
    if not low.parts:
        return []
    wholes = _wholes(low, x.tensor)
    there = _in_whole(low, x.tensor)
    written = None if there is None or x.pad or x.half else there[numbers(low, x).ravel()]
    found = list[str]()
    for part in low.parts:
        same = low.held(_wholes(low, part)[-1]) == low.held(wholes[-1])
        if same and low.held(part) != low.held(x.tensor):
            places = _in_whole(low, part)
            if written is None or places is None or np.isin(places, written).any():
                found.append(part)
    return wholes[1:] + found


def _wholes(low: Lowering, tensor: str) -> list[str]:
    """A tensor, what it is a part of, what that is a part of."""
    found = [tensor]
    while found[-1] in low.parts:
        found.append(low.parts[found[-1]])
    return found


def _in_whole(low: Lowering, tensor: str) -> np.ndarray | None:
    """Where the numbers of a part stand in the outermost whole, one by one; None where that is not known."""
    if tensor not in low.parts:
        return np.arange(low.tensors[tensor].elements)
    whole = _in_whole(low, low.parts[tensor])
    if tensor not in low.cuts or whole is None:
        return whole  # what may be a copy is all of it
    call, at, made = low.cuts[tensor]
    seen = Param("", whole[numbers(low, call.x)])
    try:
        given = {key: seen if value is call.x else value for key, value in call.args.items()}
        found = constants.made(low, replace(call, args=given))
    except (ConvertError, StopIteration):
        return None
    values = (found[at] if isinstance(found, list) else found).value.ravel()
    behind = np.empty(low.tensors[tensor].elements, values.dtype)
    if values.size != behind.size or numbers(low, made).size != behind.size:
        return None
    behind[numbers(low, made).ravel()] = values
    return behind


def _stands_for(low: Lowering, made: Act, x: Act) -> bool:
    """Whether numbers that were written lie in a tensor of their own as those before them did."""
    plain = all(each.pad is None and not each.half and each.factor == 1 for each in (made, x))
    alike = low.shape(made) == low.shape(x) and (made.tensor in low.last) == (x.tensor in low.last)
    if not plain or not alike or math.prod(made.dims) != math.prod(x.dims):
        return False
    if made.order is x.order is None:
        return True
    return np.array_equal(numbers(low, made).ravel(), numbers(low, x).ravel())


def _note(low: Lowering, writer: str, names: list[str]) -> None:
    """All that some tensors hold has changed."""
    for name in names:
        everything = np.arange(low.tensors[name].elements)
        low.written.setdefault(low.held(name), []).append((writer, everything))
