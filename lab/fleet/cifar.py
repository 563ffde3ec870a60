"""CIFAR-10 divided over boards: the federation of devices against others that take as many steps.

full    whole updates, the device's arithmetic
dgc     updates of a hundredth of the bytes (tools/fleet/dgc.py)
float   federated averaging in PyTorch: the same quantized forward pass, real errors, float weights
alone   each board from its own images
pooled  one board with all images
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.results.cases import Cell
from lab.results.execute import WORK as RESULTS
from lab.results.execute import convert, prepare, task_of
from microtrain.base.plan import read_plan
from microtrain.base.schema import keys
from microtrain.device.session import Settings, ordered
from microtrain.fleet import dgc
from microtrain.fleet.board import Host, HostBoard
from microtrain.fleet.federation import Closed, Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work, overhead
from microtrain.fleet.rounding import derived
from microtrain.fleet.split import dirichlet
from microtrain.samples.source import Dataset, Sample
from microtrain.simulate.machine import Machine
from microtrain.simulate.records import Task, fill, show
from microtrain.simulate.rules import FLOAT
from microtrain.simulate.side_by_side import Group

NAME = "c1fa" * 4
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Case:
    """How the images are divided and how long is learned.

    steps   of a board in a round, at most
    lr      learning rate at the start; it falls to 0 over the rounds on a cosine
    share   bytes of a compressed update, in millionths of those of all trained values
    """

    boards: int = 10
    alpha: float = 1.0
    rounds: int = 20
    steps: int = 50
    lr: float = 0.002
    share: int = 10_000
    momentum: int = dgc.MOMENTUM
    seed: int = 0

    def factor(self, number: int) -> float:
        """On the learning rate, in a round counted from 1."""
        return 0.5 * (1 + math.cos(math.pi * (number - 1) / self.rounds))


class Scene:
    """The converted network, the images, and a machine that learns and measures."""

    def __init__(self, case: Case, data: Path) -> None:
        self.case = case
        prepare(data)
        cell = Cell("cifar10", "mcunet-5fps", "mcunet-49kb", 4)
        self.task = task_of(cell, False, data)
        list(fill(self.task, 1))
        plan = read_plan(convert(cell, data).folder / "plan.json")
        self.host = Host(plan, RESULTS / "lib", self._record)
        self._shown = show(self.task, self.host.machine)
        self.parts = dirichlet(self.task.training, case.boards, case.alpha, case.seed, 10)
        self.layout = Layout(plan)
        self.fresh = HostBoard(self.host, "here").fresh()
        self.unit = max(plan.scheme.learning_rate.all)

    def _record(self, machine: Machine, sample: Sample) -> np.ndarray:
        return self._shown(sample, None)

    def accuracy(self, block: bytes) -> float:
        return self.host.evaluate(block, self.task.testing).accuracy

    def order(self, number: int, board: int) -> list[Sample]:
        """What a board learns from in a round, as Member has it."""
        settings = Settings(seed=derived(self.case.seed, number, name_of(board)), limit=self.case.steps)
        return [sample for _, sample in ordered(self.parts[board], settings)]


def name_of(board: int) -> str:
    return f"board-{board}"


def federated(scene: Scene, share: int, momentum: int, tell: Tell) -> dict[str, Any]:
    """Boards of the device's arithmetic; accuracy and bytes by round."""
    case, layout = scene.case, scene.layout
    members = [
        Member(name_of(n), HostBoard(scene.host, name_of(n)), part, layout, layout)
        for n, part in enumerate(scene.parts)
    ]
    fleet = Federation(layout, layout.read(scene.fresh), case.seed, NAME)
    accuracies, sizes = [], []
    for number in range(1, case.rounds + 1):
        rate = case.lr / scene.unit * case.factor(number)
        work = Work(NAME, limit=case.steps, rate=rate, share=share, momentum=momentum)
        closed = one_round(fleet, members, work)
        accuracies.append(scene.accuracy(layout.write(fleet.values, scene.fresh)))
        sizes.append(closed.received / len(members))
        tell(f"round {number}: {accuracies[-1]:.1%}, {sizes[-1]:,.0f} B a board")
    return {"accuracy": accuracies, "bytes": sizes, "sha256": fleet.sha256()}


