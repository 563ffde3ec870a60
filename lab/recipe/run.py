"""Runs a case: converts, looks, trains, and judges on images that nothing has seen."""

from __future__ import annotations

import fcntl
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import torch

from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.plan import Plan, read_plan
from microtrain.convert.default_scheme import FRACTION_BITS
from microtrain.convert.pipeline import FIRMWARE_SRAM
from microtrain.device.session import Silent, evaluate, imprint, new_log, shuffled, spread, train
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import Dataset, Sample, class_folders, split
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.network import load_network
from microtrain.simulate.records import Task, fill, show

from . import closed, pc
from .cases import CLOSED, LOOK, PC, PROTOCOLS, RATES, SCHEMES, SRAM_KB, TESTED, Case

WORK = ROOT / "build/recipe"
Row = dict[str, Any]


class Arm:
    """One case, ready to run.

    data   the folder of its images; model: the network's file
    """

    def __init__(self, case: Case, data: Path, model: Path) -> None:
        self.case, self.settings = case, case.settings()
        classes = len(class_folders(data / "train" if (data / "train").is_dir() else data))
        self.plan = converted(case, model, classes)
        training, testing = split(data, classes)
        self.training = few(training, PROTOCOLS[case.protocol].shots, case.seed)
        self.testing = Dataset(testing.classes, spread(testing.samples, TESTED))
        blueprint = load_blueprint(self.plan.path)
        made, records = library(blueprint, WORK / "lib"), WORK / "records"
        self.task = Task(
            blueprint, made, self.training, self.testing, Augmentation(), self.settings.epochs, records
        )
        list(fill(self.task, 1))
        self.machine = Machine(blueprint, made)
        self.show = show(self.task, self.machine)

    def accuracy(self) -> float:
        """On the held-out images, 0..1."""
        if self.case.arm in CLOSED:
            head = closed.HEADS[self.case.arm](*self.features(self.training), len(self.training.classes))
            return closed.accuracy(head, *self.features(self.testing))
        if self.case.arm == PC:
            return max(self.on_a_pc(rate) for rate in RATES)
        if self.case.arm == LOOK:
            imprint(self.machine, self.training, self.settings, Silent(), self.show)
            return evaluate(self.machine, self.testing, Silent(), show=self.show).accuracy
        log = new_log(self.machine, self.training.classes, self.settings)
        train(self.machine, self.training, self.testing, log, Silent(), self.show)
        return log.evaluations[-1].accuracy

    def features(self, dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
        """Of each image, centred and in stored units, and its label."""
        steps = load_network(self.plan.path.parent, self.plan.model_id).steps
        place = next(t for t in self.plan.tensors if t.name == steps[-1].inputs[0])
        found = []
        for sample in dataset.samples:
            self.machine.evaluate(self.show(sample, None), sample.label)
            found.append(self.machine.model.keep(((place.offset, place.bytes),)).view(np.int8))
        return np.array(found, float), np.array([sample.label for sample in dataset.samples])

    def on_a_pc(self, rate: float) -> float:
        """The same trainables in PyTorch."""
        torch.set_num_threads(1)
        shown = list(shuffled(self.training, self.settings))
        per = len(self.training.samples)

        def views(epoch: int) -> tuple[np.ndarray, np.ndarray]:
            return self.records([(e, s) for e, s in shown[epoch * per : (epoch + 1) * per]])

        net = pc.trained(self.task.plan, views, self.settings.epochs, rate, self.case.seed)
        return pc.accuracy(self.task.plan, net, *self.records([(None, s) for s in self.testing.samples]))

    def records(self, shown: list[tuple[int | None, Sample]]) -> tuple[np.ndarray, np.ndarray]:
        found = np.stack([self.show(sample, epoch) for epoch, sample in shown])
        return found, np.array([sample.label for _, sample in shown])


def options(case: Case, classes: int) -> list[str]:
    """Of convert."""
    scheme = ["--scheme", case.scheme] if case.network in SCHEMES or case.arm == "head" else []
    chosen = [*scheme, "--fraction-bits", str(FRACTION_BITS)] if scheme else []
    return [*chosen, "--classes", str(classes), "--budget-sram", str(SRAM_KB)]


def converted(case: Case, model: Path, classes: int) -> Plan:
    """The plan of a network; converted where there is none. Error where it does not convert."""
    folder = WORK / "plans" / f"{case.network}-{case.scheme}-{classes}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "plan.json").exists():
            done = run(ours("tools/convert", model, *options(case, classes), "-o", folder))
            if done.returncode:
                raise Error(last_line(done))
    return read_plan(folder / "plan.json")


def few(dataset: Dataset, shots: int, seed: int) -> Dataset:
    """So many samples of each class, drawn by the seed; all where there are fewer."""
    chosen: list[Sample] = []
    for label in range(len(dataset.classes)):
        own = [sample for sample in dataset.samples if sample.label == label]
        order = np.random.default_rng((seed, label)).permutation(len(own))[:shots]
        chosen += [own[i] for i in sorted(order)]
    return Dataset(dataset.classes, tuple(chosen))


def row(case: Case, data: Path, model: Path, words: tuple[str, ...]) -> Row:
    """The case's row of build/recipe.json. words: options that name other data and another model."""
    torch.set_num_threads(1)
    arm = Arm(case, data, model)
    return {
        "dataset": case.dataset,
        "network": case.network,
        "scheme": arm.plan.scheme.name,
        "protocol": case.protocol,
        "arm": case.arm,
        "seed": case.seed,
        "accuracy": round(100 * arm.accuracy(), 2),
        "sram": arm.plan.sram.arena + arm.plan.sram.trainables + FIRMWARE_SRAM,
        "command": shlex.join(["python", "lab/recipe", "--only", case.key, *words]),
    }
