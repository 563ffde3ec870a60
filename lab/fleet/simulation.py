"""Many boards as nodes of Flower's own simulation: processes of Ray, and the library of this machine in each.

A node is a board. Ray's processes take turns at the nodes, so what a board remembers lies in a file, as on a
gateway. The server and the client are those of `microtrain fleet`.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from microtrain.base.plan import read_plan
from microtrain.fleet.board import Host, HostBoard
from microtrain.fleet.errors import FleetError
from microtrain.fleet.events import Event
from microtrain.fleet.federation import Federation
from microtrain.fleet.flower import Rounds, client_app, nearby
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work
from microtrain.samples.source import Dataset, scan

NAME, SEED = "51a7" * 4, 1
IMAGES = 20  # of a board, and steps in a round
LOOK_S = 0.2  # from one look at the memory to the next
PATIENCE_S = 3600.0


@dataclass(frozen=True)
class Crowd:
    """folder: what convert wrote; images: of class folders, of which each board has some by chance"""

    folder: Path
    images: Path
    work: Path
    boards: int

    def samples(self, number: int) -> Dataset:
        all_ = pictures(self.images, self.plan.classes)
        own = np.random.default_rng((SEED, number)).choice(len(all_.samples), IMAGES, replace=False)
        return Dataset(all_.classes, tuple(all_.samples[int(k)] for k in sorted(own)))

    @property
    def plan(self) -> Any:
        return host(self.folder, self.work).plan

    def member(self, number: int, remembers: bool) -> Member:
        """A board; what it remembers lies in a file, or here."""
        name, layout = f"board-{number}", layout_of(self.folder)
        file = self.work / "state" / f"{name}.npz" if remembers else None
        board = HostBoard(host(self.folder, self.work), name)
        return Member(name, board, self.samples(number), layout, layout, file)

    def rounds(self, events: list[Event]) -> Rounds:
        layout, board = layout_of(self.folder), HostBoard(host(self.folder, self.work), "the server")
        fleet = Federation(layout, layout.read(board.fresh()), SEED, NAME)
        return Rounds(fleet, Work(NAME), None, self.boards, PATIENCE_S, tell=events.append)


@functools.lru_cache
def host(folder: Path, work: Path) -> Host:
    """The library, once in each process."""
    return Host(read_plan(folder / "plan.json"), work)


@functools.lru_cache
def layout_of(folder: Path) -> Layout:
    return Layout(read_plan(folder / "plan.json"))


@functools.lru_cache
def pictures(folder: Path, classes: int) -> Dataset:
    return scan(folder, classes)


def in_ray(crowd: Crowd, count: int) -> list[Event]:
    """All rounds, a node for each board; what was told of each. Errors   FleetError where they did not end"""
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation

    events: list[Event] = []

    @contextmanager
    def members(context: Context) -> Iterator[list[Member]]:
        yield [crowd.member(int(context.node_config["partition-id"]), True)]

    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator, unused-ignore]
    def serve(grid: Grid, context: Context) -> None:
        crowd.rounds(events).run(grid, count)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client_app(members), crowd.boards, backend_config=resources)  # type: ignore[arg-type, unused-ignore]
    if len(events) != count:
        raise FleetError(f"the simulation ended after {len(events)} of {count} rounds.")
    return events


def here(crowd: Crowd, count: int) -> list[Event]:
    """The same within this process, a thread for each board."""
    events: list[Event] = []
    members = [crowd.member(number, False) for number in range(crowd.boards)]
    nearby(members, crowd.rounds(events), count, os.cpu_count() or 1)
    return events


class Memory:
    """The most that this process and all it has started hold at once, in bytes, while the block lasts.

    What they share is counted once (PSS).
    """

    def __init__(self) -> None:
        self.most = self.processes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            held = [held_by(process) for process in family(os.getpid())]
            self.most, self.processes = max(self.most, sum(held)), max(self.processes, len(held))
            if self._over.wait(LOOK_S):
                return


def family(first: int) -> list[int]:
    """A process and all that come from it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [first]
    for process in found:
        found += children.get(process, [])
    return found


def held_by(process: int) -> int:
    """Bytes; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def measured(crowd: Crowd, count: int) -> dict[str, Any]:
    """A row: rounds a second, memory, and whether the fleet in one process comes to the same."""
    began = time.monotonic()
    with Memory() as memory:
        events = in_ray(crowd, count)
    took = time.monotonic() - began
    with Memory() as own:
        twins = here(crowd, count)
    if twins[-1].sha256 != events[-1].sha256:
        raise FleetError("the simulation learned other weights than the fleet in one process: this is a bug.")
    return {
        "rounds": count,
        "seconds_per_round": steady(events),
        "seconds_beside": round(took - sum(event.seconds for event in events), 1),
        "memory": memory.most,
        "processes": memory.processes,
        "here_seconds_per_round": steady(twins),
        "here_memory": own.most,
        "present": min(len(event.boards) for event in events),
        "sha256": events[-1].sha256,
    }


def steady(events: list[Event]) -> float:
    """Seconds of a round, without the first, in which processes start."""
    seconds = [event.seconds for event in events[1:] or events]
    return round(float(np.median(seconds)), 3)
