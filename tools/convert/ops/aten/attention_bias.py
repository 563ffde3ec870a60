"""Scores of attention with a bias, and heads whose values are of another size: as wider queries and keys.

A bias B of queries and keys is a product of two tables, B = U V'. So queries get the numbers of U beside
their own and keys those of V, one row for each token, and the products of both are scores with their bias.
What is wider than its numbers is filled with zeros, which add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.lowering import Lowering

from .. import position
from .beside import masked
from .channels import TAKE, take

NEGLIGIBLE = 1e-6  # of the largest singular value
LARGEST = 64.0  # of a bias; softmaxes of larger ones are masks


@dataclass(frozen=True)
class Wide:
    """Queries, keys and values of one map whose heads have one size.

    x  the map, of 3 * heads * size channels
    """

    x: Act
    size: int


def constant_bias(call: Call, value: Any, dims: Sequence[int]) -> np.ndarray | None:
    """A constant that is added to scores of these dimensions, float64; None where it is none.

    A mask of booleans that shows every key to every query, as transformers computes it, adds 0.
    """
    value = value.value if isinstance(value, Param) else value
    if isinstance(value, np.ndarray) and value.dtype == bool and value.all():
        value = np.zeros(value.shape)
    if not isinstance(value, np.ndarray | int | float) or np.asarray(value).dtype.kind not in "fiu":
        return None
    try:
        found = np.broadcast_to(np.asarray(value, np.float64), tuple(dims))
    except ValueError:
        return None
    if not np.isfinite(found).all() or np.ptp(found, axis=-1).max(initial=0.0) > LARGEST:
        most = np.ptp(found, axis=-1).max()
        raise call.error(
            f"a mask or a bias on the scores of attention that differs by {most:g} among keys is not "
            f"supported; the nearest that is: one that differs by {LARGEST:g} at most"
        )
    return found


def widened(
    low: Lowering,
    call: Call,
    x: Act,
    sizes: Sequence[int],
    tables: tuple[np.ndarray, np.ndarray] | None,
) -> Wide:
    """The map of queries, keys and values with heads of one size.

    sizes   of a head of each of the three, as x has them one behind the other
    tables  for queries and keys: of each pixel and head the numbers beside its own [pixels, heads, rank]
    """
    (h, w, c), rank = low.shape(x), 0 if tables is None else tables[0].shape[2]
    heads, size = c // sum(sizes), max(sizes[0] + rank, sizes[2])
    if tables is None and set(sizes) == {size}:
        return Wide(x, size)
    begins, places = np.cumsum([0, *sizes[:-1]]) * heads, np.arange(size)
    channels = [
        begin + head * own + places % own  # few times the same, whose errors are summed
        for begin, own in zip(begins, sizes, strict=True)
        for head in range(heads)
    ]
    kept = [places < own for own in sizes for _ in range(heads)]
    apart = replace(call, builtin=False)
    wide = take(low, replace(apart, op=TAKE), x, [int(i) for i in np.concatenate(channels)])
    name, of_layer = f"{call.node_name('wide')}{len(low.nodes)}", replace(apart, op="dwconv2d")
    x = masked(low, of_layer, wide, name, np.concatenate(kept))
    if tables is None:
        return Wide(x, size)
    table = np.zeros((h * w, 3, heads, size))
    for part in range(2):
        table[:, part, :, sizes[0] : sizes[0] + rank] = tables[part]
    return Wide(position.added(low, replace(apart, op="bias"), x, "bias", table.ravel()), size)


def factored(
    bias: np.ndarray, pixels: np.ndarray, heads: np.ndarray, count: tuple[int, int], factor: float
) -> tuple[np.ndarray, np.ndarray]:
    """Tables for queries and keys [pixels, heads, rank] whose products, times a factor, are the bias.

    bias    [sequences and heads, queries, keys]; what all keys of a query have in common changes nothing
    pixels  of each token [sequences and heads, tokens]; heads: the number of each's head
    count   of all pixels, and of all heads
    """
    centred = bias - bias.mean(axis=-1, keepdims=True)
    left, values, right = np.linalg.svd(centred)
    rank = int((values > NEGLIGIBLE * max(values.max(), 1e-30)).sum(axis=-1).max())
    roots = np.sqrt(values[:, None, :rank])
    found = left[:, :, :rank] * roots, right[:, :rank].swapaxes(1, 2) * roots / factor
    most = [np.abs(each).max(initial=1e-30) for each in found]
    balance = float(np.sqrt(most[1] / most[0]))  # both have one scale
    tables = []
    for each, by in zip(found, (balance, 1.0 / balance), strict=True):
        table = np.zeros((*count, rank))
        table[pixels, heads[:, None]] = each * by
        tables.append(table)
    return tables[0], tables[1]
