"""Rows of a layer whose outputs become a map: by channels in a file, by pixels on the device."""

from __future__ import annotations

import numpy as np


def by_pixels(values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """Rows [c * h * w, ...] as [h * w * c, ...]. shape: (h, w, c)"""
    h, w, c = shape
    return values.reshape(c, h * w, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)


def by_channels(values: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """The inverse of by_pixels()."""
    h, w, c = shape
    return values.reshape(h * w, c, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
