"""What a normalisation of a map comes to, held against what operators make of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MAPS = ((1.0, 0.3), (0.03, 0.0), (4.0, -2.0))  # deviation and mean of random maps; the first says the weights
NEAR = 1e-4  # how near to a normalisation what is made of such a map has to come, of its largest number


@dataclass(frozen=True, eq=False)
class Fitted:
    """A normalisation of a map. normal: what it is without weights, [pixels, channels]; parts: its operators;
    ends: those behind the statistics; weight, bias: what it comes to"""

    given: Hashable
    x: np.ndarray
    normal: np.ndarray
    axis: int
    parts: Sequence[int]
    ends: Sequence[int]
    weight: np.ndarray
    bias: np.ndarray


def ways(shape: tuple[int, ...], statistics: int, centred: bool, pixels: bool) -> Iterator[tuple[int, int]]:
    """Where a map may have its channels, and their groups, for so many statistics; 0: each pixel alone."""
    for axis in dict.fromkeys((len(shape) - 1, 1)):
        channels = shape[axis]
        if centred and channels % statistics == 0 and math.prod(shape) >= 2 * statistics:
            yield axis, statistics
        if pixels and len(shape) == 4 and statistics * channels == math.prod(shape):
            yield axis, 0


def normal(x: np.ndarray, axis: int, groups: int, centred: bool, epsilon: float) -> np.ndarray:
    """The normalisation of a map [1, ...] that has its channels on an axis, without weights."""
    turned = np.moveaxis(x, axis, 1)
    flat = turned.reshape(groups, -1) if groups else turned.reshape(turned.shape[1], -1).T
    less = flat - flat.mean(1, keepdims=True) * centred
    of = less / np.sqrt((less**2).mean(1, keepdims=True) + epsilon)
    return np.moveaxis((of if groups else of.T).reshape(turned.shape), 1, axis)


def by_channel(x: np.ndarray, axis: int) -> np.ndarray:
    """A map as [pixels, channels]."""
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def line_of(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors and offsets [channels] that bring x nearest to y, both [pixels, channels]."""
    less = x - x.mean(0)
    weight = (less * (y - y.mean(0))).sum(0) / np.maximum((less**2).sum(0), 1e-30)
    return weight, y.mean(0) - weight * x.mean(0)
