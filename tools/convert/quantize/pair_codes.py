"""Weights as indices into a table of 256 pairs, chosen so that a layer's sums change least.

What counts is not how far weights move but what that does to the sums: with C the covariance of the inputs
the error is tr(D C D'), D the change of the weights. Pairs of columns are rounded one after the other, and
each passes its error on to those that are still to come (GPTQ, arXiv 2210.17323, with vectors of two as in
arXiv 2402.15319); then each pair is chosen again, given all others, until nothing gets better. A channel's
scale is free, since its multiplier is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microtrain.convert.ops.coded import PAIRS

Array = np.ndarray
DAMPING = 0.03  # of the mean variance of an input, added to each
TRUST = 0.1  # the same, of how far the weights may follow inputs that other layers' codes have changed
SPREAD = 127 / 3  # a channel's deviation in units of the table
FACTORS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
LEARNING, TABLES, PASSES, REFITS = 12, 3, 3, 2
CHUNK = 1024  # points whose distances to all entries a cache holds
# Levels of a normal distribution, in deviations: the table to begin with is their pairs.
LEVELS = (0.16, 0.38, 0.6, 0.84, 1.1, 1.4, 1.8, 2.4)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a layer's inputs are like: float64, about their means.

    seen     [k, k] covariance of the inputs that the layer will have
    crossed  [k, k] of those that it had, by row, with those
    """

    seen: Array
    crossed: Array


@dataclass(frozen=True, eq=False)
class Fit:
    """stored: int8 [c_out, k]; factor [c_out]: a unit of the weights is that of the old ones / factor."""

    stored: Array
    factor: Array


def fit(weight: Array, inputs: Inputs, quick: bool = False) -> Fit:
    """Weights [c_out, k] in at most PAIRS pairs. quick: without rounding errors passed on."""
    columns = weight.shape[1]
    target, curve = even(_adapted(weight.astype(np.float64), inputs)), _even_square(_damped(inputs.seen))
    importance = np.diag(curve).copy()
    table, factor = table_for(target, importance)
    if quick:
        found = nearest(target, factor, table)
    else:
        found = _passed_on(target, factor, table, curve)
        pull = target @ curve
        found = _chosen_again(found, factor, table, curve, pull)
        for _ in range(REFITS):
            found, factor = _rescaled(found, factor, curve, pull)
            found = _chosen_again(found, factor, table, curve, pull)
    return stored_as(found, factor, columns)


def stored_as(found: Array, factor: Array, columns: int) -> Fit:
    """The weights in int8, of so many columns. Of a channel that has none left, the factor is 1."""
    stored = np.rint(found * factor[:, None])[:, :columns].astype(np.int8)
    return Fit(stored, np.where(stored.any(axis=1), factor, 1.0))


def _damped(seen: Array, share: float = DAMPING) -> Array:
    """A covariance that can be inverted."""
    mean = float(np.mean(np.diag(seen))) or 1.0
    return seen + share * mean * np.eye(len(seen))


def _adapted(weight: Array, inputs: Inputs) -> Array:
    """The weights that make of the inputs as they will be what the old ones made of those as they were."""
    if np.array_equal(inputs.crossed, inputs.seen):
        return weight
    before = inputs.crossed + (_damped(inputs.seen, TRUST) - inputs.seen)
    found: Array = np.linalg.solve(_damped(inputs.seen, TRUST).T, (weight @ before).T).T
    return found


def even(columns: Array) -> Array:
    return np.pad(columns, ((0, 0), (0, columns.shape[1] % 2)))


def _even_square(curve: Array) -> Array:
    """With an input that hardly counts where the number of inputs is odd."""
    if len(curve) % 2 == 0:
        return curve
    found = np.pad(curve, ((0, 1), (0, 1)))
    found[-1, -1] = DAMPING * float(np.mean(np.diag(curve)))
    return found


# ---------------------------------------------------------------- the table


def table_for(target: Array, importance: Array) -> tuple[Array, Array]:
    """A table for the layer, int8 as float64 [PAIRS, 2], and the factor of each channel.

    importance  of the weights, [k] or [c_out, k]
    """
    spread = np.sqrt(np.square(target).mean(axis=1))
    factor = SPREAD / np.where(spread > 0, spread, SPREAD)
    levels = SPREAD * np.array([-v for v in reversed(LEVELS)] + list(LEVELS))
    table = np.stack([np.repeat(levels, len(levels)), np.tile(levels, len(levels))], axis=1)
    by_pair = np.broadcast_to(importance, target.shape).reshape(len(target), -1, 2).mean(axis=2)
    for _ in range(TABLES):
        weights = (by_pair / np.square(factor)[:, None]).reshape(-1)
        points = (target * factor[:, None]).reshape(-1, 2)
        table = _learned(points, weights / weights.mean(), table)
        factor = _factors(target, importance, table)
    return table, factor


