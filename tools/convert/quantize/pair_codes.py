"""Weights as paths through the trellis of ops/coded.py, chosen so that a layer's sums change least.

What counts is not how far weights move but what that does to the sums: with C the covariance of the inputs
the error is tr(D C D'), D the change of the weights. Pairs of columns are rounded one after the other, and
each passes its error on to those that are still to come (GPTQ, arXiv 2210.17323, with vectors of two as in
arXiv 2402.15319). What a pair may become depends on the one before it, so that the best paths up to each
column are kept, of which the best at the end is taken. A channel's scale is free, since its multiplier is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microtrain.convert.ops.coded import EACH, PAIRS, STATES, after

Array = np.ndarray
DAMPING = 0.03  # of the mean variance of an input, added to each
TRUST = 0.1  # the same, of how far the weights may follow inputs that other layers' codes have changed
SPREAD = 127 / 3  # the table's deviation
# What a channel's deviation is taken times to that of the table: the best of some, then of some about it.
COARSE, FINE = (0.65, 0.78, 0.92, 1.1), (0.94, 1.06)
FEW_PATHS, MANY_PATHS = 8, 64
AT_ONCE, COLUMNS = 1024, 32  # paths, which a cache holds; columns whose errors go to those behind together

TABLE = PAIRS.transpose(1, 0, 2).astype(np.float64)  # [STATES, CODES, 2]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a layer's inputs are like: float64, about their means.

    seen     [k, k] covariance of the inputs that the layer will have; [c_out, k, k]: each channel has its own
    crossed  [k, k] of those that it had, by row, with those; None: they are the same
    """

    seen: Array
    crossed: Array | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """stored: int8 [c_out, k]; factor [c_out]: a unit of the weights is that of the old ones / factor."""

    stored: Array
    factor: Array


def fit(weight: Array, inputs: Inputs, quick: bool = False) -> Fit:
    """Weights [c_out, k] that codes stand for. quick: without rounding errors passed on."""
    seen = inputs.seen if inputs.seen.ndim == 3 else inputs.seen[None]
    target, curve = _even(_adapted(weight.astype(np.float64), inputs)), _even_squares(_damped(seen))
    if quick:
        curve = curve * np.eye(curve.shape[1])
    found = _Search(target, curve).best(quick)
    return found.fit(weight.shape[1])


# ---------------------------------------------------------------- what is wanted


def _damped(seen: Array, share: float = DAMPING) -> Array:
    """Covariances [n, k, k] that can be inverted."""
    mean = np.trace(seen, axis1=1, axis2=2) / seen.shape[1]
    return seen + (share * np.where(mean > 0, mean, 1.0))[:, None, None] * np.eye(seen.shape[1])


def _adapted(weight: Array, inputs: Inputs) -> Array:
    """The weights that make of the inputs as they will be what the old ones made of those as they were."""
    if inputs.crossed is None:
        return weight
    (damped,) = _damped(inputs.seen[None], TRUST)
    before = inputs.crossed + (damped - inputs.seen)
    found: Array = np.linalg.solve(damped.T, (weight @ before).T).T
    return found


def _even(columns: Array) -> Array:
    return np.pad(columns, ((0, 0), (0, columns.shape[1] % 2)))


def _even_squares(curve: Array) -> Array:
    """With an input that hardly counts where the number of inputs is odd."""
    if curve.shape[1] % 2 == 0:
        return curve
    found = np.pad(curve, ((0, 0), (0, 1), (0, 1)))
    found[:, -1, -1] = DAMPING * np.trace(curve, axis1=1, axis2=2) / curve.shape[1]
    return found


# ---------------------------------------------------------------- the search


