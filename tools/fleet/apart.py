"""An emulated board in a process of its own, so that several compute at once."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from microtrain.base.plan import Plan, read_plan
from microtrain.device.link import EmulatorPort
from microtrain.device.session import Settings
from microtrain.samples.source import Dataset

from .board import Learned, PortBoard
from .errors import FleetError

board_of_process: PortBoard


def _begin(plan: Path, elf: Path, where: str) -> None:
    """Begin the process with its board."""
    global board_of_process
    board_of_process = PortBoard(read_plan(plan), lambda: EmulatorPort(elf), where)


def _fresh() -> bytes:
    return board_of_process.fresh()


def _learn(block: bytes, samples: Dataset, settings: Settings) -> Learned:
    return board_of_process.learn(block, samples, settings)


class Apart:
    """A Board (board.py). Errors as PortBoard's, and FleetError where its process has ended."""

    def __init__(self, plan: Plan, elf: Path, where: str) -> None:
        self.plan, self.where = plan, where
        context = get_context("spawn")  # a process that was forked from one with threads may hang
        self._pool = ProcessPoolExecutor(1, context, _begin, (plan.path.resolve(), elf.resolve(), where))

    def fresh(self) -> bytes:
        try:
            return self._pool.submit(_fresh).result()
        except BrokenProcessPool as error:
            raise self._ended() from error

    def learn(self, block: bytes, samples: Dataset, settings: Settings) -> Learned:
        try:
            return self._pool.submit(_learn, block, samples, settings).result()
        except BrokenProcessPool as error:
            raise self._ended() from error

    def _ended(self) -> FleetError:
        return FleetError(f"the process of {self.where} has ended: is there memory enough for one a board?")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
