"""Costs that were compiled before, kept in the lab's folder: minutes that a search under a smaller budget, or
one that was stopped, does not spend again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.files import replacing
from microtrain.base.paths import PACKAGE

from . import cost, instructions, space
from .cost import Added, Base, Budget, Cost, Costs
from .lab import Lab
from .space import Space


def path(lab: Lab, space: Space) -> Path:
    """Of the costs of a space, by this very compiler and estimate of instructions."""
    kinds = [*map(str, space.bits), *(f"{value:g}" for value in modules_like(space))]
    return lab.folder / f"costs-{compiler()}-{'-'.join(kinds)}.json"


def modules_like(space: Space) -> tuple[float, ...]:
    """What lite residual modules are like, but for their rate, which is free; () where there are none."""
    lite = space.lite
    return () if lite is None else (lite.groups, lite.kernel, lite.reduce)


def compiler() -> str:
    """Names all source that costs depend on."""
    sources = [Path(module.__file__ or "") for module in (cost, instructions, space)]
    sources += [instructions.COEFFICIENTS, *(PACKAGE / "convert").rglob("*.py")]
    state = hashlib.sha256()
    for source in sorted(sources):
        state.update(source.read_bytes())
    return state.hexdigest()[:12]


def known(lab: Lab, space: Space, budget: Budget) -> Costs | None:
    """All costs within the budget; None where they were not compiled under this one or a larger one."""
    kept = path(lab, space)
    if not kept.is_file():
        return None
    try:
        document = json.loads(kept.read_text(encoding="utf-8"))
        largest, costs = Budget(**document["budget"]), Costs(dict(map(_base, document["bases"])))
    except (ValueError, KeyError, TypeError):
        return None  # of another program, or damaged: compiled again
    covered = Cost(budget.sram, budget.flash, budget.instructions).within(largest)
    return costs.within(budget) if covered else None


def keep(lab: Lab, space: Space, budget: Budget, costs: Costs) -> None:
    """costs: all that is within the budget."""
    bases = [{"biases": k, "bits": bits, **_plain(base)} for (k, bits), base in costs.bases.items()]
    with replacing(path(lab, space)) as part:
        part.write_text(json.dumps({"budget": asdict(budget), "bases": bases}), encoding="utf-8")


def _plain(base: Base) -> dict[str, Any]:
    """A base as JSON holds it."""
    added = [{"choice": choice, **asdict(a), "alive": a.alive.tolist()} for choice, a in base.added.items()]
    return {
        "alive": base.alive.tolist(),
        "fixed": base.fixed,
        "flash": base.flash,
        "instructions": base.instructions,
        "added": added,
    }


def _base(row: dict[str, Any]) -> tuple[tuple[int, int], Base]:
    """The inverse of _plain(), with its key."""
    added = {
        (a["choice"][0], a["choice"][1]): Added(
            np.array(a["alive"], np.int64),
            tuple((at, bytes_) for at, bytes_ in a["own"]),
            a["fixed"],
            a["flash"],
            a["instructions"],
        )
        for a in row["added"]
    }
    alive = np.array(row["alive"], np.int64)
    return (row["biases"], row["bits"]), Base(alive, row["fixed"], row["flash"], row["instructions"], added)