class _Search:
    """The best weights of each channel so far.

    target  [c, k] what they should be, k even
    curve   [1 or c, k, k] what their errors cost
    """

    def __init__(self, target: Array, curve: Array) -> None:
        self.target, self.curve = target, curve
        # Of the inverse, the factor by whose rows an error is passed on.
        self.upper = np.linalg.cholesky(np.linalg.inv(curve)).transpose(0, 2, 1)
        spread = np.sqrt(np.square(target).mean(axis=1))
        self.factor = SPREAD / np.where(spread > 0, spread, SPREAD)
        self.found = np.zeros_like(target)
        self.cost = np.full(len(target), np.inf)

    def best(self, quick: bool) -> _Search:
        for ratios in (COARSE, FINE):
            usual = self.factor.copy()
            for ratio in ratios:
                self._attempt(usual * ratio, FEW_PATHS)
        if not quick:
            self._attempt(self._rescaled(), MANY_PATHS)
        return self

    def fit(self, columns: int) -> Fit:
        """In int8, of so many columns. Of a channel that has no weights left, the factor is 1."""
        stored = np.rint(self.found * self.factor[:, None])[:, :columns].astype(np.int8)
        return Fit(stored, np.where(stored.any(axis=1), self.factor, 1.0))

    def _attempt(self, factor: Array, paths: int) -> None:
        """Take the channels that get better by such factors."""
        found = np.empty_like(self.target)
        for start in range(0, len(found), AT_ONCE // paths):
            rows = slice(start, start + AT_ONCE // paths)
            upper = self.upper if len(self.upper) == 1 else self.upper[rows]
            found[rows] = _nearest(self.target[rows], factor[rows], upper, paths)
        off = found - self.target
        cost = (_times(off, self.curve) * off).sum(axis=1)
        better = cost < self.cost
        self.cost, self.factor = np.where(better, cost, self.cost), np.where(better, factor, self.factor)
        self.found = np.where(better[:, None], found, self.found)

    def _rescaled(self) -> Array:
        """Factors by which the weights as they are would cost least."""
        bent = _times(self.found, self.curve)
        length, along = (bent * self.found).sum(axis=1), (bent * self.target).sum(axis=1)
        scale = np.clip(along / np.maximum(length, 1e-30), 0.8, 1.25)
        return self.factor / np.where(length > 0, scale, 1.0)


def _times(rows: Array, curve: Array) -> Array:
    """Each row [c, k] times its matrix [1 or c, k, k]."""
    found: Array = rows @ curve[0] if len(curve) == 1 else np.einsum("ck,ckl->cl", rows, curve)
    return found


def _nearest(target: Array, factor: Array, upper: Array, most: int) -> Array:
    """Weights [c, k] by paths through the trellis, each pair's error passed on to the columns behind it.

    upper  [1 or c, k, k] as _Search has it
    most   paths of a channel that are kept
    """
    paths = _Paths(target, factor, upper)
    for start in range(0, target.shape[1], COLUMNS):
        paths.go_on(start, min(start + COLUMNS, target.shape[1]), most)
    return paths.cheapest()


class _Paths:
    """The best paths of each channel up to some column: arrays [c, paths, ...]."""

    def __init__(self, target: Array, factor: Array, upper: Array) -> None:
        self.upper, self.factor = upper, factor[:, None, None]
        self.rows = np.arange(len(target))[:, None]
        self.of = self.rows % len(upper)  # which matrix a channel has
        self.left = target[:, None, :]  # what the columns should become, given the errors before them
        self.made = np.zeros_like(self.left)
        self.cost = np.zeros((len(target), 1))
        self.state = np.zeros((len(target), 1), np.intp)

    def go_on(self, start: int, end: int, most: int) -> None:
        """Through some columns; their errors reach those behind the last of them at once."""
        parent = np.zeros_like(self.state) + np.arange(self.state.shape[1])
        left, errors = self.left[:, :, start:end].copy(), np.zeros_like(self.left[:, :, start:end])
        for k in range(0, end - start, 2):
            here, at = slice(k, k + 2), slice(start + k, start + k + 2)
            metric = np.linalg.inv(self.upper[:, at, at])
            source, code, self.cost = self._extended(left[:, :, here], metric, most)
            pair = TABLE[self.state[self.rows, source], code] / self.factor
            self.state = after(code)
            left, errors, parent, self.made = (
                each[self.rows, source] for each in (left, errors, parent, self.made)
            )
            self.made[:, :, at] = pair
            errors[:, :, here] = (left[:, :, here] - pair) @ metric
            left[:, :, k + 2 :] -= errors[:, :, here] @ self.upper[:, at, start + k + 2 : end]
        self.left = self.left[self.rows, parent]
        self.left[:, :, end:] -= errors @ self.upper[:, start:end, end:]

    def _extended(self, wanted: Array, metric: Array, most: int) -> tuple[Array, Array, Array]:
        """The best paths that are a pair longer: which path each goes on from, its code, and its cost.

        Of the codes that lead a path to the same state only the best is looked at.
        """
        bent, point = TABLE @ metric[:, None], ((wanted * self.factor) @ metric).astype(np.float32)
        first, second = (each[self.of, self.state] for each in np.moveaxis(bent.astype(np.float32), -1, 0))
        first -= point[:, :, :1]
        second -= point[:, :, 1:]
        error = np.square(first, out=first)
        error += np.square(second, out=second)
        by_state = error.reshape(*self.state.shape, STATES, EACH)
        code = by_state.argmin(axis=3)
        least = np.take_along_axis(by_state, code[..., None], axis=3)[..., 0]
        cost = (least / np.square(self.factor) + self.cost[:, :, None]).reshape(len(wanted), -1)
        best = np.argsort(cost, axis=1, kind="stable")[:, :most]
        source, state = np.divmod(best, STATES)
        return source, state * EACH + code[self.rows, source, state], cost[self.rows, best]

    def cheapest(self) -> Array:
        found: Array = self.made[self.rows[:, 0], self.cost.argmin(axis=1)]
        return found
