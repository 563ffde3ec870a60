"""Command line: a converted model, a folder of images, some seeds and rates."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.options import LearningRate, Number, collected, option
from microtrain.base.plan import MULTILABEL
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.device.answers import REPLAY_DEFAULT, REPLAY_MAX
from microtrain.device.options import (
    FACTOR_HELP,
    LR_HELP,
    Course,
    factors,
    imprints,
    in_words,
    warn_of_variants,
)
from microtrain.device.session import SHUFFLED, Settings, per_epoch, setback, skips
from microtrain.device.teaching import course_of
from microtrain.samples.measured import hold_out as hold_out_measured
from microtrain.samples.measured import split_table
from microtrain.samples.source import Dataset, hold_out, split

from . import measured
from .arithmetic import ARITHMETICS, FLOAT, check, check_order
from .blueprint import Blueprint, load_blueprint
from .machine import library
from .records import Task, show_filling
from .replay import buffer_size
from .results import label, save
from .runs import Note, Outcome, run_all

WORK = Path("build/simulate")
FOLDER = click.Path(path_type=Path)


@dataclass(frozen=True)
class Samples:
    """What a simulation learns from."""

    data: Path = option("--data", type=FOLDER, required=True, metavar="DIR", help="Samples, see above.")


@dataclass(frozen=True)
class Wanted(Course, Samples):
    """What a simulation is asked for."""

    lrs: tuple[float, ...] = option(
        "--lr", multiple=True, type=LearningRate(0), help=f"{LR_HELP} Give several to compare them."
    )
    given: tuple[float, ...] = option(
        "--lr-factor",
        multiple=True,
        type=Number(0, 1000),
        help=f"{FACTOR_HELP} Give several to compare them.",
    )
    seeds: tuple[int, ...] = option(
        "--seed",
        multiple=True,
        default=(0,),
        show_default=True,
        type=click.IntRange(0, 2**32 - 1),
        help="Seed of the order and of the rounding; give several for a mean.",
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
        "--validation",
        is_flag=True,
        help="Test with one training sample in five instead of those held out.",
    )
    replay: int | None = option(
        "--replay",
        type=click.IntRange(0, REPLAY_MAX),
        metavar="K",
        help=f"Steps on old samples after each new one. [{REPLAY_DEFAULT} with a replay buffer]",
    )
    records: int | None = option(
        "--records", type=click.IntRange(0), metavar="N", help="Size of the replay buffer, if not the plan's."
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
    sample), or folders train and val (or test) of class folders, or class folders (one sample in five is
    held out). For --task regression and multilabel it holds targets.csv, or folders train and val with one
    each.

    \b
    microtrain simulate firmware/generated --data samples --lr 0.002 --lr 0.006 --seed 0
    """
    try:
        model = load_blueprint(plan)
        if model.scheme.task:
            teach(model, wanted)
            return
        outcomes, files = run(model, wanted)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    show(model, outcomes, files)


def teach(model: Blueprint, wanted: Wanted) -> None:
    """Every pair of a rate and a seed, of a model that learns from targets."""
    measured.check(wanted.arithmetic)
    chosen = factors(wanted.lrs, wanted.given, model.rates) or (1.0,)
    jobs = wanted.jobs or os.cpu_count() or 1
    course = course_of(wanted, model.scheme.task)
    wanted = replace(wanted, **{f.name: getattr(course, f.name) for f in fields(Course)})
    task = task_of(model, wanted)
    say(in_words(wanted, chosen, model.rates, files=task.training.files))
    every = wanted.eval_every or per_epoch(task.training, wanted.limit)
    base = wanted.settings(chosen[0], wanted.seeds[0], every, None)
    logs = measured.sessions(task, measured.settings_of(base, chosen, wanted.seeds), jobs)
    measured.tell(task, logs)
    folder = wanted.output or WORK / model.name
    say(f"wrote {measured.save(folder, task, logs, shlex.join(sys.argv))}")


def run(model: Blueprint, wanted: Wanted) -> tuple[list[Outcome], list[Path]]:
    """Every pair of a rate and a seed; returns what came of each, and the files written."""
    asked = factors(wanted.lrs, wanted.given, model.rates)
    imprint = imprint_first(model, wanted)
    task = task_of(model, wanted)
    found = wanted.situation(model.shape, task.training, task.memory, imprint, model.known > 0)
    chosen = asked or (wanted.factor_in(found),)
    wanted = wanted.resolved(found)
    epochs = max(wanted.epochs or 1, wanted.views or 1)
    task = replace(task, epochs=epochs, augmentation=wanted.augmentation)
    say(in_words(wanted, chosen, model.rates, imprint, task.training.files))
    warn_of_variants(wanted, task.training)
    runs = settings_of(task, wanted, chosen, imprint)
    outcomes = simulate(task, runs, wanted.jobs or os.cpu_count() or 1)
    folder = wanted.output or WORK / model.name
    folder.mkdir(parents=True, exist_ok=True)
    return outcomes, save(folder, task, outcomes, wanted.data, shlex.join(sys.argv))


