"""Differential privacy on the gateway: an update is cut to a length, and noise is added before it leaves.

The Gaussian mechanism (Dwork and Roth, 2014), as Flower's LocalDpMod has it; but the noise is drawn in the
board's own units, and what it costs is accounted over all rounds, by Renyi divergences (Mironov, 2017,
arXiv:1702.07476). Epsilon is that of everything a board has sent: with what it would have sent of any other
data, an observer can tell the two apart by a factor of e^epsilon at most, but for a chance of delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .errors import FleetError
from .layout import Layout
from .rounding import rounded

DELTA = 1e-5
ORDERS = [1 + x / 10 for x in range(1, 100)] + [float(x) for x in range(11, 513)]


@dataclass(frozen=True)
class Private:
    """clip: length of an update in the float model's units; noise: standard deviation, in units of clip."""

    clip: float
    noise: float

    def checked(self) -> Private:
        """FleetError where one is no length."""
        if not (0 < self.clip < 1e9 and 0 < self.noise < 1e9):
            raise FleetError("clip and noise must be larger than 0.")
        return self


def epsilon(noise: float, rounds: int) -> float:
    """Of so many rounds, at DELTA. Two updates are twice the clip apart at most, whatever the data."""
    divergence = rounds * 4 / (2 * noise * noise)  # of order 1; of order a it is a times as much
    return min(a * divergence + math.log(1 / DELTA) / (a - 1) for a in ORDERS)


def blurred(layout: Layout, change: np.ndarray, private: Private, draws: np.random.Generator) -> np.ndarray:
    """A change that was cut and blurred, in the board's integers; rounded at random.

    draws  from the system's own randomness: with a seed that others know, noise is none
    """
    real = layout.real(change)
    cut = real * min(1.0, private.clip / max(float(np.linalg.norm(real)), 1e-300))
    noisy = cut + draws.normal(0, private.clip * private.noise, layout.size)
    most = 2.0 * layout.limits
    bits = draws.integers(0, 1 << 32, layout.size, np.uint64)
    return rounded(np.clip(noisy / layout.scales, -most, most), bits)
