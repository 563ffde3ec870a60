"""The page of a check: Markdown for people, who paste it into an issue, and JSON for machines."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from microtrain import __version__
from microtrain.base.errors import FileError
from microtrain.base.files import replacing, write_json
from microtrain.base.schema import SchemaError, decode

from .compare import Difference, differences
from .probe import CYCLES, STEPS, Found

SHOWN = 12  # differences on the page; all are in the JSON
LENGTH = 72  # of an answer on the page


@dataclass(frozen=True)
class Check:
    """A check of a board.

    against   what it was compared with, in words
    expected  by what that answered; found: what the board did
    rates     of the line -> whether it loses nothing there
    firmware  file name and SHA-256 of the ELF, where it is known
    """

    found: Found
    expected: Found
    against: str
    rates: Mapping[int, bool]
    firmware: Mapping[str, str] = field(default_factory=dict)

    @property
    def differences(self) -> list[Difference]:
        return differences(self.found, self.expected)

    @property
    def passed(self) -> bool:
        return not self.differences and not self.found.ended

    @property
    def verdict(self) -> str:
        """In one sentence."""
        if self.found.ended:
            return f"The check stopped after {self.found.answers} answers: {self.found.ended}"
        count = len(self.differences)
        if count:
            return f"{count} of {self.expected.answers} answers are not those of {self.against}."
        return f"All {self.expected.answers} answers are those of {self.against}."


def save(check: Check, path: Path) -> tuple[Path, Path]:
    """Write PATH.md and PATH.json. Errors: FileError where that cannot be done"""
    page, record = path.with_name(f"{path.name}.md"), path.with_name(f"{path.name}.json")
    with replacing(page) as part:
        part.write_text("\n".join(_page(check)) + "\n", encoding="utf-8")
    write_json(record, _record(check))
    return page, record


def load(path: Path) -> Found:
    """What the board of an earlier check answered, from its JSON.

    Errors   FileError where the file is no such thing
    """
    try:
        return decode(Found, json.loads(path.read_text(encoding="utf-8"))["found"])
    except (OSError, ValueError, KeyError, TypeError, SchemaError) as error:
        raise FileError(f"{path} is not the .json of a check-board: {error}.") from error


def _record(check: Check) -> dict[str, Any]:
    return {
        "passed": check.passed,
        "verdict": check.verdict,
        "against": check.against,
        "host": _host(),
        "firmware": dict(check.firmware),
        "differences": [asdict(each) for each in check.differences],
        "rates": {str(baud): clean for baud, clean in check.rates.items()},
        "found": asdict(check.found),
        "expected": asdict(check.expected),
    }


def _host() -> dict[str, str]:
    return {
        "microtrain": __version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def _page(check: Check) -> Iterator[str]:
    host = _host()
    yield f"# {check.found.board}: {'passed' if check.passed else 'NOT passed'}\n"
    yield f"{check.verdict}\n"
    yield f"- model {check.found.model}"
    for name, digest in check.firmware.items():
        yield f"- firmware {name}, SHA-256 {digest}"
    yield f"- microtrain {host['microtrain']}, Python {host['python']}, {host['system']}\n"
    yield from _answers(check)
    yield from _differences(check.differences)
    yield from _speed(check)
    if check.rates:
        yield "\n| baud | |\n|---|---|"
        for baud, clean in check.rates.items():
            yield f"| {baud} | {'clean' if clean else 'loses bytes, or not there'} |"


def _answers(check: Check) -> Iterator[str]:
    """Group by group, how many answers are right."""
    yield "| what | answers | right |\n|---|---|---|"
    wrong = [each.group for each in check.differences]
    for group, items in check.expected.groups.items():
        yield f"| {group} | {len(items)} | {len(items) - wrong.count(group)} |"


def _differences(found: list[Difference]) -> Iterator[str]:
    if not found:
        return
    yield "\n| differs | expected | found |\n|---|---|---|"
    for each in found[:SHOWN]:
        yield f"| {each.group}, {each.item} | `{_brief(each.expected)}` | `{_brief(each.found)}` |"
    if len(found) > SHOWN:
        yield f"\nand {len(found) - SHOWN} more, in the JSON."


def _brief(answer: str) -> str:
    text = answer if len(answer) <= LENGTH else answer[: LENGTH - 1] + "\u2026"
    return text.replace("|", "/").replace("`", "'")


def _speed(check: Check) -> Iterator[str]:
    board, other = check.found.measured, check.expected.measured
    if "training_s" not in board:
        return
    yield f"\n| | {check.found.board} | {check.against} |\n|---|---|---|"
    for key in CYCLES:
        yield f"| {key.replace('_', ' ')} | {board[key]:,.0f} | {other.get(key, 0):,.0f} |"
    yield f"| seconds a step, with the line | {board['training_s'] / STEPS:.4f} | |"
    yield f"| tick / clock | {board['tick_s'] / board['clock_s']:.4f} | |"
    yield "\nThe core counts its cycles itself; the emulated board counts one for an instruction."
