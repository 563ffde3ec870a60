"""What the operators of a file are and compute, where it is asked what several of them come to together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

ADD, SUB, MUL, MEAN, VIEW = "plus", "minus", "times", "mean", "view"
SQUARE, DISTANCE, VARIANCE, DEVIATION, DIV = "square", "squared distance", "variance", "deviation", "div"
ROOTS = ("rsqrt", "sqrt", DEVIATION)
KINDS = (ADD, SUB, MUL, DIV, MEAN, VIEW, *ROOTS, SQUARE, DISTANCE, VARIANCE, "neg", "reciprocal")
Key = Hashable


@dataclass(frozen=True, eq=False)
class Operation:
    """What an operator of a file is. A tensor is a key.

    kind  one of KINDS, "view" of another shape or type too; "" of all others
    run   what it makes of its inputs, constants too; KeyError or ValueError: nothing
    ends  it carries an activation, behind which nothing goes on
    """

    kind: str
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    run: Callable[[Sequence[np.ndarray]], np.ndarray]
    ends: bool = False


@dataclass(frozen=True, eq=False)
class Network:
    """A file's operators, first to last.

    constant  the real numbers of a tensor that is one, else None
    results   what the file returns
    first     maps have their channels in front, where nothing tells
    work      how many numbers have been made of random maps
    """

    operations: Sequence[Operation]
    constant: Callable[[Key], np.ndarray | None]
    results: frozenset[Key]
    first: bool = False
    work: list[int] = field(default_factory=lambda: [0])

    @cached_property
    def makers(self) -> dict[Key, int]:
        return {key: place for place, op in enumerate(self.operations) for key in op.outputs}

    @cached_property
    def readers(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for place, op in enumerate(self.operations):
            for key in dict.fromkeys(op.inputs):
                found.setdefault(key, []).append(place)
        return found

    @cached_property
    def constants(self) -> dict[Key, np.ndarray]:
        keys = {key for op in self.operations if op.kind for key in op.inputs if key not in self.makers}
        return {key: value for key in keys if (value := self.constant(key)) is not None}
