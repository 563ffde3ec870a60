"""Command line: a converted model, a folder of images, some seeds and rates."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from microtrain.base.errors import Error
from microtrain.base.options import Number, collected, option
from microtrain.base.terminal import console, say
from microtrain.device.client import REPLAY_MAX
from microtrain.device.session import Settings
from microtrain.samples.augment import Augmentation
from microtrain.samples.images import WAYS
from microtrain.samples.source import hold_out, split

from .arithmetic import ARITHMETICS, check, check_order
from .blueprint import Blueprint, load_blueprint
from .machine import library
from .records import Task, fill
from .replay import DEFAULT, buffer_size
from .results import label, save
from .runs import Note, Outcome, run_all

WORK = Path("build/simulate")
FOLDER = click.Path(path_type=Path)


class Kinds(click.ParamType):  # type: ignore[type-arg]
    """Augmentations, separated by commas, or "none"."""

    name = "kinds"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if not isinstance(value, str):
            return value
        kinds = () if value == "none" else tuple(value.split(","))
        unknown = set(kinds) - set(WAYS)
        if unknown:
            self.fail(f"{', '.join(sorted(unknown))}: choose from {', '.join(WAYS)}, or none.", param, ctx)
        return tuple(kind for kind in WAYS if kind in kinds)


@dataclass(frozen=True)
class Wanted:
    """What a simulation is asked for."""

    data: Path = option("--data", type=FOLDER, required=True, metavar="DIR", help="Images, see above.")
    epochs: int = option(
        "--epochs", default=1, show_default=True, type=click.IntRange(1), help="Passes over the images."
    )
    rates: tuple[float, ...] = option(
        "--lr",
        multiple=True,
        default=(1.0,),
        show_default=True,
        type=Number(0, 1000),
        help="Factor on the scheme's learning rates; give several to compare them.",
    )
    seeds: tuple[int, ...] = option(
        "--seed",
        multiple=True,
        default=(0,),
        show_default=True,
        type=click.IntRange(0, 2**32 - 1),
        help="Seed of the order and of the rounding; give several for a mean.",
    )
    schedule: str = option(
        "--schedule",
        type=click.Choice(["cosine", "constant"]),
        default="cosine",
        show_default=True,
        help="Of the learning rates: cosine falls to 0 over the session.",
    )
    warmup: int = option(
        "--warmup", default=0, type=click.IntRange(0), metavar="N", help="Steps of rising learning rates."
    )
    kinds: tuple[str, ...] = option(
        "--augment",
        type=Kinds(),
        default=",".join(WAYS),
        show_default=True,
        help="How training images vary from epoch to epoch, or none.",
    )
    variants: int = option(
        "--variants", default=8, show_default=True, type=click.IntRange(1), help="At most so many per image."
    )
    arithmetic: str = option(
        "--arithmetic",
        type=click.Choice(ARITHMETICS),
        default=ARITHMETICS[0],
        show_default=True,
        help="The device's, or one to compare it with.",
    )
    torch_device: str = option(
        "--torch-device",
        default="cpu",
        show_default=True,
        metavar="NAME",
        help="Where float runs, as in cuda:0.",
    )
    validation: bool = option(
        "--validation", is_flag=True, help="Hold out one training image in five instead of the test images."
    )
    order: str = option(
        "--order",
        type=click.Choice(["shuffled", "classes"]),
        default="shuffled",
        show_default=True,
        help="Order of the training images: classes come one after the other, each for all of its epochs.",
    )
    replay: int | None = option(
        "--replay",
        type=click.IntRange(0, REPLAY_MAX),
        metavar="K",
        help=f"Steps on old images after each new one. [{DEFAULT} with a replay buffer]",
    )
    rehearse: int = option(
        "--rehearse",
        default=0,
        type=click.IntRange(0),
        metavar="N",
        help="At the end, N steps on old images alone, with a rate that falls to 0.",
    )
    records: int | None = option(
        "--records", type=click.IntRange(0), metavar="N", help="Size of the replay buffer, if not the plan's."
    )
    limit: int = option(
        "--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N images per epoch."
    )
    eval_every: int = option(
        "--eval-every",
        default=0,
        type=click.IntRange(0),
        metavar="N",
        help="Evaluate every N steps. [each epoch]",
    )
    no_cache: bool = option("--no-cache", is_flag=True, help="Compute every layer in every step.")
    jobs: int = option(
        "--jobs", default=0, type=click.IntRange(0), metavar="N", help="Processes. [all cores]"
    )
    output: Path | None = option(
        "-o", "--output", type=FOLDER, metavar="DIR", help=f"Where results go. [{WORK}/NAME of the model]"
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("plan", type=FOLDER)
@collected(Wanted, into="wanted")
def main(plan: Path, wanted: Wanted) -> None:
    """Fine-tune a converted model on this machine, with the device's own C code and random numbers.

    --arithmetic float does it in PyTorch instead, with real-valued errors and float weights.

    PLAN is the folder that microtrain convert wrote. DIR holds train.txt and val.txt (one line CLASS/FILE per
    image), or folders train and val (or test) of class folders, or class folders (one image in five is held
    out).

    \b
    microtrain simulate firmware/generated --data photos --epochs 10 --lr 1 --lr 3 --seed 0 --seed 1
    """
    try:
        model, outcomes, files = run(plan, wanted)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    show(model, outcomes, files)


def run(plan: Path, wanted: Wanted) -> tuple[Blueprint, list[Outcome], list[Path]]:
    """Every pair of a rate and a seed; returns the model, what came of each, and the files written."""
    model = load_blueprint(plan)
    task = task_of(model, wanted)
    outcomes = simulate(task, settings_of(task, wanted), wanted.jobs or os.cpu_count() or 1)
    folder = wanted.output or WORK / model.name
    folder.mkdir(parents=True, exist_ok=True)
    return model, outcomes, save(folder, task, outcomes, wanted.data, shlex.join(sys.argv))


def task_of(model: Blueprint, wanted: Wanted) -> Task:
    """What all runs share. Error where the model cannot learn so, or the images are not as they should be."""
    check(model, wanted.arithmetic)
    training, testing = split(wanted.data, model.classes)
    if wanted.validation:
        training, testing = hold_out(training)
    memory = buffer_size(model, wanted.records, wanted.rehearse > 0 or wanted.replay is not None)
    check_order(wanted.arithmetic, wanted.order, memory)
    return Task(
        plan=model,
        library=library(model, WORK / "lib"),
        training=training,
        testing=testing,
        augmentation=Augmentation(wanted.kinds, wanted.variants),
        epochs=wanted.epochs,
        cache=None if wanted.no_cache else WORK / "records",
        arithmetic=wanted.arithmetic,
        trainer=library(model, WORK / "lib", wanted.arithmetic),
        device=wanted.torch_device,
        memory=memory,
    )


def settings_of(task: Task, wanted: Wanted) -> list[Settings]:
    """Of each run."""
    epoch = min(wanted.limit or len(task.training.samples), len(task.training.samples))
    base = Settings(
        epochs=wanted.epochs,
        limit=wanted.limit,
        eval_every=wanted.eval_every or (epoch if wanted.order == "shuffled" else 0),
        schedule=wanted.schedule,
        warmup=wanted.warmup,
        order=wanted.order,
        replay=wanted.replay,
        rehearse=wanted.rehearse,
    )
    return [replace(base, rate=rate, seed=seed) for rate, seed in product(wanted.rates, wanted.seeds)]


def simulate(task: Task, runs: list[Settings], jobs: int) -> list[Outcome]:
    """Compute the records, then run everything, with progress bars and early reports on stderr."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as progress:
        bar = progress.add_task("frozen layers", total=None, visible=False)
        for done, total in fill(task, jobs):
            progress.update(bar, completed=done, total=total, visible=True)
        steps = min(runs[0].limit or len(task.training.samples), len(task.training.samples)) * task.epochs
        names = [f"lr {run.rate:g}, seed {run.seed}" for run in runs]
        bars = [progress.add_task(name, total=steps) for name in names]
        reported = dict.fromkeys(range(len(runs)), 0)

        def tell(note: Note) -> None:
            progress.update(bars[note.run], completed=note.steps)
            if note.evaluated > reported[note.run]:
                reported[note.run] = note.evaluated
                progress.console.print(f"{names[note.run]}: {note.accuracy:.1%} after {note.evaluated} steps")

        outcomes = run_all(task, runs, jobs, tell)
        for bar in bars:
            progress.update(bar, completed=steps)
    return outcomes


def show(model: Blueprint, outcomes: list[Outcome], files: list[Path]) -> None:
    """The result, one line per run."""
    say(f"{model.name}, scheme {model.scheme.name}, {len(outcomes[0].log.steps)} steps of batch size 1")
    for outcome in outcomes:
        first, last = outcome.log.evaluations[0], outcome.log.evaluations[-1]
        change = f"{first.accuracy:6.1%} -> {last.accuracy:6.1%} of {last.total} held-out images"
        rate = len(outcome.log.steps) / outcome.seconds
        say(f"  {label(outcome):16} {change}, {rate:.0f} steps/s, sha256 {outcome.log.sha256[:16]}")
        if outcome.log.diverged:
            say(f"    diverged at step {outcome.log.diverged}: these are the last good weights; lower --lr")
    say(f"wrote {', '.join(map(str, files))}")
