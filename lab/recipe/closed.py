"""Heads in closed form, in float64, beside the device's own. Features [samples][features]."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def accuracy(head: tuple[Array, Array], x: Array, labels: Array) -> float:
    return float(np.mean((x @ head[0].T + head[1]).argmax(1) == labels))


def means(x: Array, labels: Array, classes: int) -> Array:
    return np.stack([x[labels == k].mean(0) for k in range(classes)])


def ncm(x: Array, labels: Array, classes: int) -> tuple[Array, Array]:
    """The nearest class mean."""
    m = means(x, labels, classes)
    return m, -0.5 * (m * m).sum(1)


def lda(x: Array, labels: Array, classes: int) -> tuple[Array, Array]:
    """Discriminant analysis, shrunk by D / (D + N) towards the mean variance."""
    m, (n, d) = means(x, labels, classes), x.shape
    within = (x - m[labels]).T @ (x - m[labels]) / max(n - classes, 1)
    variance = np.trace(within) / d or 1.0
    w = m @ np.linalg.inv((n * within + d * variance * np.eye(d)) / (n + d))
    return w, -0.5 * (w * m).sum(1)


def ridge(x: Array, labels: Array, classes: int) -> tuple[Array, Array]:
    """Ridge regression to one-hot targets, its penalty by leave-one-out error."""
    centre, y = x.mean(0), np.eye(classes)[labels]
    rest = y.mean(0)
    u, s, vt = np.linalg.svd(x - centre, full_matrices=False)
    best, least = np.zeros((x.shape[1], classes)), np.inf
    for penalty in s[0] ** 2 * np.logspace(-5, 1, 19):
        kept = s**2 / (s**2 + penalty)
        fitted = (u * kept) @ (u.T @ (y - rest))
        hat = (u * u) @ kept + 1 / len(x)
        error = float((((y - rest - fitted) / (1 - hat)[:, None]) ** 2).mean())
        if error < least:
            best, least = (vt.T * (s / (s**2 + penalty))) @ (u.T @ (y - rest)), error
    return best.T, rest - centre @ best


HEADS = {"ncm": ncm, "lda": lda, "ridge": ridge}
