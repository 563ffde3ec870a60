"""Command line of the mutation testing."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path

import click

from lab import notes
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import say

from . import record, run, table
from .bugs import NAMED
from .builds import FOLDER
from .operators import Mutant
from .run import GROUPS, HAND, Plan, Result
from .worker import NOTICED, SURVIVED

RESULT = ROOT / "build/mutation.json"
LOG = FOLDER / "results.jsonl"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Of the draw; the same seed plants the same."
)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Workers side by side.")
@click.option("--only", type=click.IntRange(1), help="Mutants of each group at most, instead of all.")
@click.option(
    "--every", type=click.IntRange(1), help="Run every suite, not only up to the first, on 1 of N mutants."
)
@click.option("--survivors", is_flag=True, help="Try again those that survived and are not explained.")
@click.option(
    "--page",
    is_flag=True,
    help="Try nothing, but write lab/pages/mutation.md of what was tried.",
)
def main(seed: int, jobs: int, only: int | None, every: int | None, survivors: bool, page: bool) -> None:
    """Plant bugs in the firmware, one at a time, and see which suite of tests notices each.

    Results go to build/mutation.json. A run that was stopped goes on where it was, as long as the firmware is
    the same. The exit status is 1 where fewer than 200 are planted, less than 95 % are noticed, or a
    survivor is not explained in lab/mutation/survivors.json.
    """
    try:
        found = _known(seed) if page else _run(seed, jobs, only, every, survivors)
    except (Error, ValueError) as error:
        raise click.ClickException(str(error)) from error
    notes.write(RESULT, found)
    if page:
        table.write_page(found)
    click.echo(table.summary(found))
    lacks = record.short_of(found, 0 if only else record.PLANTED)
    for text in lacks:
        say(f"mutation: {text}", err=True)
    sys.exit(1 if lacks else 0)


def _run(seed: int, jobs: int, only: int | None, every: int | None, survivors: bool) -> record.Record:
    say("mutation: building the programs without a bug")
    stamp = run.prepare()
    groups = run.drawn(seed)
    wanted = {HAND: len(groups[HAND]), **GROUPS}
    if only:
        wanted = {group: min(only, number) for group, number in wanted.items()}
    results = _read(stamp)
    if survivors:
        known = record.reasons()
        results = {n: result for n, result in results.items() if result["state"] != SURVIVED or n in known}
    if every:
        results = {n: result for n, result in results.items() if result["every"] or not _chosen(n, every)}
    plan = Plan(groups, wanted, results)
    started = time.monotonic()

    def done(group: str, mutant: Mutant, result: Result) -> None:
        result["every"] = _chosen(mutant.name, every)
        with LOG.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"stamp": stamp, "name": mutant.name, "result": result}) + "\n")
        counted = sum(len(plan.counted(name)) for name in groups)
        whole = sum(wanted.values())
        by = f" by {result['by']}" if result["state"] == NOTICED else ""
        minutes = (time.monotonic() - started) / 60
        say(f"mutation: {counted} of {whole}, {minutes:.0f} min: {result['state']}{by}: {mutant.name}")

    seconds = run.work(plan, jobs, lambda mutant: _chosen(mutant.name, every), done)
    return record.made_of(plan, seed, seconds)


def _known(seed: int) -> record.Record:
    """The record of what earlier runs on this firmware have tried."""
    plan = Plan(run.drawn(seed), {HAND: len(list(run.by_hand(ROOT))), **GROUPS}, _read(run.made_of()))
    plan.only_what_is_known()
    seconds = run.known_seconds()
    if not seconds:
        raise Error("nothing is known of this firmware yet: run `make mutation`.")
    return record.made_of(plan, seed, seconds)


def _chosen(name: str, every: int | None) -> bool:
    """Whether every suite runs on the mutant of a name: it is a named one, or of the sample."""
    if name in NAMED.values():
        return True
    return every is not None and hashlib.sha256(name.encode()).digest()[0] % every == 0


def _read(stamp: str, log: Path = LOG) -> dict[str, Result]:
    """Results of earlier runs on the same firmware; of two of one mutant the later."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.is_file() else []
    entries = [json.loads(line) for line in lines]
    return {entry["name"]: entry["result"] for entry in entries if entry["stamp"] == stamp}
