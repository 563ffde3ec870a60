"""The independent watchdog (RM0385, chapter on the IWDG): resets the board unless it is fed in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

BASE = 0x4000_3000
KR, PR, RLR = 0x00, 0x04, 0x08
START, FEED, UNLOCK = 0xCCCC, 0xAAAA, 0x5555
LSI_HZ = 32_000


class Watchdog(Peripheral):
    """Once started it runs until the next reset, asleep or not.

    due   cycle at which it resets the board, None: not started
    """

    def __init__(self, board: Board) -> None:
        super().__init__(board, "IWDG", BASE, None, {RLR: 0xFFF})

    def reset(self) -> None:
        super().reset()
        self._locked = True
        self._end_s: float | None = None

    @property
    def due(self) -> int | None:
        return None if self._end_s is None else self.board.clock.cycle(self._end_s)

    def write(self, offset: int, value: int) -> None:
        if offset == KR:
            self._locked = value != UNLOCK
            if value == START or (value == FEED and self._end_s is not None):
                ticks = (self.registers[RLR] + 1) * (4 << min(self.registers.get(PR, 0), 6))
                before, self._end_s = self._end_s, self.board.seconds + ticks / LSI_HZ
                if before is None or self._end_s < before:
                    self.board.look_again()
        elif not self._locked:
            super().write(offset, value)

    def fire(self) -> None:
        self.board.watchdog_reset()
