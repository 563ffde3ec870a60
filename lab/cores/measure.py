"""What a program says of itself on a core, as a row of build/cores.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from microtrain.base.errors import Error

from .machines import FLEET, PAINTED, Core, Session, built, ran, sizes

Row = dict[str, Any]


def row(core: Core, session: Session, folder: Path) -> Row:
    """Build, run, read. Instructions are None on this machine, which does not count them."""
    program = built(core, session, folder)
    said = numbers(core, ran(core, program))
    flash, sram = sizes(core, program)
    return {
        "core": core.name,
        "model": session.model,
        "sha256": said["sha256"][-1],
        "inference_instructions": instructions(core, said["inference"]),
        "step_instructions": instructions(core, said["step"]),
        "slice_instructions": instructions(core, said.get("slice", [])),
        **in_a_fleet(core, session, folder),
        "stack": int(said["stack"][-1]) or None,
        "flash": flash,
        "sram": sram,
    }


def in_a_fleet(core: Core, session: Session, folder: Path) -> Row:
    """Rounds of a board in a fleet: the SHA-256 of all that it says and holds back; an update."""
    said = numbers(core, ran(core, built(core, session, folder, FLEET)))
    return {"fleet_sha256": said["sha256"][-1], "update_instructions": instructions(core, said["update"])}


def numbers(core: Core, text: str) -> dict[str, list[str]]:
    """What the program printed, by its words. Error where it failed or was cut short."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    if "failed" in found:
        raise Error(f"{core.name}: the program failed: {found['failed'][0]}")
    if not {"sha256", "end"} & found.keys():
        raise Error(f"{core.name}: the program did not end: it printed no sha256.")
    return found


def painted(core: Core, session: Session, folder: Path) -> dict[str, int]:
    """The most stack that any call of each function took."""
    said = numbers(core, ran(core, built(core, session, folder, PAINTED)))
    return {name: max(map(int, took)) for name, took in said.items() if name.startswith("microtrain_")}


def instructions(core: Core, ticks: list[str]) -> int | None:
    """The most that any of them took, as far as the timer can tell."""
    return round(max(int(n) for n in ticks) * core.tick_ns) if core.tick_ns and ticks else None


def differing(rows: list[Row]) -> list[str]:
    """Cores whose weights, or whose updates in a fleet, are not those of the first row of their model."""
    first: dict[str, Row] = {}
    keys = ("sha256", "fleet_sha256")
    return [r["core"] for r in rows if any(first.setdefault(r["model"], r)[key] != r[key] for key in keys)]
