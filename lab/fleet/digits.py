"""The demo's fleet once more, for what the demo itself does not say: float, and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from microtrain.fleet.demo import LIMIT, OUTPUT, RATE, prepare
from microtrain.samples.augment import Augmentation
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import library
from microtrain.simulate.records import Task

from .cases import Pace
from .study import Scene, together


@dataclass(frozen=True)
class Even(Pace):
    """The demo's learning rate does not fall."""

    def factor(self, number: int) -> float:
        return 1.0


def scene(boards: int, rounds: int) -> Scene:
    """The demo's boards, by its names, with its images."""
    prepared = prepare(boards)
    plan = load_blueprint(OUTPUT / "generated")
    parts = {f"board-{n + 1}": part for n, part in enumerate(prepared.parts)}
    made, images = library(plan, OUTPUT / "library"), (together(parts), prepared.testing)
    task = Task(plan, made, *images, Augmentation(), 1, None)
    return Scene(Even(rounds, LIMIT, RATE * max(plan.rates)), task, parts, OUTPUT / "library")
