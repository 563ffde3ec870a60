"""Converts, trains and judges: one job in a process of its own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.files import unpacked
from microtrain.base.paths import ROOT
from microtrain.device.learning import train
from microtrain.device.session import Log, Settings, Silent, new_log
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import hold_out, split
from microtrain.simulate.arithmetic import check
from microtrain.simulate.blueprint import Blueprint, load_blueprint
from microtrain.simulate.guard import LastGood
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.records import Task, fill, show

from .cases import ARCHIVES, CLASSES, Cell, Job, Session

WORK = ROOT / "build/results"
Row = dict[str, Any]


def prepare(data: Path) -> None:
    """Unpack the image sets once. Error where an archive is missing or damaged."""
    for name, archive in ARCHIVES.items():
        unpacked(data / "sets" / archive, WORK / "sets" / name)


def convert(cell: Cell, data: Path) -> Blueprint:
    """The cell's plan; converted where there is none."""
    folder = WORK / "plans" / cell.plan
    model = data / "models" / f"{cell.network}.pkl"
    options = ["--classes", str(CLASSES), "--scheme", cell.scheme, "--fraction-bits", str(cell.fraction_bits)]
    options += ["--imprint", "off"]
    if not (folder / "plan.json").exists():
        done = run(ours("tools/convert", model, *options, "--board", "native", "-o", folder))
        if done.returncode:
            raise Error(last_line(done))
    return load_blueprint(folder)


def task_of(cell: Cell, validation: bool, data: Path) -> Task:
    """What the simulator needs of a cell."""
    plan = replace(convert(cell, data), rates=cell.ratios)
    arithmetic = "float" if cell.arithmetic == "study" else cell.arithmetic
    check(plan, arithmetic)
    training, testing = split(WORK / "sets" / cell.dataset, CLASSES)
    if validation:
        training, testing = hold_out(training)
    made, trainer = library(plan, WORK / "lib"), library(plan, WORK / "lib", arithmetic)
    records = WORK / "records"
    return Task(plan, made, training, testing, Augmentation(), cell.epochs, records, arithmetic, trainer)


def execute(job: Job, data: Path) -> list[Row]:
    """All sessions of a job; a row each."""
    task = task_of(job.cell, job.sessions[0].validation, data)
    list(fill(task, 1))
    settings = settings_of(job, task.epochs)
    if task.arithmetic == "float":
        from microtrain.simulate.side_by_side import sessions

        logs, _ = sessions(task, settings, lambda logs: None, job.cell.rules)
    else:
        logs = [one(task, s) for s in settings]
    plan = hashlib.sha256((task.plan.folder / "plan.json").read_bytes()).hexdigest()
    return [row(job.cell, s, log, plan) for s, log in zip(job.sessions, logs, strict=True)]


def settings_of(job: Job, epochs: int) -> list[Settings]:
    """Of each session of a job."""
    base = Settings(epochs, schedule="cosine", warmup=job.cell.warmup)
    return [replace(base, seed=s.seed, rate=s.lr) for s in job.sessions]


def one(task: Task, settings: Settings) -> Log:
    return trained(task, settings, task)[1]


def trained(task: Task, settings: Settings, records: Task) -> tuple[Machine, Log]:
    """A machine after a session, and what happened in it.

    records    the task itself, or one like it with more images: whose records show the images
    """
    machine = task.machine()
    log = new_log(machine, task.training, settings)
    train(machine, task.training, task.testing, log, Silent(), show(records, machine), LastGood(machine))
    return machine, log


def row(cell: Cell, session: Session, log: Any, plan: str) -> Row:
    """What the tables hold of a session."""
    losses = [step.loss for step in log.steps]
    recent = losses[-500:]
    of_study = (
        {}
        if not cell.variant
        else {
            "variant": cell.variant,
            "skipped": round(sum(loss < cell.rules.gate for loss in losses) / len(losses), 4),
        }
    )
    return of_study | {
        "dataset": cell.dataset,
        "network": cell.network,
        "scheme": cell.scheme,
        "fraction_bits": cell.fraction_bits,
        "arithmetic": cell.arithmetic,
        "seed": session.seed,
        "lr": session.lr,
        "validation": session.validation,
        "accuracy": round(log.evaluations[-1].accuracy, 6),
        "loss": round(sum(recent) / len(recent), 4),
        "steps": len(log.steps),
        "diverged": log.diverged,
        "plan_sha256": plan,
        "trained_sha256": log.sha256,
    }
