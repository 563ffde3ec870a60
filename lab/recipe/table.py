"""Rows as tables: means over networks and seeds, by data set and arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .cases import ARMS, PROTOCOLS

Row = dict[str, Any]
WORDS = {
    "one-look": "One look at each of 40 images a class",
    "shots-10": "Ten images of each class, each seen once",
    "shots-5": "Five images of each class, each seen once",
    "six-passes": "Six passes over 40 images a class",
    "in-order": "One class after the other, 40 images of each, each seen once",
}


def mean(rows: Iterable[Row]) -> float:
    found = [row["accuracy"] for row in rows]
    return float(np.mean(found)) if found else float("nan")


def lines(rows: Sequence[Row], protocol: str) -> list[str]:
    """The table of a protocol in Markdown: a line for each arm, a column for each data set, and the mean."""
    own = [row for row in rows if row["protocol"] == protocol]
    sets = sorted({row["dataset"] for row in own})
    found = [f"| {protocol} | {' | '.join(sets)} | mean | seeds |", "| --- " * (len(sets) + 3) + "|"]
    for arm in ARMS[protocol]:
        some = [row for row in own if row["arm"] == arm]
        by_set = [mean(row for row in some if row["dataset"] == name) for name in sets]
        if some:
            numbers = " | ".join(shown(value) for value in (*by_set, float(np.mean(by_set))))
            found.append(f"| {arm} | {numbers} | {len({row['seed'] for row in some})} |")
    return found if len(found) > 2 else []


def shown(value: float) -> str:
    """Nothing where a set was not measured, nor in a mean that it belongs to."""
    return "" if np.isnan(value) else f"{value:.1f}"


def tables(rows: Sequence[Row], level: str = "##") -> str:
    """All tables, each under its heading of a level."""
    parts = []
    for protocol in PROTOCOLS:
        found = lines(rows, protocol)
        if found:
            parts.append("\n".join([f"{level} {WORDS[protocol]}", "", *found]))
    return "\n\n".join(parts) + "\n"
