"""The table of what is kept beside a trained weight (lab/recipe/state.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab import marks, notes
from lab.recipe import state
from lab.recipe.cases import SCHEMES, SEEDS

FIRST, SECOND, *_ = SCHEMES


def rows(network: str, by_rate: tuple[float, float, float]) -> list[dict[str, Any]]:
    """All of a network, each the same."""
    accuracy = dict(zip(map(str, state.RATES), by_rate, strict=True))
    keys = (key for key in state.wanted() if key[0] == network)
    return [dict(zip(state.KEYS, key, strict=True)) | {"accuracy": dict(accuracy)} for key in keys]


def of(variant: state.Variant, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in found if row["variant"] == variant.words]


def test_each_variant_has_one_rate_for_all() -> None:
    found = rows(FIRST, (60.0, 70.0, 65.0))
    other = of(state.VARIANTS[0], found)
    for row in other:
        row["accuracy"] = dict.fromkeys(map(str, state.RATES), 61.0) | {"4.0": 62.0}
    other[0]["accuracy"]["2.0"] = 70.0
    lines = state.table(found).splitlines()
    assert len(lines) == 2 + len(state.VARIANTS)
    assert lines[2].endswith("| x4 |") and "| 62.0 |" in lines[2]
    assert lines[3].endswith("| 70.0 |  | x2 |"), "what is built is not ahead of itself"


def test_only_whole_networks_count() -> None:
    first, second = rows(FIRST, (60.0, 70.0, 65.0)), rows(SECOND, (10.0, 20.0, 15.0))
    assert state.table(first + second[1:]) == state.table(first)
    assert "| 45.0 |" in state.table(first + second).splitlines()[2]
    assert len(state.table(second[1:]).splitlines()) == 2


def test_ahead_is_a_mean_of_pairs_with_its_error() -> None:
    found = rows(FIRST, (0.0, 50.0, 0.0))
    pairs = of(state.VARIANTS[0], found)
    for row, ahead in zip(pairs, [1.0, -1.0] * len(pairs), strict=False):
        row["accuracy"]["2.0"] += 2 + ahead
    count = len(SEEDS) * len(state.cells())
    error = (count / (count - 1)) ** 0.5 / count**0.5
    assert f"| 52.0 | +2.0 ± {error:.1f} | x2 |" in state.table(found)


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
