"""How a fleet learns: the options of `microtrain fleet`, and what a Flower app keeps of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from microtrain.base.schema import AtLeast, OneOf

from .dgc import MOMENTUM
from .gateway import Keep
from .message import Count, Work
from .words import STRATEGIES


@dataclass(frozen=True)
class Tuning:
    """Of the strategies; as in Flower."""

    momentum: float = 0.9
    server_rate: float = 1.0
    eta: float = 0.003
    tau: float = 0.001


@dataclass(frozen=True)
class Settings:
    """Of a run, as the app's pyproject.toml has them.

    plan      of the federation; others: of further schemes that boards run, with spaces between
    name      of the federation: another one begins anew
    share     bytes of an update in those of all values, as a part of 1; 0: whole updates
    nodes     that a round waits for before it begins; patience: seconds for their answers
    masked    yes: the server sees sums alone
    test      images that the server measures with; state: where it goes on; log: a JSON line a round
    """

    plan: str
    others: str
    name: str
    rounds: Annotated[int, AtLeast(1)]
    strategy: Annotated[str, OneOf(STRATEGIES)]
    seed: Count
    epochs: Annotated[int, AtLeast(1)]
    limit: Count
    rate: float
    mu: float
    share: float
    keep: Keep
    masked: Annotated[str, OneOf(("yes", "no"))]
    nodes: Annotated[int, AtLeast(1)]
    patience: float
    test: str
    state: str
    log: str
    momentum: float
    server_rate: float
    eta: float
    tau: float

    def work(self, federation: str) -> Work:
        return Work(
            federation=federation,
            seed=self.seed,
            epochs=self.epochs,
            limit=self.limit,
            rate=self.rate,
            mu=self.mu if self.strategy == "fedprox" else 0.0,
            share=round(self.share * 1_000_000),
            momentum=MOMENTUM if self.share else 0,
        )

    def tuning(self) -> Tuning:
        return Tuning(self.momentum, self.server_rate, self.eta, self.tau)


def named(seed: int, name: str) -> str:
    """The 16 hex digits by which boards know a federation."""
    return hashlib.sha256(f"microtrain fleet {name} {seed}".encode()).hexdigest()[:16]
