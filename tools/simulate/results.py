"""What a simulation leaves: results.json, and a learning curve and a page of each run."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import Any

from microtrain.base.files import write_json
from microtrain.base.schema import encode
from microtrain.device.answers import REPLAY_DEFAULT
from microtrain.device.curve import save_curve
from microtrain.device.session import Evaluation, Log
from microtrain.device.session_page import save_page

from .blueprint import Blueprint
from .records import Task
from .runs import Outcome

LOSS_EVERY = 50  # steps that a point of the loss curve is the mean of


def label(plan: Blueprint, outcome: Outcome) -> str:
    """Names a run in files and on the terminal."""
    settings = outcome.log.settings
    return f"lr{plan.absolute(settings.rate):g}-seed{settings.seed}"


def save(folder: Path, task: Task, outcomes: list[Outcome], data: Path, command: str) -> list[Path]:
    """Write results.json, the curves and the pages; returns the files.

    Errors   Error where a file cannot be written
    """
    document = {
        "format": 2,
        "command": command,
        "arithmetic": task.arithmetic,
        "plan": {
            "name": task.plan.name,
            "model_id": task.plan.model_id,
            "scheme": encode(task.plan.scheme),
            "sram": encode(task.plan.memory),
        },
        "data": {
            "folder": str(data),
            "classes": list(task.training.classes),
            "train": len(task.training.samples),
            "test": len(task.testing.samples),
        },
        "augmentation": asdict(task.augmentation),
        "runs": [of_run(task.plan, outcome) for outcome in outcomes],
        "by_lr": by_rate(task.plan, outcomes),
    }
    write_json(folder / "results.json", document)
    curves = [save_curve(folder / f"{label(task.plan, outcome)}.svg", outcome.log)[0] for outcome in outcomes]
    pages = [page(folder, task, outcome) for outcome in outcomes]
    return [folder / "results.json", *curves, *pages]


def page(folder: Path, task: Task, outcome: Outcome) -> Path:
    """A run's own page."""
    path = folder / f"{label(task.plan, outcome)}.html"
    save_page(path, outcome.log, task.plan.shape, [task.training, task.testing])
    return path


def of_run(plan: Blueprint, outcome: Outcome) -> dict[str, Any]:
    """One run, as results.json holds it."""
    log, settings = outcome.log, outcome.log.settings
    steps = len(log.steps)
    return {
        "seed": settings.seed,
        "lr": plan.absolute(settings.rate),
        "lr_factor": settings.rate,
        "schedule": settings.schedule,
        "warmup": settings.warmup,
        "epochs": settings.epochs,
        "order": settings.order,
        "replay": replay_of(outcome),
        "steps": steps,
        "accuracy": {
            "before": log.evaluations[0].accuracy,
            "after": log.evaluations[-1].accuracy,
            "curve": [
                {"step": e.step, "accuracy": e.accuracy, "seen": of_seen(log, e)} for e in log.evaluations
            ],
        },
        "loss": {"every": LOSS_EVERY, "mean": losses(outcome)},
        "trained_sha256": log.sha256,
        "skipped": log.skipped,
        "diverged": log.diverged,
        "halvings": log.halvings,
        "gave_up": log.gave_up,
        "steps_per_second": round(outcome.pace, 1),
    }


def of_seen(log: Log, evaluation: Evaluation) -> float | None:
    """Accuracy on the held-out images of the classes that were learned from before; None before all."""
    seen = {step.label for step in log.steps[: evaluation.step]}
    counts = [evaluation.by_class[label] for label in seen]
    return sum(correct for correct, _ in counts) / sum(total for _, total in counts) if counts else None


def replay_of(outcome: Outcome) -> dict[str, int] | None:
    """Records of the buffer, and replayed steps behind each new one and at the end; None without a buffer."""
    settings, records = outcome.log.settings, outcome.log.device["records"]
    if not records:
        return None
    steps = REPLAY_DEFAULT if settings.replay is None else settings.replay
    return {"records": records, "steps": steps, "rehearse": settings.rehearse}


def losses(outcome: Outcome) -> list[float | None]:
    """Mean loss of each LOSS_EVERY steps; None where it is not finite."""
    values = [step.loss for step in outcome.log.steps]
    means = [
        statistics.fmean(values[start : start + LOSS_EVERY]) for start in range(0, len(values), LOSS_EVERY)
    ]
    return [mean if math.isfinite(mean) else None for mean in means]


def by_rate(plan: Blueprint, outcomes: list[Outcome]) -> list[dict[str, float]]:
    """Mean and standard deviation of the final accuracy over the seeds, for each learning rate."""
    rates = dict.fromkeys(outcome.log.settings.rate for outcome in outcomes)
    rows = []
    for rate in rates:
        final = [o.log.evaluations[-1].accuracy for o in outcomes if o.log.settings.rate == rate]
        about = {"lr": plan.absolute(rate), "lr_factor": rate}
        rows.append(about | {"accuracy": statistics.fmean(final), "deviation": statistics.pstdev(final)})
    return rows
