"""Command line: a converted model, a folder of images, some seeds and rates."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from microtrain.base.errors import Error
from microtrain.base.terminal import console, say
from microtrain.device.client import REPLAY_MAX
from microtrain.device.session import Settings
from microtrain.samples.images import hold_out, split

from .arithmetic import ARITHMETICS, check, check_order
from .augment import KINDS, Augmentation
from .blueprint import Blueprint, load_blueprint
from .machine import library
from .records import Task, fill
from .replay import DEFAULT, buffer_size
from .results import label, save
from .runs import Note, Outcome, run_all

WORK = Path("build/simulate")
FOLDER = click.Path(path_type=Path)


class Kinds(click.ParamType):
    """Augmentations, separated by commas, or "none"."""

    name = "kinds"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if not isinstance(value, str):
            return value
        kinds = () if value == "none" else tuple(value.split(","))
        unknown = set(kinds) - set(KINDS)
        if unknown:
            self.fail(f"{', '.join(sorted(unknown))}: choose from {', '.join(KINDS)}, or none.", param, ctx)
        return tuple(kind for kind in KINDS if kind in kinds)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("plan", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, metavar="DIR", help="Images, see above.")
@click.option(
    "--epochs", default=1, show_default=True, type=click.IntRange(1), help="Passes over the images."
)
@click.option(
    "--lr", "rates", multiple=True, default=(1.0,), show_default=True, type=click.FloatRange(0, 1000),
    help="Factor on the scheme's learning rates; give several to compare them.",
)  # fmt: skip
@click.option(
    "--seed", "seeds", multiple=True, default=(0,), show_default=True, type=click.IntRange(0, 2**32 - 1),
    help="Seed of the order and of the rounding; give several for a mean.",
)  # fmt: skip
@click.option(
    "--schedule", type=click.Choice(["cosine", "constant"]), default="cosine", show_default=True,
    help="Of the learning rates: cosine falls to 0 over the session.",
)  # fmt: skip
@click.option(
    "--warmup", default=0, type=click.IntRange(0), metavar="N", help="Steps of rising learning rates."
)
@click.option(
    "--augment", "kinds", type=Kinds(), default=",".join(KINDS), show_default=True,
    help="How training images vary from epoch to epoch, or none.",
)  # fmt: skip
@click.option(
    "--variants", default=8, show_default=True, type=click.IntRange(1), help="At most so many per image."
)
@click.option(
    "--arithmetic", type=click.Choice(ARITHMETICS), default=ARITHMETICS[0], show_default=True,
    help="The device's, or one to compare it with.",
)  # fmt: skip
@click.option(
    "--torch-device", default="cpu", show_default=True, metavar="NAME", help="Where float runs, as in cuda:0."
)
@click.option(
    "--validation", is_flag=True, help="Hold out one training image in five instead of the test images."
)
@click.option(
    "--order", type=click.Choice(["shuffled", "classes"]), default="shuffled", show_default=True,
    help="Order of the training images: classes come one after the other, each for all of its epochs.",
)  # fmt: skip
@click.option(
    "--replay", type=click.IntRange(0, REPLAY_MAX), metavar="K",
    help=f"Steps on old images after each new one. [{DEFAULT} with a replay buffer]",
)  # fmt: skip
@click.option(
    "--rehearse", default=0, type=click.IntRange(0), metavar="N",
    help="At the end, N steps on old images alone, with a rate that falls to 0.",
)  # fmt: skip
@click.option(
    "--records", type=click.IntRange(0), metavar="N", help="Size of the replay buffer, if not the plan's.",
)  # fmt: skip
@click.option("--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N images per epoch.")
@click.option(
    "--eval-every",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Evaluate every N steps. [each epoch]",
)
@click.option("--no-cache", is_flag=True, help="Compute every layer in every step.")
@click.option("--jobs", default=0, type=click.IntRange(0), metavar="N", help="Processes. [all cores]")
@click.option(
    "-o", "--output", type=FOLDER, metavar="DIR", help=f"Where results go. [{WORK}/NAME of the model]"
)
def main(
    plan: Path,
    data: Path,
    epochs: int,
    rates: tuple[float, ...],
    seeds: tuple[int, ...],
    schedule: str,
    warmup: int,
    kinds: tuple[str, ...],
    variants: int,
    arithmetic: str,
    torch_device: str,
    validation: bool,
    order: str,
    replay: int | None,
    rehearse: int,
    records: int | None,
    limit: int,
    eval_every: int,
    no_cache: bool,
    jobs: int,
    output: Path | None,
) -> None:
    """Fine-tune a converted model on this machine, with the device's own C code and random numbers.

    --arithmetic float does it in PyTorch instead, with real-valued errors and float weights.

    PLAN is the folder that tools/convert wrote. DIR holds train.txt and val.txt (one line CLASS/FILE per
    image), or folders train and val (or test) of class folders, or class folders (one image in five is held
    out).

    \b
    python tools/simulate firmware/generated --data photos --epochs 10 --lr 1 --lr 3 --seed 0 --seed 1
    """
    try:
        model = load_blueprint(plan)
        check(model, arithmetic)
        training, testing = split(data, model.classes)
        if validation:
            training, testing = hold_out(training)
        memory = buffer_size(model, records, rehearse > 0 or replay is not None)
        check_order(arithmetic, order, memory)
        made, trainer = library(model, WORK / "lib"), library(model, WORK / "lib", arithmetic)
        cache, augmentation = None if no_cache else WORK / "records", Augmentation(kinds, variants)
        task = Task(
            model,
            made,
            training,
            testing,
            augmentation,
            epochs,
            cache,
            arithmetic,
            trainer,
            torch_device,
            memory,
        )
        epoch = min(limit or len(training.samples), len(training.samples))
        pace = eval_every or (epoch if order == "shuffled" else 0)
        base = Settings(epochs, 0, limit, pace, 0.0, schedule, warmup, order, replay, rehearse)
        runs = [replace(base, rate=rate, seed=seed) for rate, seed in product(rates, seeds)]
        outcomes = simulate(task, runs, jobs or os.cpu_count() or 1)
        folder = output or WORK / model.name
        folder.mkdir(parents=True, exist_ok=True)
        files = save(folder, task, outcomes, data, shlex.join(sys.argv))
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    show(model, outcomes, files)


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
    """The result in a line a run."""
    say(f"{model.name}, scheme {model.scheme.name}, {len(outcomes[0].log.steps)} steps of batch size 1")
    for outcome in outcomes:
        first, last = outcome.log.evaluations[0], outcome.log.evaluations[-1]
        change = f"{first.accuracy:6.1%} -> {last.accuracy:6.1%} of {last.total} held-out images"
        rate = len(outcome.log.steps) / outcome.seconds
        say(f"  {label(outcome):16} {change}, {rate:.0f} steps/s, sha256 {outcome.log.sha256[:16]}")
        if outcome.log.diverged:
            say(f"    diverged at step {outcome.log.diverged}: these are the last good weights; lower --lr")
    say(f"wrote {', '.join(map(str, files))}")
