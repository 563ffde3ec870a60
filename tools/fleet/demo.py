"""Four emulated boards that see different digits learn all of them together."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microtrain.base.build import build, convert
from microtrain.base.errors import Error
from microtrain.base.extras import require
from microtrain.base.files import write_json
from microtrain.base.paths import cache
from microtrain.base.plan import read_plan
from microtrain.base.terminal import say
from microtrain.demo.run import CLASSES, EXAMPLE, export_images, shown
from microtrain.device.session import COSINE
from microtrain.device.session import Settings as Session
from microtrain.samples.source import Dataset, scan

from .apart import Apart
from .board import Board, Host, HostBoard, Learned, Round
from .dgc import MOMENTUM
from .events import Event, Tell
from .federation import Federation
from .layout import Layout
from .member import Member
from .message import Work
from .settings import Tuning, named
from .split import dirichlet
from .view import DONE, WORKING, View

OUTPUT = cache() / "fleet"
ALPHA, DRAW = 0.3, 2  # how differently the digits are divided among the boards
RATE = 3.0  # times the scheme's rates, as in the demo of one board
LIMIT = 80  # images that a board learns from in a round


@dataclass(frozen=True)
class Wanted:
    """What the demo is asked for."""

    boards: int = 4
    rounds: int = 5
    seed: int = 0
    strategy: str = "fedavg"
    share: float = 0.0
    keep: tuple[str, ...] = ()

    def work(self) -> Work:
        return Work(
            federation=named(self.seed, "demo"),
            rate=RATE,
            limit=LIMIT,
            mu=0.1 if self.strategy == "fedprox" else 0.0,
            share=round(self.share * 1_000_000),
            momentum=MOMENTUM if self.share else 0,
        )


@dataclass(frozen=True)
class Scene:
    """The built example, who has which images, and a library that measures."""

    host: Host
    elf: Path
    parts: tuple[Dataset, ...]
    testing: Dataset

    def accuracy(self, block: bytes) -> float:
        return self.host.evaluate(block, self.testing).accuracy


def run(wanted: Wanted) -> None:
    """The whole demo. Error where the boards' bits are not those of the host library."""
    require("fleet", "microtrain fleet", "flwr")
    scene = prepare(wanted.boards, wanted.share)
    log = OUTPUT / "fleet.jsonl"
    log.unlink(missing_ok=True)
    names = tuple(f"board-{n + 1}" for n in range(wanted.boards))
    say(f"{wanted.boards} emulated boards, {wanted.rounds} rounds; a line a round goes to {shown(log)}")
    boards: list[Board] = [Apart(scene.host.plan, scene.elf, name) for name in names]
    with View(names, log) as view:
        emulated = federated(scene, boards, names, wanted, view)
    twins: list[Board] = [HostBoard(scene.host, name) for name in names]
    here = federated(scene, twins, names, wanted, None)
    alone = [learned_alone(scene, part, wanted) for part in scene.parts]
    tell(report(wanted, emulated, here, alone))


def prepare(boards: int, share: float = 0.0) -> Scene:
    """Convert and build the example, and divide its images. share: of updates that boards make themselves."""
    images = export_images()
    say("converting and building the example")
    convert(EXAMPLE / "model.pt", EXAMPLE / "scheme.yaml", CLASSES, OUTPUT / "generated", share)
    firmware = build(OUTPUT / "generated", OUTPUT / "pio", board=True)
    assert firmware.elf is not None
    host = Host(read_plan(firmware.plan), OUTPUT / "library")
    parts = dirichlet(scan(images / "train", CLASSES), boards, ALPHA, DRAW)
    return Scene(host, firmware.elf, tuple(parts), scan(images / "test", CLASSES))


class Told:
    """A Board whose rounds are shown while they last."""

    def __init__(self, board: Board, name: str, view: View) -> None:
        self.plan, self.board, self.name, self.view = board.plan, board, name, view

    def fresh(self) -> bytes:
        return self.board.fresh()

    def present(self) -> bytes:
        return self.board.present()

    def room(self) -> int:
        return self.board.room()

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Session, turn: Round | None = None
    ) -> Learned:
        self.view.board(self.name, WORKING)
        learned = self.board.learn(block, samples, settings, turn)
        self.view.board(self.name, DONE)
        return learned

    def close(self) -> None:
        self.board.close()


def federated(
    scene: Scene, boards: Sequence[Board], names: Sequence[str], wanted: Wanted, view: View | None
) -> list[Event]:
    """All rounds; what was told of each."""
    from .flower import Rounds, nearby, step_of  # Flower takes a second to load

    layout = Layout(scene.host.plan, wanted.keep)
    fresh = HostBoard(scene.host, "here").fresh()
    events: list[Event] = []
    try:
        members = [
            Member(name, Told(board, name, view) if view else board, part, layout, layout)
            for name, board, part in zip(names, boards, scene.parts, strict=True)
        ]
        work = wanted.work()
        rounds = Rounds(
            Federation(layout, layout.read(fresh), wanted.seed, work.federation),
            work,
            step_of(wanted.strategy, Tuning()),
            nodes=len(members),
            accuracy=lambda federation: scene.accuracy(layout.write(federation.values, fresh)),
            tell=both(events, view),
        )
        nearby(members, rounds, wanted.rounds, os.cpu_count() or 1)
    finally:
        for board in boards:
            board.close()
    return events


def both(events: list[Event], view: View | None) -> Tell:
    def tell_(event: Event) -> None:
        events.append(event)
        if view is not None:
            view.tell(event)

    return tell_


def learned_alone(scene: Scene, part: Dataset, wanted: Wanted) -> float:
    """Accuracy of a board that learns as many steps from its own images, with a rate that falls: its best."""
    board = HostBoard(scene.host, "alone")
    session = Session(epochs=wanted.rounds, limit=LIMIT, seed=wanted.seed, rate=RATE, schedule=COSINE)
    return scene.accuracy(board.learn(board.fresh(), part, session).block)


def report(wanted: Wanted, emulated: list[Event], here: list[Event], alone: list[float]) -> dict[str, Any]:
    """What build/fleet/report.json holds."""
    last = emulated[-1]
    return {
        "boards": wanted.boards,
        "rounds": len(emulated),
        "strategy": wanted.strategy,
        "accuracy_global": last.accuracy,
        "accuracy_local": alone,
        "accuracy_by_round": [event.accuracy for event in emulated],
        "bytes_up": sum(event.bytes_up for event in emulated),
        "bytes_down": sum(event.bytes_down for event in emulated),
        "seconds": round(sum(event.seconds for event in emulated), 1),
        "sha256_boards": hashed(emulated),
        "sha256_host": hashed(here),
    }


def hashed(events: list[Event]) -> str:
    """SHA-256 of what was shared after every round, 64 hex digits."""
    return hashlib.sha256("".join(event.sha256 for event in events).encode()).hexdigest()


def tell(found: dict[str, Any]) -> None:
    """The result in a few lines. Error where the host and the boards disagree."""
    file = OUTPUT / "report.json"
    write_json(file, found)
    alone = ", ".join(f"{accuracy:.1%}" for accuracy in found["accuracy_local"])
    say(f"together  {found['accuracy_global']:.1%} of the unseen images of all digits")
    say(f"alone     {alone}")
    say(f"boards    {found['sha256_boards']}\nhost      {found['sha256_host']}")
    say(f"numbers   {shown(file)}")
    if found["sha256_boards"] != found["sha256_host"]:
        raise Error("the boards' weights differ from the host's: this is a bug, please report it")
