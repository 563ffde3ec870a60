"""The NumPy twin of kernels/imprint.h: a head from statistics of features, bit for bit.

Linear discriminant analysis with a covariance that is shrunk towards its mean variance (Friedman 1989,
"Regularized Discriminant Analysis"), in groups of features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .numeric import Array, f32, spans

MARGIN = f32(0.7)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of samples' features. counts uint32 [classes], sums int32 [classes][features], products int32
    [features][features], of which only the groups on the diagonal count."""

    counts: Array
    sums: Array
    products: Array

    @property
    def seen(self) -> Array:
        """Which classes have samples, in order."""
        return np.flatnonzero(self.counts)


def gathered(q: Array, labels: Array, classes: int) -> Statistics:
    """Statistics of centred stored features, integers [samples][features]."""
    q = q.astype(np.int64)
    sums = np.zeros((classes, q.shape[1]), np.int64)
    np.add.at(sums, labels, q)
    counts = np.bincount(labels, minlength=classes)
    return Statistics(counts.astype(np.uint32), sums.astype(np.int32), (q.T @ q).astype(np.int32))


def solve(statistics: Statistics, group: int, x_scale: float) -> tuple[Array, Array]:
    """The head: w float32 [classes][features], b float32 [classes]."""
    classes, features = statistics.sums.shape
    w: Array = np.zeros((classes, features), f32)
    half: Array = np.zeros(classes, f32)
    seen = statistics.seen
    if not len(seen):
        return w, half
    means = statistics.sums[seen].astype(f32) / statistics.counts[seen].astype(f32)[:, None]
    centre = in_order(means) / f32(len(seen))
    away = means - centre
    for part in spans(features, group):
        ld = factored(*covariance(statistics, means, part))
        w[seen, part] = divided(ld, away[:, part])
    half[seen] = f32(0.5) * in_order((w[seen] * away).T)
    return head(w, half, seen, away, centre, x_scale)


def covariance(statistics: Statistics, means: Array, part: slice) -> tuple[Array, Any]:
    """The shrunk covariance within classes of some features, and what its pivots are at least."""
    seen, samples = statistics.seen, int(statistics.counts.sum())
    c = statistics.products[part, part].astype(f32)
    for mean, sums in zip(means, statistics.sums[seen].astype(f32), strict=True):
        c = c - mean[part, None] * sums[None, part]
    c = c / f32(max(samples - len(seen), 1))
    d = len(c)
    variance, all_ = in_order(np.diag(c)) / f32(d), f32(d + samples)
    ridge = f32(d) / all_ * (variance if variance > 0 else f32(1))
    c = c * (f32(samples) / all_)
    c[np.arange(d), np.arange(d)] += ridge
    return c, ridge


def factored(c: Array, least: Any) -> Array:
    """L D below the diagonal of C = L D L', D on it; what is above means nothing."""
    for j in range(len(c)):
        c[j, j] = max(c[j, j], least)
        share = c[j + 1 :, j] / c[j, j]
        c[j + 1 :, j + 1 :] = c[j + 1 :, j + 1 :] - share[:, None] * c[j + 1 :, j][None]
    return c


def divided(ld: Array, v: Array) -> Array:
    """C^-1 of each row of v."""
    v, diagonal = v.copy(), np.diag(ld)
    for j in range(len(ld)):
        v[:, j] = v[:, j] / diagonal[j]
        v[:, j + 1 :] = v[:, j + 1 :] - v[:, j, None] * ld[j + 1 :, j][None]
    for i in reversed(range(len(ld))):
        v[:, i] = v[:, i] - in_order((v[:, i + 1 :] * ld[i + 1 :, i]).T) / diagonal[i]
    return v


def head(
    w: Array, half: Array, seen: Array, away: Array, centre: Array, x_scale: float
) -> tuple[Array, Array]:
    """In real units, with small logits; a class without samples is below all others."""
    gain: Any = f32(1)
    ahead: Any = f32(0)
    if len(seen) > 1:
        logits = in_order((w[seen][:, None] * away[None]).transpose(2, 0, 1)) - half[seen, None]
        np.fill_diagonal(logits, -np.inf)
        ahead = in_order(half[seen] - logits.max(axis=0)) / f32(len(seen))
    if ahead > MARGIN:
        gain = MARGIN / ahead
    b: Array = np.full(len(w), -(half.max() * gain) - MARGIN, f32)
    b[seen] = -((in_order((w[seen] * centre).T) + half[seen]) * gain)
    scaled: Array = w * (gain / f32(x_scale))
    return scaled, b


def in_order(terms: Array) -> Any:
    """The sum over the first axis, one rounding an addition."""
    total: Any = np.zeros(terms.shape[1:], f32)
    for term in terms:
        total = total + term
    return total
