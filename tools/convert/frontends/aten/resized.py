"""Maps of constants made larger or smaller, as PyTorch does it: positions for another size of image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from microtrain.convert.ops.aten.upsample import exact, floored

SHARPNESS, SHARPNESS_ANTIALIASED = -0.75, -0.5  # of cubic interpolation, as PyTorch has it
Filter = Callable[[np.ndarray], np.ndarray]


def resized(
    values: np.ndarray,
    size: Sequence[int],
    mode: str,
    aligned: bool = False,
    antialiased: bool = False,
    factors: Sequence[float | None] = (),
) -> np.ndarray:
    """values [n, c, ...] with other sizes behind. mode: nearest, nearest_exact, linear or cubic"""
    made = np.asarray(values, np.float64)
    for place, outputs in enumerate(size):
        axis, inputs = place + 2, values.shape[place + 2]
        factor = factors[place] if place < len(factors) else None
        if mode.startswith("nearest"):
            rule = exact if mode.endswith("exact") else floored
            made = np.take(made, rule(inputs, outputs, factor), axis)
        else:
            table = _matrix(inputs, outputs, mode == "cubic", aligned, antialiased, factor)
            made = np.moveaxis(np.tensordot(table, made, (1, axis)), 0, axis)
    return made.astype(values.dtype)


def count(shape: Sequence[int], size: Sequence[int], product: float) -> float:
    """Numbers that resized() makes, or its products where these count for more. product: what one counts"""
    whole = float(math.prod(shape))
    sides = math.prod(map(float, size))
    return max(whole / max(math.prod(shape[2:]), 1) * sides, whole * max(size, default=0) * product)


def _cubic(sharpness: float) -> Filter:
    """Keys' filter of four places (1981), by the distance from each."""

    def weigh(distance: np.ndarray) -> np.ndarray:
        d, a = np.abs(distance), sharpness
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = a * (((d - 5) * d + 8) * d - 4)
        return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))

    return weigh


def _line(distance: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - np.abs(distance), 0.0))


def _matrix(
    inputs: int, outputs: int, cubic: bool, aligned: bool, antialiased: bool, factor: float | None
) -> np.ndarray:
    """The weights of the input's places for each output's, float64 [outputs, inputs]."""
    places = np.arange(outputs)
    if aligned:
        step = (inputs - 1) / max(outputs - 1, 1)
        marks = places * step
    else:
        step = inputs / outputs if factor is None else 1.0 / factor
        marks = (places + 0.5) * step - 0.5
    reach = 2 if cubic else 1
    if antialiased:
        filter_ = _cubic(SHARPNESS_ANTIALIASED) if cubic else _line
        wide = max(step, 1.0)
        weights = filter_((np.arange(inputs) - marks[:, None]) / wide)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    filter_ = _cubic(SHARPNESS) if cubic else _line
    marks = marks if cubic else np.clip(marks, 0, inputs - 1)
    found = np.zeros((outputs, inputs))
    for offset in range(1 - reach, reach + 1):
        at = np.floor(marks) + offset
        np.add.at(found, (places, np.clip(at, 0, inputs - 1).astype(int)), filter_(marks - at))
    return found
