"""Columns of a layer that are trained and those that stay frozen, as the kernels have them."""

from __future__ import annotations

import numpy as np

from .ir import Layer


def split_weight(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Frozen and trained part of a layer's weights, both C-contiguous, in the kernels' layout."""
    axis = 0 if layer.depthwise else 3
    trained = np.array(layer.trained, dtype=np.intp)
    frozen = np.setdiff1d(np.arange(layer.columns), trained)
    take = layer.weight.take
    return np.ascontiguousarray(take(frozen, axis=axis)), np.ascontiguousarray(take(trained, axis=axis))


def columns_read(layer: Layer, channels: int) -> tuple[int, ...]:
    """Input channels, of so many, that the trained columns are for: one of each group."""
    return tuple(first + c for first in range(0, channels, layer.columns) for c in layer.trained)


def channel_order(layer: Layer) -> tuple[int, ...] | None:
    """Frozen channels, then trained ones; None where the split is trivial."""
    if len(layer.trained) in (0, layer.columns):
        return None
    trained = set(layer.trained)
    return (*(c for c in range(layer.columns) if c not in trained), *layer.trained)
