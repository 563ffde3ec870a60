"""What is kept beside a trained weight: more bits of it, or something of its gradients, at equal bytes.

Simulated in PyTorch (simulate/rules.py) with the device's arithmetic but for that. A session starts from the
head of a look, and its rate falls on a cosine; there are no records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab import marks, notes
from lab.golden.data import find
from microtrain.base.paths import ROOT
from microtrain.base.progress import Bars
from microtrain.device.learning import imprint
from microtrain.device.session import Settings, Silent
from microtrain.simulate.records import fill, show
from microtrain.simulate.rules import Rules
from microtrain.simulate.side_by_side import Group

from . import sets
from .cases import SCHEMES, SEEDS, Case
from .run import WORK, Arm

RESULT, PAGE = ROOT / "lab/pages/recipe-state.json", ROOT / "lab/pages/arithmetic.md"
COMMAND = "python lab/recipe --state"
ARM = "cosine"
SETS = ("textures10", "cifar10", "gtsrb17")
PASSES = {"shots-10": 3, "one-look": 1}  # over the images of a protocol
RATES = (1.0, 2.0, 4.0)  # factors on the scheme's; the best of them on the mean of all sets is taken
KEYS = ("network", "seed", "protocol", "dataset", "variant")
Key = tuple[str | int, ...]
Row = dict[str, Any]
BASE = Rules(weights="int8", errors="channel")
FINE = replace(BASE, fraction_bits=4)
MOMENTUM = replace(BASE, momentum=0.9, rates=(0.1, 0.1, 0.1))
MEAN = replace(BASE, accumulate=4, rates=(4.0, 4.0, 4.0))


@dataclass(frozen=True)
class Variant:
    """bytes: beside a trained int8 weight, "head" where they are of the head's weights alone."""

    words: str
    bytes: str
    rules: Rules


VARIANTS = (
    Variant("nothing", "0", BASE),
    Variant("4 fraction bits", "0.5", FINE),
    Variant("momentum 0.9 in 4 bits", "0.5", replace(MOMENTUM, state_bits=4)),
    Variant("its signs, in 4 bits", "0.5", replace(MOMENTUM, state_bits=4, signs=True)),
    Variant("8 fraction bits", "1", replace(BASE, fraction_bits=8)),
    Variant("momentum 0.9 in 8 bits", "1", replace(MOMENTUM, state_bits=8)),
    Variant("its signs, in 8 bits", "1", replace(MOMENTUM, state_bits=8, signs=True)),
    Variant("mean of 4 gradients, in 8 bits", "1", replace(MEAN, state_bits=8)),
    Variant("4 fraction bits, targets smoothed by 0.1", "0.5", replace(FINE, smoothing=0.1)),
    Variant("4 fraction bits, the head by its curvature", "0.5, head 4", replace(FINE, curvature=0.99)),
)


STANDARD = VARIANTS[1]  # what is built, and all others are held against


class Judged(Group):
    """Sessions that are judged at their end alone."""

    def evaluate(self, step: int) -> None:
        if step:
            super().evaluate(step)


def measure(jobs: int) -> None:
    """Run what is missing in the record, so many at a time, and write the table."""
    folders, rows = sets.test_sets(WORK / "sets"), notes.read(RESULT, [])
    done = {key_of(row) for row in rows}
    missing: dict[Key, list[Key]] = defaultdict(list)
    for key in wanted():
        if key not in done:
            missing[key[:-1]].append(key)
    with Bars() as bars, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        bar = bars.add("groups of sessions", sum(map(len, missing.values())))
        started = [pool.submit(measured, keys, folders[str(keys[0][3])]) for keys in missing.values()]
        for future in as_completed(started):
            rows += future.result()
            notes.write(RESULT, sorted(rows, key=key_of))
            bar.advance(len(future.result()))
        bar.end()
    marks.insert(PAGE, COMMAND, {"state": table(rows)})


def wanted() -> list[Key]:
    """Of all rows, by KEYS; a network is ended before the next begins."""
    variants = [variant.words for variant in VARIANTS]
    return list(product(SCHEMES, SEEDS, PASSES, SETS, variants))


