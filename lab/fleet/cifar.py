"""CIFAR-10 divided over boards, by a Dirichlet distribution."""

from __future__ import annotations

from pathlib import Path

from lab.results.cases import Cell
from lab.results.execute import WORK as RESULTS
from lab.results.execute import prepare, task_of
from microtrain.fleet.split import dirichlet

from .cases import Case
from .study import Scene

MOST_LEAST = 10  # images that every board has in a fleet of few


def scene(case: Case, data: Path) -> Scene:
    """5,000 images over the boards, MCUNet with the 49 KB scheme. Errors as dirichlet()"""
    prepare(data)
    task = task_of(Cell("cifar10", "mcunet-5fps", "mcunet-49kb", 4), False, data)
    # A distribution that leaves a tenth of 100 boards with less than 10 images would be drawn for ever.
    least = max(1, min(MOST_LEAST, len(task.training.samples) // case.boards // 50))
    parts = dirichlet(task.training, case.boards, case.alpha, case.seed, least)
    return Scene(case, task, {f"board-{n}": part for n, part in enumerate(parts)}, RESULTS / "lib")
