"""Samples divided among boards, as differently as one likes."""

from __future__ import annotations

import numpy as np

from microtrain.samples.source import Dataset, Sample

from .errors import FleetError


def dirichlet(dataset: Dataset, boards: int, alpha: float, seed: int = 0, least: int = 1) -> list[Dataset]:
    """Each class divided among the boards in shares that a Dirichlet distribution draws (arXiv:1909.06335).

    alpha   0.1: a board sees few classes; 100: all see the same
    least   samples that every board must have: shares are drawn again until it is so

    Errors  FleetError where there are too few samples for that
    """
    for attempt in range(1000):
        draws = np.random.default_rng((seed, attempt))
        own: list[list[Sample]] = [[] for _ in range(boards)]
        for label in range(len(dataset.classes)):
            samples = [s for s in dataset.samples if s.label == label]
            order = draws.permutation(len(samples))
            ends = np.cumsum(draws.dirichlet(np.full(boards, alpha)))[:-1] * len(samples)
            for board, places in zip(own, np.split(order, np.rint(ends).astype(int)), strict=True):
                board += [samples[int(place)] for place in sorted(places)]
        if min(map(len, own)) >= least:
            return [Dataset(dataset.classes, tuple(samples)) for samples in own]
    raise FleetError(f"{len(dataset.samples)} samples do not go round among {boards} boards.")
