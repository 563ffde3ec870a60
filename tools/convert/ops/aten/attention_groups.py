"""Attention within groups of tokens, as windows of an image are: pixels are put where groups lie apart.

The kernel knows groups of tokens that lie equally far apart. Rows and columns in another order make such
groups of any that are rows and columns of the map; others are groups of pixels of one column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.lowering import Lowering

from .across import relabelled
from .resample import chosen, sampled


@dataclass(frozen=True)
class Order:
    """Which row and column of a map stands at each place.

    shape  the map is seen in: that of itself, or all pixels in one column
    """

    shape: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray

    @property
    def back(self) -> Order:
        return Order(self.shape, np.argsort(self.rows), np.argsort(self.columns))

    def moved(self, pixels: np.ndarray) -> np.ndarray:
        """Where pixels lie by now."""
        w = self.shape[1]
        found: np.ndarray = np.argsort(self.rows)[pixels // w] * w + np.argsort(self.columns)[pixels % w]
        return found


def order_of(pixels: np.ndarray, h: int, w: int) -> Order | None:
    """The order in which groups of pixels [groups, tokens] lie equally far apart; None where none is."""
    groups = np.unique(np.sort(pixels, axis=1), axis=0)
    if groups.size != h * w or np.unique(groups).size != h * w:
        return None
    for shape in ((h, w), (h * w, 1)):
        rows = _interleaved([np.unique(each // shape[1]) for each in groups])
        columns = _interleaved([np.unique(each % shape[1]) for each in groups])
        if rows is not None and columns is not None:
            return Order(shape, rows, columns)
    return None


def _interleaved(sets: Sequence[np.ndarray]) -> np.ndarray | None:
    """The first of each set, then the second of each; None where these are no equal parts."""
    different = sorted({tuple(int(i) for i in each) for each in sets})
    if len({len(each) for each in different}) > 1:
        return None
    found = np.array(different).T.ravel()
    return found if np.unique(found).size == found.size else None


def ordered(low: Lowering, call: Call, x: Act, order: Order) -> Act:
    """A map with its pixels in another order, in the shape that it was seen in."""
    shape = (*order.shape, low.shape(x)[2])
    seen = relabelled(low, call, x, shape)
    axes = (chosen(each.tolist(), each.size) for each in (order.rows, order.columns))
    return sampled(low, replace(call, op="windows", builtin=False), seen, *axes)
