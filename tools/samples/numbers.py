"""Samples that are no pictures: arrays of numbers, as the model's input stores them.

A file .npy holds int8 or uint8 in the model's own order: [time][channels] of a series, a map
[height][width][channels], or a vector of features. A file .bin holds the same int8 and nothing else.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.npz import read_npy

from .kind import Kind, Shape

SUFFIXES = frozenset({".npy", ".bin"})
MOST_BYTES = 1 << 20


def load_numbers(path: Path, shape: Shape) -> np.ndarray:
    """A file as uint8 [h][w][c], int8 plus 128.

    Errors  Error where it is missing, holds other numbers than int8 or uint8, or not as many as it must
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise Error(f"{path} is {size:,} B: a sample has {math.prod(shape):,} numbers.")
        values = (
            np.frombuffer(path.read_bytes(), np.int8) if path.suffix.lower() == ".bin" else read_npy(path)
        )
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}.") from error
    if values.dtype not in (np.int8, np.uint8):
        raise Error(
            f"{path} holds {values.dtype} numbers: store them as the model does, int8, x / scale + zero; "
            "convert says both."
        )
    if values.size != math.prod(shape):
        raise Error(f"{path} holds {values.size:,} numbers, and the model takes {math.prod(shape):,}.")
    stored = values.astype(np.int16) + (128 if values.dtype == np.int8 else 0)
    return stored.astype(np.uint8).reshape(shape)


def vary(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    """The sample as it is: how numbers vary that are no pixels is known to nobody here. Errors as load."""
    return load_numbers(path, shape)


def changes(path: Path, shape: Shape) -> tuple[str, ...]:
    """Nothing is made to fit."""
    return ()


KIND = Kind("array", SUFFIXES, load_numbers, vary, changes)
