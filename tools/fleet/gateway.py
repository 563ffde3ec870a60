"""The boards behind a node of the fleet, as a file names them; paths in it are relative to it.

{"plan": "generated/plan.json",
 "boards": [{"name": "kitchen", "port": "/dev/ttyACM0", "data": "photos/kitchen"},
            {"name": "hall", "emulate": "firmware.elf", "data": "photos/hall"}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from microtrain.base.plan import Plan, read_plan
from microtrain.base.reading import reading
from microtrain.base.schema import OPTIONAL, OneOf, decode
from microtrain.device.link import EmulatorPort, Port, ProgramPort, SerialPort
from microtrain.samples.source import scan

from .board import Board, Host, HostBoard, PortBoard
from .errors import FleetError
from .layout import Layout
from .member import Member
from .message import Name
from .private import Private
from .words import KEEP

Keep = tuple[Annotated[str, OneOf(tuple(KEEP))], ...]


@dataclass(frozen=True)
class Entry:
    """A board: one of port (of the system), emulate (ELF), native (program) and host (true, as a word).

    data     a folder of class folders, which the board learns from; without it, from the records of its own
             replay buffer
    """

    name: Name
    data: str | None = field(default=None, metadata=OPTIONAL)
    port: str | None = field(default=None, metadata=OPTIONAL)
    emulate: str | None = field(default=None, metadata=OPTIONAL)
    native: str | None = field(default=None, metadata=OPTIONAL)
    host: Annotated[str, OneOf(("yes",))] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True)
class Gateway:
    """plan: of the boards; federation: of the federation, where that is another; keep: what stays here.

    masked   yes: no update leaves without masks, whatever the server asks
    private  every update is cut and blurred before it leaves
    """

    plan: str
    boards: tuple[Entry, ...]
    federation: str | None = field(default=None, metadata=OPTIONAL)
    keep: Keep | None = field(default=None, metadata=OPTIONAL)
    masked: Annotated[str, OneOf(("yes", "no"))] | None = field(default=None, metadata=OPTIONAL)
    private: Private | None = field(default=None, metadata=OPTIONAL)


def read_gateway(file: Path) -> Gateway:
    """Errors   FleetError where it is missing or not as it must be"""
    if not file.is_file():
        raise FleetError(f"no such file: {file}. It names the boards of this node (docs/fleet.md).")
    with reading(FleetError, lambda why: f"{file} does not name the boards of a node ({why})."):
        gateway = decode(Gateway, json.loads(file.read_text(encoding="utf-8")))
    names = [entry.name for entry in gateway.boards]
    if not names or len(set(names)) != len(names):
        raise FleetError(f"{file} names no board, or one twice.")
    for entry in gateway.boards:
        if sum(way is not None for way in (entry.port, entry.emulate, entry.native, entry.host)) != 1:
            raise FleetError(f"{file}: board {entry.name} needs one of port, emulate, native and host.")
        if entry.data is None and entry.host:
            raise FleetError(f"{file}: board {entry.name} needs data, a folder of samples to learn from.")
    return gateway


@contextmanager
def members_of(file: Path) -> Iterator[list[Member]]:
    """The boards that a file names, for as long as the block lasts. What they remember is kept beside it.

    Errors   FleetError as read_gateway(), or where a plan or a folder is not as it must be
    """
    gateway, folder = read_gateway(file), file.parent
    keep = gateway.keep or ()
    plan = read_plan(folder / gateway.plan)
    remembering = [entry.name for entry in gateway.boards if entry.data is None]
    if remembering and plan.replay is None:
        raise FleetError(
            f"{file}: {remembering[0]} names no data to learn from, and the model has no records: convert it "
            "with --replay, or name a folder of samples."
        )
    own = Layout(plan, keep)
    all_ = Layout(read_plan(folder / gateway.federation), keep) if gateway.federation else own
    state = file.with_suffix(".state")
    host = Host(plan, state) if any(entry.host for entry in gateway.boards) else None
    members: list[Member] = []
    try:
        for entry in gateway.boards:
            board = board_of(entry, plan, folder, host)
            samples = (
                scan(folder / entry.data, plan.classes, whole=False, known=plan.known) if entry.data else None
            )
            members.append(Member(entry.name, board, samples, all_, own, state / f"{entry.name}.npz"))
        for member in members:
            member.masked = gateway.masked == "yes"
            member.private = gateway.private.checked() if gateway.private else None
        yield members
    finally:
        for member in members:
            member.board.close()


def board_of(entry: Entry, plan: Plan, folder: Path, host: Host | None) -> Board:
    if host is not None and entry.host:
        return HostBoard(host, entry.name)
    return PortBoard(plan, lambda: opened(entry, folder), entry.name)


def opened(entry: Entry, folder: Path) -> Port:
    if entry.emulate is not None:
        return EmulatorPort(folder / entry.emulate)
    if entry.native is not None:
        return ProgramPort(folder / entry.native)
    assert entry.port is not None
    return SerialPort(entry.port)
