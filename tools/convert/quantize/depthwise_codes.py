"""The pairs of a depthwise layer: as pair_codes.py, but each channel has inputs of its own, and few weights.

With so few, pairs are chosen in turn, given all others, until nothing gets better.
"""

from __future__ import annotations

import numpy as np

from .pair_codes import DAMPING, PASSES, REFITS, Array, Fit, even, nearest, stored_as, table_for


def fit_depthwise(weight: Array, seen: Array, quick: bool = False) -> Fit:
    """Weights [c, taps] in at most PAIRS pairs.

    seen   [c, taps, taps] covariance of the inputs of each channel
    quick  the nearest pairs
    """
    taps = weight.shape[1]
    target, curves = even(weight.astype(np.float64)), _damped(seen, taps + taps % 2)
    table, factor = table_for(target, np.diagonal(curves, axis1=1, axis2=2))
    found = nearest(target, factor, table)
    if not quick:
        found = _chosen_again(found, factor, table, curves, target)
        for _ in range(REFITS):
            found, factor = _rescaled(found, factor, curves, target)
            found = _chosen_again(found, factor, table, curves, target)
    return stored_as(found, factor, taps)


def _damped(seen: Array, size: int) -> Array:
    """Covariances that can be inverted, of an even number of taps."""
    channels, taps = seen.shape[:2]
    mean = np.diagonal(seen, axis1=1, axis2=2).mean(axis=1)
    found = np.zeros((channels, size, size))
    found[:, :taps, :taps] = seen
    found += (DAMPING * np.where(mean > 0, mean, 1.0))[:, None, None] * np.eye(size)
    return found


def _chosen_again(found: Array, factor: Array, table: Array, curves: Array, target: Array) -> Array:
    """Each pair chosen anew, given all others of its channel."""
    found = found.copy()
    for _ in range(PASSES):
        before = found.copy()
        for k in range(0, found.shape[1], 2):
            here = slice(k, k + 2)
            metric, slope = curves[:, here, here], np.einsum("ck,ckj->cj", found - target, curves[:, :, here])
            wanted = found[:, here] - np.linalg.solve(metric, slope[:, :, None])[:, :, 0]
            away = table[None] / factor[:, None, None] - wanted[:, None]
            error = (away @ metric * away).sum(axis=2)
            found[:, here] = table[error.argmin(axis=1)] / factor[:, None]
        if np.array_equal(before, found):
            break
    return found


def _rescaled(found: Array, factor: Array, curves: Array, target: Array) -> tuple[Array, Array]:
    """The same pairs with the best scale of each channel."""
    bent = np.einsum("ck,ckl->cl", found, curves)
    length = (bent * found).sum(axis=1)
    scale = np.clip((bent * target).sum(axis=1) / np.maximum(length, 1e-30), 0.8, 1.25)
    scale = np.where(length > 0, scale, 1.0)
    return found * scale[:, None], factor / scale
