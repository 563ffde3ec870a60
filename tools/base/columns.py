"""Tables for terminals of any width: where they are narrow, columns wrap, and no name is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Column:
    """number: aligned to the right and never wrapped; others wrap between words, or where they must."""

    name: str
    number: bool = True


def table(title: str, columns: Sequence[Column], narrow: bool) -> Table:
    """An empty table. narrow: without lines between the columns."""
    made = Table(title=title, header_style="bold")
    if narrow:
        made = Table(title=title, header_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        justify = "right" if column.number else "left"
        made.add_column(column.name, justify=justify, no_wrap=column.number, overflow="fold")  # type: ignore[arg-type]
    return made


def is_wide(console: Console, made: Table) -> bool:
    """Whether a table fits as it is."""
    return console.measure(made, options=console.options.update(width=10_000)).maximum <= console.width


def broken(name: str, width: int) -> str:
    """A name in lines of at most so many characters, cut behind its points where there are some."""
    lines = [""]
    for part in name.replace(".", ".\n").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def wrapped(text: str, width: int, indent: int) -> str:
    """A line, in lines of a width of which all but the first begin with so many spaces; no name is cut."""
    return textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def short(number: int) -> str:
    """A count in at most 5 characters: 984, 151k, 10.8M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    return str(number)
