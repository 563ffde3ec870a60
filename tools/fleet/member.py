"""A board as a member of a federation: what it takes of a task, and what it sends back.

What it has learned is lost in no case: an update that the server has not got joins the next one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.errors import Error, FileError
from microtrain.base.files import replacing
from microtrain.base.npz import read_npz
from microtrain.base.trained import STATISTICS
from microtrain.device.session import Settings
from microtrain.samples.source import Dataset

from . import dgc
from .board import Board, Learned, Round
from .errors import FleetError
from .layout import Layout
from .masks import Masker
from .message import TASK, UPDATE, Report, Work, dense, longest, overhead, parsed, settled, undense, written
from .private import Private, blurred
from .rounding import derived, divided, noise
from .sharing import share
from .words import HEAD_KINDS

VECTORS = ("pending", "shared", "held", "velocity")  # of a State
MU_BITS = 16  # of the factor by which FedProx draws a change back


@dataclass(frozen=True)
class State:
    """What a member remembers from round to round.

    rounds   the last round it has worked in, by federation
    federation  of the last one
    pending  its update of that round, of which it does not know whether it arrived, int64
    block    the board's trainables afterwards
    shared   the values that it was given for that round, int64; where updates are compressed
    held, velocity  of dgc.py
    """

    rounds: dict[str, int] = field(default_factory=dict)
    federation: str = ""
    pending: np.ndarray | None = None
    block: bytes = b""
    shared: np.ndarray | None = None
    held: np.ndarray | None = None
    velocity: np.ndarray | None = None

    def joined(self, federation: str) -> State:
        """This state, or the one with which another federation is joined: its rounds and the board's own."""
        if federation == self.federation:
            return self
        return State(self.rounds, federation, block=self.block)


@dataclass(frozen=True)
class Turn:
    """A board's part of a round.

    shared    the values that it is given, int64
    held      what it has learned and not said, int64
    velocity  of dgc.py
    """

    number: int
    work: Work
    shared: np.ndarray
    held: np.ndarray
    velocity: np.ndarray