def _learned(points: Array, weights: Array, table: Array) -> Array:
    """The table by Lloyd's algorithm, rounded to int8.

    Entries without points go to those worst off; that next to zero is zero, which is all that a channel
    without weights has.
    """
    for _ in range(LEARNING):
        at = _indices(points, table)
        count = np.bincount(at, weights, PAIRS)
        means = [np.bincount(at, weights * points[:, i], PAIRS) / np.maximum(count, 1e-30) for i in (0, 1)]
        table = np.where(count[:, None] > 0, np.stack(means, axis=1), table)
        idle = np.flatnonzero(count <= 0)
        if len(idle) and len(points) > len(idle):
            errors = weights * np.square(points - table[at]).sum(axis=1)
            table[idle] = points[np.argsort(-errors, kind="stable")[: len(idle)]]
    table = np.clip(np.rint(table), -127, 127)
    table[np.square(table).sum(axis=1).argmin()] = 0
    return table


def _factors(target: Array, importance: Array, table: Array) -> Array:
    """The best of some factors for each channel."""
    spread = np.sqrt(np.square(target).mean(axis=1))
    usual = SPREAD / np.where(spread > 0, spread, SPREAD)
    best, least = usual, np.full(len(target), np.inf)
    for each in FACTORS:
        factor = usual * each
        error = (np.square(nearest(target, factor, table) - target) * importance).sum(axis=1)
        best, least = np.where(error < least, factor, best), np.minimum(error, least)
    return best


def _indices(points: Array, table: Array) -> Array:
    """The nearest entry of the table for each point [n, 2], the first of those that are as near.

    Not by a matrix product, which rounds as the processor likes: then that would choose among them.
    """
    first, second = np.ascontiguousarray(table.T)
    half, found = np.square(table).sum(axis=1) / 2, np.empty(len(points), np.intp)
    for start in range(0, len(points), CHUNK):
        some = slice(start, start + CHUNK)
        x, y = points[some, :1], points[some, 1:]
        found[some] = (half - (x * first + y * second)).argmin(axis=1)
    return found


def nearest(target: Array, factor: Array, table: Array) -> Array:
    points = (target * factor[:, None]).reshape(-1, 2)
    found: Array = table[_indices(points, table)].reshape(target.shape) / factor[:, None]
    return found


# ---------------------------------------------------------------- the choice of pairs


def _passed_on(target: Array, factor: Array, table: Array, curve: Array) -> Array:
    """Pair after pair of columns, those that count most first, each passing its error on."""
    pairs = np.argsort(-np.diag(curve).reshape(-1, 2).sum(axis=1), kind="stable")
    order = (2 * pairs[:, None] + [0, 1]).reshape(-1)
    upper = np.linalg.cholesky(np.linalg.inv(curve[np.ix_(order, order)])).T
    left, found = target[:, order], np.empty_like(target)
    for k in range(0, len(order), 2):
        here = slice(k, k + 2)
        metric = np.linalg.inv(upper[here, here])
        chosen = _indices((left[:, here] * factor[:, None]) @ metric, table @ metric)
        value = table[chosen] / factor[:, None]
        found[:, order[here]] = value
        left[:, k + 2 :] -= (left[:, here] - value) @ metric @ upper[here, k + 2 :]
    return found


def _chosen_again(found: Array, factor: Array, table: Array, curve: Array, pull: Array) -> Array:
    """Each pair chosen anew, given all others. pull: target @ curve"""
    found, slope = found.copy(), found @ curve - pull
    for _ in range(PASSES):
        before = found.copy()
        for k in range(0, len(curve), 2):
            here = slice(k, k + 2)
            metric = np.linalg.cholesky(curve[here, here])
            wanted = found[:, here] - slope[:, here] @ np.linalg.inv(curve[here, here])
            chosen = _indices((wanted * factor[:, None]) @ metric, table @ metric)
            value = table[chosen] / factor[:, None]
            slope += (value - found[:, here]) @ curve[here]
            found[:, here] = value
        if np.array_equal(before, found):
            break
    return found


def _rescaled(found: Array, factor: Array, curve: Array, pull: Array) -> tuple[Array, Array]:
    """The same pairs with the best scale of each channel."""
    length = np.einsum("ck,kl,cl->c", found, curve, found, optimize=True)
    scale = np.clip((found * pull).sum(axis=1) / np.maximum(length, 1e-30), 0.8, 1.25)
    scale = np.where(length > 0, scale, 1.0)
    return found * scale[:, None], factor / scale
