"""One axis of a map that is made of that of another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Axis:
    """Places along one axis of a map as weighted sums of places of another's.

    inputs  how many places are summed over
    terms   of each place of the result: places and their weights, whole numbers of 1 / whole
    """

    inputs: int
    terms: tuple[tuple[tuple[int, int], ...], ...]
    whole: int = 1

    @property
    def outputs(self) -> int:
        return len(self.terms)

    @cached_property
    def matrix(self) -> np.ndarray:
        """The weights, int64 [outputs, inputs]."""
        found = np.zeros((self.outputs, self.inputs), np.int64)
        for row, terms in zip(found, self.terms, strict=True):
            for place, weight in terms:
                row[place] += weight
        return found

    @property
    def turned(self) -> Axis:
        """Along it the other way, as gradients go."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.inputs)]
        for output, terms in enumerate(self.terms):
            for place, weight in terms:
                found[place].append((output, weight))
        return Axis(self.outputs, tuple(map(tuple, found)), self.whole)
