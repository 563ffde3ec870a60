"""How far long work is: bars on a terminal, elsewhere a line a minute on the error stream.

with Bars() as bars:
    training = bars.add("training", 4000)
    training.advance(text="loss 1.203")
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .terminal import console, say

EVERY_S = 60.0  # between two lines
SOON = 1 / 12  # of that: what comes behind a minute of silence, and is over sooner, is not worth a line
_LAST = [time.monotonic()]  # when something was told; at first, when the program began


class Bar:
    """One of the things that are under way.

    total   None: not known yet
    text    what else there is to say, the loss for example
    """

    def __init__(self, title: str, total: int | None) -> None:
        self.title, self.total = title, total
        self.done, self.text = 0, ""
        self.over = False
        self.began = time.monotonic()
        self.told = False

    def advance(self, count: int = 1, text: str | None = None) -> None:
        self.set(self.done + count, text)

    def set(self, done: int, text: str | None = None, total: int | None = None) -> None:
        """How much of it is done."""
        self.done = done
        self.total = self.total if total is None else total
        self.text = self.text if text is None else text

    def end(self) -> None:
        self.over = True

    def hide(self) -> None:
        """Take it off the terminal."""

    def line(self) -> str:
        """Title, count, text, and the time that is left if it goes on so."""
        took = time.monotonic() - self.began
        parts = [f"{self.title}: {self.done:,}" + (f" of {self.total:,}" if self.total is not None else "")]
        parts += [self.text] if self.text else []
        if self.over:
            parts.append(f"took {duration(took)}")
        elif self.done and self.total is not None:
            parts.append(f"{duration(took * (self.total - self.done) / self.done)} left")
        return ", ".join(parts)


class Bars:
    """Everything that is under way, for as long as the block lasts.

    transient   the bars of a terminal go when it ends
    """

    def __init__(self, transient: bool = False) -> None:
        terminal = console(stderr=True)
        self._bars: list[Bar] = []
        self._shown = _Shown(transient) if terminal.is_terminal else None
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Bars:
        if self._shown is not None:
            self._shown.start()
        else:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
        else:
            self._ended.set()
            self._ticker.join()

    def add(self, title: str, total: int | None = None) -> Bar:
        """Something new that is under way from now on."""
        bar = Bar(title, total) if self._shown is None else self._shown.add(title, total)
        self._bars.append(bar)
        return bar

    def say(self, text: str) -> None:
        """A line beside the bars."""
        if self._shown is not None:
            self._shown.console.print(text)
        else:
            say(text, err=True)

    def note(self, text: str) -> None:
        """A line where no bar shows it."""
        if self._shown is None:
            say(text, err=True)

    def _tick(self) -> None:
        """A line a minute, also where what goes on is many things of less than that."""
        while not self._ended.wait(max(SOON * EVERY_S, _LAST[0] + EVERY_S - time.monotonic())):
            self.tell()

    def tell(self) -> None:
        """A line for each bar that goes on, and the last one of those whose end it has not told."""
        _LAST[0] = time.monotonic()
        for bar in list(self._bars):
            if not bar.over or bar.told:
                say(bar.line(), err=True)
                bar.told = not bar.over


class _Shown(Progress):
    """The bars of a terminal."""

    def __init__(self, transient: bool) -> None:
        super().__init__(
            TextColumn("{task.description:10}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=console(stderr=True),
            transient=transient,
        )

    def add(self, title: str, total: int | None) -> Bar:
        return _Drawn(self, title, total)


class _Drawn(Bar):
    """A bar that a terminal shows; one within another goes when it is done."""

    def __init__(self, progress: _Shown, title: str, total: int | None) -> None:
        super().__init__(title, total)
        self._progress = progress
        self._task = progress.add_task(title, total=total, text="")

    def set(self, done: int, text: str | None = None, total: int | None = None) -> None:
        super().set(done, text, total)
        self._progress.update(self._task, completed=self.done, total=self.total, text=self.text)

    def end(self) -> None:
        super().end()
        self._progress.stop_task(self._task)

    def hide(self) -> None:
        self._progress.update(self._task, visible=False)


def duration(seconds: float) -> str:
    """As a person says it: "40 s", "12 min", "3 h 5 min"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """One thing that is under way; yields what advances it."""
    with Bars(transient=True) as bars:
        yield bars.add(title, total).advance
