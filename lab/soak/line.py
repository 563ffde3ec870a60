"""An emulated board at the end of a serial line: commands and answers, interrupted at chosen instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from microtrain.base.errors import Error
from microtrain.emulator import Board, Stop, Until

ANSWER_S = 30.0  # virtual seconds: longer than an erase or a training step
FINAL = ("ok", "err")


class LineError(Error):
    """The board does not answer, or not as it should: a sentence with what it said."""


@dataclass(frozen=True)
class State:
    """What a checkpoint keeps: SHA-256 of the trainables, step and seed of their random numbers."""

    sha: str
    step: int
    seed: int


class BoardLine:
    """Talks to a board.

    alarm     instructions since power-on at which `on_alarm` is called; None: never
    on_alarm  returns the next alarm
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.alarm: int | None = None
        self.on_alarm: Callable[[], int | None] = lambda: None
        self._part = b""  # of a line that has not ended yet

    def boot(self) -> str:
        """Power on; returns what it says of its checkpoint. LineError where it does not start."""
        self.board.power_on()
        self._part = b""
        return self._started("power")

    def reboot(self) -> str:
        """Restart on command; returns what it says of its checkpoint."""
        self.board.feed(b"reboot\n")
        return self._started("software")

    def _started(self, cause: str) -> str:
        said = self._until(("ready",))[-4:]
        if len(said) != 4 or said[1] != f"start {cause}":
            raise LineError(f"the board starts with {said!r}")
        return said[2]

    def ask(self, command: str) -> list[str]:
        """The answer to a command, whole. LineError where there is none."""
        self.board.feed(command.encode("ascii") + b"\n")
        return self._until(FINAL)

    def do(self, command: str) -> str:
        """The last line of the answer, which must be an `ok`."""
        final = self.ask(command)[-1]
        if not final.startswith("ok"):
            raise LineError(f"`{command}` is answered by {final!r}")
        return final

    def train(self, number: int, classes: int) -> None:
        """A training step on a test pattern."""
        self.do(f"pattern {number}")
        self.do(f"train {number % classes}")

    def state(self) -> State:
        stats = dict(line.split(" ", 1) for line in self.ask("stats")[:-1])
        return State(self.do("sha").split()[2], int(stats["steps"]), int(stats["seed"]))

    def _until(self, last: tuple[str, ...]) -> list[str]:
        said: list[str] = []
        while not said or not said[-1].startswith(last):
            left = None if self.alarm is None else self.alarm - self.board.instructions
            stop = self.board.run(seconds=ANSWER_S, instructions=left, until=Until.LINE)
            *whole, self._part = (self._part + self.board.take_output()).split(b"\r\n")
            said += [line.decode("ascii", "replace") for line in whole]
            if self.alarm is not None and self.board.instructions >= self.alarm:
                self.alarm = self.on_alarm()
            elif stop is not Stop.OUTPUT:
                raise LineError(f"the board does not answer ({stop}); so far it has said {said!r}")
        return said