class Member:
    """One board of a federation.

    all_     what the federation shares, by the plan it was begun with
    own      what this board shares, by its own plan; the same where it runs the same scheme
    samples  that it learns from; None: the records of its own replay buffer
    file     keeps the state; None: it is kept in memory
    masked   it sends nothing that is not masked (masks.py)
    private  every change is cut and blurred (private.py)
    draws    of that noise: the system's own randomness, but where a measurement must repeat
    """

    def __init__(
        self,
        name: str,
        board: Board,
        samples: Dataset | None,
        all_: Layout,
        own: Layout,
        file: Path | None = None,
    ) -> None:
        self.name, self.board, self.samples = name, board, samples
        self.sharing = share(all_, own)
        self.file = file
        self.masked = False
        self.private: Private | None = None
        self.draws = np.random.default_rng()
        self.state = loaded(file, own) if file else State()

    def handle(self, task: bytes, masker: Masker | None = None) -> bytes:
        """Work off a task; returns the update, under masks where the round has them.

        Errors   FleetError where the task is refused or the board cannot work; nothing has changed then
        """
        all_, own = self.sharing.all, self.sharing.own
        message = parsed(task, TASK, longest(all_))
        work = settled(Work, message)
        if message.model_id != all_.plan.model_id:
            raise FleetError(f"{self.name} refuses a task: it is of another model than {all_.plan.name}.")
        if message.round <= self.state.rounds.get(work.federation, 0):
            raise FleetError(f"{self.name} refuses a task: it has worked in round {message.round} already.")
        if masker is None and self.masked:
            raise FleetError(f"{self.name} refuses a task: its updates travel under masks alone.")
        if masker is not None and (masker.federation, masker.number) != (work.federation, message.round):
            raise FleetError(f"{self.name} refuses a task: its masks are of another round.")
        values = undense(all_, message.body, 1)
        if self._makes_updates(work, masker):
            return self._passed_on(work, message.round, own.write(values, bytes(own.plan.trainables.bytes)))
        first = self.board.present if self.samples is None else self.board.fresh
        before = self.state.block or first()
        turn = self._turn(message.round, work, self.sharing.to_board(values, own.read(before)))
        learned, change = self._learn(own.write(self._start(turn), before), work, message.round)
        return self._answer(turn, learned, change, masker)

    def _makes_updates(self, work: Work, masker: Masker | None) -> bool:
        """Whether the board itself compresses what it has learned: all of it is shared, and as it is."""
        all_, own = self.sharing.all, self.sharing.own
        plain = masker is None and self.private is None and not work.mu and not own.keep
        same = own.plan.model_id == all_.plan.model_id
        asked = work.share and plain and same and own.plan.fleet is not None
        return bool(asked) and self.board.room() > 0

    def _passed_on(self, work: Work, number: int, block: bytes) -> bytes:
        """The update that the board makes, from the trainables that it is given on."""
        own, name = self.sharing.own, self.name
        room = dgc.budget(own, work.share) - overhead(name)
        if room > self.board.room():
            raise FleetError(
                f"{name} refuses a task: its updates have {self.board.room()} bytes at most, and this "
                f"fleet's have {room}: convert with a larger --fleet."
            )
        turn = Round(work.federation, number, work.got.get(name, 0), max(room, dgc.least(own)), work.momentum)
        seed = derived(work.seed, number, name)
        settings = Settings(
            epochs=work.epochs, seed=seed, limit=work.limit, rate=work.rate, schedule=work.schedule
        )
        learned = self.board.learn(block, self.samples, settings, turn)
        dgc.unpacked(own, memoryview(learned.body))  # what the server would refuse does not leave
        following = State({**self.state.rounds, work.federation: number}, work.federation, block=block)
        return self._told(work, number, following, learned, "sparse", learned.body)

    def _turn(self, number: int, work: Work, shared: np.ndarray) -> Turn:
        """What a board holds back joins it, and its last update where that did not arrive."""
        own, state = self.sharing.own, self.state.joined(work.federation)
        missed = work.got.get(self.name, 0) < state.rounds.get(work.federation, 0)
        lost = state.pending if missed else None
        nothing = np.zeros(own.size, np.int64)
        held, velocity, waits = (nothing if x is None else x for x in (state.held, state.velocity, lost))
        bounded = dgc.holdable if work.share else dgc.within
        return Turn(number, work, shared, bounded(own, held + waits), velocity)

    def _start(self, turn: Turn) -> np.ndarray:
        """The values from which the board learns: those of the fleet.

        Where updates are compressed, with what it holds back, so that it does not learn that again. But
        boards that see other things drift apart so. Where the fleet moves elsewhere, it is not done.
        """
        own, last = self.sharing.own, self.state.joined(turn.work.federation).shared
        if not turn.work.share or last is None or not dgc.goes_along(own, turn.held, turn.shared - last):
            return turn.shared
        return np.asarray(np.clip(turn.shared + turn.held, -own.limits, own.limits))

    def _learn(self, block: bytes, work: Work, number: int) -> tuple[Learned, np.ndarray]:
        """The board's round: what came of it, and the change of what it shares."""
        own, base = self.sharing.own, self.sharing.own.read(block)
        seed = derived(work.seed, number, self.name)
        passes = work.epochs if work.mu else 1
        steps = again = 0
        for turn in range(passes):
            settings = Settings(
                epochs=work.epochs // passes,
                seed=seed + turn & 0xFFFFFFFF,
                limit=work.limit,
                rate=work.rate,
                schedule=work.schedule,
            )
            learned = self.board.learn(block, self.samples, settings)
            steps, again = steps + learned.steps, again + learned.again
            change = own.read(learned.block) - base
            if work.mu:
                bits = noise(seed, number, f"proximal {turn}", own.size)
                change = drawn_back(own, change, work.mu, settings, learned.steps, bits)
            block = own.write(base + change, learned.block)
        return replace(learned, block=block, steps=steps, again=again), change

    def _answer(self, turn: Turn, learned: Learned, change: np.ndarray, masker: Masker | None) -> bytes:
        """The update, with whatever of the last ones the server has not got."""
        own, work, shared = self.sharing.own, turn.work, None
        held = velocity = None
        if self.private is not None:
            change = blurred(own, change, self.private, self.draws)
        if work.share:
            room = dgc.budget(own, work.share) - overhead(self.name)
            sent = dgc.compressed(own, change, turn.held, turn.velocity, room, work.momentum)
            body, change, shared = sent.body, sent.values, turn.shared
            held, velocity = sent.held, sent.velocity
        else:
            change = dgc.within(own, change + turn.held)
            body = dense(own, change)
        if masker is not None:
            body = masker.masked(self._weight(learned) * self.sharing.to_all(change))
        hidden = masker is not None or self.private is not None
        if hidden:
            learned = replace(learned, loss=0.0)
        rounds = {**self.state.rounds, work.federation: turn.number}
        following = State(rounds, work.federation, change, learned.block, shared, held, velocity)
        kind = "masked" if masker else "sparse" if work.share else "dense"
        return self._told(work, turn.number, following, learned, kind, body)

    def _weight(self, learned: Learned) -> int:
        """As how much its update counts."""
        return learned.records if self.samples is None else len(self.samples.samples)

    def _told(
        self, work: Work, number: int, following: State, learned: Learned, kind: str, body: bytes
    ) -> bytes:
        """The update as a message, once the state behind it is kept."""
        report = Report(
            board=self.name,
            federation=work.federation,
            samples=self._weight(learned),
            steps=learned.steps,
            again=learned.again,
            loss=learned.loss,
            body=kind,
        )
        if self.file:
            store(self.file, following, self.sharing.own)
        self.state = following
        return written(UPDATE, self.sharing.own.plan.model_id, number, report, body)


