"""The engine before and after the house was rebuilt: the rows of the bench, side by side."""

from __future__ import annotations

import json
from typing import Any

from lab.bench.records import Row, load, same_case
from microtrain.base.paths import ROOT

KEYS = ("sram_all_in", "flash_bytes", "inference_instructions", "step_instructions")
BEFORE = ROOT / "lab/house/before.json"
AFTER = ROOT / "lab/pages/bench.json"


def before() -> dict[str, Any]:
    """The numbers of the commit before, with its rows of the bench by compiler."""
    document: dict[str, Any] = json.loads(BEFORE.read_text(encoding="utf-8"))
    return document


def changes(old: list[Row], new: list[Row]) -> dict[str, dict[str, float]]:
    """The least and the largest change of each number over the cases, relative to before.

    Errors   ValueError where a case is missing after
    """
    pairs = []
    for row in old:
        same = next((other for other in new if same_case(row, other)), None)
        if same is None:
            raise ValueError(f"no row of {row['network']} with {row['scheme']}: run `make bench`.")
        pairs.append((row, same))
    relative = {key: [b[key] / a[key] - 1 for a, b in pairs] for key in KEYS}
    return {key: {"least": min(found), "most": max(found)} for key, found in relative.items()}


def compared() -> dict[str, dict[str, float]]:
    """Of the checked-in tables, for the compiler that both have rows of."""
    old, new = before()["bench"], load(AFTER)
    (compiler,) = set(old) & set(new)
    return changes(old[compiler], [row for row in new[compiler] if "refused" not in row])
