"""The rows as tables, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .measure import BOARDS

Row = dict[str, Any]
SHOWN = 16  # digits of a hash


def merged(known: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """The rows of several machines or runs: of one compiler and target the newest."""
    rows = {(row["for"], row["compiler"]): row for row in (*known, *new)}
    return [rows[key] for key in sorted(rows, key=_order)]


def _order(key: tuple[str, str]) -> tuple[int, str, list[int]]:
    target, compiler = key
    program, _, version = compiler.rpartition(" ")
    place = [*BOARDS, target].index(target)
    return place, program, [int(part) for part in version.split(".")]


def faults(rows: Sequence[Row]) -> list[str]:
    """What is not as it must be: weights that differ from those of most, and what the checks found."""
    hashes = [row["sha256"] for row in rows]
    usual = max(hashes, key=hashes.count, default="")
    found = [f"{_name(row)} learns other weights" for row in rows if row["sha256"] != usual]
    return found + [f"{_name(row)}: {problem}" for row in rows for problem in row["wrong"]]


def _name(row: Row) -> str:
    return f"{row['compiler']} for {row['for']}"


def boards(rows: Sequence[Row]) -> str:
    """Markdown of the rows of the boards."""
    head = "| board | compiler | flash | all-in SRAM | deepest stack | instructions of a step | weights |\n"
    lines = [
        f"| {row['for']} | {row['compiler']} | {row['flash']:,} | {row['sram']:,} | {row['stack']:,} | "
        f"{row['step_instructions']:,} | {row['sha256'][:SHOWN]} |\n"
        for row in rows
        if row["for"] in BOARDS
    ]
    return (head + "|---|---|---|---|---|---|---|\n" + "".join(lines)).rstrip("\n")


def hosts(rows: Sequence[Row]) -> str:
    """Markdown of the rows of this machine."""
    lines = [
        f"| {row['compiler']} | {row['flash']:,} | {row['sha256'][:SHOWN]} |\n"
        for row in rows
        if row["for"] not in BOARDS
    ]
    return ("| compiler | code and constants | weights |\n|---|---|---|\n" + "".join(lines)).rstrip("\n")
