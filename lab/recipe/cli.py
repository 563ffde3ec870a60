"""Command line: what the defaults learn, `make recipe`, into build/recipe.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path

import click

from lab.golden.data import find
from microtrain.base.errors import Error
from microtrain.base.progress import Bars
from microtrain.base.terminal import say

from . import known, modules, page, parts, sets, table
from .cases import PROTOCOLS, SCHEMES, SEEDS, TESTED, Case, cases
from .run import WORK, Row, row


@dataclass(frozen=True)
class Job:
    """A case, the folder of its images, the network's file, and the options that name these and its seed."""

    case: Case
    data: Path
    model: Path
    words: tuple[str, ...]

    def row(self) -> Row:
        return row(self.case, self.data, self.model, self.words)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Images, instead of the four sets.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A network, instead of the published ones.",
)
@click.option(
    "--only",
    multiple=True,
    default=("*",),
    metavar="PATTERN",
    help="DATASET/NETWORK/PROTOCOL/ARM/SEED, with *; may be repeated.",
)
@click.option("--seeds", default=len(SEEDS), show_default=True, type=click.IntRange(1), help="How many.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default=True, type=click.IntRange(1), help="Processes."
)
@click.option(
    "--verify", is_flag=True, help="Run again what is done: it is an error where it ends otherwise."
)
@click.option("--page", "write_page", is_flag=True, help="Put all that is done on lab/pages/recipe.md.")
@click.option("--state", "other", flag_value="state", help="Measure what is kept beside a weight instead.")
@click.option(
    "--lite", "other", flag_value="lite", help="Measure lite residual modules at equal SRAM instead."
)
@click.option(
    "--parts", "other", flag_value="parts", help="Measure what each part costs on the board instead."
)
def main(
    data: tuple[Path, ...],
    model: Path | None,
    only: tuple[str, ...],
    seeds: int,
    jobs: int,
    verify: bool,
    write_page: bool,
    other: str | None,
) -> None:
    """Train with the defaults, and with what they are compared with.

    DIR is as for simulate --data; its own name is the data set's. What is done is kept in build/recipe.json,
    and a run that was stopped goes on where it was; without --data or --model it needs the test data, a
    folder that MICROTRAIN_DATA names. All that is compared takes hours for a set: --only picks some of it.

    \b
    python lab/recipe --data photos --seeds 1 --only "photos/*/shots-10/*"
    """
    try:
        if other == "state":
            from .state import measure as measure_states  # torch takes a second to load

            measure_states(jobs)
        elif other == "lite":
            modules.measure()
        elif other == "parts":
            say("\n".join(parts.table(parts.write(find()))))
        else:
            wanted = [
                job for job in jobs_of(data, model, seeds) if any(fnmatch(job.case.key, p) for p in only)
            ]
            if not wanted:
                raise Error(
                    f"no case is called {' or '.join(only)}; they are DATASET/NETWORK/PROTOCOL/ARM/SEED."
                )
            measure(wanted, jobs, verify)
        if write_page:
            page.write(list(known.rows().values()))
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error


def jobs_of(data: tuple[Path, ...], model: Path | None, seeds: int) -> Iterator[Job]:
    words = [word for folder in data for word in ("--data", str(folder))]
    words += ["--model", str(model)] if model else []
    folders = named(data) or sets.test_sets(WORK / "sets")
    files = {model.stem: model} if model else {name: find().checkpoint(name) for name in SCHEMES}
    for case in cases(tuple(folders), tuple(files), tuple(PROTOCOLS), range(seeds)):
        more = ("--seeds", str(case.seed + 1)) if case.seed >= len(SEEDS) else ()
        yield Job(case, folders[case.dataset], files[case.network], (*words, *more))


