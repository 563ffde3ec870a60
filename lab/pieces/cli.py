"""Command line: `make pieces`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import click

from lab import marks, notes
from lab.cores.machines import CORES, Core
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.convert import pieces

from . import held_out
from .fit import fitted
from .library import SOURCES, Batch, known, libraries
from .measure import Counted, Longest, built, counted, engine, roomy
from .table import Margins, margins, markdown

FOLDER = ROOT / "build/pieces"
PAGE, COMMAND = ROOT / "lab/pages/pieces.md", "make pieces"
WORKS = (1, 10_000, 60_000)
FLAGS = ("-O2", "-Os")
NAMES = [core.name for core in CORES if core.qemu and core.name in pieces.CORES]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--core", "chosen", multiple=True, type=click.Choice(NAMES), help="Only these cores.")
@click.option("--fit", is_flag=True, help="Measure nothing: fit to what build/pieces holds.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(sorted(SOURCES)),
    help="Only these networks, for ops that have no bounds yet: all others keep theirs.",
)
def main(chosen: tuple[str, ...], fit: bool, sources: tuple[str, ...]) -> None:
    """Measure the longest pieces of many networks, and fit a bound to them: tools/convert/pieces.json.

    The programs are built with -O2 and with -Os, and run in QEMU. What was measured is in
    build/pieces/CORE.json: a command that was stopped goes on there, and only what has changed is measured
    again. Cores that are not chosen keep the bounds they had. Networks that were not fitted with are held
    against the bounds: lab/pages/pieces.md, where all cores were measured.
    """
    cores = [roomy(core) for core in CORES if core.name in (chosen or NAMES)]
    try:
        own = sources or SOURCES
        batches = known(FOLDER, own) if fit else libraries(FOLDER, WORKS, own)
        if not fit:
            measure(cores, batches)
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            jobs = {core.name: pool.submit(bounded, core, batches) for core in cores}
            found = {name: job.result() for name, job in jobs.items()}
    except Error as error:
        raise click.ClickException(str(error)) from error
    old = pieces.read()
    fresh = {name: added(old.get(name, {}), own) if sources else own for name, (own, _) in found.items()}
    prices = {**old, **fresh}
    pieces.COEFFICIENTS.write_text(json.dumps(prices, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    rows = {name: row for name, (_, row) in found.items() if row is not None}
    say(markdown(rows))
    if set(rows) == set(NAMES):
        marks.insert(PAGE, COMMAND, {"margins": markdown(rows)})
    if any(row.passed for row in rows.values()):
        raise click.ClickException("a network that was not fitted with has a piece above its bound.")


def added(old: Mapping[str, pieces.Priced], own: Mapping[str, pieces.Priced]) -> Mapping[str, pieces.Priced]:
    """What had bounds, and those of ops that had none."""
    return dict(sorted({**own, **old}.items()))


def bounded(core: Core, batches: Sequence[Batch]) -> tuple[Mapping[str, pieces.Priced], Margins | None]:
    """Coefficients of a core, and how far they are above networks that they were not fitted with, if any."""
    own = [batch for batch in batches if batch.source not in held_out.SOURCES]
    others = [batch for batch in batches if batch.source in held_out.SOURCES]
    helium = core.name == pieces.HELIUM
    prices = fitted(measured(core, own), helium)
    held = list(measured(core, others))
    return prices, margins(held, pieces.Model(prices, helium)) if held else None


def result(core: Core) -> Path:
    return FOLDER / f"{core.name}.json"


def key(batch: Batch, flag: str) -> str:
    return f"{batch.name} {flag} {batch.digest}"


def programs(batches: Sequence[Batch]) -> Iterator[tuple[Batch, str]]:
    """What is built of each, with which flag: others than those that are fitted with in one way alone."""
    for batch in batches:
        yield from ((batch, flag) for flag in (FLAGS[:1] if batch.source in held_out.SOURCES else FLAGS))


def measure(cores: Sequence[Core], batches: Sequence[Batch]) -> None:
    """What has not been measured yet, as many programs at once as this machine has cores."""
    for core in cores:
        if core.missing:
            raise Error(f"{core.missing} is not installed: choose other cores with --core.")
        done = notes.read(result(core), {})
        left = [(batch, flag) for batch, flag in programs(batches) if key(batch, flag) not in done]
        with Bars() as bars, ThreadPoolExecutor(os.cpu_count()) as pool:
            bar = bars.add(core.name, len(left))
            for flag in sorted({flag for _, flag in left}):
                engine(core, left[0][0].library, FOLDER / "programs" / left[0][0].engine, flag)
            jobs = {pool.submit(lines, core, batch, flag): key(batch, flag) for batch, flag in left}
            for job in as_completed(jobs):
                notes.note(result(core), **{jobs[job]: job.result()})
                bar.advance()


def lines(core: Core, batch: Batch, flag: str) -> list[Counted]:
    """What a program counts."""
    program = built(core, batch.library, FOLDER / "programs" / batch.engine, flag)
    found = list(counted(core, program, list(batch.graphs())))
    program.unlink()
    return found


def measured(core: Core, batches: Sequence[Batch]) -> Iterator[Longest]:
    """What has been measured of a core."""
    done = notes.read(result(core), {})
    if missing := [batch.name for batch, flag in programs(batches) if key(batch, flag) not in done]:
        raise Error(f"{core.name} was not measured with {', '.join(missing[:3])}: leave --fit out.")
    graphs = {batch: batch.graphs() for batch in batches}
    for batch, flag in programs(batches):
        for each in (Counted(*line) for line in done[key(batch, flag)]):
            yield Longest(graphs[batch][each.model], each, core.tick_ns)
