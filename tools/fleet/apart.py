"""An emulated board in a process of its own, so that several compute at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from microtrain.base.plan import Plan, read_plan
from microtrain.device.link import EmulatorPort
from microtrain.device.session import Settings
from microtrain.samples.source import Dataset

from .board import Learned, PortBoard, Round
from .errors import FleetError

T = TypeVar("T")
board_of_process: PortBoard


def _begin(plan: Path, elf: Path, where: str) -> None:
    """Begin the process with its board."""
    global board_of_process
    board_of_process = PortBoard(read_plan(plan), lambda: EmulatorPort(elf), where)


def _fresh() -> bytes:
    return board_of_process.fresh()


def _present() -> bytes:
    return board_of_process.present()


def _room() -> int:
    return board_of_process.room()


def _learn(block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None) -> Learned:
    return board_of_process.learn(block, samples, settings, turn)


class Apart:
    """A Board (board.py). Errors as PortBoard's, and FleetError where its process has ended."""

    def __init__(self, plan: Plan, elf: Path, where: str) -> None:
        self.plan, self.where = plan, where
        context = get_context("spawn")  # a process that was forked from one with threads may hang
        self._pool = ProcessPoolExecutor(1, context, _begin, (plan.path.resolve(), elf.resolve(), where))

    def fresh(self) -> bytes:
        return self._there(_fresh)

    def present(self) -> bytes:
        return self._there(_present)

    def room(self) -> int:
        return self._there(_room)

    def learn(
        self, block: bytes, samples: Dataset | None, settings: Settings, turn: Round | None = None
    ) -> Learned:
        return self._there(_learn, block, samples, settings, turn)

    def _there(self, do: Callable[..., T], *given: object) -> T:
        """What a function makes of it in the process."""
        try:
            return self._pool.submit(do, *given).result()
        except BrokenProcessPool as error:
            raise FleetError(
                f"the process of {self.where} has ended: is there memory enough for one a board?"
            ) from error

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
