"""A kind of sample: which files are of it, and how one becomes what a model takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.sound import LogMel
from microtrain.base.units import Units

Shape = tuple[int, int, int]  # height, width, channels
NORMAL, ANOMALY = KNOWN_ORDER = ("normal", "anomaly")  # classes of --task anomaly, by their labels
UNKNOWN = "unknown"  # class 0 of an open set: what is none of the others


class Told(tuple[int, int, int]):
    """The shape of a sample, and how it is made of what is no bytes yet."""

    sound: LogMel | None
    units: Units | None


def told(shape: Shape, sound: LogMel | None, units: Units | None = None) -> Shape:
    """The shape, with the front end that makes its rows of sound, and the units of its numbers."""
    made = Told(shape)
    made.sound, made.units = sound, units
    return made


def sound_of(shape: Shape) -> LogMel | None:
    """The front end; None: rows come as they are."""
    return shape.sound if isinstance(shape, Told) else None


def units_of(shape: Shape) -> Units | None:
    """None: nothing says how numbers become bytes."""
    return shape.units if isinstance(shape, Told) else None


ANY = "sample"  # the noun of what is of several kinds, or of one that nobody knows yet


@dataclass(frozen=True)
class Kind:
    """Files of one kind. A new kind is a module with one of these, and its place in source.KINDS.

    noun      of one, in sentences
    suffixes  of its files, in lower case
    load      a file as the model's input, uint8 [h][w][c]; Error where it cannot be read
    vary      the same, seen once more in some ways (names of the kind's own); variant 0 is load()
    changes   what load() does to a file to make it fit the shape, a phrase each
    varied    what vary() changes by some ways, in words; "": nothing
    """

    noun: str
    suffixes: frozenset[str]
    load: Callable[[Path, Shape], np.ndarray]
    vary: Callable[[Path, Shape, tuple[str, ...], int], np.ndarray]
    changes: Callable[[Path, Shape], tuple[str, ...]]
    varied: Callable[[tuple[str, ...]], str]
