"""Rows of finished sessions in checked-in JSON: pages/results.json, and pages/results-rates.json of rates."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab import notes
from microtrain.base.files import replacing
from microtrain.base.paths import ROOT

from .cases import Cell, Session, family

Row = dict[str, Any]
PAGES = ROOT / "lab/pages"
RESULTS, RATES, STUDY = (PAGES / f"results{part}.json" for part in ("", "-rates", "-arithmetic"))
IDENTITY = ("dataset", "network", "scheme", "fraction_bits", "arithmetic")


def load(path: Path) -> list[Row]:
    """The rows of a table; none where there is no file yet."""
    rows: list[Row] = notes.read(path, [])
    return rows


def save(path: Path, rows: Iterable[Row]) -> None:
    """Write a table in the order of its keys."""
    write_lines(path, sorted(rows, key=identity))


def write_lines(path: Path, rows: Iterable[Row]) -> None:
    """One line per row, so that a diff shows what changed."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    with replacing(path) as part:
        part.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def add(path: Path, rows: Iterable[Row]) -> None:
    """Put rows into a table, in the place of those of the same identity."""
    known = {identity(row): row for row in load(path)}
    save(path, (known | {identity(row): row for row in rows}).values())


def drop(path: Path, cell: Cell) -> None:
    """Take the rows of a cell out of a table."""
    rows = load(path)
    gone = of_cell(rows, cell)
    save(path, (row for row in rows if row not in gone))


def identity(row: Row) -> tuple[Any, ...]:
    """What a row is of. A cell is tried at several rates on validation images, and judged at one."""
    lr = row["lr"] if row.get("validation") else 0.0
    return (*(row[key] for key in IDENTITY), row.get("variant", ""), lr, row["seed"])


def of_cell(rows: Iterable[Row], cell: Cell) -> list[Row]:
    """The rows of a cell."""
    return [row for row in rows if all(row[key] == getattr(cell, key) for key in IDENTITY)]


def missing(rows: Iterable[Row], cell: Cell, sessions: Iterable[Session]) -> tuple[Session, ...]:
    """Sessions of a cell that no row tells of."""
    done = {(row["lr"], row["seed"]) for row in of_cell(rows, cell)}
    return tuple(s for s in sessions if (s.lr, s.seed) not in done)


def best_rate(rows: Iterable[Row], cell: Cell) -> float | None:
    """The rate of the highest mean validation accuracy over the cells that share one with this cell.

    Of equals that of the lower loss. None where no row tells.
    """
    by_rate: dict[float, list[Row]] = {}
    for row in rows:
        if tuned_with(cell, row):
            by_rate.setdefault(row["lr"], []).append(row)
    means = {
        lr: (statistics.fmean(r["accuracy"] for r in own), -statistics.fmean(r["loss"] for r in own))
        for lr, own in by_rate.items()
    }
    return max(means, key=lambda lr: means[lr]) if means else None


def tuned_with(cell: Cell, row: Row) -> bool:
    """Whether a validation row counts for the cell's rate: same data, arithmetic and kind of scheme.

    Schemes with fraction bits share one, whatever their number.
    """
    same = row["dataset"] == cell.dataset and row["arithmetic"] == cell.arithmetic
    bits = bool(row["fraction_bits"]) == bool(cell.fraction_bits)
    return same and bits and family(row["scheme"]) == family(cell.scheme)
