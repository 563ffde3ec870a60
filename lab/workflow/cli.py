"""Command line: a job of .github/workflows/ci.yml in a bare Debian root."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from lab import notes
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import say

from . import jobs
from .jobs import Job, Step
from .root import Root

RESULT = ROOT / "build/workflow.json"
WORK = ROOT / "build/workflow"
CHECKOUT = "actions/checkout"


def pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE of several options."""
    return {name: value for name, _, value in (each.partition("=") for each in given)}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job")
@click.option(
    "--matrix",
    "-m",
    "line",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="Which line of its matrix.",
)
@click.option(
    "--root", "folder", metavar="DIR", type=click.Path(path_type=Path), help="The root. [build/workflow/...]"
)
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="PATH",
    type=click.Path(exists=True, path_type=Path),
    help="A file or folder of this machine that the root needs, certificates for example; several times.",
)
@click.option(
    "--env",
    "kept",
    multiple=True,
    metavar="NAME",
    help="A variable that every step gets from here; several times.",
)
@click.option(
    "--var",
    "variables",
    multiple=True,
    callback=pairs,
    metavar="NAME=VALUE",
    help="A variable of the repository.",
)
@click.option(
    "--skip",
    multiple=True,
    metavar="WORDS",
    help="Leave out steps whose name holds these words; several times.",
)
def main(
    job: str,
    line: dict[str, str],
    folder: Path | None,
    binds: tuple[Path, ...],
    kept: tuple[str, ...],
    variables: dict[str, str],
    skip: tuple[str, ...],
) -> None:
    """Replay JOB of the workflow in a bare Debian root, as root, and say how long each step took.

    The root is made by debootstrap where it is missing; the checkout is of the last commit. Steps that use
    other actions than the checkout are left out, and told. Exit status 1 where a step fails.
    """
    given = {key: os.environ[key] for key in kept if key in os.environ}
    try:
        chosen = next(jobs.chosen(jobs.jobs(jobs.load(), variables), job, line))
        root = Root((folder or WORK / chosen.image.replace(":", "-")).absolute(), binds)
        root.make(chosen.image)
        root.checkout()
        rows = replayed(chosen, root, given, skip)
    except Error as error:
        raise click.ClickException(str(error)) from error
    notes.note(RESULT, **{" ".join([job, *chosen.chosen.values()]): rows})
    sys.exit(0 if all(row["verdict"] != "failed" for row in rows) else 1)


def replayed(job: Job, root: Root, given: dict[str, str], skip: tuple[str, ...]) -> list[dict[str, object]]:
    """A row for each step: its name, seconds, and passed, failed or left out."""
    end = time.monotonic() + 60 * job.minutes
    rows: list[dict[str, object]] = []
    failed = False
    for step in job.steps:
        start = time.monotonic()
        verdict = _verdict(step, skip, failed)
        if not verdict:
            code = root.run(step.run, {**job.environment, **given}, max(1.0, end - start))
            verdict, failed = ("passed", failed) if code == 0 else ("failed", True)
        seconds = round(time.monotonic() - start, 1)
        rows.append({"step": step.name, "verdict": verdict, "seconds": seconds})
        say(f"{verdict:9} {seconds:8.1f} s  {step.name}")
    return rows


def _verdict(step: Step, skip: tuple[str, ...], failed: bool) -> str:
    """What is known of a step before it runs; "" where it is to run."""
    if step.uses.startswith(CHECKOUT):
        return "passed"
    if step.uses or any(words in step.name for words in skip) or (failed and not step.always):
        return "left out"
    return ""
