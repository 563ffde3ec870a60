"""The NumPy twin of kernels/product_code.h, and the books that it looks up.

Product quantization: Jegou, Douze and Schmid 2011, "Product quantization for nearest neighbor search".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .numeric import Array, spans

VECTORS = 256
ROUNDS = 12  # of Lloyd's algorithm
LEARNED_FROM = 16384  # vectors at most
SEED = 0


def encoded(x: Array, books: Sequence[Array], part: int) -> Array:
    """uint8 [rows][parts] of int8 [rows][row]: the nearest vectors, the first of equals."""
    columns = [nearest(x[:, s], book) for s, book in zip(spans(x.shape[1], part), books, strict=True)]
    return np.stack(columns, axis=1).astype(np.uint8)


def decoded(code: Array, books: Sequence[Array]) -> Array:
    """int8 [rows][row] of uint8 [rows][parts]."""
    return np.concatenate([book[code[:, i]] for i, book in enumerate(books)], axis=1)


def nearest(x: Array, book: Array) -> Array:
    """Place in the book int8 [VECTORS][width] of the vector that is nearest to each of int8 [n][width].

    The integers below stay under 2^24, so that float32 is exact and every machine finds the same.
    """
    values, vectors = x.astype(np.float32), book.astype(np.float32)
    found: Array = ((vectors * vectors).sum(1)[None] - 2 * values @ vectors.T).argmin(1)
    return found


def learned(x: Array, part: int) -> list[Array]:
    """The books of rows like these, int8 [rows][row]: int8 [VECTORS][width] of each part, by k-means."""
    rng = np.random.default_rng(SEED)
    rows = x[rng.permutation(len(x))[:LEARNED_FROM]]
    return [clustered(np.ascontiguousarray(rows[:, s]), rng) for s in spans(x.shape[1], part)]


def clustered(x: Array, rng: np.random.Generator) -> Array:
    """int8 [VECTORS][width] that are near to int8 [n][width], by Lloyd's algorithm with rounded means."""
    book = x[np.resize(rng.permutation(len(x)), VECTORS)]
    for _ in range(ROUNDS):
        place = nearest(x, book)
        counts = np.bincount(place, minlength=VECTORS)
        sums = np.stack([np.bincount(place, column, VECTORS) for column in x.T], axis=1)
        means = np.rint(sums / np.maximum(counts, 1)[:, None]).astype(np.int8)
        spare = x[rng.integers(len(x), size=VECTORS)]  # for those that are near to nothing
        book = np.where(counts[:, None] > 0, means, spare)
    return book
