"""The demo's fleet once more, for what the demo itself does not say: float, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from microtrain.demo.run import CLASSES
from microtrain.fleet.demo import ALPHA, DRAW, LIMIT, OUTPUT, RATE, prepare
from microtrain.fleet.split import dirichlet
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import Dataset, scan
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import library
from microtrain.simulate.records import Task

from .cases import Pace
from .leakage import DEFENCES, Defence
from .study import Scene, Tell, together

BOARDS, ROUNDS = 4, 5  # of the demo
RATES = (0.3, 1.0, RATE)  # times the scheme's
DRAWS, CHOICE = (DRAW, DRAW + 2, DRAW + 3), DRAW + 1  # divisions of the images


@dataclass(frozen=True)
class Even(Pace):
    """The demo's learning rate does not fall."""

    def factor(self, number: int) -> float:
        return 1.0


def scene(boards: int, rounds: int) -> Scene:
    """The demo's boards, by its names, with its images."""
    prepared = prepare(boards)
    return divided(OUTPUT / "generated", prepared.parts, prepared.testing, Even(rounds, LIMIT), RATE)


def divided(folder: Path, parts: Sequence[Dataset], testing: Dataset, pace: Pace, rate: float) -> Scene:
    """Boards with such parts of the digits, and the network of a folder of convert's.

    rate  times the scheme's largest
    """
    plan = load_blueprint(folder)
    named = {f"board-{n + 1}": part for n, part in enumerate(parts)}
    made, images = library(plan, OUTPUT / "library"), (together(named), testing)
    task = Task(plan, made, *images, Augmentation(), 1, None)
    return Scene(replace(pace, lr=rate * max(plan.rates)), task, named, OUTPUT / "library")


def defended(folders: Mapping[str, Path], images: Path, tell: Tell) -> dict[str, dict[str, Any]]:
    """What fleets of the demo's size learn whose boards send as each defence has it: rate and accuracies.

    folders  of convert's, by scheme
    images   the folder of the demo's
    The rate, times the scheme's, is the best of three by a division of the images that is not reported.
    """
    training, testing = (scan(images / name, CLASSES) for name in ("train", "test"))
    found = {}
    for defence in DEFENCES:

        def learned(draw: int, rate: float, defence: Defence = defence) -> float:
            parts = dirichlet(training, BOARDS, ALPHA, draw)
            pace = Even(ROUNDS, LIMIT, seed=draw)
            return defence.learn(divided(folders[defence.scheme], parts, testing, pace, rate))

        rate = max(RATES, key=lambda rate: learned(CHOICE, rate))
        each = [learned(draw, rate) for draw in DRAWS]
        found[defence.name] = {"rate": rate, "accuracies": each, "accuracy": sum(each) / len(each)}
        shown = ", ".join(f"{one:.1%}" for one in each)
        tell(f"{defence.name}: {sum(each) / len(each):.1%} ({shown}), {rate:g} times the scheme's rates")
    return found
