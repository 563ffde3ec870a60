"""The table of what is kept beside a trained weight (lab/recipe/state.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import marks, notes
from lab.recipe import state

CELLS = [(protocol, name) for protocol in state.PASSES for name in state.SETS]


def rows(
    variant: str, by_rate: tuple[float, float, float], cells: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    accuracy = dict(zip(map(str, state.RATES), by_rate, strict=True))
    return [
        {"protocol": protocol, "dataset": name, "variant": variant, "accuracy": accuracy}
        for protocol, name in cells
    ]


def test_each_variant_has_one_rate_for_all_sets() -> None:
    first, second, third = (variant.words for variant in state.VARIANTS[:3])
    found = rows(first, (60.0, 70.0, 65.0), CELLS) + rows(second, (60.0, 61.0, 62.0), CELLS)
    found[0]["accuracy"] = dict.fromkeys(map(str, state.RATES), 0.0) | {"2.0": 99.0}
    lines = state.table(found + rows(third, (90.0, 90.0, 90.0), CELLS[1:])).splitlines()
    assert len(lines) == 4, "a variant that was not measured everywhere has no line"
    assert lines[2].startswith(f"| {first} ") and lines[2].endswith("| x2 |") and "| 99.0 |" in lines[2]
    assert lines[3].endswith("| 62.0 | x2 |")


def test_bytes_are_those_of_what_is_kept() -> None:
    """Beside an int8 weight: fraction bits, and bits of a velocity or of a mean."""
    for variant in state.VARIANTS:
        rules = variant.rules
        kept = rules.fraction_bits + rules.state_bits * bool(rules.momentum or rules.accumulate > 1)
        assert float(variant.bytes.partition(",")[0]) == kept / 8, variant.words
        assert ("head 4" in variant.bytes) == bool(rules.curvature)


def test_the_page_has_the_measured_table(tmp_path: Path) -> None:
    page = tmp_path / "arithmetic.md"
    page.write_text(state.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    marks.insert(page, state.COMMAND, {"state": state.table(notes.read(state.RESULT, []))})
    assert page.read_text(encoding="utf-8") == state.PAGE.read_text(encoding="utf-8")
    with pytest.raises(marks.MarksError):
        marks.insert(page, state.COMMAND, {"no such part": ""})
