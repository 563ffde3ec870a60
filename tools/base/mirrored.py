"""Weights of transposed convolutions, and of the convolutions that stand in their place."""

from __future__ import annotations

import numpy as np


def mirrored(weight: np.ndarray, groups: int) -> np.ndarray:
    """[c_in, c_out / groups, ...] as [c_out, c_in / groups, ...] with the last tap first, and back."""
    apart = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    made = apart.reshape(-1, *apart.shape[2:])
    return np.flip(made, tuple(range(2, made.ndim)))
