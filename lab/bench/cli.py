"""Command line of the benchmark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab.alone import hold
from lab.golden.data import Data, find
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import console

from . import build, picture, records, table
from .cases import Case, all_cases, choose
from .run import OUTPUT, Outcome, run_case

PAGES = ROOT / "lab/pages"
SUMMARY = ROOT / "build/bench.json"


@click.command()
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only cases whose NETWORK/SCHEME holds PATTERN, where * stands for anything; may be repeated.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=min(2, os.cpu_count() or 1),
    show_default=True,
    metavar="N",
    help="Cases side by side.",
)
def main(only: tuple[str, ...], jobs: int) -> None:
    """Measure the published networks on the emulated board: pages/bench.md, .json, .svg, build/bench.json.

    A case that was run before with the same generated files, firmware and compiler is not run again. With
    --only, lab/pages stays as it is: the table there is always one of all cases.
    """
    cases = choose(only)
    if not cases:
        raise click.UsageError(f"no case matches {' or '.join(only)}; the first is {all_cases()[0].name}.")
    try:
        data, compiler = find(), build.compiler_version()
    except Error as error:
        click.echo(f"bench: {error}", err=True)
        sys.exit(1)
    hold(OUTPUT)
    outcomes = run_all(cases, data, compiler, jobs)
    sys.exit(0 if report(outcomes, compiler, complete=not only) else 1)


def run_all(cases: list[Case], data: Data, compiler: str, jobs: int) -> list[Outcome]:
    """Run the cases side by side, a line for each that is done; in the order in which they were given."""
    terminal = console()
    done: dict[Case, Outcome] = {}
    with progress(terminal) as bar:
        task = bar.add_task("cases", total=len(cases))
        for outcome in results(cases, data, compiler, jobs):
            done[outcome.case] = outcome
            terminal.print(line(outcome), soft_wrap=True)
            bar.advance(task)
    return [done[case] for case in cases]


def results(cases: list[Case], data: Data, compiler: str, jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come."""
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(run_case, case, data, compiler) for case in cases]):
            yield future.result()


def progress(terminal: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=terminal, transient=True)


def line(outcome: Outcome) -> str:
    """One case in a line."""
    head = f"{outcome.case.name:<34} {outcome.seconds:5.1f} s  "
    if outcome.row is None:
        return head + f"FAILED: {outcome.error}"
    if "refused" in outcome.row:
        return head + f"refused on the board, trained on this machine: loss {outcome.row['loss']:.4f}"
    row = outcome.row
    numbers = f"SRAM {row['sram_all_in']:>9,} B  flash {row['flash_bytes']:>9,} B"
    counts = f"instructions {row['inference_instructions']:>12,} / {row['step_instructions']:>12,}"
    return head + f"{numbers}  {counts}{'  (known)' if outcome.known else ''}"


def report(outcomes: list[Outcome], compiler: str, complete: bool) -> bool:
    """Write the results. True where every case succeeded."""
    rows = [outcome.row for outcome in outcomes if outcome.row is not None]
    failures = [f"{outcome.case.name}: {outcome.error}" for outcome in outcomes if outcome.error is not None]
    write(SUMMARY, json.dumps(records.summary(rows), indent=1) + "\n")
    if complete:
        records.save(PAGES / "bench.json", compiler, rows)
        write(PAGES / "bench.md", table.markdown(compiler, rows, failures))
        picture.draw(rows, PAGES / "bench.svg")
    written = "pages/bench.{md,json,svg} and build/bench.json" if complete else "build/bench.json"
    click.echo(f"{len(rows)} of {len(outcomes)} cases measured with {compiler}; wrote {written}")
    if any(row["cycles"]["step"]["estimate"] is None for row in rows if "cycles" in row):
        click.echo("bench: no cycle estimate: llvm-mca is not on PATH (`apt install llvm`).", err=True)
    return not failures


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
