"""Parts of a tensor that TFLite's SLICE and STRIDED_SLICE take, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from microtrain.convert.ir import ConvertError

from .file import Operator


@dataclass(frozen=True)
class Span:
    """What is taken along an axis. alone: one place, and the axis is gone afterwards"""

    axis: int
    taken: slice
    alone: bool


def spans(op: Operator, name: str, shape: Sequence[int], numbers: Sequence[Sequence[int]]) -> list[Span]:
    """Of the axes of which not all is taken, the last one first.

    numbers  of the inputs behind the first: where it begins, and sizes (SLICE) or ends and steps
    """
    if any(len(each) != len(shape) for each in numbers) or len(numbers) < 2:
        raise ConvertError(
            f"layer {name}: {op.kind} says not where each axis of {list(shape)} begins and ends"
        )
    mask = {key: int(op.options.get(f"{key}Mask", 0)) for key in MASKS}
    if mask["Ellipsis"] or mask["NewAxis"]:
        raise ConvertError(
            f"layer {name}: {op.kind} that adds axes is not supported; the nearest that is: a cut"
        )
    found = []
    for axis, size in enumerate(shape):
        if op.kind == "SLICE":
            first, many = (each[axis] for each in numbers)
            taken, alone = slice(first, size if many < 0 else first + many), False
        else:
            first, end, by = (each[axis] for each in numbers)
            begins, ends, alone = (bool(mask[key] >> axis & 1) for key in MASKS[:3])
            if op.options.get("Offset"):  # the end counts from where it begins
                end += 0 if begins else first + size * (first < 0)
            taken = slice(None if begins else first, None if ends else end, by or 1)
            taken = slice(first, None) if alone else taken
        if alone or len(range(size)[taken]) != size or taken.step == -1:
            found.append(Span(axis, taken, alone))
    return found[::-1]


MASKS = ("Begin", "End", "ShrinkAxis", "Ellipsis", "NewAxis")