def one_round(fleet: Federation, members: list[Member], work: Work) -> Closed:
    fleet.begin()
    for node, member in enumerate(members):
        fleet.take(member.handle(fleet.task(work, node)), node)
    return fleet.close()


def alone(scene: Scene, dataset: Dataset, steps: int) -> float:
    """Accuracy of a board that takes so many steps from a set of images."""
    case, board = scene.case, HostBoard(scene.host, "alone")
    epochs = -(-steps // min(steps, len(dataset.samples)))
    settings = Settings(
        epochs=epochs,
        limit=-(-steps // epochs),
        seed=case.seed,
        rate=case.lr / scene.unit,
        schedule="cosine",
    )
    return scene.accuracy(board.learn(board.fresh(), dataset, settings).block)


def in_float(scene: Scene, tell: Tell) -> list[float]:
    """Federated averaging in PyTorch: the boards side by side, each round from the mean of the last."""
    case, task = scene.case, float_task(scene)
    torch.set_num_threads(1)
    group = Group(task, [Settings(seed=case.seed)] * case.boards, FLOAT, lambda logs: None)
    judge = Group(task, [Settings(seed=case.seed)], FLOAT, lambda logs: None)
    shared = [state[:1].clone() for state in group.net.state()]
    accuracies = []
    for number in range(1, case.rounds + 1):
        for run in range(case.boards):
            group.net.restore(run, [one.expand(case.boards, *one.shape[1:]) for one in shared])
        learn_round(scene, group, number)
        weights = torch.tensor([float(len(part.samples)) for part in scene.parts])
        weights /= weights.sum()
        shared = [torch.tensordot(weights, state, 1)[None] for state in group.net.state()]
        judge.net.restore(0, shared)
        judge.evaluate(number)
        accuracies.append(judge.logs[0].evaluations[-1].accuracy)
        tell(f"float round {number}: {accuracies[-1]:.1%}")
    return accuracies


def float_task(scene: Scene) -> Task:
    return replace(scene.task, arithmetic="float")


def learn_round(scene: Scene, group: Group, number: int) -> None:
    """Every board's steps of a round; one that has fewer images rests at its end."""
    case = scene.case
    orders = [scene.order(number, board) for board in range(case.boards)]
    for step in range(max(map(len, orders))):
        shown = [(0, order[min(step, len(order) - 1)]) for order in orders]
        works = np.array([step < len(order) for order in orders], np.float32)
        rate = case.lr * case.factor(number)
        rates = torch.tensor(np.outer(works * np.float32(rate), group.rates))
        group.step(step + 1, shown, rates)


def sizes(layout: Layout, change: np.ndarray) -> dict[str, int]:
    """Bytes of a round's update, by how it is sent."""
    nothing = np.zeros(layout.size, np.int64)
    found = {"full weights": dgc.full_bytes(layout), "int8 delta": dgc.delta_bytes(layout, change)}
    for share in (100_000, 10_000, 1_000):
        room = dgc.budget(layout, share) - overhead(name_of(0))
        sent = dgc.compressed(layout, change, nothing, nothing, room, 0)
        found[f"dgc {share / 10_000:g} %"] = len(sent.body) + overhead(name_of(0))
    return found


def study(case: Case, data: Path, tell: Tell) -> dict[str, Any]:
    """All of it."""
    scene = Scene(case, data)
    full = federated(scene, 0, 0, tell)
    compressed = federated(scene, case.share, case.momentum, tell)
    fresh = scene.layout.read(scene.fresh)
    board = HostBoard(scene.host, "sizes")
    first = board.learn(scene.fresh, scene.parts[0], Settings(limit=case.steps, rate=case.lr / scene.unit))
    steps = case.rounds * case.steps
    lonely = [alone(scene, part, steps) for part in scene.parts]
    tell(f"alone: {np.mean(lonely):.1%} on average, {max(lonely):.1%} at best")
    pooled = alone(scene, scene.task.training, steps * case.boards)
    tell(f"pooled: {pooled:.1%}")
    return {
        "case": {name: getattr(case, name) for name in keys(Case)},
        "samples": [len(part.samples) for part in scene.parts],
        "full": full,
        "dgc": compressed,
        "float": in_float(scene, tell),
        "alone": lonely,
        "pooled": pooled,
        "sizes": sizes(scene.layout, scene.layout.read(first.block) - fresh),
    }
