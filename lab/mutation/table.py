"""The tables of pages/mutation.md, and what the command says at its end."""

from __future__ import annotations

from typing import Any

from lab import marks
from lab.notes import write
from microtrain.base.paths import ROOT

from .record import short_of

PAGE = ROOT / "lab/pages/mutation.md"
RECORD = PAGE.with_suffix(".json")
COMMAND = "python lab/mutation --page"
ROBOT = "Robot, "


def write_page(record: dict[str, Any]) -> None:
    """Keep the record, and put it between the marks of the page.

    Errors   OSError where it cannot be read or written, MarksError where it lacks the marks
    """
    write(RECORD, record)
    marks.insert(PAGE, COMMAND, parts(record))


def parts(record: dict[str, Any]) -> dict[str, str]:
    """What stands between the marks of the page."""
    return {"summary": sentence(record), "table": tables(record)}


def sentence(record: dict[str, Any]) -> str:
    noticed, planted, lacks = record["noticed"], record["planted"], short_of(record)
    said = (
        f"{planted} bugs were planted. {noticed} of them were noticed, {_share(record)}; "
        f"the suites ran for {record['core_minutes']} minutes of a core."
    )
    return f"{said} Short of what is asked for: {'; '.join(lacks)}." if lacks else said


def _share(counts: dict[str, Any]) -> str:
    return f"{counts['noticed'] / counts['planted']:.1%}" if counts["planted"] else "-"


def tables(record: dict[str, Any]) -> str:
    """Markdown: what was planted where, who noticed it, and what survived."""
    groups = [*record["groups"].items(), ("all", record)]
    dropped = record["dropped"]
    named = [f"| {what} | {_tests(found)} |" for what, found in record["named"].items()]
    survivors = [f"| `{_cell(s['name'])}` | {_cell(s['why'])} |" for s in record["survivors"]]
    return "\n".join(
        [
            *("| where | planted | noticed | |", "|---|---|---|---|"),
            *(f"| {name} | {n['planted']} | {n['noticed']} | {_share(n)} |" for name, n in groups),
            "",
            f"Not counted: {dropped['equivalent']} of which every object is the same, "
            f"{dropped['refused']} that do not compile.",
            "",
            *_suites(record),
            "",
            *("| once passed every Robot suite | now noticed by the Robot case |", "|---|---|", *named),
            "",
            *("| survivor | why it may live |", "|---|---|", *survivors),
        ]
    )


def _suites(record: dict[str, Any]) -> list[str]:
    """What each suite noticed first; and at all, where every suite was run on some."""
    every = record["every_suite"]
    head = "| suite | seconds of a core | noticed first |"
    rows = [f"| {s} | {record['suite_seconds'][s]:.0f} | {n} |" for s, n in record["suites"].items()]
    if not every["mutants"]:
        return [head, "|---|---|---|", *rows]
    at_all = [of(every["suites"][name]) for name in record["suites"]]
    head += f" noticed at all, of {every['mutants']} |"
    return [head, "|---|---|---|---|", *(f"{row} {n} |" for row, n in zip(rows, at_all, strict=True))]


def of(counts: dict[str, int]) -> str:
    """Of the mutants that a suite could notice, how many it did."""
    return f"{counts['noticed']} of {counts['could']}" if counts["could"] else "-"


def _tests(noticed: dict[str, str]) -> str:
    """Of the Robot suites, the file and case that notice a bug."""
    robots = [
        f"{name.removeprefix(ROBOT)}: {_cell(how)}" for name, how in noticed.items() if name.startswith(ROBOT)
    ]
    return "; ".join(robots) or "none"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def summary(record: dict[str, Any]) -> str:
    """A few lines for the terminal."""
    noticed, planted = record["noticed"], record["planted"]
    lines = [f"{noticed} of {planted} planted bugs were noticed: {_share(record)}"]
    lines += [f"  {name:22} {count:4} first" for name, count in record["suites"].items()]
    return "\n".join(lines)
