"""What weights take, and what is kept in fewer bytes than its values have: these, and tensors of records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Weights:
    """Of all layers in front of the head: how many there are, and their bytes as int8, with int32 biases.

    head   its classes and features, if the network ends in a linear layer
    saved  bytes that --weights-bits 4 takes less at best, where nothing is trained
    """

    count: int
    bytes: int
    head: tuple[int, int] | None = None
    saved: int = 0


@dataclass(frozen=True, eq=False)
class Code:
    """How a tensor is kept in fewer bytes (kernels/product_code.h): its values as `rows` of `row`.

    part   values that share a byte
    books  int8 [256][values] of each part of a row
    """

    rows: int
    row: int
    part: int
    books: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Compression:
    """What weights in four bits save and lose.

    layers  whose weights are codes
    saved   bytes of flash
    signal  decibels between the logits and their change, on images that were not learned from
    same    share of those that are answered as before
    images  how many those are
    """

    layers: tuple[str, ...]
    saved: int
    signal: float
    same: float
    images: int
