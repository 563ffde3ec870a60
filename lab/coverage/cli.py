"""Command line of the coverage."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.table import Column, Table

from lab import notes
from microtrain.base.paths import ROOT
from microtrain.base.terminal import console

from . import measure, tally
from .measure import CoverageError

RESULT = ROOT / "build/coverage.json"
FLOOR = Path(__file__).with_name("floor.json")
QUICK = ("-q", "-m", "not slow")
WIDTH = 80
Percents = dict[str, dict[str, float]]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("tests", nargs=-1, type=click.Path(exists=True))
@click.option("--keep", is_flag=True, help="Add to what was counted before.")
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Tests side by side."
)
def main(tests: tuple[str, ...], keep: bool, jobs: int) -> None:
    """Run the quick tests, or the given ones, and show which lines and branches they run.

    Counted are the package in tools/ and the firmware's C as it is compiled for this machine. The numbers go
    to build/coverage.json, pages that mark every line to build/coverage/. Without TESTS the exit status is 1
    where a number is below lab/coverage/floor.json.
    """
    try:
        if not keep:
            measure.forget()
        status = measure.run_tests([*QUICK, "-n", str(jobs), *tests])
        python, c = tally.python_rooms(), tally.c_rooms()
    except CoverageError as error:
        raise click.ClickException(str(error)) from error
    left_out = tally.without_their_extra(python)
    python = {room: counts for room, counts in python.items() if room not in left_out}
    show(python, c)
    for room, extra in left_out.items():
        click.echo(f"{room} is left out, as its tests were skipped: pip install '{extra}'")
    found = {"python": tally.total(python).percent, "c": tally.total(c).percent}
    notes.write(RESULT, found)
    missed = [] if tests else below(found, json.loads(FLOOR.read_text(encoding="utf-8")))
    for sentence in missed:
        click.echo(f"coverage: {sentence}", err=True)
    if status:
        click.echo("coverage: tests failed, see above.", err=True)
    sys.exit(1 if missed or status else 0)


def show(python: tally.Rooms, c: tally.Rooms) -> None:
    """The rooms as a table of at most 80 columns."""
    table = Table("room", *(_right(name) for name in ("lines", "lines %", "branches", "branches %")))
    for title, rooms in (("Python", python), ("C, on this machine", c)):
        table.add_section()
        for name, counts in {**rooms, title: tally.total(rooms)}.items():
            percent = counts.percent
            row = (counts.all_lines, percent["lines"], counts.all_branches, percent["branches"])
            table.add_row(name, *map(str, row), style="bold" if name == title else None)
    terminal = console(width=min(WIDTH, console().width))
    terminal.print(table)
    for folder in tally.uncounted(c):
        terminal.print(f"{folder} {tally.NOT_COUNTED}.", soft_wrap=True)
    terminal.print("build/coverage/python/index.html and c/index.html show every line.")


def _right(name: str) -> Column:
    return Column(name, justify="right")


def below(found: Percents, floor: Percents) -> list[str]:
    """A sentence for each number that is under its floor."""
    return [
        f"{found[language][kind]} % of the {kind} of {language} are run, and {least} % must be: "
        "test what the pages in build/coverage mark red."
        for language, kinds in floor.items()
        for kind, least in kinds.items()
        if found[language][kind] < least
    ]
