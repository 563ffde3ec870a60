"""The two counters of the core: SysTick (ARMv7-M B3.3) and the DWT's cycle counter (C1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .board import Board

CSR, RVR, CVR, CALIB = 0x10, 0x14, 0x18, 0x1C
ENABLE, TICKINT, CLKSOURCE, COUNTFLAG = 1 << 0, 1 << 1, 1 << 2, 1 << 16
SLOW_CLOCK = 8  # the external clock is HCLK / 8
DWT_CTRL, DWT_CYCCNT, DWT_LAR = 0x000, 0x004, 0xFB0
UNLOCK = 0xC5AC_CE55


class SysTick:
    """Counts down from RVR to 0 and calls `expired` there.

    due   cycle of the next expiry, None while it stands still
    """

    def __init__(self, board: Board, expired: Callable[[], None]) -> None:
        self.board = board
        self._expired = expired
        self.reset()

    def reset(self) -> None:
        self._control = self._reload = 0
        self._counted = False
        self.due: int | None = None

    @property
    def wakes(self) -> bool:
        """Whether an expiry ends a sleep."""
        return self._control & (ENABLE | TICKINT) == ENABLE | TICKINT

    @property
    def _scale(self) -> int:
        return 1 if self._control & CLKSOURCE else SLOW_CLOCK

    @property
    def _period(self) -> int:
        return (self._reload + 1) * self._scale

    def _restart(self) -> None:
        running = self._control & ENABLE and self._reload
        self.due = self.board.now + self._period if running else None
        self.board.look_again()

    def fire(self) -> None:
        """The time `due` has come; expiries that were missed while the core stalled count once."""
        assert self.due is not None
        self._counted = True
        self.due += ((self.board.now - self.due) // self._period + 1) * self._period
        if self._control & TICKINT:
            self._expired()

    def read(self, offset: int) -> int:
        if offset == CSR:
            value = self._control | (COUNTFLAG if self._counted else 0)
            self._counted = False
            return value
        if offset == RVR:
            return self._reload
        if offset == CVR:
            return max(0, self.due - self.board.now) // self._scale % (1 << 24) if self.due is not None else 0
        return 0x4000_0000  # CALIB: no reference

    def write(self, offset: int, value: int) -> None:
        if offset == CSR:
            was_running = self.due is not None
            self._control = value & 7
            if not was_running or not value & ENABLE:
                self._restart()
        elif offset == RVR:
            self._reload = value & 0xFF_FFFF
            if self.due is None:
                self._restart()
        elif offset == CVR:
            self._counted = False
            self._restart()


class CycleCounter:
    """DWT_CYCCNT, which needs DEMCR.TRCENA and, on a Cortex-M7, the lock access register."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._has_lock = board.chip.cpu == "cortex-m7"
        self.reset()

    def reset(self) -> None:
        self._start = 0  # running: cycle at which it was 0; standing: its value
        self._running = False
        self._unlocked = False

    def read(self, offset: int) -> int:
        if offset == DWT_CTRL:
            return 0x4000_0000 | int(self._running)
        if offset == DWT_CYCCNT:
            return (self.board.now - self._start if self._running else self._start) & 0xFFFF_FFFF
        return 0

    def write(self, offset: int, value: int) -> None:
        if offset == DWT_LAR:
            self._unlocked = value == UNLOCK
        elif not ((self._unlocked or not self._has_lock) and self.board.core.trace_enabled):
            return
        elif offset == DWT_CYCCNT:
            self._start = self.board.now - value if self._running else value
        elif offset == DWT_CTRL and bool(value & 1) != self._running:
            self._start = self.board.now - self._start
            self._running = bool(value & 1)
