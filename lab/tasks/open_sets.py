"""Open sets: a few classes of a set are learned from a few images each, the others must be refused.

Which classes are known and which images are seen is drawn by a seed. The device looks at each image once and
trains in six passes, as does its float twin; a classifier of the same network does so too, from a head that
is made by one look (kernels/imprint.h), and refuses what it is not sure of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from microtrain.base.commands import run
from microtrain.base.files import unpacked
from microtrain.convert.reference.prototypes import BEFORE, NONE, SAMPLES, threshold
from microtrain.convert.reference.prototypes import loss as follow
from microtrain.device.session import Settings
from microtrain.samples.source import Dataset, hold_out, load, read_list, scan
from microtrain.simulate.blueprint import Blueprint, load_blueprint
from microtrain.simulate.machine import Machine, library
from microtrain.simulate.network import load_network
from microtrain.simulate.parallel import Parallel
from microtrain.simulate.side_by_side import given_of

from .cases import keywords

IMAGES = {"gtsrb17_144": 10, "textures10_144": 6, "clothing10_144": 6, "cifar10": 6}  # classes known of each
KEYWORDS = 7  # known of twelve
SCHEMES = {"mcunet-5fps.pkl": "mcunet-49kb", "mbv2-w0.35.pkl": "mbv2-49kb"}
SHOTS, TESTED, PASSES, FACTOR = 10, 30, 6, 2.0
SEEDS = (2, 3, 4)  # constants of the op were chosen with 0 and 1, MCUNet


@dataclass(frozen=True)
class Drawn:
    """Images of a seed with their labels, 0 unknown."""

    seen: list[tuple[Path, int]]
    tested: list[tuple[Path, int]]
    known: int


def drawn(sets: tuple[Dataset, Dataset], known: int, seed: int) -> Drawn:
    """SHOTS of each known class to learn from; TESTED of each, and as many unknown ones, to test with.

    sets  to learn from, and to test with
    """
    rng, (training, testing) = np.random.default_rng(seed), sets
    order = [int(k) for k in rng.permutation(len(training.classes))]
    label = {k: place + 1 if place < known else 0 for place, k in enumerate(order)}

    def some(samples: Sequence[Any], k: int, most: int) -> list[tuple[Path, int]]:
        own = [sample.path for sample in samples if sample.label == k]
        return [(own[i], label[k]) for i in rng.permutation(len(own))[:most]]

    others = known * TESTED // (len(order) - known)
    seen = [one for k in order[:known] for one in some(training.samples, k, SHOTS)]
    tested = [one for k in order for one in some(testing.samples, k, TESTED if label[k] else others)]
    return Drawn(seen, tested, known)


def converted(model: Path, task: str, found: Drawn, folder: Path) -> Blueprint:
    """Converted for this machine, without a replay buffer."""
    words = [sys.executable, "tools/convert", str(model), "-o", str(folder), "--board", "native"]
    words += ["--task", task, "--classes", str(found.known), "--replay", "off"]
    words += ["--scheme", SCHEMES[model.name]] if model.name in SCHEMES else []
    if task == "open-set":
        words += ["--calibration", str(linked([path for path, _ in found.seen], folder.parent / "shown"))]
    done = run(words)
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return load_blueprint(folder)


def linked(files: Sequence[Path], folder: Path) -> Path:
    """A folder of these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(files):
        link = folder / f"{number}{path.suffix}"
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
    return folder


