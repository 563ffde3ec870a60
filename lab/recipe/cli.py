"""Command line: what the defaults learn, `make recipe`, into build/recipe.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path

import click

from lab import notes
from lab.golden.data import find
from microtrain.base.errors import Error
from microtrain.base.files import unpacked
from microtrain.base.progress import Bars
from microtrain.base.terminal import say

from . import page, table
from .cases import ARCHIVES, PROTOCOLS, SCHEMES, SEEDS, Case, cases
from .run import WORK, Row, row

RESULT = WORK.parent / "recipe.json"


@dataclass(frozen=True)
class Job:
    """A case, the folder of its images, the network's file, and the options that name these."""

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
@click.option("--only", default="*", metavar="PATTERN", help="DATASET/NETWORK/PROTOCOL/ARM/SEED, with *.")
@click.option("--seeds", default=len(SEEDS), show_default=True, type=click.IntRange(1), help="How many.")
@click.option(
    "--jobs", default=os.cpu_count() or 1, show_default=True, type=click.IntRange(1), help="Processes."
)
@click.option("--page", "write_page", is_flag=True, help="Write lab/pages/recipe.md too.")
def main(
    data: tuple[Path, ...], model: Path | None, only: str, seeds: int, jobs: int, write_page: bool
) -> None:
    """Train with the defaults, and with what they are compared with.

    DIR is as for simulate --data. What is done is kept in build/recipe.json, and a run that was stopped goes
    on where it was; without --data or --model it needs the test data, a folder that MICROTRAIN_DATA names.
    """
    try:
        wanted = [job for job in jobs_of(data, model, seeds) if fnmatch(job.case.key, only)]
        if not wanted:
            raise Error(f"no case is called {only}; they are DATASET/NETWORK/PROTOCOL/ARM/SEED.")
        rows = done(wanted, jobs)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    if write_page:
        page.write(rows)
    say(table.tables(rows))


def jobs_of(data: tuple[Path, ...], model: Path | None, seeds: int) -> Iterator[Job]:
    words = [word for folder in data for word in ("--data", str(folder))]
    words += ["--model", str(model)] if model else []
    folders = {folder.resolve().name: folder for folder in data} or test_sets()
    files = {model.stem: model} if model else {name: find().checkpoint(name) for name in SCHEMES}
    for case in cases(tuple(folders), tuple(files), tuple(PROTOCOLS), range(seeds)):
        yield Job(case, folders[case.dataset], files[case.network], tuple(words))


def test_sets() -> dict[str, Path]:
    """The four sets of the test data, unpacked."""
    archives = find().folder / "sets"
    for name, archive in ARCHIVES.items():
        unpacked(archives / archive, WORK / "sets" / name)
    return {name: WORK / "sets" / name for name in ARCHIVES}


def done(wanted: list[Job], jobs: int) -> list[Row]:
    """The rows of all jobs; those that are not in build/recipe.json are made, and kept as they come."""
    known = {key_of(each): each for each in notes.read(RESULT, [])}
    missing = [job for job in wanted if job.case.key not in known]
    with Bars() as bars, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        bar = bars.add("sessions", len(missing))
        for future in as_completed([pool.submit(job.row) for job in missing]):
            found = future.result()
            known[key_of(found)] = found
            notes.write(RESULT, list(known.values()))
            bar.advance(text=f"{key_of(found)}: {found['accuracy']:.1f} %")
        bar.end()
    return [known[job.case.key] for job in wanted]


def key_of(found: Row) -> str:
    return "/".join(str(found[part]) for part in ("dataset", "network", "protocol", "arm", "seed"))
