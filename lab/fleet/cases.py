"""How a study of a fleet divides its samples and how long it learns: what the commands take as options."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import click

from microtrain.base.options import Number, option
from microtrain.fleet.dgc import MOMENTUM

ARMS = ("full", "dgc", "float", "alone", "pooled", "sizes")


@dataclass(frozen=True)
class Pace:
    """How long is learned, and how: it is the same for all boards.

    lr        it falls to 0 over the rounds on a cosine
    share     bytes of a compressed update, in millionths of those of all trained values
    momentum  of a compressed one, in 1/256
    """

    rounds: int = option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="How many.")
    steps: int = option(
        "--steps",
        type=click.IntRange(1),
        default=50,
        show_default=True,
        help="Of a board in a round, at most.",
    )
    lr: float = option(
        "--lr", type=Number(1e-6, 1), default=0.002, show_default=True, help="Learning rate at the start."
    )
    share: int = option(
        "--share", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True,
        help="Bytes of a compressed update, in millionths of all that is trained.",
    )  # fmt: skip
    momentum: int = option(
        "--momentum", type=click.IntRange(0, 255), default=MOMENTUM, show_default=True,
        help="Of a compressed update, in 1/256.",
    )  # fmt: skip
    seed: int = option(
        "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
        help="Of the division, of orders and of rounding.",
    )  # fmt: skip

    def factor(self, number: int) -> float:
        """On the learning rate, in a round counted from 1."""
        return 0.5 * (1 + math.cos(math.pi * (number - 1) / self.rounds))

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Case(Pace):
    """Images divided over boards by a Dirichlet distribution."""

    boards: int = option("--boards", type=click.IntRange(2), default=10, show_default=True, help="How many.")
    alpha: float = option(
        "--alpha", type=Number(0.01, 1000), default=1.0, show_default=True,
        help="Of the distribution that divides the images: the smaller, the less alike boards are.",
    )  # fmt: skip


@dataclass(frozen=True)
class Speakers(Pace):
    """A board for each speaker, with some of his recordings."""

    steps: int = option(
        "--steps",
        type=click.IntRange(1),
        default=100,
        show_default=True,
        help="Of a board in a round, at most.",
    )
    lr: float = option(
        "--lr", type=Number(1e-6, 1), default=0.03, show_default=True, help="Learning rate at the start."
    )
    samples: int = option(
        "--samples", type=click.IntRange(1, 40), default=10, show_default=True,
        help="Recordings of each word that a board learns from.",
    )  # fmt: skip
    tests: int = option(
        "--tests", type=click.IntRange(1, 10), default=10, show_default=True, help="That it is tested with."
    )


@dataclass(frozen=True)
class Arms:
    """What is measured of a case."""

    only: tuple[str, ...] = option(
        "--only", type=click.Choice(ARMS), multiple=True, help="Not all; what the file has else is kept."
    )

    @property
    def names(self) -> tuple[str, ...]:
        return self.only or ARMS
