"""What a normalisation of a map comes to, held against what operators make of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MAPS = ((1.0, 0.3), (0.03, 0.0), (4.0, -2.0))  # deviation and mean of random maps; the first says the weights
NEAR = 1e-4  # how near to a normalisation what is made of such a map has to come, of its largest number
LEAST = 1e-12  # of what is added, as nothing is divided by 0


@dataclass(frozen=True, eq=False)
class Fit:
    """A normalisation of the first of random maps.

    normal        what it is without weights, [pixels, channels]; weight, bias: what it comes to
    gain          as of a Written; slack: by which it may be off, as what is added stands elsewhere
    """

    axis: int
    groups: int
    epsilon: float
    gain: float
    normal: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    slack: float


@dataclass(frozen=True, eq=False)
class Fitted:
    """The operators of a normalisation. x: a map; parts: all of them; ends: those behind the statistics"""

    given: Hashable
    x: np.ndarray
    parts: Sequence[int]
    ends: Sequence[int]
    fit: Fit


def fits(
    maps: Sequence[np.ndarray],
    made: Sequence[np.ndarray],
    ways: Iterable[tuple[int, int]],
    centred: bool,
    added: tuple[float, float],
) -> Iterator[Fit]:
    """The normalisations that what operators make of maps may be.

    added  to the variance, and to the deviation. Of the second a normalisation has the square: both are far
           below what int8 tells apart, where the weights come to those of the file (NEAR)
    """
    slack = [added[1] / spread for spread, _ in MAPS]
    for axis, groups in ways:
        found = []
        count = maps[0].size // (groups or maps[0].size // maps[0].shape[axis])
        for gain in (1.0, (1 - 1 / count) ** 0.5):
            epsilon = max(added[0] * gain**2 + added[1] ** 2, LEAST)
            normals = [gain * by_channel(normal(x, axis, groups, centred, epsilon), axis) for x in maps]
            lines = [by_channel(y.reshape(x.shape), axis) for x, y in zip(maps, made, strict=True)]
            weight, bias = line_of(normals[0], lines[0])
            off = [
                np.abs(y - (weight * x + bias)).max() / max(1.0, np.abs(y).max()) - more
                for x, y, more in zip(normals, lines, slack, strict=True)
            ]
            found.append((max(off), Fit(axis, groups, epsilon, gain, normals[0], weight, bias, slack[0])))
        yield from (fit for off, fit in sorted(found, key=lambda each: each[0]) if off <= NEAR)


def ways(
    shape: tuple[int, ...], axes: Iterable[int], statistics: int, centred: bool, pixels: bool
) -> Iterator[tuple[int, int]]:
    """Axes on which a map may have its channels, and their groups, for so many statistics; 0: each pixel
    alone."""
    for axis in axes:
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
