"""Power cuts at random instructions of a training session with saves.

The session runs once. At each of the chosen instructions its flash, all that a power cut leaves, is copied,
and a second board boots from the copy: it must stand where the session stood at its last save, or at the one
that was under way, and be able to learn and save again. A boot depends on the flash alone and the emulated
board repeats exactly, so flash of the same content is booted once.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from microtrain.emulator import Board, Fault

from .line import BoardLine, LineError, State

# Training steps, each with two saves: enough to fill a slot and the next, and to erase both again.
ROUNDS = 30
FIRST, FIRST_END, LAST = 0x20000, 0x40000, 0x100000  # the first slot; the flash before it never changes


@dataclass
class Report:
    """cuts, how many of them hit a save, different flash contents among them, and what was lost, in words."""

    cuts: int = 0
    in_saves: int = 0
    contents: int = 0
    erases: int = 0
    losses: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A training session: a firmware with so many classes, and rounds of a training step and two saves.

    room   bytes of the first slot that are free at its start; None: all
    """

    elf: Path
    classes: int
    rounds: int = ROUNDS
    room: int | None = None


class Session:
    """A session on a board that notes which states a power cut may leave.

    saved   the state of the last save that was answered
    coming  the state that a save under way writes, None: none is
    """

    def __init__(self, plan: Plan) -> None:
        self.line = BoardLine(Board(plan.elf))
        self.plan = plan
        self.saved: State | None = None
        self.coming: State | None = None

    def begin(self) -> None:
        """Boot and save once: from here on there always is a checkpoint."""
        self.line.boot()
        self._save()
        if self.plan.room is not None:
            used = FIRST + self.plan.room
            self.line.board.memory.flash[used:FIRST_END] = bytes(FIRST_END - used)

    def run(self) -> None:
        for number in range(self.plan.rounds):
            self.line.train(number, self.plan.classes)
            self._save()
            self.line.do(f"seed {1000 + number}")
            self._save()

    def _save(self) -> None:
        self.coming = self.line.state()
        self.line.do("save")
        self.saved, self.coming = self.coming, None


def draw_instants(plan: Plan, cuts: int, seed: int) -> list[int]:
    """Instructions since power-on of a session, at random, in order: it is run once to know its length."""
    session = Session(plan)
    session.begin()
    first = session.line.board.instructions
    session.run()
    draws = random.Random(seed)
    return sorted(draws.randrange(first + 1, session.line.board.instructions) for _ in range(cuts))


class Survivor:
    """Boots the flash that a power cut leaves."""

    def __init__(self, plan: Plan) -> None:
        self.line = BoardLine(Board(plan.elf))
        self.classes = plan.classes
        self.found: dict[bytes, State | str] = {}

    def state(self, flash: bytes) -> State | str:
        """Where the board stands after the boot, or in words what fails."""
        key = hashlib.sha256(flash[FIRST:LAST]).digest()
        if key not in self.found:
            self.line.board.memory.flash[FIRST:LAST] = flash[FIRST:LAST]
            try:
                self.found[key] = self._try()
            except (Fault, LineError) as error:
                self.found[key] = str(error)
        return self.found[key]

    def _try(self) -> State:
        """Boot, learn, save, boot again: what was saved must be there. LineError where it is not."""
        line = self.line
        line.boot()
        found = line.state()
        line.train(7, self.classes)
        learned = line.state()
        line.do("save")
        line.boot()
        if line.state() != learned:
            raise LineError(f"the save after the cut is not there after the next start: {learned}")
        return found


def cut_power(plan: Plan, cuts: int, seed: int, advance: Callable[[], None]) -> Report:
    """Cut the power of a session at `cuts` random instructions. advance: called for each."""
    instants = iter(draw_instants(plan, cuts, seed))
    session, survivor, report = Session(plan), Survivor(plan), Report()
    session.begin()
    board = session.line.board
    pending = next(instants, None)

    def cut() -> int | None:
        nonlocal pending
        found = survivor.state(board.flash_content())
        while pending is not None and pending <= board.instructions:
            report.cuts += 1
            report.in_saves += session.coming is not None
            advance()
            pending = next(instants, None)
        if found == session.coming:
            session.saved = session.coming  # written: from now on nothing may lose it
        elif found != session.saved:
            report.losses.append(f"cut after {board.instructions} instructions: {found}")
        return pending

    session.line.alarm, session.line.on_alarm = pending, cut
    session.run()
    report.contents, report.erases = len(survivor.found), sum(board.flash.wear)
    return report
