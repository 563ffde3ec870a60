"""A network learns a speaker that it has never heard from a few words: on the device, and in PyTorch."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from microtrain.base.commands import run
from microtrain.device.client import Device
from microtrain.device.recipe import Situation
from microtrain.device.session import Settings
from microtrain.emulator import EmulatedPort
from microtrain.samples.kind import told
from microtrain.samples.sounds import vary
from microtrain.simulate.blueprint import load_blueprint
from microtrain.simulate.machine import Machine, library

from . import spoken
from .spoken import Recording, features, front_end, pretrained, taken

COUNTS = (1, 3, 5)  # samples a word
DRAWS = 5  # of which samples
FIRST = 5  # recordings before this number are never learned from
WAYS, VARIANTS = ("crop", "light"), 8  # how a sample varies from epoch to epoch, as in a session
FRONT_END = ("model_listen", "model_hear", "model_heard")
CALIBRATED = 300
BUDGET = 128
HEAD = ("--head-rows", "0-9")  # the network's own


@dataclass(frozen=True)
class Way:
    """How a session learns. rate: of the device a factor on the scheme's, of PyTorch its own"""

    epochs: int
    rate: float
    variants: int = VARIANTS


IN_FLOAT = Way(20, 0.002)  # chosen on draws that no row has


def by_itself(samples: int) -> Way:
    """What `device train` does where nobody says it: the head knows the words, and there are no records."""
    found = Situation(samples, records=0, looks=False, order="shuffled", small=True)
    return Way(found.epochs, found.rate)


