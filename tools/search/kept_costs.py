"""Costs that were compiled before, kept in the lab's folder: minutes that a search under a smaller budget, or
one that was stopped, does not spend again."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import convert
from device.files import replacing

from . import cost, instructions, space
from .cost import Budget, Cost, Costs
from .lab import Lab
from .space import Space


def path(lab: Lab, space: Space) -> Path:
    """Of the costs of a space, by this very compiler and estimate of instructions."""
    bits = "-".join(map(str, space.bits))
    return lab.folder / f"costs-{compiler()}-{bits}.pickle"


def compiler() -> str:
    """Names all source that costs depend on."""
    sources = [Path(module.__file__ or "") for module in (cost, instructions, space)]
    sources += [instructions.COEFFICIENTS, *Path(convert.__file__ or "").parent.rglob("*.py")]
    state = hashlib.sha256()
    for source in sorted(sources):
        state.update(source.read_bytes())
    return state.hexdigest()[:12]


def known(lab: Lab, space: Space, budget: Budget) -> Costs | None:
    """All costs within the budget; None where they were not compiled under this one or a larger one."""
    kept = path(lab, space)
    if not kept.is_file():
        return None
    largest, costs = pickle.loads(kept.read_bytes())
    covered = Cost(budget.sram, budget.flash, budget.instructions).within(largest)
    return costs.within(budget) if covered else None


def keep(lab: Lab, space: Space, budget: Budget, costs: Costs) -> None:
    """costs: all that is within the budget."""
    with replacing(path(lab, space)) as part:
        part.write_bytes(pickle.dumps((budget, costs)))
