"""Command line: accuracy of the device's arithmetic on real data, and what it is compared with."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

import click

from lab import notes
from lab.golden.data import find
from microtrain.base.errors import Error
from microtrain.search.engine import Engine
from microtrain.simulate.arithmetic import ARITHMETICS

from . import further, picture, scaling, search_tables, searches, study, tables
from .cases import FRONT_GRID, GRID, SEEDS, Cell, Job, Session, core, front
from .execute import Row, execute, prepare
from .plan import final, hours, selection
from .run import command, known_sram, run
from .store import PAGES, RATES, RESULTS, STUDY, add, load

JOBS = click.option(
    "--jobs",
    default=os.cpu_count() or 1,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Sessions side by side.",
)


ONLY = click.option(
    "--only", default="*", metavar="PATTERN", help="DATASET/NETWORK/SCHEME+BITS/ARITHMETIC, with *."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Train the published networks on real data in several arithmetics: pages/results.md.

    Needs the test data: MICROTRAIN_DATA names its folder. What is finished is kept in pages/results.json and
    pages/results-rates.json; a run that was stopped goes on where it was.
    """


@main.command("core")
@ONLY
@JOBS
def core_command(only: str, jobs: int) -> None:
    """Two data sets, three networks, four arithmetics, three seeds, each at its best of one grid of rates."""
    guarded(lambda data: work(chosen(core(), only), GRID, SEEDS, data, jobs))


@main.command("front")
@ONLY
@JOBS
def front_command(only: str, jobs: int) -> None:
    """Every scheme and fraction bits in the device's arithmetic: accuracy against all-in SRAM."""
    guarded(lambda data: work(chosen(front(), only), FRONT_GRID, SEEDS[:1], data, jobs))


@main.command("search")
@click.option("--only", default="*", metavar="PATTERN", help="PUBLISHED-DATASET, with *.")
@JOBS
def search_command(only: str, jobs: int) -> None:
    """Schemes found by tools/search on one data set against the published ones on the other."""
    guarded(lambda data: compare_searches(only, data, jobs))


@main.command("further")
@JOBS
def further_command(jobs: int) -> None:
    """The sessions of pages/search.json on clothing10 again, judged on more images."""
    guarded(lambda data: judge_further(data, jobs))


@main.command("study")
@JOBS
def study_command(jobs: int) -> None:
    """Variants of the training arithmetic, one thing changed at a time, in PyTorch."""
    guarded(lambda data: learn(study.jobs(), data, jobs))


@main.command("scaling")
def scaling_command() -> None:
    """Weights against gradients with and without quantization-aware scaling: pages/results-qas.svg."""
    guarded(scaling.write)


@main.command("report")
def report_command() -> None:
    """pages/results.md and its pictures from the checked-in rows."""
    rows = load(RESULTS)
    scales = notes.read(scaling.NUMBERS, [])
    searched = load(searches.TABLE)
    about = search_tables.section(searched, load(searches.RUNS)) if searched else ""
    (PAGES / "results.md").write_text(tables.markdown(rows, load(STUDY), scales, about), encoding="utf-8")
    picture.draw(rows, PAGES / "results.svg")
    if searched:
        picture.draw_searches(searched, PAGES / "search.svg")
    scaling.draw(scales, scaling.FIGURE)
    click.echo("wrote pages/results.md and its pictures")


@main.command("run")
@click.option("--dataset", required=True, help="A data set of lab/results/cases.py.")
@click.option("--network", required=True, help="A published network.")
@click.option("--scheme", required=True, help="What is trained: a scheme's name.")
@click.option("--fraction-bits", type=int, required=True, help="Extra bits of each trained weight.")
@click.option("--arithmetic", type=click.Choice(ARITHMETICS), required=True, help="What it is trained in.")
@click.option("--lr", type=float, required=True, help="Learning rate.")
@click.option("--seed", type=int, required=True, help="Seed of the order and of the rounding.")
def run_command(
    dataset: str, network: str, scheme: str, fraction_bits: int, arithmetic: str, lr: float, seed: int
) -> None:
    """One session, judged on the test images; prints accuracy and SHA-256."""
    job = Job(Cell(dataset, network, scheme, fraction_bits, arithmetic), (Session(lr, seed),))
    guarded(lambda data: click.echo(told(only_row(job, data))))


@main.command("verify")
@click.argument("number", type=int)
def verify_command(number: int) -> None:
    """Run row NUMBER of pages/results.json again (from 0) and compare accuracy and SHA-256."""
    guarded(lambda data: verify(number, data))


def guarded(what: Callable[[Path], None]) -> None:
    """Find and unpack the data, then do it; what the user can mend is said in a sentence."""
    try:
        data = find().folder
        prepare(data)
        what(data)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error


