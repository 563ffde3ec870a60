"""Plans and boards for tests of the fleet: no compiler, no firmware, no images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from plans import plan_document

from microtrain.base.plan import Plan, read_plan
from microtrain.device.session import Settings
from microtrain.fleet.board import Learned, Round
from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Report, Work, dense, parsed, settled, written
from microtrain.samples.source import Dataset, Sample

NAME = "00112233445566aa"
SOURCE = {"weight": "w", "bias": None, "bn": None, "eps": None}
SIZES = {"s8": 1, "s16": 2, "f32": 4, "u4": 0.5}


def tensor(name: str, kind: str, dtype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    layer = name.rpartition(".")[0]
    size = int(np.ceil(np.prod(shape) * SIZES[dtype]))
    real = dtype != "f32" and kind != "fraction"
    scale = [0.25 + 0.01 * c for c in range(shape[0])] if real else None
    known = {"name": name, "layer": layer, "kind": kind, "dtype": dtype, "shape": shape, "bytes": size}
    known |= {"channels": None, "scale": scale, "base": None, "source": SOURCE, "dead": []}
    return known | more


def sparse_plan(
    folder: Path, *, bits: int = 4, biases: bool = True, channels: list[int] | None = None, classes: int = 3
) -> Plan:
    """A plan of a convolution, its bias and a head; its id follows from what it trains."""
    inputs = len(channels) if channels is not None else 4
    tensors = [tensor("conv.weight", "weight", "s8", [5, 1, 1, inputs], channels=channels)]
    if bits:
        fraction = "u4" if bits == 4 else "s8"
        tensors.append(tensor("conv.fraction", "fraction", fraction, [5, 1, 1, inputs], channels=channels))
    if biases:
        tensors.append(tensor("conv.bias", "bias", "s16", [5]))
    tensors += [
        tensor("head.weight", "head_weight", "f32", [classes, 6]),
        tensor("head.bias", "head_bias", "f32", [classes]),
    ]
    offset = 0
    for one in tensors:
        one["offset"] = offset
        offset += -(-one["bytes"] // 4) * 4
    model_id = hashlib.sha256(json.dumps(tensors).encode()).hexdigest()
    document = plan_document(
        name="small",
        model_id=model_id,
        classes=classes,
        trainables={"bytes": offset, "tensors": tensors},
        source={"file": "small.pt", "sha256": "ab" * 32, "kind": "exported"},
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return read_plan(path)


def some_values(layout: Layout, seed: int, reach: float = 0.5) -> np.ndarray:
    """Values within a part of their limits."""
    draws = np.random.default_rng(seed).uniform(-reach, reach, layout.size)
    result: np.ndarray = np.rint(draws * np.minimum(layout.limits, 1 << 22)).astype(np.int64)
    return result


@dataclass
class Learner:
    """A board without arithmetic: a round moves each value by a step that its seed draws.

    before   called when a round begins: what it raises is the board's trouble
    """

    plan: Plan
    before: Callable[[], None] = lambda: None
    seen: list[bytes] = field(default_factory=list)

    def fresh(self) -> bytes:
        return bytes(self.plan.trainables.bytes)

    def present(self) -> bytes:
        return self.fresh()

    def room(self) -> int:
        return 0

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None = None
    ) -> Learned:
        assert turn is None and samples is not None
        self.before()
        self.seen.append(block)
        layout = Layout(self.plan)
        values = layout.read(block) + some_values(layout, settings.seed, 1e-2)
        after = layout.write(np.clip(values, -layout.limits, layout.limits), block)
        return Learned(after, len(samples.samples) * settings.epochs, 1.0, 0)

    def close(self) -> None:
        pass


def samples(count: int) -> Dataset:
    return Dataset(("a", "b", "c"), tuple(Sample(Path(f"{n}.png"), n % 3) for n in range(count)))


def member(name: str, board: Learner, all_: Layout, count: int = 10, file: Path | None = None) -> Member:
    return Member(name, board, samples(count), all_, Layout(board.plan, all_.keep), file)


def federation(layout: Layout, seed: int = 1, others: tuple[Layout, ...] = ()) -> Federation:
    return Federation(layout, some_values(layout, 99), seed, NAME, others)


def a_round(fleet: Federation, members: dict[int, Member], work: Work | None = None) -> list[str]:
    """One round in which every member that can takes part; what was refused."""
    refused = []
    fleet.begin()
    for node, one in members.items():
        try:
            fleet.take(one.handle(fleet.task(work or Work(NAME), node)), node)
        except FleetError as error:
            refused.append(str(error))
    fleet.close()
    return refused


def update(layout: Layout, number: int, change: np.ndarray, **said: Any) -> bytes:
    """An update as a board would send it."""
    plain: dict[str, Any] = {"board": "a", "federation": NAME, "samples": 1, "steps": 1}
    report = Report(**plain | said)
    return written(2, layout.plan.model_id, number, report, dense(layout, change))


def change_of(layout: Layout, data: bytes) -> tuple[Report, np.ndarray]:
    """What an update says."""
    from microtrain.fleet.federation import body_of

    message = parsed(data, 2, 1 << 20)
    report = settled(Report, message)
    return report, body_of(layout, report, message.body)


def noise_like(bits: np.ndarray) -> bool:
    """Mean and correlations of fair coins, within five standard deviations."""
    room = 5 / np.sqrt(bits.size)
    fair = bits * 2 - 1
    return bool(abs(fair.mean()) < room) and all(
        abs(np.mean(fair[:-lag] * fair[lag:])) < room for lag in (1, 2, 7, 8, 32, 64)
    )
