"""Parts of Markdown pages that a command writes; they stand between two comments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class MarksError(ValueError):
    """A page lacks the comments that its part should stand between."""


def insert(file: Path, command: str, parts: Mapping[str, str]) -> None:
    """Put the parts of a page, by name, between their marks.

    command   that writes them; the marks name it
    Errors    OSError where the file cannot be read or written, MarksError where it lacks a mark
    """
    page = file.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}: {command} -->", f"<!-- end of {name} -->"
        before, opened, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise MarksError(f"{file} has no lines {begin!r} and {end!r} for a {name} to stand between")
        page = f"{before}{begin}\n{part}\n{end}{after}"
    file.write_text(page, encoding="utf-8")
