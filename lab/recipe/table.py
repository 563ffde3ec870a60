"""Rows as tables: means over networks and seeds, by data set and arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .cases import ARMS, GATES, PROTOCOLS

Row = dict[str, Any]
WORDS = {
    "one-look": "One look at each of 40 images a class",
    "shots-10": "Ten images of each class, each seen once",
    "shots-5": "Five images of each class, each seen once",
    "six-passes": "Six passes over 40 images a class",
    "in-order": "One class after the other, 40 images of each, each seen once",
}


def whole(rows: Sequence[Row]) -> tuple[float, int]:
    """The mean over networks and seeds of an arm on a data set, and the number of seeds: of those that every
    network has which is there at all."""
    networks = {row["network"] for row in rows}
    by_seed: dict[int, dict[str, float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[row["network"]] = row["accuracy"]
    found = [value for each in by_seed.values() if set(each) == networks for value in each.values()]
    return (float(np.mean(found)), len(found) // len(networks)) if found else (float("nan"), 0)


def by_set(rows: Sequence[Row], arm: str, sets: Sequence[str]) -> tuple[list[float], str]:
    """The means of an arm on data sets, nan where there is none, and how many seeds they have."""
    own = [[row for row in rows if (row["arm"], row["dataset"]) == (arm, name)] for name in sets]
    cells = [whole(some) for some in own]
    seeds = sorted({count for _, count in cells if count})
    return [value for value, _ in cells], " to ".join(map(str, dict.fromkeys((*seeds[:1], *seeds[-1:]))))


def lines(rows: Sequence[Row], protocol: str) -> list[str]:
    """The table of a protocol in Markdown: a line for each arm, a column for each data set, and the mean."""
    own = [row for row in rows if row["protocol"] == protocol]
    sets = sorted({row["dataset"] for row in own})
    found = [f"| {protocol} | {' | '.join(sets)} | mean | seeds |", "| --- " * (len(sets) + 3) + "|"]
    for arm in (arm for arm in ARMS[protocol] if arm not in GATES):
        values, seeds = by_set(own, arm, sets)
        if seeds:
            numbers = " | ".join(shown(value) for value in (*values, float(np.mean(values))))
            found.append(f"| {arm} | {numbers} | {seeds} |")
    return found if len(found) > 2 else []


def together(rows: Sequence[Row], groups: Mapping[str, Sequence[str]]) -> list[str]:
    """A table in Markdown of means over groups of data sets: a line for each protocol and arm that was
    measured on every set of every group.

    groups   their data sets, by what stands above their column
    """
    sets = sorted({name for names in groups.values() for name in names})
    found = [f"|  |  | {' | '.join(groups)} | seeds |", "| --- " * (len(groups) + 3) + "|"]
    for protocol, arm in ((protocol, arm) for protocol, arms in ARMS.items() for arm in arms):
        own = [row for row in rows if row["protocol"] == protocol]
        values, seeds = by_set(own, arm, sets)
        known = dict(zip(sets, values, strict=True))
        if not np.isnan(values).any():
            numbers = (float(np.mean([known[name] for name in names])) for names in groups.values())
            found.append(f"| {protocol} | {arm} | {' | '.join(map(shown, numbers))} | {seeds} |")
    return found if len(found) > 2 else []


def gates(rows: Sequence[Row]) -> list[str]:
    """What a gate leaves out, in Markdown: a line for each protocol and gate, accuracy and percent of the
    steps by data set. The default stands above, of the same sessions."""
    sets = sorted({row["dataset"] for row in rows if row["arm"] in GATES})
    found = [f"|  |  | {' | '.join(sets)} | mean |", "| --- " * (len(sets) + 3) + "|"]
    for protocol in PROTOCOLS:
        own = [row for row in rows if row["protocol"] == protocol]
        ended = {told(row) for row in own if row["arm"] in GATES}
        same = [row for row in own if told(row) in ended]
        for arm in ("default", *GATES) if ended else ():
            means, _ = by_set(same, arm, sets)
            values = [shown(value) for value in (*means, float(np.mean(means)))]
            if arm in GATES:
                left = [left_out(same, arm, name) for name in sets]
                percents = (*left, float(np.mean(left)))
                values = [f"{v}, {p:.0f} %" if v else "" for v, p in zip(values, percents, strict=True)]
            found.append(f"| {protocol} | {arm} | {' | '.join(values)} |")
    return found if len(found) > 2 else []


def left_out(rows: Sequence[Row], arm: str, name: str) -> float:
    """Mean percent of the steps that a gate left out on a data set; nan where it was not measured."""
    some = [row["skipped"] for row in rows if (row["arm"], row["dataset"]) == (arm, name)]
    return float(np.mean(some)) if some else float("nan")


def told(row: Row) -> tuple[str, str, int]:
    """Of which session a row is, whatever its arm."""
    return row["dataset"], row["network"], row["seed"]


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
