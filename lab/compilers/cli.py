"""Command line: the example by every compiler at hand; build/compilers.json, and the page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lab import marks, notes
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import say

from . import table
from .found import Compiler, at_hand
from .measure import BOARDS, converted, exported, of_board, of_host, refused, samples

RESULT = ROOT / "build/compilers.json"
RECORD, PAGE = ROOT / "lab/pages/compilers.json", ROOT / "lab/pages/compilers.md"
COMMAND = "python lab/compilers --page"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--arm",
    "folders",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A folder with arm-none-eabi-gcc; may be given several times. [the one on PATH]",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="COMMAND",
    help="A compiler of this machine, as in clang-16 or 'python -m ziglang cc'; may be given several times. "
    "[all on PATH]",
)
@click.option("--page", is_flag=True, help="Put the rows into lab/pages/compilers.json and the page, too.")
def main(folders: tuple[Path, ...], hosts: tuple[str, ...], page: bool) -> None:
    """Build the example with each compiler, let it learn, and compare bytes and weights.

    Each also compiles the example's library, every warning of -Wall -Wextra -Wconversion -Wpedantic being an
    error. Exit status 1 where one does not compile, learns other weights, or breaks a rule of tools/elfcheck.
    """
    try:
        compilers = at_hand(folders, hosts)
    except Error as error:
        raise click.ClickException(str(error)) from error
    rows, failures = measured(compilers)
    everything = table.merged(notes.read(RECORD, []), rows)
    failures += table.faults(everything)
    notes.write(RESULT, {"rows": rows, "failures": failures})
    if page:
        notes.write(RECORD, everything)
        parts = {"boards": table.boards(everything), "hosts": table.hosts(everything)}
        marks.insert(PAGE, COMMAND, parts)
    sys.exit(0 if notes.tell(failures) else 1)


def measured(compilers: list[Compiler]) -> tuple[list[table.Row], list[str]]:
    """A row for each compiler and what it compiles for, and what failed."""
    generated, shown = converted(), samples()
    library = exported(generated)
    rows: list[table.Row] = []
    failures: list[str] = []
    for compiler in compilers:
        for target in BOARDS if compiler.board else ("",):
            try:
                row = (
                    of_board(compiler, generated, target, shown)
                    if target
                    else of_host(compiler, generated, shown)
                )
            except Error as error:
                failures.append(f"{compiler.name}: {error}")
                continue
            row["wrong"] += refused(compiler, library, target)
            rows.append(row)
            say(f"{row['compiler']:28} {row['for']:14} {row['flash']:9,} B  {row['sha256'][:16]}")
    return rows, failures
