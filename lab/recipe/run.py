"""Runs a case: converts, looks, trains, and judges on images that nothing has seen."""

from __future__ import annotations

import fcntl
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
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
from microtrain.device.learning import evaluate, imprint, train
from microtrain.device.session import Learner, Silent, new_log, shuffled, spread
from microtrain.samples.augment import Augmentation
from microtrain.samples.source import Dataset, Sample
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.network import load_network
from microtrain.simulate.records import Task, fill, show
from microtrain.simulate.replay import Rehearsing

from . import closed, pc
from .cases import (
    CHOSEN,
    CLOSED,
    EXACT,
    GATES,
    LOOK,
    PC,
    PROTOCOLS,
    RATES,
    SRAM_KB,
    TESTED,
    TYPICAL,
    Case,
)
from .sets import parted

WORK = ROOT / "build/recipe"
Row = dict[str, Any]


class Arm:
    """One case, ready to run.

    data   the folder of its images; model: the network's file
    """

    def __init__(self, case: Case, data: Path, model: Path) -> None:
        self.case = case
        training, testing = parted(data)
        self.plan = converted(case, model, training)
        self.training = few(training, PROTOCOLS[case.protocol].shots, case.seed)
        self.testing = Dataset(testing.classes, spread(testing.samples, TESTED))
        blueprint = load_blueprint(self.plan.path)
        self.settings = case.settings(len(self.training.samples), blueprint.records)
        made, records = library(blueprint, WORK / "lib"), WORK / "records"
        epochs = max(self.settings.epochs, self.settings.views)
        self.task = Task(blueprint, made, self.training, self.testing, Augmentation(), epochs, records)
        list(fill(self.task, 1))
        self.machine = Machine(blueprint, made)
        self.show = show(self.task, self.machine)
        self.skipped = 0.0  # share of the steps that ended at their loss
        self.trained = ""  # SHA-256 of the trainables at the end; "" where no device learned

    def accuracy(self) -> float:
        """On the held-out images, 0..1."""
        if self.case.arm in CLOSED:
            head = closed.HEADS[self.case.arm](*self.features(self.training), len(self.training.classes))
            return closed.accuracy(head, *self.features(self.testing))
        if self.case.arm == PC:
            return max(self.on_a_pc(rate) for rate in RATES)
        if self.case.arm == LOOK:
            imprint(self.machine, self.training, self.settings, Silent(), self.show)
            self.trained = self.machine.sha()
            return evaluate(self.machine, self.testing, Silent(), show=self.show).accuracy
        learner: Learner = self.machine
        if self.case.remembers:
            learner = Rehearsing(self.machine, self.task.plan.records)
        log = new_log(learner, self.training, self.settings)
        train(learner, self.training, self.testing, log, Silent(), self.show)
        self.skipped, self.trained = log.skipped / self.machine.steps, log.sha256
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


def options(case: Case, model: Path, training: Dataset) -> list[str]:
    """Of convert."""
    scheme = [] if case.scheme == CHOSEN else ["--scheme", str(case.file)]
    chosen = [*scheme, "--fraction-bits", str(FRACTION_BITS)] if scheme else []
    chosen += ["--classes", str(len(training.classes))]
    chosen += ["--budget-sram", str(case.remembers or SRAM_KB)]
    chosen += [] if case.remembers else ["--replay", "off"]
    chosen += ["--replay-code", "off"] if case.arm == EXACT else []
    chosen += ["--gate", str(GATES[case.arm])] if case.arm in GATES else []
    shown = ["--calibration", str(typical(case.dataset, training))] if calibrated(case, model) else []
    return [*chosen, *shown]


def calibrated(case: Case, model: Path) -> bool:
    """Whether conversion looks at images: for ranges of a network in float, and for codes of records."""
    return model.suffix != ".pkl" or bool(case.remembers)


def typical(name: str, training: Dataset) -> Path:
    """A folder with some of the images to learn from, for ranges and codes; made where it is missing."""
    folder = WORK / "typical" / name
    with locked(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{name}.part")
            part.mkdir(exist_ok=True)
            for number, sample in enumerate(spread(training.samples, TYPICAL)):
                shutil.copyfile(sample.path, part / f"{number}{sample.path.suffix}")
            part.replace(folder)
    return folder


def converted(case: Case, model: Path, training: Dataset) -> Plan:
    """The plan of a network; converted where there is none. Error where it does not convert."""
    own = f"-{case.dataset}" if calibrated(case, model) else ""
    own += f"-records-in-{case.remembers}" if case.remembers else ""
    own += f"-{case.arm}" if case.arm in (EXACT, *GATES) else ""
    folder = WORK / "plans" / f"{case.network}-{case.scheme}-{len(training.classes)}{own}"
    with locked(folder):
        if not (folder / "plan.json").exists():
            done = run(ours("tools/convert", model, *options(case, model, training), "-o", folder))
            if done.returncode:
                raise Error(last_line(done).removeprefix("convert: "))
    return read_plan(folder / "plan.json")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time makes a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
    accuracy = round(100 * arm.accuracy(), 2)
    skipped = {"skipped": round(100 * arm.skipped, 1)} if case.arm in GATES else {}
    return {
        "dataset": case.dataset,
        "network": case.network,
        "scheme": arm.plan.scheme.name,
        "protocol": case.protocol,
        "arm": case.arm,
        "seed": case.seed,
        "accuracy": accuracy,
        **skipped,
        **({"trained_sha256": arm.trained} if arm.trained else {}),
        "sram": all_in(arm.plan),
        "command": shlex.join(["python", "lab/recipe", "--only", escape(case.key), *words]),
    }


def all_in(plan: Plan) -> int:
    """Bytes of SRAM as conversion estimates them."""
    if plan.replay is not None:
        return plan.replay.all_in_sram
    return plan.sram.arena + plan.sram.trainables + FIRMWARE_SRAM