def task_of(model: Blueprint, wanted: Wanted) -> Task:
    """What all runs share. Error where the model cannot learn so, or the images are not as they should be."""
    check(model, wanted.arithmetic)
    training, testing = sets_of(model, wanted)
    memory = buffer_size(model, wanted.records, bool(wanted.rehearse) or wanted.replay is not None)
    check_order(wanted.arithmetic, wanted.order, memory)
    return Task(
        plan=model,
        library=library(model, WORK / "lib"),
        training=training,
        testing=testing,
        augmentation=wanted.augmentation,
        epochs=wanted.epochs or 1,
        cache=None if wanted.no_cache else WORK / "records",
        arithmetic=wanted.arithmetic,
        trainer=library(model, WORK / "lib", wanted.arithmetic),
        device=wanted.torch_device,
        memory=memory,
    )


def sets_of(model: Blueprint, wanted: Wanted) -> tuple[Dataset, Dataset]:
    """Samples to learn from and to be tested with."""
    task = model.scheme.task
    if task:
        training, testing = split_table(wanted.data, model.classes, holds=task == MULTILABEL)
    else:
        training, testing = split(wanted.data, model.classes, model.known)
    if wanted.validation:
        training, testing = (hold_out_measured if task else hold_out)(training)
    return training, testing


def imprint_first(model: Blueprint, wanted: Wanted) -> bool:
    """Whether the runs begin with a head that is made of one look at each image."""
    able = model.looks and wanted.arithmetic != FLOAT
    if able != model.looks:
        say("in float, sessions begin with the scheme's head, without a look at each sample first")
    return imprints(wanted.imprint, able, fresh=True)


def settings_of(task: Task, wanted: Wanted, chosen: Sequence[float], imprint: bool) -> list[Settings]:
    """Of each run. chosen: factors on the scheme's learning rates; imprint: they begin with one look."""
    every = wanted.eval_every or (per_epoch(task.training, wanted.limit) if wanted.order == SHUFFLED else 0)
    pairs = product(chosen, wanted.seeds)
    free = not (wanted.lrs or wanted.given)
    return [wanted.settings(factor, seed, every, wanted.replay, imprint, free) for factor, seed in pairs]


def simulate(task: Task, runs: list[Settings], jobs: int) -> list[Outcome]:
    """Compute the records, then run everything, with its progress and early reports on stderr."""
    with Bars() as bars:
        show_filling(task, jobs, bars)
        steps = per_epoch(task.training, runs[0].limit) * runs[0].epochs
        names = [f"lr {task.plan.absolute(run.rate):g}, seed {run.seed}" for run in runs]
        own = [bars.add(name, steps) for name in names]
        reported = dict.fromkeys(range(len(runs)), 0)

        def tell(note: Note) -> None:
            own[note.run].set(note.steps, note.text)
            if note.evaluated > reported[note.run]:
                reported[note.run] = note.evaluated
                bars.say(f"{names[note.run]}: {note.accuracy:.1%} after {note.evaluated} steps")

        outcomes = run_all(task, runs, jobs, tell)
        for bar in own:
            bar.set(steps)
            bar.end()
    return outcomes


def show(model: Blueprint, outcomes: list[Outcome], files: list[Path]) -> None:
    """The result, one line per run."""
    say(f"{model.name}, scheme {model.scheme.name}, {outcomes[0].steps} steps of batch size 1")
    for outcome in outcomes:
        first, last = outcome.log.evaluations[0], outcome.log.evaluations[-1]
        change = f"{first.accuracy:6.1%} -> {last.accuracy:6.1%} of {last.total} held-out {outcome.log.noun}s"
        pace, sha = f"{outcome.pace:.0f} steps/s", f"sha256 {outcome.log.sha256[:16]}"
        say(f"  {label(model, outcome):16} {change}, {pace}, {sha}")
        if said := skips(outcome.log):
            say(f"    {said}")
        if said := setback(outcome.log, "these are the last good weights"):
            say(f"    {said}")
    say(f"wrote {', '.join(map(str, files))}")
