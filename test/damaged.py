"""Model files with a few bytes changed: a reader takes each, or refuses it in a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from microtrain.convert.ir import ConvertError


def refused(
    files: Sequence[bytes],
    path: Path,
    read: Callable[[Path], object],
    trials: int,
    places: int,
    kept: int = 0,
) -> int:
    """How many of so many damaged copies, written to `path`, are refused. Any other exception goes on.

    places  bytes that are changed in each; kept: first bytes that are not
    """
    rng, count = np.random.default_rng(7), 0
    for i in range(trials):
        broken = bytearray(files[i % len(files)])
        for place in rng.integers(kept, len(broken), places):
            broken[place] = int(rng.integers(0, 256))
        path.write_bytes(bytes(broken))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(path)
            except ConvertError:
                count += 1
    return count
