"""A session's progress for people."""

from __future__ import annotations

from microtrain.base.progress import Bar, Bars


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
            self._bars.note(f"{self._prefix}{what}, {total} images")
        self._running.append(self._bars.add(self._prefix + what, total))

    def advance(self, text: str) -> None:
        self._running[-1].advance(text=text)

    def end(self) -> None:
        bar = self._running.pop()
        bar.end()
        if self._running:
            bar.hide()
