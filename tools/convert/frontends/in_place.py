"""What forward() changes in place where others see it.

A part of a tensor lies in that one's memory in PyTorch. Here it has its own, so what is written to it must
not be read by the whole's name, nor what is written to the whole by the part's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from microtrain.convert.lowering import Act, Call, Lowering
from microtrain.convert.ops.tokens import places

CUTS = (
    *("slice", "narrow", "select", "chunk", "split", "split_with_sizes", "tensor_split", "unbind"),
    *("unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "unfold", "expand", "expand_as"),
)
OF_SHAPES = ("size", "sym_size", "dim", "dtype", "device", "requires_grad", "is_floating_point")


def watched(low: Lowering, call: Call, rule: Callable[[Lowering, Call], Any]) -> Any:
    """What a rule makes of a call. ConvertError where that reads what has changed in PyTorch alone."""
    if call.op not in OF_SHAPES:
        for act in _acts(call.args.values()):
            _check(low, call, act)
    made = rule(low, call)
    if isinstance(call.x, Act) and call.op in CUTS:
        _note_parts(low, call.x, made)
    elif isinstance(call.x, Act) and call.op.endswith("_") and not _is_same(call.x, made):
        _note_written(low, call, call.x, made)
    return made


def _is_same(x: Act, made: Any) -> bool:
    """Whether nothing was written: dropout_() of a network that is not trained, squeeze_() and others."""
    return isinstance(made, Act) and made.tensor == x.tensor and made.factor == x.factor


def _acts(values: Any) -> Iterator[Act]:
    for value in values:
        if isinstance(value, Act):
            yield value
        elif isinstance(value, list | tuple):
            yield from _acts(value)


def _check(low: Lowering, call: Call, act: Act) -> None:
    for writer, there in low.written.get(act.tensor, ()):
        if act.factor == 1 and np.isin(_places(low, act), there).any():
            raise call.error(
                f"{call.op.rstrip('_')} reads what {writer} has changed through a part or a view; write "
                "that without changing in place, and put parts together with torch.cat"
            )


def _places(low: Lowering, act: Act) -> np.ndarray:
    """Places of a view in memory; all of them where it is more than a view."""
    plain = act.pad is None and not act.half
    return places(low, act) if plain else np.arange(low.tensors[act.tensor].elements)


def _note_parts(low: Lowering, x: Act, made: Any) -> None:
    for part in _acts([made]):
        if part.tensor != x.tensor:
            low.parts[part.tensor] = x.tensor


def _note_written(low: Lowering, call: Call, x: Act, made: Any) -> None:
    """What is written to x changes what x is a part of, and the parts of x."""
    writer = call.node_name(call.op.rstrip("_"))
    own, size = _places(low, x), low.tensors[x.tensor].elements
    if own.size < size or (isinstance(made, Act) and made.tensor == x.tensor):
        low.written.setdefault(x.tensor, []).append((writer, own))
    others = [part for part, whole in low.parts.items() if whole == x.tensor]
    whole = x.tensor
    while whole := low.parts.get(whole, ""):
        others.append(whole)
    for name in others:
        everything = np.arange(low.tensors[name].elements)
        low.written.setdefault(name, []).append((writer, everything))
