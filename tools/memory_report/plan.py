"""What the report needs of plan.json: budget, the arena's tensors over the steps, the model's identity."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microtrain.base.errors import short
from microtrain.base.reading import reading

from .errors import ReportError


@dataclass(frozen=True)
class Tensor:
    """A range of the arena that is in use from step `birth` to step `death`, inclusive."""

    name: str
    kind: str
    bytes: int
    offset: int
    birth: int
    death: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def end(self) -> int:
        return self.offset + self.bytes

    def alive(self, step: int) -> bool:
        return self.birth <= step <= self.death


@dataclass(frozen=True)
class Step:
    """One kernel call. phase: forward or backward."""

    index: int
    phase: str
    op: str
    layer: str


@dataclass(frozen=True)
class Plan:
    """sram_budget, flash_budget: bytes, None where there is none."""

    path: Path
    name: str
    model_id: str
    sram_budget: int | None
    flash_budget: int | None
    arena: int
    lower_bound: int
    peak_step: int
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]

    @property
    def id(self) -> int:
        """The model id as the firmware holds it: its first four bytes, little-endian (model_api.h)."""
        return int.from_bytes(bytes.fromhex(self.model_id[:8]), "little")

    def alive(self, step: int) -> list[Tensor]:
        """Tensors in use at a step, the largest first."""
        found = (t for t in self.tensors if t.alive(step))
        return sorted(found, key=lambda t: (-t.bytes, t.name))


def load_plan(path: Path) -> Plan:
    """Read plan.json (docs/plan.md). ReportError where it is missing or no plan of this format."""
    if not path.exists():
        raise ReportError(
            f"no such plan: {path}. `python tools/convert MODEL.pt` writes it; --plan names it."
        )
    wrong = f"{path} is not a plan.json that tools/convert wrote"
    with reading(ReportError, lambda why: f"{wrong} ({why}): convert again."):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != 1:
            raise ReportError(
                f"{path} has plan format {short(document['format'])}, this report reads 1: convert again."
            )
        return parse(path, document)


def parse(path: Path, document: dict[str, Any]) -> Plan:
    budget, arena = document.get("budget") or {}, document["arena"]
    return Plan(
        path,
        document["name"],
        document["model_id"],
        budget.get("sram"),
        budget.get("flash"),
        arena["bytes"],
        arena["lower_bound"],
        arena["peak_step"],
        tuple(parse_tensor(t) for t in document["tensors"]),
        tuple(Step(s["index"], s["phase"], s["op"], s["layer"]) for s in document["steps"]),
    )


def parse_tensor(t: dict[str, Any]) -> Tensor:
    return Tensor(
        t["name"], t["kind"], t["bytes"], t["offset"], t["birth"], t["death"], tuple(t["shape"]), t["dtype"]
    )


def arena_kinds(plan: Plan, step: int) -> dict[str, int]:
    """Bytes of the arena by kind of tensor at a step, `unused` last; they sum up to the arena.

    Where tensors share bytes (an op that works in place), the younger one owns them.
    """
    alive = sorted(plan.alive(step), key=lambda t: (-t.birth, t.name))
    edges = sorted({0, plan.arena, *(t.offset for t in alive), *(t.end for t in alive)})
    kinds: dict[str, int] = {}
    for low, high in itertools.pairwise(edges):
        owner = next((t.kind for t in alive if t.offset <= low < t.end), "unused")
        kinds[owner] = kinds.get(owner, 0) + high - low
    unused = kinds.pop("unused", 0)
    return {**dict(sorted(kinds.items(), key=lambda k: (-k[1], k[0]))), "unused": unused}
