"""What boards of a fleet share of their trainables, as one vector of integers.

    weight  int8 and its fraction bits    unit: 2^-bits of the int8 unit, -127 * 2^bits .. 127 * 2^bits
    bias    int16                         unit: the board's own, 2^k of the layer's sum, -32767 .. 32767
    floats  float32: head, statistics     unit: 2^-20, -2^30 .. 2^30

Sums of integers have no order, so an average is the same bits whatever came first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from .trained import STATISTICS

HEAD_KINDS = ("head_weight", "head_bias")
FLOATS = (*HEAD_KINDS, *STATISTICS)
HEAD_BITS = 20
HEAD_LIMIT = 1 << 30
BIAS_LIMIT = 32767
WEIGHT_LIMIT = 127
NARROW, WIDE = (
    (1 << 15) - 1,
    (1 << 31) - 1,
)  # most that is held back, where a limit has 16 bits, and elsewhere
SHIFT_MOST = 30  # twice a limit of 2^30, shifted, is an int64
FRACTION_BITS = {"u4": 4, "s8": 8}


class Tensor(Protocol):
    """A tensor of the trainables, as the compiler and plan.json have it."""

    @property
    def name(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def channels(self) -> tuple[int, ...] | None: ...
    @property
    def scale(self) -> Any: ...


T = TypeVar("T", bound=Tensor)


@dataclass(frozen=True)
class Part(Generic[T]):
    """One tensor of the vector.

    start     its first value
    bits      its unit is 2^-bits of the stored one; 0 for biases
    limit     values are -limit..limit
    fraction  the tensor of its fraction bits
    """

    tensor: T
    start: int
    size: int
    bits: int
    limit: int
    fraction: T | None

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def end(self) -> int:
        return self.start + self.size


def parts(tensors: Iterable[T]) -> tuple[Part[T], ...]:
    """Of all that is trained, in the order of the trainables."""
    every = tuple(tensors)
    fractions = {tensor.layer: tensor for tensor in every if tensor.kind == "fraction"}
    found: list[Part[T]] = []
    for tensor in every:
        if tensor.kind != "fraction":
            start = found[-1].end if found else 0
            fraction = fractions.get(tensor.layer) if tensor.kind == "weight" else None
            found.append(_part(tensor, start, fraction))
    return tuple(found)


def _part(tensor: T, start: int, fraction: T | None) -> Part[T]:
    size = int(np.prod(tensor.shape))
    if tensor.kind in FLOATS:
        return Part(tensor, start, size, HEAD_BITS, HEAD_LIMIT, None)
    if tensor.kind == "bias":
        return Part(tensor, start, size, 0, BIAS_LIMIT, None)
    bits = FRACTION_BITS[fraction.dtype] if fraction is not None else 0
    return Part(tensor, start, size, bits, WEIGHT_LIMIT << bits, fraction)


def held_bytes(part: Part[T]) -> int:
    """Of what a board holds back of a part (firmware/include/microtrain_fleet.h), a multiple of 4."""
    return -(-part.size // 2) * 4 if part.limit <= NARROW else 4 * part.size


def scales(part: Part[T]) -> np.ndarray:
    """What one is worth at each place in the float model, float64 [size]."""
    tensor, unit = part.tensor, 2.0**-part.bits
    if tensor.scale is None:
        return np.full(part.size, unit)
    own = np.array(tensor.scale, np.float64)
    if tensor.channels is not None and len(tensor.shape) == 3 and len(own) != tensor.shape[0]:
        own = own[list(tensor.channels)]  # depthwise: all channels are listed
    return np.repeat(own * unit, part.size // len(own))


def shifts(every: Iterable[Part[T]]) -> tuple[int, ...]:
    """By how much the values of each part are shifted left so that ones are worth about as much.

    every  of all that is trained, also where not all of it is shared
    """
    worth = [round(math.log2(scales(part).mean())) for part in every]
    return tuple(min(value - min(worth), SHIFT_MOST) for value in worth)