def drawn_back(
    layout: Layout, change: np.ndarray, mu: float, settings: Settings, steps: int, bits: np.ndarray
) -> np.ndarray:
    """FedProx: what the proximal term takes off a change, over as many steps at their rates.

    Gradient steps and the term's own flow, exp(-mu * sum of rates), one behind the other.
    """
    total = math.fsum(settings.rate_at(step, steps) for step in range(steps))
    rates = layout.plan.scheme.learning_rate
    factors = np.zeros(layout.size, np.int64)
    for part in layout.parts:
        kind = part.tensor.kind
        if kind in STATISTICS:  # no gradient moves them
            factors[part.start : part.end] = 2**MU_BITS
            continue
        rate = rates.head if kind in HEAD_KINDS else rates.bias if kind == "bias" else rates.weight
        factors[part.start : part.end] = round(math.exp(-mu * rate * total) * 2**MU_BITS)
    return divided(change * factors, np.full(layout.size, 1 << MU_BITS, np.int64), bits)


# ---------------------------------------------------------------- what survives a restart of the gateway


def _about(own: Layout) -> dict[str, Any]:
    return {"model_id": own.plan.model_id, "keep": list(own.keep)}


def store(file: Path, state: State, own: Layout) -> None:
    """Nothing half-written stays behind."""
    arrays = {"about": np.array(json.dumps(_about(own) | {"rounds": state.rounds, "last": state.federation}))}
    arrays["block"] = np.frombuffer(state.block, np.uint8)
    for name in VECTORS:
        value = getattr(state, name)
        if value is not None:
            arrays[name] = value
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as part, part.open("wb") as out:
        np.savez_compressed(out, **arrays)  # type: ignore[arg-type]


def loaded(file: Path, own: Layout) -> State:
    """What store() kept; a new state where there is none, or it is of another model.

    Errors   FleetError where the file is damaged
    """
    if not file.is_file():
        return State()
    try:
        arrays = read_npz(file)
        about = json.loads(str(arrays["about"]))
        if {key: about[key] for key in _about(own)} != _about(own):
            return State()
        rounds = {str(name): int(number) for name, number in about["rounds"].items()}
        vectors = {n: arrays[n].astype(np.int64) for n in VECTORS if n in arrays}
        block = arrays["block"].astype(np.uint8).tobytes()
        own.read(block)
        if any(vector.shape != (own.size,) for vector in vectors.values()):
            raise FileError("of another size")
        return State(rounds, str(about["last"]), block=block, **vectors)
    except (Error, KeyError, ValueError, TypeError, AttributeError) as error:
        raise FleetError(f"{file} is damaged: delete it, and the board joins anew.") from error
