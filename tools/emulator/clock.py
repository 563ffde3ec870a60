"""Virtual time: cycles of a core whose frequency changes."""

from __future__ import annotations

import math


class VirtualClock:
    """Turns cycles since power-on into seconds.

    hz   frequency of the core now
    """

    def __init__(self) -> None:
        self.hz = 16_000_000
        self._since_cycle = 0
        self._since_s = 0.0

    def set_rate(self, now: int, hz: int) -> None:
        """The core runs at another frequency from cycle `now` on."""
        self._since_s = self.seconds(now)
        self._since_cycle = now
        self.hz = hz

    def seconds(self, now: int) -> float:
        return self._since_s + (now - self._since_cycle) / self.hz

    def cycle(self, seconds: float) -> int:
        """The first cycle that is not before a time, at the present frequency."""
        return self._since_cycle + math.ceil((seconds - self._since_s) * self.hz)

    def cycles(self, seconds: float) -> int:
        """How many a while takes at the present frequency."""
        return round(seconds * self.hz)