def chosen(cells: list[Cell], pattern: str) -> list[Cell]:
    found = [cell for cell in cells if fnmatch(cell.key, pattern)]
    if not found:
        raise Error(f"no cell is called {pattern}; the first is {cells[0].key}.")
    return found


def work(
    cells: list[Cell], grid: tuple[float, ...], seeds: tuple[int, ...], data: Path, processes: int
) -> None:
    """Choose rates, then train; rows go to the two tables as they come."""
    rates = selection(cells, grid)
    announce("choosing learning rates", rates, processes)
    for rows in finished(rates, data, processes):
        add(RATES, rows)
    trained = final(cells, seeds)
    announce("training", trained, processes)
    for rows in finished(trained, data, processes):
        known = load(RESULTS)
        about = Cell(*(rows[0][k] for k in ("dataset", "network", "scheme", "fraction_bits")))
        bytes_all_in = known_sram(about, known, data)
        add(RESULTS, [entry(row, bytes_all_in) for row in rows])


def compare_searches(pattern: str, data: Path, processes: int) -> None:
    """Search where there is no scheme yet, then train both on both sets of images; pages/search.json."""
    wanted = [search for search in searches.searches() if fnmatch(search.name, pattern)]
    if not wanted:
        raise Error(f"no search is called {pattern}; the first is {searches.searches()[0].name}.")
    for search in wanted:
        if not search.scheme.is_file():
            click.echo(f"searching {search.name}")
            searches.find(search, data)
    work([cell for search in wanted for cell in search.cells()], GRID, SEEDS, data, processes)
    count = partial(searches.count_instructions, data=data)
    for search, instructions in Engine(processes).each(count, searches.uncounted(wanted)):
        searches.keep_count(search, instructions)
    table = searches.write(searches.searches(), load(RESULTS))
    for line in searches.summary(table):
        click.echo(line)


def judge_further(data: Path, processes: int) -> None:
    """Run what pages/search-further.json lacks."""
    searched = load(searches.TABLE)
    table = further.keep((), load(further.TABLE), searched)
    missing = further.wanted(searched, table)
    announce("judging on further images", missing, processes)
    for rows in finished(missing, data, processes, further.judge):
        table = further.keep(rows, table, searched)
    for line in further.summary(searched, table):
        click.echo(line)


def learn(variants: list[Job], data: Path, processes: int) -> None:
    announce("studying the arithmetic", variants, processes)
    for rows in finished(variants, data, processes):
        add(STUDY, rows)


def announce(what: str, jobs: list[Job], processes: int) -> None:
    sessions = sum(len(job.sessions) for job in jobs)
    click.echo(f"{what}: {sessions} sessions, about {hours(jobs):.1f} core-hours on {processes} cores")


def finished(
    jobs: list[Job], data: Path, processes: int, function: Callable[[Job, Path], list[Row]] = execute
) -> Iterator[list[Row]]:
    """Rows of each job as it comes, with a line on it and the time left."""
    began, done, total = time.monotonic(), 0, sum(job.steps for job in jobs)
    for job, rows in run(jobs, data, processes, function):
        done += job.steps
        left = (time.monotonic() - began) / done * (total - done)
        best = max(rows, key=lambda row: row["accuracy"])
        click.echo(f"{job.cell.key}: {best['accuracy']:.1%} at rate {best['lr']:g}; {left / 60:.0f} min left")
        yield rows


def entry(row: Row, sram_all_in: int) -> Row:
    """A row of pages/results.json."""
    kept = {key: value for key, value in row.items() if key not in ("validation", "diverged", "loss")}
    return kept | {"sram_all_in": sram_all_in, "command": command(row)}


def only_row(job: Job, data: Path) -> Row:
    return next(iter(run([job], data, 1)))[1][0]


def told(row: Row) -> str:
    return f"accuracy {row['accuracy']:.6f}, {row['steps']} steps, sha256 {row['trained_sha256']}"


def verify(number: int, data: Path) -> None:
    rows = load(RESULTS)
    if not 0 <= number < len(rows):
        raise Error(f"pages/results.json has rows 0 to {len(rows) - 1}: {number} is none of them.")
    known = rows[number]
    cell = Cell(*(known[k] for k in ("dataset", "network", "scheme", "fraction_bits", "arithmetic")))
    found = only_row(Job(cell, (Session(known["lr"], known["seed"]),)), data)
    click.echo(f"row {number}: {known['command']}\n{told(known)}, in the table\n{told(found)}, now")
    keys = ("accuracy", "trained_sha256", "plan_sha256", "steps")
    wrong = [key for key in keys if found[key] != known[key]]
    if wrong:
        raise Error(f"row {number} differs in {', '.join(wrong)}: run `make results` for a new table.")
