"""What is kept beside a trained weight: more bits of it, or something of its gradients, at equal bytes.

Simulated in PyTorch (simulate/rules.py) with the device's arithmetic but for that. A session starts from the
head of a look, and its rate falls on a cosine; there are no records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab import marks, notes
from lab.golden.data import find
from microtrain.base.paths import ROOT
from microtrain.base.progress import Bars
from microtrain.device.session import Settings, Silent, imprint
from microtrain.simulate.records import fill, show
from microtrain.simulate.rules import Rules
from microtrain.simulate.side_by_side import Group

from . import sets
from .cases import Case
from .run import WORK, Arm

RESULT, PAGE = ROOT / "lab/pages/recipe-state.json", ROOT / "lab/pages/arithmetic.md"
COMMAND = "python lab/recipe --state"
NETWORK, ARM = "mcunet-5fps", "cosine"
SETS = ("textures10", "cifar10", "gtsrb17")
PASSES = {"shots-10": 3, "one-look": 1}  # over the images of a protocol
RATES = (0.5, 1.0, 2.0)  # factors on the scheme's; the best of them on the mean of all sets is taken
SEED = 0
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


class Judged(Group):
    """Sessions that are judged at their end alone."""

    def evaluate(self, step: int) -> None:
        if step:
            super().evaluate(step)


def measure() -> None:
    """Run what is missing in the record, and write the table."""
    folders, rows = sets.test_sets(WORK / "sets"), notes.read(RESULT, [])
    cells = [Case(name, NETWORK, protocol, ARM, SEED) for protocol in PASSES for name in SETS]
    with Bars() as bars:
        bar = bars.add("groups of sessions", len(cells) * len(VARIANTS))
        for case in cells:
            done = {row["variant"] for row in rows if (row["protocol"], row["dataset"]) == key(case)}
            missing = [variant for variant in VARIANTS if variant.words not in done]
            bar.advance(len(VARIANTS) - len(missing))
            for row in sessions(case, folders[case.dataset], missing):
                rows.append(row)
                notes.write(RESULT, rows)
                bar.advance()
        bar.end()
    marks.insert(PAGE, COMMAND, {"state": table(rows)})


def key(case: Case) -> tuple[str, str]:
    return case.protocol, case.dataset


def sessions(case: Case, data: Path, variants: Sequence[Variant]) -> Iterator[dict[str, Any]]:
    """A row of accuracies by rate for each variant."""
    if not variants:
        return
    arm = Arm(case, data, find().checkpoint(NETWORK))
    arm.task = replace(arm.task, epochs=PASSES[case.protocol])
    list(fill(arm.task, 1))
    arm.show = show(arm.task, arm.machine)
    imprint(arm.machine, arm.training, Settings(seed=SEED), Silent(), arm.show)
    learned = arm.machine.pull()
    for variant in variants:
        found = trained(arm, learned, variant.rules, case.protocol)
        yield dict(zip(("protocol", "dataset"), key(case), strict=True)) | {
            "variant": variant.words,
            "accuracy": dict(zip(map(str, RATES), found, strict=True)),
        }


def trained(arm: Arm, learned: bytes, rules: Rules, protocol: str) -> list[float]:
    """Accuracy in percent behind a session at each rate. learned: the trainables with the head of a look"""
    torch.set_num_threads(1)
    base = Settings(epochs=PASSES[protocol], seed=SEED, schedule="cosine")
    group = Judged(arm.task, [replace(base, rate=rate) for rate in RATES], rules, lambda logs: None)
    for part in arm.plan.trainables.tensors:
        if part.kind.startswith("head"):
            values = np.frombuffer(learned, "<f4", part.bytes // 4, part.offset).reshape(part.shape)
            with torch.no_grad():
                group.net.parameters[part.layer, part.kind].copy_(torch.tensor(values)[None])
    group.run()
    return [round(100 * log.evaluations[-1].accuracy, 2) for log in group.logs]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Each variant at the rate that is best on the mean of all that it was measured on."""
    cells = [(protocol, name) for protocol in PASSES for name in SETS]
    heads = [f"{name}, {'10 shots' if protocol == 'shots-10' else 'one look'}" for protocol, name in cells]
    lines = [f"| beside a trained weight | bytes | {' | '.join(heads)} | mean | rate |"]
    lines.append("|---|---|" + "---|" * (len(cells) + 2))
    for variant in VARIANTS:
        own = {(r["protocol"], r["dataset"]): r["accuracy"] for r in rows if r["variant"] == variant.words}
        if set(own) == set(cells):
            means = {rate: float(np.mean([own[cell][str(rate)] for cell in cells])) for rate in RATES}
            best = max(means, key=lambda rate: means[rate])
            values = [own[cell][str(best)] for cell in cells] + [means[best]]
            shown = " | ".join(f"{value:.1f}" for value in values)
            lines.append(f"| {variant.words} | {variant.bytes} | {shown} | x{best:g} |")
    return "\n".join(lines)
