"""Simulated sessions that learn from targets, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from microtrain.base.errors import Error
from microtrain.base.files import write_json
from microtrain.base.plan import REGRESSION
from microtrain.base.progress import Bars
from microtrain.base.schema import encode
from microtrain.base.terminal import say
from microtrain.device.measured import Log, in_words, new_log, train, units
from microtrain.device.session import Settings, skips
from microtrain.device.shown import Shown

from .arithmetic import DEVICE
from .guard import LastGood
from .records import Task, show, show_filling


def check(arithmetic: str) -> None:
    """Error where targets cannot be learned from so."""
    if arithmetic != DEVICE:
        raise Error(f"--arithmetic {arithmetic} learns from labels alone: leave it out.")


def sessions(task: Task, settings: Sequence[Settings], jobs: int) -> list[Log]:
    """A session for each of the settings."""
    logs = []
    with Bars() as bars:
        show_filling(task, jobs, bars)
        machine = task.machine()
        images = show(task, machine)
        if task.plan.scheme.task == REGRESSION:
            for sentence in units(machine, task.training, images):
                bars.say(sentence)
        for chosen in settings:
            machine.reset()
            log, guard = new_log(machine, task.training.classes, chosen), LastGood(machine)
            train(machine, task.training, task.testing, log, Shown(bars), images, guard.spoiled)
            logs.append(log)
    return logs


def settings_of(base: Settings, factors: Sequence[float], seeds: Sequence[int]) -> list[Settings]:
    """For each pair of a rate and a seed."""
    return [Settings(**{**asdict(base), "rate": f, "seed": s}) for f, s in product(factors, seeds)]


def tell(task: Task, logs: list[Log]) -> None:
    """The result, two lines a run."""
    plan = task.plan
    say(f"{plan.name}, scheme {plan.scheme.name}, {len(logs[0].steps)} steps of batch size 1")
    for log in logs:
        name = f"lr{plan.absolute(log.settings.rate):g}-seed{log.settings.seed}"
        say(f"  {name:16} before: {in_words(plan.scheme.task, log.evaluations[0])}")
        say(f"  {'':16} after:  {in_words(plan.scheme.task, log.evaluations[-1])}")
        if said := skips(log):
            say(f"    {said}")
        if log.diverged:
            say(f"    diverged at step {log.diverged}: these are the last good weights; lower --lr")


def save(folder: Path, task: Task, logs: list[Log], command: str) -> Path:
    """Write results.json. Errors   Error where it cannot be written"""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": 2,
        "command": command,
        "task": task.plan.scheme.task,
        "plan": {"name": task.plan.name, "model_id": task.plan.model_id, "scheme": encode(task.plan.scheme)},
        "outputs": list(task.training.classes),
        "runs": [_run(task, log) for log in logs],
    }
    write_json(folder / "results.json", document)
    return folder / "results.json"


def _run(task: Task, log: Log) -> dict[str, Any]:
    return {
        "seed": log.settings.seed,
        "lr": task.plan.absolute(log.settings.rate),
        "epochs": log.settings.epochs,
        "steps": len(log.steps),
        "evaluations": [asdict(evaluation) for evaluation in log.evaluations],
        "trained_sha256": log.sha256,
        "skipped": log.skipped,
        "diverged": log.diverged,
    }
