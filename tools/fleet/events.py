"""What is told of a round, to a terminal and as a JSON line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from microtrain.base.reading import reading
from microtrain.base.schema import decode

from .errors import FleetError


@dataclass(frozen=True)
class Event:
    """A finished round: who took part, who did not and why, and what it cost.

    boards    samples, steps, loss and how often it was begun again, by board
    accuracy  of the shared values; None: nobody measures it
    """

    round: int
    of: int
    boards: dict[str, dict[str, float]]
    refused: tuple[str, ...]
    missing: tuple[str, ...]
    bytes_up: int
    bytes_down: int
    seconds: float
    sha256: str
    accuracy: float | None

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


Tell = Callable[[Event], None]


def of_json(line: str) -> Event:
    """The event of a line. FleetError where it is none."""
    with reading(FleetError, lambda why: f"a line of the log is no round of a fleet ({why})."):
        return decode(Event, json.loads(line))
