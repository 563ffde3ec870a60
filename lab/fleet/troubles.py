"""Many rounds on emulated boards with a hard life: what comes of them is what calm boards come to.

Power cuts, resets and a noisy line strike within rounds, which are begun again. Boards stay away and updates
get lost by a list that both fleets have: that changes what is learned, by the rules, and alike in both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.soak.hard_life import HardLife
from microtrain.base.errors import Error
from microtrain.base.plan import Plan
from microtrain.emulator import Board as EmulatedBoard
from microtrain.fleet.board import Board, Host, HostBoard, PortBoard
from microtrain.fleet.dgc import MOMENTUM
from microtrain.fleet.errors import FleetError
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work
from microtrain.samples.source import Dataset

NAME = "b0a2" * 4
AWAY, LOST = 0.10, 0.05  # share of a board's rounds
EVERY = 30_000_000  # instructions from one power cut or reset to the next, on average
NOISE = 0.002  # share of writes and reads that are disturbed
STUCK_S = 600.0  # a round that takes longer
Tell = Callable[[int], None]


@dataclass(frozen=True)
class Report:
    """What came of it. dropouts: rounds of a board in which it was away or its update got lost."""

    rounds: int
    dropouts: int
    stuck: int
    again: int
    power_cuts: int
    resets: int
    damaged: int
    equal: bool
    sha256: str


@dataclass(frozen=True)
class Fate:
    """What happens to each board in each round, bool [rounds][boards]."""

    away: np.ndarray
    lost: np.ndarray

    @staticmethod
    def drawn(rounds: int, boards: int, seed: int) -> Fate:
        draws = np.random.default_rng(seed).random((2, rounds, boards))
        return Fate(draws[0] < AWAY, draws[1] < LOST)


def rounds_of(
    plan: Plan,
    boards: Sequence[Board],
    parts: Sequence[Dataset],
    fate: Fate,
    work: Work,
    tell: Callable[[int], None],
) -> tuple[Federation, int, int]:
    """All rounds; the fleet afterwards, how many rounds were stuck, and how often one was begun again."""
    layout = Layout(plan)
    members = [
        Member(f"b{n}", board, part, layout, layout)
        for n, (board, part) in enumerate(zip(boards, parts, strict=True))
    ]
    fleet = Federation(layout, layout.read(boards[0].fresh()), 3, NAME)
    stuck = again = 0
    for away, lost in zip(fate.away, fate.lost, strict=True):
        began, failed = time.monotonic(), 0
        fleet.begin()
        for node, member in enumerate(members):
            if away[node]:
                continue
            try:
                update = member.handle(fleet.task(work, node))
                again += 0 if lost[node] else fleet.take(update, node).again
            except FleetError:
                failed += 1
        fleet.close()
        stuck += failed > 0 or time.monotonic() - began > STUCK_S
        tell(fleet.number)
    return fleet, stuck, again


def survive(
    plan: Plan,
    elf: Path,
    work: Path,
    parts: Sequence[Dataset],
    rounds: int,
    seed: int,
    tell: Callable[[int], None],
    share: int = 0,
) -> Report:
    """The same fate on emulated boards with a hard life, and on the host library.

    share    of a compressed update, in millionths: boards with the memory for it make theirs themselves
    Errors   Error where they do not come to the same weights
    """
    fate, asked = Fate.drawn(rounds, len(parts), seed), Work(NAME, limit=1, share=share, momentum=MOMENTUM)
    ports = [HardLife(EmulatedBoard(elf), random.Random(seed + n), EVERY, NOISE) for n in range(len(parts))]
    boards = [PortBoard(plan, lambda port=port: port, f"b{n}") for n, port in enumerate(ports)]  # type: ignore[misc]
    hard, stuck, again = rounds_of(plan, boards, parts, fate, asked, tell)
    host = Host(plan, work)
    calm, _, _ = rounds_of(
        plan, [HostBoard(host, f"b{n}") for n in range(len(parts))], parts, fate, asked, lambda number: None
    )
    if hard.sha256() != calm.sha256():
        raise Error("boards with a hard life learned other weights than calm ones: this is a bug.")
    troubles = [port.troubles for port in ports]
    return Report(
        rounds=rounds,
        dropouts=int((fate.away | fate.lost).sum()),
        stuck=stuck,
        again=again,
        power_cuts=sum(t.power_cuts for t in troubles),
        resets=sum(t.resets for t in troubles),
        damaged=sum(t.damaged for t in troubles),
        equal=True,
        sha256=hard.sha256(),
    )
