"""What the lab's commands write down: numbers in JSON, and failures on the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from microtrain.base.files import write_json
from microtrain.base.terminal import say

MOST = 10  # failures that are told one by one


def write(path: Path, document: object) -> None:
    """A JSON file, its folder made where it is missing; what was there before is lost only to a whole one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, document)


def read(path: Path, missing: Any) -> Any:
    """A JSON file, or `missing` where there is none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else missing


def note(path: Path, **numbers: object) -> None:
    """Put numbers into a JSON file, beside those that other parts put there."""
    write(path, {**read(path, {}), **numbers})


def tell(failures: list[str]) -> bool:
    """Say the first failures. Returns whether there are none."""
    for failure in failures[:MOST]:
        say(failure, err=True)
    return not failures