@dataclass(frozen=True, eq=False)
class Lesson:
    """One draw of samples of a speaker.

    rows    of the samples to learn from, uint8 [samples][variants][ROWS][bands]; words: of each
    turns   how many-th sample of its word each is: those below n are learned where there are n a word
    tests   rows and words of all other recordings
    """

    rows: np.ndarray
    words: np.ndarray
    turns: np.ndarray
    tests: tuple[np.ndarray, np.ndarray]
    seed: int

    def of(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `count` samples of each word."""
        some = self.turns < count
        return self.rows[some], self.words[some]

    def order(self, count: int, epochs: int) -> Iterator[tuple[int, int]]:
        """Sample and variant of each step."""
        rng = np.random.default_rng((self.seed, count))
        samples = int((self.turns < count).sum())
        for epoch in range(epochs):
            for k in rng.permutation(samples):
                yield int(k), epoch % self.rows.shape[1]


def lesson(own: list[Recording], rows: np.ndarray, seed: int) -> Lesson:
    """Samples of one speaker, drawn by a seed. rows: of all his recordings, as they are"""
    rng = np.random.default_rng((spoken.SEED, seed))
    learned: list[int] = []
    turns: list[int] = []
    for word in sorted({one.word for one in own}):
        there = [k for k, one in enumerate(own) if one.word == word and one.number >= FIRST]
        learned += [int(k) for k in rng.permutation(there)[: max(COUNTS)]]
        turns += range(max(COUNTS))
    rest = [k for k in range(len(own)) if k not in set(learned)]
    words = np.array([one.word for one in own])
    sound = front_end()
    shape = told((spoken.ROWS, sound.bands, 1), sound)
    varied = [[vary(own[k].path, shape, WAYS, v)[:, :, 0] for v in range(VARIANTS)] for k in learned]
    return Lesson(np.array(varied), words[learned], np.array(turns), (rows[rest], words[rest]), seed)


def accuracy(scores: np.ndarray, words: np.ndarray) -> float:
    return float((scores.argmax(axis=1) == words).mean())


def by_device(machine: Machine, given: Lesson, count: int, way: Way) -> float:
    """What the board would know after a session: its bits, computed on this machine."""
    machine.reset()
    machine.seed(given.seed)
    rows, words = given.of(count)
    looked = [[machine.look(x[..., None]) for x in one[: way.variants]] for one in rows]
    settings, steps = Settings(rate=way.rate, schedule="cosine"), way.epochs * len(words)
    for step, (k, variant) in enumerate(given.order(count, way.epochs)):
        if step % 10 == 0:
            machine.rate(settings.rate_at(step, steps))
        machine.train(looked[k][variant % way.variants], int(words[k]))
    return tested(machine, given)


def tested(machine: Machine, given: Lesson) -> float:
    scores = [machine.scores(machine.look(x[..., None])) for x in given.tests[0]]
    return accuracy(np.array(scores), given.tests[1])


def by_float(net: nn.Module, given: Lesson, count: int, way: Way) -> float:
    """The same session in PyTorch: all weights learn, with Adam; batch norms keep their statistics."""
    learner = copy.deepcopy(net).eval()
    rows, words = given.of(count)
    x = taken(rows[:, : way.variants]).reshape(len(rows), -1, 1, *rows.shape[-2:])
    best = torch.optim.Adam(learner.parameters(), way.rate)
    steps = way.epochs * len(words)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(best, steps)
    for k, variant in given.order(count, way.epochs):
        best.zero_grad()
        wanted = torch.tensor([int(words[k])])
        nn.functional.cross_entropy(learner(x[k, variant % way.variants][None]), wanted).backward()
        best.step()
        falling.step()
    return in_float(learner, given)


def in_float(net: nn.Module, given: Lesson) -> float:
    with torch.no_grad():
        return accuracy(net(taken(given.tests[0])).numpy(), given.tests[1])


def by_means(net: nn.Sequential, given: Lesson, count: int) -> float:
    """Each word is where the mean of its samples' features is; nothing of the network changes."""
    rows, words = given.of(count)
    with torch.no_grad():
        found, tests = (net[:-1](taken(x)).numpy() for x in (rows[:, 0], given.tests[0]))
    means = np.stack([found[words == word].mean(axis=0) for word in range(words.max() + 1)])
    distances = ((tests[:, None] - means[None]) ** 2).sum(axis=-1)
    return accuracy(-distances, given.tests[1])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A speaker, the network of the others, and the folder of what was converted of it."""

    name: str
    net: nn.Sequential
    model: Path
    generated: Path
    own: list[Recording]
    rows: np.ndarray

    def machine(self) -> Machine:
        return machine_of(self.generated)


def machine_of(generated: Path) -> Machine:
    """The board's bits, of what convert wrote."""
    plan = load_blueprint(generated)
    return Machine(plan, library(plan, generated.parent))


def hold_out(name: str, known: list[Recording], rows: np.ndarray, work: Path) -> HeldOut:
    """rows: of all recordings, with variants; the network is trained where there is none yet."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    others = [k for k, one in enumerate(known) if one.speaker != name]
    own = [k for k, one in enumerate(known) if one.speaker == name]
    given, file = [known[k] for k in others], folder / "weights.pt"
    if file.is_file():
        net = spoken.network(len({one.word for one in known})).eval()
        net.load_state_dict(torch.load(file, weights_only=True))
    else:
        net = pretrained(given, rows[others])
        torch.save(net.state_dict(), file)
    model = exported(net, folder)
    generated = converted(model, rows[others, 0], folder)
    return HeldOut(name, net, model, generated, [known[k] for k in own], rows[own, 0])


def exported(net: nn.Module, folder: Path) -> Path:
    path = folder / "words.pt2"
    example = torch.zeros(1, 1, spoken.ROWS, front_end().bands)
    torch.export.save(torch.export.export(net, (example,)), path)
    return path


def converted(model: Path, rows: np.ndarray, folder: Path, head: Sequence[str] = HEAD) -> Path:
    """The folder that convert wrote; it is calibrated on what the network was trained on.

    head   options that say with which head it begins
    """
    typical = folder / "typical.npz"
    np.savez(typical, images=rows[:: max(1, len(rows) // CALIBRATED)][..., None])
    words = [sys.executable, "tools/convert", str(model), "-o", str(folder / "generated")]
    words += ["--frontend", spoken.FRONT, "--mean", str(spoken.MEAN), "--std", str(spoken.STD)]
    words += ["--calibration", str(typical), *head, "--budget-sram", str(BUDGET)]
    done = run(words)
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return folder / "generated"


def all_rows(known: list[Recording], work: Path) -> np.ndarray:
    """features() of all recordings, kept."""
    file = work / "rows.npy"
    if not file.is_file():
        work.mkdir(parents=True, exist_ok=True)
        np.save(file, features(known, spoken.VARIANTS))
    found: np.ndarray = np.load(file)
    return found


def sessions(one: HeldOut, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every draw and count of one speaker, as rows."""
    machine, found = one.machine(), []
    for seed in range(DRAWS):
        given = lesson(one.own, one.rows, seed)
        machine.reset()
        start = {"speaker": one.name, "draw": seed, "before": tested(machine, given)}
        start["float_before"] = in_float(one.net, given)
        for count in COUNTS:
            row = {
                **start,
                "samples": count,
                "device": by_device(machine, given, count, by_itself(len(given.of(count)[1]))),
                "float": by_float(one.net, given, count, IN_FLOAT),
                "means": by_means(one.net, given, count),
            }
            found.append(row)
            tell(" ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()))
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the draws of all speakers, and of each."""

    def mean(of: list[dict[str, Any]], key: str) -> float:
        return round(float(np.mean([row[key] for row in of])), 4)

    speakers = sorted({row["speaker"] for row in rows})
    table = {}
    for name in ("all", *speakers):
        own = [row for row in rows if name in ("all", row["speaker"])]
        table[name] = {"before": mean(own, "before"), "float_before": mean(own, "float_before")}
        for count in COUNTS:
            some = [row for row in own if row["samples"] == count]
            table[name] |= {f"{key}_{count}": mean(some, key) for key in ("device", "float", "means")}
    return table


def front_end_instructions(elf: Path, rows: int) -> int:
    """Of all rows of a sample, on the emulated board."""
    sound, port = front_end(), EmulatedPort(elf)
    device = Device(port)
    samples = np.random.default_rng(0).normal(0, 3000, sound.samples(rows)).astype(np.int16)
    port.board.watch_calls(FRONT_END)
    device.infer(samples)
    return sum(call.instructions for call in port.board.calls().values())
