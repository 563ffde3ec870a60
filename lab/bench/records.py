"""pages/bench.json: the checked-in numbers, each compiler version's by themselves; and what got worse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab import notes

from .cases import FLOAT

Row = dict[str, Any]
SUMMARY = (
    *("network", "scheme", "fraction_bits", "budget_kb", "requantize"),
    *("sram_all_in", "arena", "stack", "flash_bytes"),
    *("inference_instructions", "step_instructions", "macs_forward", "macs_backward"),
)
CASE = ("network", "scheme", "fraction_bits", "budget_kb", "weights_bits", "requantize")
PHASES = ("inference", "step")
OF_CODES = ("weights_bits", "top1")  # where weights take fewer bits
COMPARED = (
    *("sram_all_in", "sram_measured", "arena", "stack", "flash_bytes"),
    *("inference_instructions", "step_instructions"),
)
TOLERANCE = 0.01


def load(path: Path) -> dict[str, list[Row]]:
    """{compiler: rows} of a table; {} where there is none yet."""
    tables: dict[str, list[Row]] = notes.read(path, {})
    return tables


def save(path: Path, compiler: str, rows: list[Row]) -> None:
    """Replace one compiler's rows; those of others stay."""
    tables = load(path) | {compiler: rows}
    path.write_text(json.dumps(tables, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def summary(rows: list[Row]) -> list[Row]:
    """What build/bench.json holds: the main numbers of what runs on the board."""
    board = [row for row in rows if "refused" not in row]
    full = [{"requantize": FLOAT} | row for row in board]
    return [
        {key: row[key] for key in (*SUMMARY, *OF_CODES) if key in row or key in SUMMARY} | cycles(row)
        for row in full
    ]


def cycles(row: Row) -> Row:
    """What an inference and a step are estimated to take; None where no llvm-mca was there to tell."""
    return {f"{phase}_cycles": row["cycles"][phase]["estimate"] for phase in PHASES}


def same_case(a: Row, b: Row) -> bool:
    return all(a.get(key) == b.get(key) for key in CASE)


def rises(table: list[Row], rows: list[Row]) -> list[str]:
    """A sentence for every number that is more than 1 % above its place in the table, or has none there."""
    found = []
    for row in rows:
        title = f"{row['network']} with {row['scheme']}"
        known = next((other for other in table if same_case(other, row)), None)
        if known is None:
            found.append(f"{title} is not in the table: run `make bench`.")
            continue
        before, now = ({key: each[key] for key in COMPARED} | cycles(each) for each in (known, row))
        found += [
            f"{title}: {key} rose from {before[key]:,} to {value:,}; if that is wanted, run `make bench`."
            for key, value in now.items()
            if None not in (before[key], value) and value > before[key] * (1 + TOLERANCE)
        ]
    return found
