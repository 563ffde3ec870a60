"""Lite residual modules at equal SRAM, beside biases alone and sparse updates: a table of arithmetic.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from lab import marks, notes
from lab.golden.data import find
from microtrain.base.paths import ROOT
from microtrain.base.progress import Bars
from microtrain.convert.default_scheme import FRACTION_BITS
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import find as find_scheme
from microtrain.convert.scheme import load

from . import sets
from .cases import PROTOCOLS, SCHEMES, SEEDS, Case
from .run import WORK, Arm

RESULT, PAGE = ROOT / "lab/pages/recipe-lite.json", ROOT / "lab/pages/arithmetic.md"
COMMAND = "python lab/recipe --lite"
SETS = ("gtsrb17", "textures10", "cifar10")
PASSES = {"one-look": "one look", "six-passes": "six passes"}
CLASSES = 10
BLOCKS = {  # chosen on clothing10, as the rate: what gained most there of all that fits
    "mcunet-5fps": (7, 8),
    "proxyless-w0.3": (11, 13, 14, 15, 16),
    "mbv2-w0.35": (9, 10, 11, 12, 13, 14),
}
ARMS = {
    "biases": "biases and head",
    "sparse": "the published 49 KB scheme",
    "lite": "biases, head, modules",
}
NAMES = {"mcunet-5fps": "MCUNet-5FPS", "proxyless-w0.3": "ProxylessNAS 0.3", "mbv2-w0.35": "MobileNetV2 0.35"}
KEYS = ("dataset", "network", "protocol", "arm", "seed")
Row = dict[str, Any]


@dataclass(frozen=True)
class Tried(Case):
    """A session of an arm of ARMS, without records."""

    @property
    def scheme(self) -> str:
        blocks = BLOCKS[self.network] if self.arm == "lite" else ()
        return "-".join([SCHEMES[self.network], self.arm, *map(str, blocks)])

    @property
    def file(self) -> Path:
        return scheme_file(self.network, self.arm)


def scheme_file(network: str, arm: str) -> Path:
    """As many biases as the published scheme has; its weights, modules, or neither."""
    published = find_scheme(Path(SCHEMES[network]))
    made: dict[str, Any] = {"biases": published.biases}
    if arm == "sparse":
        made["weights"] = dict(published.weights)
    if arm == "lite":
        made["lite_residuals"] = [f"blocks.{number}" for number in BLOCKS[network]]
    path = WORK / "schemes" / f"{SCHEMES[network]}-{arm}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(made), encoding="utf-8")
    return path


def measure() -> None:
    """Run what is missing in the record, and write the table."""
    folders, found = sets.test_sets(WORK / "sets"), notes.read(RESULT, {"sram": {}, "rows": []})
    done = {tuple(row[key] for key in KEYS) for row in found["rows"]}
    wanted = [case for case in cases() if key_of(case) not in done]
    with Bars() as bars:
        bar = bars.add("sessions", len(wanted))
        for case in wanted:
            found["rows"].append(row(case, folders[case.dataset]))
            found["sram"].setdefault(case.network, {})[case.arm] = sram(case)
            notes.write(RESULT, found)
            bar.advance(text=f"{case.key}: {found['rows'][-1]['accuracy']:.1f} %")
        bar.end()
    marks.insert(PAGE, COMMAND, {"lite": table(found)})


def key_of(case: Case) -> tuple[str | int, ...]:
    return case.dataset, case.network, case.protocol, case.arm, case.seed


def cases() -> Iterator[Tried]:
    for seed, name, protocol, network, arm in product(SEEDS, SETS, PASSES, SCHEMES, ARMS):
        yield Tried(name, network, protocol, arm, seed)


def row(case: Tried, data: Path) -> Row:
    """Accuracy in percent on at most 400 images, behind a session that begins with a look."""
    arm = Arm(case, data, find().checkpoint(case.network))
    arm.settings = replace(arm.settings, epochs=PROTOCOLS[case.protocol].epochs)
    return dict(zip(KEYS, key_of(case), strict=True)) | {"accuracy": round(100 * arm.accuracy(), 2)}


def sram(case: Tried) -> int:
    """Bytes all in for CLASSES classes, as conversion estimates them, without statistics of features."""
    graph = read_checkpoint(find().checkpoint(case.network))
    scheme = replace(load(case.file), fraction_bits=FRACTION_BITS)
    return compile_graph(graph, scheme, CLASSES).sram


def table(found: dict[str, Any]) -> str:
    """A line for each network and arm, and the means of the networks; a column for each set and protocol that
    all of them were measured on with all seeds, of which it has the means."""
    rows = {tuple(row[key] for key in KEYS): row["accuracy"] for row in found["rows"]}
    known = means(rows)
    lines = list(product(SCHEMES, ARMS))
    cells = [
        cell
        for cell in product(SETS, PASSES)
        if all((cell[0], network, cell[1], arm) in known for network, arm in lines)
    ]
    heads = [f"{name}, {PASSES[protocol]}" for name, protocol in cells]
    made = [f"|  |  | SRAM, bytes | {' | '.join(heads)} |", "|---|---|" + "---|" * (len(cells) + 1)]
    for network, arm in lines:
        values = [known[name, network, protocol, arm] for name, protocol in cells]
        made.append(line(NAMES[network], ARMS[arm], f"{found['sram'][network][arm]:,}", values))
    for arm, words in ARMS.items():
        values = [float(np.mean([known[name, net, p, arm] for net in SCHEMES])) for name, p in cells]
        made.append(line("mean", words, "", values))
    return "\n".join(made)


def means(rows: dict[tuple[Any, ...], float]) -> dict[tuple[str, ...], float]:
    """Over the seeds, of what was measured with all of them. rows: by KEYS, of which the seed is the last"""
    places = {key[:-1] for key in rows}
    whole = (place for place in places if all((*place, seed) in rows for seed in SEEDS))
    return {place: float(np.mean([rows[*place, seed] for seed in SEEDS])) for place in whole}


def line(name: str, words: str, sram: str, values: Sequence[float]) -> str:
    return f"| {name} | {words} | {sram} | {' | '.join(f'{value:.1f}' for value in values)} |"
