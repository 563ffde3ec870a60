"""A kind of sample: which files are of it, and how one becomes what a model takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.sound import LogMel

Shape = tuple[int, int, int]  # height, width, channels


class Heard(tuple[int, int, int]):
    """The shape of a sample whose rows a front end makes of sound."""

    sound: LogMel


def heard(shape: Shape, sound: LogMel | None) -> Shape:
    """The shape, with the front end where there is one."""
    if sound is None:
        return shape
    made = Heard(shape)
    made.sound = sound
    return made


@dataclass(frozen=True)
class Kind:
    """Files of one kind. A new kind is a module with one of these, and its place in source.KINDS.

    noun      of one, in sentences
    suffixes  of its files, in lower case
    load      a file as the model's input, uint8 [h][w][c]; Error where it cannot be read
    vary      the same, seen once more in some ways (names of the kind's own); variant 0 is load()
    changes   what load() does to a file to make it fit the shape, a phrase each
    """

    noun: str
    suffixes: frozenset[str]
    load: Callable[[Path, Shape], np.ndarray]
    vary: Callable[[Path, Shape, tuple[str, ...], int], np.ndarray]
    changes: Callable[[Path, Shape], tuple[str, ...]]
