"""What the tensors of a float graph hold on the calibration images, and the range that int8 should cover.

Rules
minmax      from the least value to the greatest
percentile  leaves out CUT of the values at each end
mse         the least mean squared error of rounding and saturating together (Banner et al. 2019, section 4)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from microtrain.convert import defaults
from microtrain.convert.execute.batched import batches, run_float
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.ops.outputs import scale_and_zero

from .calibrate import check_images

BINS = 8192
NARROWEST = 2.0**-60
CUT = 1e-5
SHRINK = np.linspace(1.0, 0.2, 81)  # parts of an end of the range that the mse rule tries

Range = tuple[float, float]
Ranges = Mapping[str, Range]


@dataclass(eq=False)
class Profile:
    """Values of one tensor over all images, added batch by batch; how they fall into batches changes nothing.

    counts  histogram over BINS bins of `width`, a power of two; bin BINS / 2 begins at 0. The bins double in
            width, two becoming one, whenever a value lies outside them
    """

    low: float = np.inf
    high: float = -np.inf
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    width: float = NARROWEST

    @property
    def edges(self) -> np.ndarray:
        """Where the bins begin and the last one ends, [BINS + 1]."""
        return (np.arange(BINS + 1) - BINS // 2) * self.width

    def add(self, values: np.ndarray) -> None:
        """Count finite values."""
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        while max(-low, high) >= BINS // 2 * self.width:
            self._widen()
        bins = np.floor(values.reshape(-1) / self.width).astype(np.int64)
        self.counts += np.bincount(bins + BINS // 2, minlength=BINS)

    def _widen(self) -> None:
        merged = self.counts.reshape(-1, 2).sum(axis=1)
        self.counts = np.zeros(BINS, np.int64)
        self.counts[BINS // 4 : BINS // 4 * 3] = merged
        self.width *= 2.0


def profile_tensors(graph: Graph, images: np.ndarray) -> dict[str, Profile]:
    """A profile of every tensor of a float graph over uint8 images [N, h, w, c].

    Raises ConvertError where a tensor becomes NaN or infinite.
    """
    check_images(images, graph.tensors[graph.input.tensor].shape, graph.name)
    profiles: dict[str, Profile] = {name: Profile() for name in graph.tensors}

    def observe(name: str, values: np.ndarray) -> None:
        if not np.isfinite([values.min(), values.max()]).all():
            raise ConvertError(
                f"tensor {name} becomes NaN or infinite on the calibration samples; check the weights"
            )
        profiles[name].add(values)

    for batch in batches(graph, images, "calibrating"):
        run_float(graph, batch, observe)
    return profiles


def measure_ranges(graph: Graph, images: np.ndarray, rule: str = defaults.RULE) -> Ranges:
    """The range (low, high) of every tensor of a float graph over uint8 images [N, h, w, c], by a rule."""
    return {name: RULES[rule](profile) for name, profile in profile_tensors(graph, images).items()}


# ---- rules


def minmax(profile: Profile) -> Range:
    return profile.low, profile.high


def percentile(profile: Profile) -> Range:
    below = np.concatenate([[0], np.cumsum(profile.counts)])  # values below each edge
    room = CUT * below[-1]
    first = int(np.searchsorted(below, room, side="right")) - 1
    last = int(np.searchsorted(below, below[-1] - room, side="left"))
    return max(profile.low, float(profile.edges[first])), min(profile.high, float(profile.edges[last]))


def mse(profile: Profile) -> Range:
    """One end after the other, twice: neither end moves the other's optimum by much."""
    used = profile.counts > 0
    values, counts = profile.edges[:-1][used] + profile.width / 2, profile.counts[used]

    def error(low: float, high: float) -> float:
        """Sum of squared errors of int8 over a range."""
        scale, zero = scale_and_zero(low, high)
        stored = np.clip(np.rint(values / scale) + zero, -128, 127)
        return float((counts * np.square((stored - zero) * scale - values)).sum())

    low, high = profile.low, profile.high
    for _ in range(2):
        low = min((float(end) for end in profile.low * SHRINK), key=lambda end: error(end, high))
        high = min((float(end) for end in profile.high * SHRINK), key=lambda end: error(low, end))
    return low, high


RULES: Mapping[str, Callable[[Profile], Range]] = dict(
    zip(defaults.RULES, (minmax, percentile, mse), strict=True)
)
