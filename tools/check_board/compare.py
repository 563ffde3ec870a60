"""Where two boards with one model differ."""

from __future__ import annotations

from dataclasses import dataclass

from .probe import Found

TICK = 0.02  # by so much of it a board's tick may differ from another clock; a crystal is off by 0.0001
NOTHING = "no answer"


@dataclass(frozen=True)
class Difference:
    """An answer that is not the expected one."""

    group: str
    item: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.group}, {self.item}: {self.found}, not {self.expected}"


def differences(found: Found, expected: Found) -> list[Difference]:
    """Everything in which a board differs from the one that is right, in the order of the probe."""
    differ = [
        Difference(group, item, answer, answered)
        for group, items in expected.groups.items()
        for item, answer in items.items()
        if (answered := found.groups.get(group, {}).get(item, NOTHING)) != answer
    ]
    return differ + clock_difference(found)


def clock_difference(found: Found) -> list[Difference]:
    """The board's tick, where it goes wrong: baud rates, time-outs and the watchdog go with its clocks."""
    tick, clock = (found.measured.get(key, 0.0) for key in ("tick_s", "clock_s"))
    if not clock or abs(tick / clock - 1) <= TICK:
        return []
    return [Difference("clock", "tick", f"{clock:.3f} s by the host's clock", f"{tick:.3f} s")]
