"""How numbers of a sample, in g or volts or whatever the model was trained on, become bytes of its input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .errors import Error, short

BYTE = 255


@dataclass(frozen=True)
class Units:
    """number = low + scale * byte: one scale and one low for all channels, or one of each a channel."""

    scale: tuple[float, ...]
    low: tuple[float, ...]

    @property
    def high(self) -> tuple[float, ...]:
        return tuple(low + BYTE * scale for low, scale in zip(self.low, self.scale, strict=True))

    @property
    def inverse(self) -> np.ndarray:
        """Of the scales, float32: what a number above the low is multiplied by."""
        return np.reciprocal(np.array(self.scale, np.float32))

    def bytes(self, numbers: np.ndarray) -> np.ndarray:
        """uint8 of numbers [..., channels], the nearest; in float32, as NAME_byte() of a library does it.

        What lies outside is clipped.
        """
        above = numbers.astype(np.float32) - np.array(self.low, np.float32)
        nearest: np.ndarray = np.clip(np.floor(above * self.inverse + np.float32(0.5)), 0, BYTE)
        return nearest.astype(np.uint8)

    def outside(self, numbers: np.ndarray) -> float:
        """The share of numbers [..., channels] that are clipped by half a step or more."""
        half = np.array(self.scale) / 2
        return float(np.mean((numbers < np.array(self.low) - half) | (numbers > np.array(self.high) + half)))

    def text(self) -> str:
        """Scales and lows in float32, as a board says them."""
        return ";".join(",".join(f"{np.float32(v):.9g}" for v in values) for values in (self.scale, self.low))


def parse(text: str) -> Units:
    """Errors  Error, one sentence, where that is not what Units.text() makes"""
    try:
        scale, low = (tuple(float(v) for v in part.split(",")) for part in text.split(";"))
        if len(scale) != len(low) or not np.all(np.isfinite([*scale, *low])) or min(scale) <= 0:
            raise ValueError
    except ValueError as error:
        raise Error(f"{short(text)} are no units: scales above 0 and as many lows belong there.") from error
    return Units(scale, low)