def key_of(row: Row) -> Key:
    return tuple(row[part] for part in KEYS)


def measured(keys: Sequence[Key], data: Path) -> list[Row]:
    """Accuracy in percent at each rate, of variants that begin alike.

    keys: by KEYS, equal but for the variant; data: the folder of their images
    """
    network, seed, protocol, dataset, _ = keys[0]
    case = Case(str(dataset), str(network), str(protocol), ARM, int(seed))
    arm = Arm(case, data, find().checkpoint(case.network))
    arm.task = replace(arm.task, epochs=PASSES[case.protocol])
    list(fill(arm.task, 1))
    arm.show = show(arm.task, arm.machine)
    imprint(arm.machine, arm.training, Settings(seed=case.seed), Silent(), arm.show)
    learned, rules = arm.machine.pull(), {variant.words: variant.rules for variant in VARIANTS}
    found = []
    for key in keys:
        accuracy = trained(arm, learned, rules[str(key[-1])])
        by_rate = dict(zip(map(str, RATES), accuracy, strict=True))
        found.append(dict(zip(KEYS, key, strict=True)) | {"accuracy": by_rate})
    return found


def trained(arm: Arm, learned: bytes, rules: Rules) -> list[float]:
    """Accuracy in percent behind a session at each rate. learned: the trainables with the head of a look"""
    torch.set_num_threads(1)
    base = Settings(epochs=arm.task.epochs, seed=arm.case.seed, schedule="cosine")
    group = Judged(arm.task, [replace(base, rate=rate) for rate in RATES], rules, lambda logs: None)
    for part in arm.plan.trainables.tensors:
        if part.kind.startswith("head"):
            values = np.frombuffer(learned, "<f4", part.bytes // 4, part.offset).reshape(part.shape)
            with torch.no_grad():
                group.net.parameters[part.layer, part.kind].copy_(torch.tensor(values)[None])
    group.run()
    return [round(100 * log.evaluations[-1].accuracy, 2) for log in group.logs]


def table(rows: Sequence[Row]) -> str:
    """Each variant at the rate that is best on the mean of all that it was measured on.

    A column for each protocol and set has the mean over the seeds of the networks that are whole: measured
    with all variants and all seeds. Behind it the mean of all, and by how much it is ahead of what is built,
    with the standard error of the pairs' differences.
    """
    found = {key_of(row): row["accuracy"] for row in rows}
    whole = [network for network in SCHEMES if all(key in found for key in wanted() if key[0] == network)]
    heads = [f"{name}, {'10 shots' if protocol == 'shots-10' else 'one look'}" for protocol, name in cells()]
    lines = [f"| beside a trained weight | bytes | {' | '.join(heads)} | mean | ahead | rate |"]
    lines.append("|---|---|" + "---|" * (len(heads) + 3))
    if not whole:
        return "\n".join(lines)
    standard = at_its_best(found, whole, STANDARD)[1]
    for variant in VARIANTS:
        rate, values = at_its_best(found, whole, variant)
        shown = " | ".join(f"{value:.1f}" for value in (*values.mean(axis=0), values.mean()))
        ahead = (values - standard).ravel()
        error = ahead.std(ddof=1) / len(ahead) ** 0.5
        told = "" if variant is STANDARD else f"{ahead.mean():+.1f} ± {error:.1f}"
        lines.append(f"| {variant.words} | {variant.bytes} | {shown} | {told} | x{rate:g} |")
    return "\n".join(lines)


def cells() -> list[tuple[str, str]]:
    """Protocols and sets, in the order of the columns."""
    return list(product(PASSES, SETS))


def at_its_best(
    found: dict[Key, dict[str, float]], networks: Sequence[str], variant: Variant
) -> tuple[float, np.ndarray]:
    """The rate that is best on the mean, and its accuracies [networks * seeds, cells()] in percent."""

    def at(rate: float) -> np.ndarray:
        rows = [[(*line, *cell, variant.words) for cell in cells()] for line in product(networks, SEEDS)]
        return np.array([[found[key][str(rate)] for key in row] for row in rows])

    best = max(RATES, key=lambda rate: float(at(rate).mean()))
    return best, at(best)
