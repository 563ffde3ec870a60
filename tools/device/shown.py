"""A session's progress for people."""

from __future__ import annotations

from collections.abc import Iterator

from microtrain.base.progress import Bar, Bars

from .session import Log


class Shown:
    """A watcher (session.Watcher) that shows what it is told; an evaluation within the training for itself.

    name   of the session, where there are several
    """

    def __init__(self, bars: Bars, name: str = "") -> None:
        self._bars = bars
        self._prefix = f"{name}: " if name else ""
        self._running: list[Bar] = []

    def begin(self, what: str, total: int) -> None:
        if self._prefix:
            self._bars.note(f"{self._prefix}{what}, {total} samples")
        self._running.append(self._bars.add(self._prefix + what, total))

    def advance(self, text: str) -> None:
        self._running[-1].advance(text=text)

    def end(self) -> None:
        bar = self._running.pop()
        bar.end()
        if self._running:
            bar.hide()


def moments(log: Log) -> Iterator[str]:
    """When each evaluation of a session was made."""
    for number, result in enumerate(log.evaluations):
        looked = log.settings.imprint and number == 1
        yield "after one look " if looked else f"after {result.step:5} steps"