def judged(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Shares: of known images whose class is right where nothing is refused, and where it may be; of unknown
    images that are refused; and the area under the curve of the largest logit of a class."""
    best, who, own = logits[:, 1:].max(axis=1), logits[:, 1:].argmax(axis=1) + 1, labels > 0
    answers = np.where(logits[:, 0] >= best, 0, who)
    pairs = best[own][:, None] - best[~own][None]
    return {
        "closed": float((who == labels)[own].mean()),
        "auc": float((pairs > 0).mean() + 0.5 * (pairs == 0).mean()),
        "known": float((answers == labels)[own].mean()),
        "unknown": float((answers == 0)[~own].mean()),
    }


def rates(steps: int) -> Iterator[float]:
    settings = Settings(rate=FACTOR)
    return (settings.rate_at(step, steps) for step in range(steps))


def orders(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the look, and of the passes."""
    rng = np.random.default_rng(seed)
    return rng.permutation(count), np.concatenate([rng.permutation(count) for _ in range(PASSES)])


def on_the_device(plan: Blueprint, found: Drawn, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """After one look, and after the passes; prototypes, or a classifier."""
    machine = Machine(plan, library(plan, plan.folder / "library"))
    machine.seed(seed)
    seen = [machine.look(load(path, plan.shape)) for path, _ in found.seen]
    tested = [machine.look(load(path, plan.shape)) for path, _ in found.tested]
    labels = np.array([label for _, label in found.tested])
    first = 0 if plan.known else 1  # label of class 1 of the set

    def logits() -> np.ndarray:
        made = np.stack([machine.scores(image) for image in tested])
        return made if plan.known else confident(made)

    look, passes = orders(len(seen), seed)
    machine.rate(0.0)
    for i in look:
        learn = machine.train if plan.known else machine.imprint
        learn(seen[i], found.seen[i][1] - first)
    if not plan.known:
        machine.imprint_head()
    yield "look", judged(logits(), labels)
    for i, factor in zip(passes, rates(len(passes)), strict=True):
        machine.rate(factor)
        machine.train(seen[i], found.seen[i][1] - first)
    yield "trained", judged(logits(), labels)


def confident(logits: np.ndarray) -> np.ndarray:
    """Probabilities of a classifier, and in front of them the half that a sure answer is above."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    return np.concatenate([np.full((len(shares), 1), 0.5), shares], axis=1)


class Twin:
    """The same in PyTorch: float errors, float masters, the same statistics in float64."""

    def __init__(self, plan: Blueprint) -> None:
        network = load_network(plan.folder, plan.model_id)
        *steps, last = network.steps
        network = replace(network, steps=tuple(steps), output=last.inputs[0])
        self.zero = network.tensors[network.output].zero
        self.plan, self.net = plan, Parallel(network, plan.front, 1)
        self.centre, self.sharp = torch.tensor(last.facts["centre"]), float(last.facts["sharp"])
        self.sums = torch.zeros(plan.known, len(self.centre))
        self.counts = torch.zeros(plan.known)
        self.distances = np.array(BEFORE, np.float32)

    def embedding(self, record: np.ndarray) -> torch.Tensor:
        made = self.net.forward(given_of(self.plan, self.net.sources, record[None, None]))
        return functional.normalize(made[0, :, 0].permute(1, 2, 0).flatten() + self.zero - self.centre, dim=0)

    def logits(self, e: torch.Tensor) -> torch.Tensor:
        """The first: of what is unknown."""
        trust = self.counts / (self.counts + 1)
        far = (e - self.sums / self.counts.clamp(min=1)[:, None]).square().sum(1) * trust
        known = torch.where(self.counts > 0, -self.sharp * far, float(NONE))
        return torch.cat([torch.tensor([-float(threshold(self.distances))]), known])

    def join(self, e: torch.Tensor, label: int, logits: torch.Tensor) -> None:
        """A sample joins its class, and the distances that the threshold is made of."""
        follow(logits.detach().numpy().astype(np.float32), label, self.distances)
        k = label - 1
        keep = min(1.0, (float(SAMPLES) - 1) / max(float(self.counts[k]), 1.0))
        self.counts[k] = self.counts[k] * keep + 1
        self.sums[k] = self.sums[k] * keep + e.detach()

    def look(self, record: np.ndarray, label: int) -> None:
        e = self.embedding(record)
        self.join(e, label, self.logits(e))

    def learn(self, record: np.ndarray, label: int, factor: float) -> None:
        e = self.embedding(record)
        logits = self.logits(e)
        loss = functional.cross_entropy(logits[None], torch.tensor([label]))
        found = torch.autograd.grad(loss, list(self.net.parameters.values()))
        own = torch.tensor(np.array([self.plan.rates], np.float32)) * factor
        with torch.no_grad():
            self.net.optimizer.step(dict(zip(self.net.parameters, found, strict=True)), own)
        self.join(e, label, logits)


def in_float(plan: Blueprint, found: Drawn, seed: int) -> dict[str, float]:
    """After the same look and the same passes."""
    machine, twin = Machine(plan, library(plan, plan.folder / "library")), Twin(plan)
    seen = [machine.look(load(path, plan.shape)) for path, _ in found.seen]
    tested = [machine.look(load(path, plan.shape)) for path, _ in found.tested]
    look, passes = orders(len(seen), seed)
    with torch.no_grad():
        for i in look:
            twin.look(seen[i], found.seen[i][1])
    for i, factor in zip(passes, rates(len(passes)), strict=True):
        twin.learn(seen[i], found.seen[i][1], factor)
    with torch.no_grad():
        made = np.stack([twin.logits(twin.embedding(image)).numpy() for image in tested])
    return judged(made, np.array([label for _, label in found.tested]))


def cases(given: Path, work: Path) -> Iterator[tuple[Path, str, tuple[Dataset, Dataset], int]]:
    """Networks, names of sets, their samples, and how many classes are known.

    given  the folder of the test data
    """
    for model, (name, known) in product(SCHEMES, IMAGES.items()):
        data = unpacked(given / f"sets/{name}.tar", work / "sets" / name)
        lists = (read_list(data / "train.txt", None), read_list(data / "val.txt", None))
        yield given / "models" / model, name, lists, known
    words = scan(keywords(given, work / "sets"), 12)
    yield given / "mlperf_tiny/kws_dscnn_int8.tflite", "keywords", hold_out(words), KEYWORDS


def measured(given: Path, work: Path, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """A row for each network, set, seed and arm."""
    torch.set_num_threads(1)  # so that sums come in one order
    for (model, name, sets, known), seed in product(cases(given, work), SEEDS):
        folder = work / f"{model.stem}-{name}-{seed}"
        about = {"model": model.stem, "set": name, "seed": seed}
        for arm, row in arms(model, drawn(sets, known, seed), folder, seed):
            tell(f"{model.stem} {name} {seed} {arm}: " + ", ".join(f"{k} {v:.1%}" for k, v in row.items()))
            yield {**about, "arm": arm, **{key: round(value, 4) for key, value in row.items()}}


def arms(model: Path, found: Drawn, folder: Path, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    plan = converted(model, "open-set", found, folder / "open")
    yield from on_the_device(plan, found, seed)
    yield "float", in_float(plan, found, seed)
    plan = converted(model, "classify", found, folder / "closed")
    yield from ((f"classifier {arm}", row) for arm, row in on_the_device(plan, found, seed))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the seeds, Markdown."""
    keys = ("closed", "auc", "known", "unknown")
    lines = [
        "| network, set | | right, none refused | AUC | right | refused |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for case in dict.fromkeys((row["model"], row["set"]) for row in rows):
        for arm in dict.fromkeys(row["arm"] for row in rows):
            own = [row for row in rows if (row["model"], row["set"], row["arm"]) == (*case, arm)]
            means = [float(np.mean([row[key] for row in own])) for key in keys]
            said = [f"{value:.1%}" for value in means]
            lines.append(f"| {', '.join(case)} | {arm} | {' | '.join(said)} |")
    return "\n".join(lines)
