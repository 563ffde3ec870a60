"""Sessions in PyTorch: the runs of a group take each step together (parallel.py)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from microtrain.base.errors import Error
from microtrain.device.learning import RATE_EVERY
from microtrain.device.session import WINDOW, Evaluation, Log, Settings, TrainStep, name_of, new_log, ordered
from microtrain.samples.source import Sample

from .blueprint import Blueprint
from .guard import diverges
from .network import load_network
from .parallel import Parallel, Tensor
from .records import Task, show
from .rules import FLOAT, Rules

IMAGES = 8  # that an evaluation looks at together
Ticker = Callable[[list[Log]], None]


class Group:
    """Runs of a task that differ in seed and learning rate alone.

    tick   is told after each step
    """

    def __init__(self, task: Task, settings: Sequence[Settings], rules: Rules, tick: Ticker) -> None:
        machine = task.machine()
        network = load_network(task.plan.folder, task.plan.model_id)
        self.task, self.device, self.tick = task, task.device, tick
        self.logs = [new_log(machine, task.training, s) for s in settings]
        self.rules = replace(rules, gate=max(rules.gate, task.plan.gate))
        self.net = Parallel(network, task.plan.front, len(settings), self.rules, task.device)
        self.show = show(task, machine)
        self.rates = np.array(task.plan.rates, np.float32)
        self.seconds = 0.0
        torch.manual_seed(settings[0].seed)

    def run(self) -> None:
        """All steps, with evaluations between; the logs hold what happened."""
        settings = self.logs[0].settings
        orders = [list(ordered(self.task.training, log.settings)) for log in self.logs]
        steps = len(orders[0])
        good = self.net.state()
        self.evaluate(0)
        for number in range(1, steps + 1):
            began = time.process_time()
            if number % RATE_EVERY == 1:
                rates = self.rates_at(number - 1, steps)
            self.step(number, [order[number - 1] for order in orders], rates)
            good = self.keep(number, good, rates)
            self.seconds += time.process_time() - began
            self.tick(self.logs)
            if settings.eval_every and number % settings.eval_every == 0 and number < steps:
                self.evaluate(number)
        self.evaluate(steps)
        for run, log in enumerate(self.logs):
            log.skipped = sum(step.loss < self.rules.gate for step in log.steps)
            log.sha256 = hashlib.sha256(self.net.trained(run)).hexdigest()

    def rates_at(self, step: int, steps: int) -> Tensor:
        """Learning rates of each run, [runs][weight, bias, head]; 0 where a run has ended."""
        factors = [0.0 if log.diverged else log.settings.rate_at(step, steps) for log in self.logs]
        return torch.tensor(np.outer(np.array(factors, np.float32), self.rates), device=self.device)

    def step(self, number: int, samples: list[tuple[int, Sample]], rates: Tensor) -> None:
        """One image of each run's own order."""
        records = np.stack([self.show(sample, epoch) for epoch, sample in samples])
        labels = torch.tensor([sample.label for _, sample in samples], device=self.device)
        logits, losses = self.net.train(self.given(records[:, None]), labels, rates)
        predicted = logits.argmax(1).tolist()
        for log, (epoch, sample), label, loss in zip(
            self.logs, samples, predicted, losses.tolist(), strict=True
        ):
            if not log.diverged:
                log.steps.append(TrainStep(number, epoch, name_of(sample), sample.label, label, loss))

    def keep(self, number: int, good: list[Tensor], rates: Tensor) -> list[Tensor]:
        """End the runs that diverge, with the weights of the last window that did not."""
        for run, log in enumerate(self.logs):
            if not log.diverged and diverges(log.steps, len(log.classes)):
                log.diverged = number
                self.net.restore(run, good)
                rates[run] = 0.0
        return self.net.state() if number % WINDOW == 0 else good

    def given(self, records: np.ndarray) -> dict[str, Tensor]:
        """The network's sources of records uint8 [runs][images][bytes], each [runs][c][images][h][w]."""
        found = given_of(self.task.plan, self.net.sources, records)
        return {name: tensor.to(self.device) for name, tensor in found.items()}

    @torch.no_grad()
    def evaluate(self, step: int) -> None:
        """All runs on all held-out images."""
        samples, classes = self.task.testing.samples, len(self.task.testing.classes)
        counts = np.zeros((len(self.logs), classes, 2), int)
        for start in range(0, len(samples), IMAGES):
            some = samples[start : start + IMAGES]
            given = self.given(np.stack([self.show(sample, None) for sample in some])[None])
            given = {name: t.expand(len(self.logs), -1, -1, -1, -1) for name, t in given.items()}
            predicted = self.net.forward(given).argmax(2).cpu().numpy()
            for image, sample in enumerate(some):
                counts[:, sample.label, 0] += predicted[:, image] == sample.label
                counts[:, sample.label, 1] += 1
        for log, own in zip(self.logs, counts, strict=True):
            by_class = tuple((int(right), int(total)) for right, total in own)
            log.evaluations.append(Evaluation(step, int(own[:, 0].sum()), len(samples), by_class))


def given_of(plan: Blueprint, sources: Iterable[str], records: np.ndarray) -> dict[str, Tensor]:
    """Tensors that a network's steps read, of records uint8 [runs][images][bytes]: stored integers, float32
    [runs][c][images][h][w]."""
    given = {}
    for name in sources:
        offset, shape = plan.kept[name] if plan.front else (0, plan.shape)
        values = records[..., offset : offset + int(np.prod(shape))].view(np.int8)
        images = values.reshape(*records.shape[:2], *shape).transpose(0, 4, 1, 2, 3).astype(np.float32)
        given[name] = torch.from_numpy(np.ascontiguousarray(images))
    return given


def sessions(
    task: Task, settings: Sequence[Settings], tick: Ticker, rules: Rules = FLOAT
) -> tuple[list[Log], float]:
    """Logs of runs side by side, and the seconds of a core that each took.

    Errors   Error where PyTorch has no such device
    """
    torch.set_num_threads(1)
    try:
        torch.zeros(1, device=task.device)
    except (RuntimeError, AssertionError) as error:
        raise Error(f"PyTorch has no device {task.device} here: leave --torch-device out.") from error
    group = Group(task, settings, rules, tick)
    group.run()
    return group.logs, group.seconds / len(settings)
