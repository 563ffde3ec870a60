"""A device that learns by itself, watched: its counters as they change, a line each time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from .client import Device

HISTORY = 24  # losses that a line shows
LEVELS = "▁▂▃▄▅▆▇█"
NEWS = ("steps", "records_held", "idle", "seen", "evaluated", "rollbacks", "saves")


def watch(device: Device, every: float, wait: Callable[[float], None] = time.sleep) -> Iterator[str]:
    """Lines on what a device does, without an end.

    every  seconds between two looks, in which the device is left alone: it rehearses while the line is silent
    """
    losses: deque[float] = deque(maxlen=HISTORY)
    before: Mapping[str, str] = {}
    while True:
        now = device.stats()
        if changed(before, now):
            losses.append(float(now["loss"]))
            yield in_words(now, losses)
        before = now
        wait(every)


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return any(before.get(key) != now.get(key) for key in NEWS)


def in_words(now: Mapping[str, str], losses: deque[float]) -> str:
    """A line: step, mean loss and how it went, what is right, what is remembered and left to do."""
    parts = [f"step {now['steps']}", f"loss {now['loss']} {sparkline(losses)}"]
    if int(now.get("evaluated", "0")):
        share = int(now["correct"]) / int(now["evaluated"])
        parts.append(f"right {share:.1%} of {now['evaluated']}")
    for key, words in (("seen", "looked at"), ("records_held", "records"), ("idle", "idle steps left")):
        if int(now.get(key, "0")):
            parts.append(f"{now[key]} {words}" if key != "seen" else f"{words} {now[key]}")
    if int(now.get("rollbacks", "0")):
        parts.append(f"{now['rollbacks']} roll-backs")
    return "  ".join(parts)


def sparkline(values: deque[float]) -> str:
    """The values as bars, from 0 to the largest."""
    most = max(values, default=0.0) or 1.0
    return "".join(LEVELS[min(len(LEVELS) - 1, int(value / most * len(LEVELS)))] for value in values)
