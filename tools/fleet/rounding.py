"""Averages in whole units: rounded up or down at random, so that nothing small is lost on average.

The random numbers are SHAKE-128 of a seed, a round and a name: anyone who has the log can make them again.
"""

from __future__ import annotations

import hashlib

import numpy as np

NOISE_BITS = 32


def noise(seed: int, number: int, name: str, count: int) -> np.ndarray:
    """32 random bits for each of `count` values, uint64 [count]."""
    text = f"microtrain fleet {seed} {number} {name}".encode()
    return np.frombuffer(hashlib.shake_128(text).digest(4 * count), "<u4").astype(np.uint64)


def derived(seed: int, number: int, name: str) -> int:
    """A seed of its own for a round and a name, uint32."""
    return int(noise(seed, number, name, 1)[0])


def divided(total: np.ndarray, count: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """total / count, each rounded up or down at random; exact in integers, int64.

    total  int64
    count  0..2^31 - 1; where it is 0 the result is 0
    bits   noise()
    """
    safe = np.maximum(count, 1)
    whole, rest = np.divmod(total, safe)
    up = (rest.astype(np.uint64) << np.uint64(NOISE_BITS)) > bits * safe.astype(np.uint64)
    return np.asarray(np.where(count > 0, whole + up, 0))


def rounded(values: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Real values, each rounded up or down at random, int64."""
    whole = np.floor(values)
    up = (values - whole) * 2.0**NOISE_BITS > bits
    return np.asarray(whole.astype(np.int64) + up)
