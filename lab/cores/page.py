"""The table of cores in docs/embed.md, from the record in lab/pages/cores.json."""

from __future__ import annotations

from collections.abc import Iterable

from lab import notes
from lab.marks import insert
from microtrain.base.paths import ROOT

from .measure import Row

PAGE = ROOT / "docs/embed.md"
RECORD = ROOT / "lab/pages/cores.json"
COMMAND = "python lab/cores --page"
MODELS = {"digits": "example", "mcunet": "MCUNet"}


def table(rows: Iterable[Row]) -> str:
    """Cores that count instructions, a line each; a group of columns for each model."""
    found = {(r["core"], r["model"]): r for r in rows if r["step_instructions"] is not None}
    cores = list(dict.fromkeys(core for core, _ in found))
    heads = [f"{what}, {name}" for name in MODELS.values() for what in ("inference", "step")]
    lines = [f"| core | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for core in cores:
        cells = [
            _millions(found.get((core, model), {}).get(f"{what}_instructions"))
            for model in MODELS
            for what in ("inference", "step")
        ]
        lines.append(f"| {core} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _millions(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f} M"


def write(rows: list[Row]) -> None:
    """The record, and the page's table of it."""
    notes.write(RECORD, rows)
    insert(PAGE, COMMAND, {"table": table(rows)})
