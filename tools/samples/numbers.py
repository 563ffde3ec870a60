"""Samples that are no pictures: arrays of numbers, as the model's input stores them.

A file .npy holds numbers in the model's own order: [time][channels] of a series, a map
[height][width][channels], or a vector of features. int8 and uint8 are what the model stores; other numbers
are in the units that it was trained on. A file .bin holds the same int8 and nothing else.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.npz import read_npy

from .kind import Kind, Shape, units_of

SUFFIXES = frozenset({".npy", ".bin"})
MOST_NUMBERS = 1 << 20
OUTSIDE = 0.01  # a sample of which more is clipped is told of


def load_numbers(path: Path, shape: Shape) -> np.ndarray:
    """A file as uint8 [h][w][c]: int8 plus 128, and numbers in the units of the shape.

    Errors  Error where it is missing, holds numbers of which nobody says how they become bytes, or not as
            many as it must
    """
    values = read_numbers(path, shape)
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.int8:
        return (values.astype(np.int16) + 128).astype(np.uint8)
    units = units_of(shape)
    if units is None:
        raise Error(
            f"{path} holds {values.dtype} numbers, and the model has not been told how they become bytes: "
            "convert it again with --calibration on files of this kind, or store int8."
        )
    return units.bytes(values)


def read_numbers(path: Path, shape: Shape) -> np.ndarray:
    """What a file holds, [h][w][c]: int8, uint8, or other finite numbers. Errors as load_numbers()."""
    needed = math.prod(shape)
    try:
        size = path.stat().st_size
        if size > 8 * MOST_NUMBERS:
            raise Error(f"{path} is {size:,} B: a sample has {needed:,} numbers.")
        values = (
            np.frombuffer(path.read_bytes(), np.int8) if path.suffix.lower() == ".bin" else read_npy(path)
        )
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}.") from error
    if values.dtype.kind not in "iuf":
        raise Error(f"{path} holds {values.dtype} and no numbers.")
    if values.size != needed:
        raise Error(f"{path} holds {values.size:,} numbers, and the model takes {needed:,}.")
    check_order(path, values.shape, shape)
    if not np.all(np.isfinite(values)):
        raise Error(f"{path} holds numbers that are infinite, or none: remove or replace it.")
    return values.reshape(shape)


def check_order(path: Path, found: tuple[int, ...], shape: Shape) -> None:
    """Error where an array of as many numbers has them in another order than a sample: PyTorch's, say.

    Axes may be joined, or taken apart: that changes no order.
    """
    own, wanted = (tuple(size for size in each if size > 1) for each in (found, shape))
    ends, needed = (set(np.cumprod(each)) for each in (own, wanted))
    if ends <= needed or needed <= ends:
        return
    way = "store it in that order"
    if own == (wanted[-1], *wanted[:-1]):
        axes = ", ".join(str(axis) for axis in (*range(1, len(own)), 0))
        way = f"store it with its channels last, array.squeeze().transpose({axes})"
    is_of, takes = ("".join(f"[{size}]" for size in each) for each in (own, wanted))
    raise Error(f"{path} is {is_of}, and the model takes {takes}: {way}.")


def vary(path: Path, shape: Shape, ways: tuple[str, ...], variant: int) -> np.ndarray:
    """The sample as it is: how numbers vary that are no pixels is known to nobody here. Errors as load."""
    return load_numbers(path, shape)


def changes(path: Path, shape: Shape) -> tuple[str, ...]:
    """Whether some of it lies outside of what bytes can say."""
    values, units = read_numbers(path, shape), units_of(shape)
    if units is None or values.dtype.itemsize == 1 or units.outside(values) <= OUTSIDE:
        return ()
    return (f"clipped to {min(units.low):.4g} .. {max(units.high):.4g}",)


KIND = Kind("sample", SUFFIXES, load_numbers, vary, changes, varied=lambda ways: "")
