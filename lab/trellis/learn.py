"""A table of pairs for a trellis, by the generalised Lloyd algorithm: the codes of normal numbers by
Viterbi's, then each pair the mean of what it stands for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from microtrain.convert.ops.coded import CODES, EACH, STATES
from microtrain.convert.quantize.pair_codes import SPREAD

ROUNDS, ROWS, LENGTH = 60, 1000, 64  # rows of so many pairs are drawn anew in each round
PRIOR = 2.0  # occurrences that an entry has where it was, so that rare ones move little
LARGEST = 127
SEED = 0


def learned() -> Iterator[np.ndarray]:
    """Tables [CODES, STATES, 2] in units of a deviation, one after each round. The first pair is zero."""
    rng = np.random.default_rng(SEED)
    table = rng.normal(size=(CODES, STATES, 2))
    for _ in range(ROUNDS):
        points = rng.normal(size=(ROWS, LENGTH, 2))
        at = nearest(points, table).reshape(-1)
        count = np.bincount(at, minlength=CODES * STATES)
        sums = [np.bincount(at, points[..., i].reshape(-1), CODES * STATES) for i in (0, 1)]
        flat = (np.stack(sums, axis=1) + PRIOR * table.reshape(-1, 2)) / (count + PRIOR)[:, None]
        flat[0] = 0
        table = flat.reshape(CODES, STATES, 2)
        yield table


def nearest(points: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Entries of the table, by CODES x STATES, on the path that is nearest to points [n, length, 2]."""
    rows = np.arange(len(points))
    by_state = table.transpose(1, 0, 2)
    cost = np.full((len(points), STATES), np.inf)
    cost[:, 0] = 0
    chosen = []
    for t in range(points.shape[1]):
        off = by_state[None] - points[:, t, None, None]
        error = np.square(off).sum(axis=3) + cost[:, :, None]  # [n, state, code]
        ways = (
            error.reshape(-1, STATES, STATES, EACH).transpose(0, 2, 1, 3).reshape(-1, STATES, STATES * EACH)
        )
        chosen.append(ways.argmin(axis=2))
        cost = np.take_along_axis(ways, chosen[-1][:, :, None], axis=2)[:, :, 0]
    state, found = cost.argmin(axis=1), np.empty(points.shape[:2], np.intp)
    for t in reversed(range(points.shape[1])):
        before, place = np.divmod(chosen[t][rows, state], EACH)
        found[:, t] = (state * EACH + place) * STATES + before
        state = before
    return found


def stored(table: np.ndarray) -> np.ndarray:
    """The table as int8, no pair twice: where two would be alike, one moves to the next free place."""
    found = np.clip(np.rint(table.reshape(-1, 2) * SPREAD), -LARGEST, LARGEST).astype(int)
    each = np.arange(-LARGEST, LARGEST + 1)
    places = np.stack(np.meshgrid(each, each, indexing="ij"), axis=2).reshape(-1, 2)
    taken: set[tuple[int, int]] = set()
    for i, pair in enumerate(found):
        if tuple(pair) in taken:
            far = np.square(places - table.reshape(-1, 2)[i] * SPREAD).sum(axis=1)
            pair = next(p for p in places[np.argsort(far, kind="stable")] if tuple(p) not in taken)
            found[i] = pair
        taken.add(tuple(pair))
    return found.reshape(table.shape).astype(np.int8)


def signal(table: np.ndarray) -> float:
    """Decibels between normal numbers and what the table changes of them."""
    points = np.random.default_rng(SEED + 1).normal(size=(200, 128, 2))
    there = table.reshape(-1, 2)[nearest(points, table)]
    return float(-10 * np.log10(np.square(points - there).mean()))