def named(data: tuple[Path, ...]) -> dict[str, Path]:
    """Folders by their names. Error where two have the same."""
    found: dict[str, Path] = {}
    for folder in data:
        other = found.setdefault(folder.resolve().name, folder)
        if other is not folder:
            raise Error(
                f"{other} and {folder} have the same name, and rows are kept by it: rename one of them."
            )
    return found


def measure(wanted: list[Job], jobs: int, verify: bool = False) -> None:
    """Run what is missing, and print the tables. Error where a session failed, behind all others.

    verify  run what is there as well
    """
    check(wanted)
    failures = run(wanted, jobs, verify)
    done = known.rows()
    found = [done[job.case.key] for job in wanted if job.case.key in done]
    if found:
        say(table.tables(found))
    if failures:
        raise Error(summary(failures, len(wanted)))


def check(wanted: list[Job]) -> None:
    """Read the folders and networks of all jobs before the first of them.

    Errors   Error where one cannot be used, or is not what it was when others of its rows were made
    """
    for name, folder in {job.case.dataset: job.data for job in wanted}.items():
        protocols = {job.case.protocol for job in wanted if job.case.dataset == name}
        introduce(name, folder, max(PROTOCOLS[protocol].shots for protocol in protocols))
        known.same("dataset", name, sets.print_of_folder(folder), folder)
    for name, model in {job.case.network: job.model for job in wanted}.items():
        if not model.is_file():
            raise Error(f"no such file: {model}.")
        known.same("network", name, sets.print_of_file(model), model)


def introduce(name: str, folder: Path, shots: int) -> None:
    """Say what a set has, and where that is less than a protocol asks for. Errors as sets.parted()"""
    training, testing = sets.parted(folder)
    there, judging = len(training.samples), len(testing.samples)
    say(
        f"{name}: {len(training.classes)} classes, {there:,} images to learn from, "
        f"{min(TESTED, judging):,} of {judging:,} others to judge by",
        err=True,
    )
    few = sets.scarce(training, shots)
    if few:
        say(f"{name}: fewer than {shots} to learn from in {', '.join(few)}; all of them are taken", err=True)


def run(wanted: list[Job], jobs: int, verify: bool) -> dict[str, str]:
    """Make the rows that are missing, and keep each as it comes. Returns what failed, by key, and why."""
    done, failures = known.rows(), {}
    missing = [job for job in wanted if verify or job.case.key not in done]
    with Bars() as bars, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        bar = bars.add("sessions", len(missing))
        running: dict[Future[Row], str] = {pool.submit(job.row): job.case.key for job in missing}
        for future in as_completed(running):
            try:
                found = future.result()
            except (Error, OSError) as error:
                failures[running[future]] = str(error)
                bar.advance(text=f"{running[future]}: failed")
                continue
            except BrokenProcessPool as error:
                raise Error(
                    "a process was killed, for its memory perhaps: try the same again with --jobs 1."
                ) from error
            bar.advance(text=f"{running[future]}: {found['accuracy']:.1f} %")
            if other := differing(done.get(running[future], {}), found):
                failures[running[future]] = other
            else:
                known.keep(found)
        bar.end()
    return failures


def differing(before: Row, found: Row) -> str:
    """What a row has become that was there before; "" where it is the same."""
    names = ("accuracy", "trained_sha256")
    other = [name for name in names if name in before and before[name] != found.get(name)]
    return ", ".join(f"{name} was {before[name]}, and is {found.get(name)} now" for name in other)


def summary(failures: dict[str, str], wanted: int) -> str:
    """One line for each reason."""
    reasons: dict[str, list[str]] = {}
    for key, why in sorted(failures.items()):
        reasons.setdefault(why, []).append(key)
    told = "".join(
        f"\n  {keys[0]}{f' and {len(keys) - 1} more' * (len(keys) > 1)}: {why}"
        for why, keys in reasons.items()
    )
    if len(failures) == wanted:
        return f"no session ended well:{told}"
    return f"{len(failures)} of {wanted} sessions failed, and the others are kept:{told}"
