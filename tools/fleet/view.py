"""A fleet while it runs: a table on a terminal, lines elsewhere, and JSON lines for others."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from microtrain.base.terminal import console, say

from .errors import FleetError
from .events import Event, of_json

WAITING, WORKING, DONE, MISSING = "waiting", "learning", "done", "missing"


class View:
    """What is shown of a fleet.

    log  a file that takes a JSON line for each round; None: none
    """

    def __init__(self, boards: tuple[str, ...] = (), log: Path | None = None) -> None:
        self.states = dict.fromkeys(boards, WAITING)
        self.last: Event | None = None
        self.log = log
        self._lock = threading.Lock()
        terminal = console()
        self._live = (
            Live(self.table(), console=terminal, auto_refresh=False) if terminal.is_terminal else None
        )
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> View:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def board(self, name: str, state: str) -> None:
        """A board begins or ends its part of a round."""
        with self._lock:
            self.states[name] = state
            self._draw()

    def tell(self, event: Event) -> None:
        """A round is over."""
        with self._lock:
            self.see(event)
            if self.log is not None:
                with self.log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(event.as_json()) + "\n")
            if self._live is None:
                say(in_words(event))
            self._draw()

    def see(self, event: Event) -> None:
        self.last = event
        self.states |= dict.fromkeys(event.boards, DONE) | dict.fromkeys(event.missing, MISSING)

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)

    def table(self) -> Table:
        event = self.last
        table = Table(title=in_words(event) if event else "round 1 begins", title_justify="left")
        for name, side in (("board", "left"), ("state", "left"), ("samples", "right"), ("steps", "right")):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        table.add_column("loss", justify="right")
        table.add_column("begun again", justify="right")
        for name in sorted(self.states):
            table.add_row(name, self.states[name], *cells(event.boards.get(name) if event else None))
        return table


def cells(said: dict[str, Any] | None) -> list[str]:
    if said is None:
        return [""] * 4
    return [f"{said['samples']:,}", f"{said['steps']:,}", f"{said['loss']:.3f}", str(said["again"] or "")]


def in_words(event: Event) -> str:
    """A round in a line, and in further ones what was refused."""
    parts = [f"round {event.round} of {event.of}: {len(event.boards)} boards"]
    if event.missing:
        parts.append(f"missing {', '.join(event.missing)}")
    if event.accuracy is not None:
        parts.append(f"accuracy {event.accuracy:.1%}")
    parts += [f"{event.bytes_up:,} B up, {event.bytes_down:,} B down", f"{event.seconds:.0f} s"]
    parts.append(f"sha256 {event.sha256[:16]}")
    return "\n".join([", ".join(parts), *(f"  {said}" for said in event.refused)])


POLL_S = 1.0


def follow(log: Path, once: bool, terminal: Console) -> None:
    """Show a log of JSON lines, and what is added to it. FleetError where it is missing or a line is none."""
    if not log.is_file():
        raise FleetError(f"no such log: {log}. A fleet that runs writes one.")
    view, read = View(), 0
    while True:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines[read:]:
            view.see(of_json(line))
        if len(lines) > read or once:
            terminal.print(view.table())
        read = len(lines)
        if once:
            return
        time.sleep(POLL_S)
