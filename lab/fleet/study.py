"""A data set divided over boards: the federation of devices against others that take as many steps.

full    whole updates, the device's arithmetic
dgc     updates of a hundredth of the bytes, or another share (tools/fleet/dgc.py)
float   federated averaging in PyTorch: the same quantized forward pass, real errors, float weights
alone   each board from its own samples
pooled  one board with all samples
sizes   bytes of a first update, by how it is sent
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from microtrain.base.plan import read_plan
from microtrain.device.session import Settings, ordered
from microtrain.fleet import dgc
from microtrain.fleet.board import Host, HostBoard
from microtrain.fleet.federation import Closed, Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work, overhead
from microtrain.fleet.private import Private
from microtrain.fleet.rounding import derived
from microtrain.samples.source import Dataset, Sample
from microtrain.simulate.machine import Machine
from microtrain.simulate.parallel import Parallel
from microtrain.simulate.records import Task, fill, show
from microtrain.simulate.rules import FLOAT
from microtrain.simulate.side_by_side import Group

from .cases import Pace

NAME = "c1fa" * 4
LONELY = 10  # boards of a large fleet that are asked what they learn alone
Tell = Callable[[str], None]


class Scene:
    """The converted network, the samples of each board by its name, and a machine that learns and measures.

    library  folder of the compiled model
    tests    what each board itself would be tested with, where that is not the same for all
    """

    def __init__(
        self,
        pace: Pace,
        task: Task,
        parts: Mapping[str, Dataset],
        library: Path,
        tests: Mapping[str, Dataset] | None = None,
    ) -> None:
        self.pace, self.task, self.parts, self.tests = pace, task, dict(parts), dict(tests or {})
        list(fill(task, 1))
        plan = read_plan(task.plan.folder / "plan.json")
        self.host = Host(plan, library, self._record)
        self._shown = show(task, self.host.machine)
        self.layout = Layout(plan)
        self.fresh = HostBoard(self.host, "here").fresh()
        self.rates = np.array(plan.scheme.learning_rate.all)

    def _record(self, machine: Machine, sample: Sample) -> np.ndarray:
        return self._shown(sample, None)

    @property
    def factor(self) -> float:
        """On the scheme's rates, at the start."""
        return self.pace.lr / float(self.rates.max())

    def accuracy(self, block: bytes, testing: Dataset | None = None) -> float:
        return self.host.evaluate(block, testing or self.task.testing).accuracy

    def own(self, block: bytes) -> dict[str, float]:
        """Accuracy on the tests of each board, where it has its own."""
        return {name: self.accuracy(block, tests) for name, tests in self.tests.items()}

    def order(self, number: int, board: str) -> list[Sample]:
        """What a board learns from in a round, as Member has it."""
        settings = Settings(seed=derived(self.pace.seed, number, board), limit=self.pace.steps)
        return [sample for _, sample in ordered(self.parts[board], settings)]


def together(parts: Mapping[str, Dataset]) -> Dataset:
    """The samples of all boards."""
    first = next(iter(parts.values()))
    return replace(first, samples=tuple(sample for part in parts.values() for sample in part.samples))


def federated(
    scene: Scene, share: int, momentum: int, tell: Tell, private: Private | None = None
) -> dict[str, Any]:
    """Boards of the device's arithmetic; accuracy and bytes by round.

    private  every update is cut and blurred
    """
    pace, layout = scene.pace, scene.layout
    members = [
        Member(name, HostBoard(scene.host, name), part, layout, layout) for name, part in scene.parts.items()
    ]
    for number, member in enumerate(members):
        member.private, member.draws = private, np.random.default_rng([pace.seed, number])
    fleet = Federation(layout, layout.read(scene.fresh), pace.seed, NAME)
    accuracies, sizes = [], []
    for number in range(1, pace.rounds + 1):
        rate = scene.factor * pace.factor(number)
        work = Work(NAME, limit=pace.steps, rate=rate, share=share, momentum=momentum)
        closed = one_round(fleet, members, work)
        accuracies.append(scene.accuracy(layout.write(fleet.values, scene.fresh)))
        sizes.append(closed.received / len(members))
        tell(f"round {number}: {accuracies[-1]:.1%}, {sizes[-1]:,.0f} B a board")
    found = {"accuracy": accuracies, "bytes": sizes, "sha256": fleet.sha256()}
    own = scene.own(layout.write(fleet.values, scene.fresh))
    return found | ({"own": own} if own else {})


def one_round(fleet: Federation, members: list[Member], work: Work) -> Closed:
    fleet.begin()
    for node, member in enumerate(members):
        fleet.take(member.handle(fleet.task(work, node)), node)
    return fleet.close()


