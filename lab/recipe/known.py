"""build/recipe.json: the rows that are done, and of which images and networks they are."""

from __future__ import annotations

from pathlib import Path

from lab import notes
from microtrain.base.errors import Error

from .run import WORK, Row, locked

RESULT = WORK.parent / "recipe.json"
NAMES = ("dataset", "network", "protocol", "arm", "seed")


def key_of(found: Row) -> str:
    return "/".join(str(found[part]) for part in NAMES)


def rows() -> dict[str, Row]:
    """By their keys."""
    return {key_of(each): each for each in notes.read(RESULT, [])}


def keep(found: Row) -> None:
    """Put a row beside those that are there, of other processes too."""
    with locked(RESULT):
        notes.write(RESULT, list({**rows(), key_of(found): found}.values()))


def same(part: str, name: str, fingerprint: str, path: Path) -> None:
    """Hold a name to what it was the first time: rows, plans and records are kept by it.

    part     "dataset" or "network"

    Errors   Error where it means something else now
    """
    file = WORK / f"{part}s.json"
    with locked(file):
        before = notes.read(file, {})
        if before.setdefault(name, fingerprint) != fingerprint:
            what = "files" if part == "dataset" else "content"
            raise Error(
                f"{path} has other {what} than the {part} {name} of which {RESULT} has rows: give it "
                f"another name, or remove {RESULT} and {WORK} to measure everything again."
            )
        notes.write(file, before)