def alone(scene: Scene, dataset: Dataset, steps: int) -> bytes:
    """The trainables of a board that takes so many steps from a set of samples."""
    board = HostBoard(scene.host, "alone")
    epochs = -(-steps // min(steps, len(dataset.samples)))
    settings = Settings(
        epochs=epochs,
        limit=-(-steps // epochs),
        seed=scene.pace.seed,
        rate=scene.factor,
        schedule="cosine",
    )
    return board.learn(board.fresh(), dataset, settings).block


def lonely(scene: Scene) -> list[str]:
    """Boards that are asked what they learn alone: all, or of many some with few and many samples."""
    names = sorted(scene.parts, key=lambda name: len(scene.parts[name].samples))
    return (
        names
        if len(names) <= LONELY
        else [names[(2 * n + 1) * len(names) // (2 * LONELY)] for n in range(LONELY)]
    )


def by_themselves(scene: Scene, tell: Tell) -> list[dict[str, Any]]:
    """What boards know that learn from their own samples, as many steps as in all rounds."""
    rows = []
    for name in lonely(scene):
        part = scene.parts[name]
        block = alone(scene, part, scene.pace.rounds * scene.pace.steps)
        row = {"board": name, "samples": len(part.samples), "accuracy": scene.accuracy(block)}
        rows.append(row | ({"own": scene.accuracy(block, scene.tests[name])} if scene.tests else {}))
        tell(f"{name} alone: {rows[-1]['accuracy']:.1%}")
    return rows


def pooled(scene: Scene, tell: Tell) -> float:
    """One board with the samples of all, as many steps as all boards together."""
    steps = scene.pace.rounds * sum(min(scene.pace.steps, len(p.samples)) for p in scene.parts.values())
    found = scene.accuracy(alone(scene, scene.task.training, steps))
    tell(f"all samples in one place, {steps:,} steps: {found:.1%}")
    return found


def in_float(scene: Scene, tell: Tell, part: float = 1.0) -> list[float]:
    """Federated averaging in PyTorch: the boards side by side, each round from the mean of the last.

    part  of a board's change that is sent, its largest values; what is left is added to its next change
    """
    pace, task, boards = scene.pace, replace(scene.task, arithmetic="float"), len(scene.parts)
    torch.set_num_threads(1)
    group = Group(task, [Settings(seed=pace.seed)] * boards, FLOAT, lambda logs: None)
    judge = Group(task, [Settings(seed=pace.seed)], FLOAT, lambda logs: None)
    shared = [state[:1].clone() for state in group.net.state()]
    held, units = [torch.zeros_like(state) for state in group.net.state()], float_units(judge.net)
    accuracies = []
    for number in range(1, pace.rounds + 1):
        for run in range(boards):
            group.net.restore(run, [one.expand(boards, *one.shape[1:]) for one in shared])
        learn_round(scene, group, number)
        weights = torch.tensor([float(len(part.samples)) for part in scene.parts.values()])
        weights /= weights.sum()
        changes = [h + (state - was) for h, state, was in zip(held, group.net.state(), shared, strict=True)]
        sent = largest(changes, units, part)
        held = [change - one for change, one in zip(changes, sent, strict=True)]
        shared = [was + torch.tensordot(weights, one, 1)[None] for was, one in zip(shared, sent, strict=True)]
        judge.net.restore(0, shared)
        judge.evaluate(number)
        accuracies.append(judge.logs[0].evaluations[-1].accuracy)
        tell(f"float round {number}: {accuracies[-1]:.1%}")
    return accuracies


def largest(changes: list[torch.Tensor], units: list[torch.Tensor], part: float) -> list[torch.Tensor]:
    """Of every board's changes [boards][...] those that are largest in such units; the others are 0."""
    worths = [(change * unit).abs() for change, unit in zip(changes, units, strict=True)]
    sizes = torch.cat([worth.flatten(1) for worth in worths], 1)
    least = sizes.topk(max(1, int(part * sizes.shape[1])), 1).values[:, -1]
    return [
        torch.where(worth >= least.reshape(-1, *[1] * (worth.ndim - 1)), change, 0.0)
        for change, worth in zip(changes, worths, strict=True)
    ]


def float_units(net: Parallel) -> list[torch.Tensor]:
    """What one of each parameter is in the float model, to be multiplied with what state() returns."""
    found = []
    for (layer, kind), parameter in net.parameters.items():
        scale = net.constants[layer].scales.get(kind) if layer in net.constants else None
        unit = torch.ones(1) if scale is None else torch.where(torch.isinf(scale), 0.0, scale)
        found.append(unit.reshape(1, -1, *[1] * (parameter.ndim - 2)))
    return found


def learn_round(scene: Scene, group: Group, number: int) -> None:
    """Every board's steps of a round; one that has fewer samples rests at its end."""
    orders = [scene.order(number, board) for board in scene.parts]
    rates = scene.rates / scene.rates.max() * scene.pace.lr * scene.pace.factor(number)
    for step in range(max(map(len, orders))):
        shown = [(0, order[min(step, len(order) - 1)]) for order in orders]
        works = np.array([step < len(order) for order in orders], np.float32)
        group.step(step + 1, shown, torch.tensor(np.outer(works, rates.astype(np.float32))))


def sizes(scene: Scene) -> dict[str, int]:
    """Bytes of a first round's update, by how it is sent."""
    layout, (name, part) = scene.layout, next(iter(scene.parts.items()))
    settings = Settings(limit=scene.pace.steps, rate=scene.factor)
    first = HostBoard(scene.host, "sizes").learn(scene.fresh, part, settings)
    change = layout.read(first.block) - layout.read(scene.fresh)
    nothing = np.zeros(layout.size, np.int64)
    found = {"full weights": dgc.full_bytes(layout), "int8 delta": dgc.delta_bytes(layout, change)}
    for share in (100_000, 10_000, 1_000):
        room = dgc.budget(layout, share) - overhead(name)
        sent = dgc.compressed(layout, change, nothing, nothing, room, 0)
        found[f"dgc {share / 10_000:g} %"] = len(sent.body) + overhead(name)
    return found


ARMS: dict[str, Callable[[Scene, Tell], Any]] = {
    "full": lambda scene, tell: federated(scene, 0, 0, tell),
    "dgc": lambda scene, tell: federated(scene, scene.pace.share, scene.pace.momentum, tell),
    "float": in_float,
    "alone": by_themselves,
    "pooled": pooled,
    "sizes": lambda scene, tell: sizes(scene),
}


def study(scene: Scene, arms: Iterable[str], keep: Callable[[dict[str, Any]], None], tell: Tell) -> None:
    """All of it, or some; keep() has each as soon as it is there."""
    keep({"samples": [len(part.samples) for part in scene.parts.values()]})
    for name in arms:
        keep({name: ARMS[name](scene, tell)})
