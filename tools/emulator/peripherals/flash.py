"""The flash interface (RM0385, 3; RM0390, 3): keys, clearing bits, erasing sectors while the core stalls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from microtrain.emulator.memory import ERASED
from microtrain.emulator.native import NEVER

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

BASE = 0x4002_3C00
ACR, KEYR, OPTKEYR, SR, CR, OPTCR = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14
KEYS = [0x4567_0123, 0xCDEF_89AB]
CR_PG, CR_SER, CR_MER, CR_STRT, CR_LOCK = 1 << 0, 1 << 1, 1 << 2, 1 << 16, 1 << 31
SR_CLEARED_BY_WRITING = 0xF3
SR_OPERR, SR_PGPERR, SR_ERSERR = 1 << 1, 1 << 6, 1 << 7
PROGRAM_S = 16e-6  # one unit of 1, 2 or 4 bytes (data sheets of both chips, table on the flash)


class FlashController(Peripheral):
    """Unicorn keeps flash write-protected, and drops a store that native.c or `store` has programmed.
    native.c does plain stores of a unit, one after the other; here is what else comes.

    operations   programmed units and erased sectors since the board was made
    sectors      (offset, bytes) of each
    wear         erases of each sector
    worn         sectors that can no longer be erased
    cut_at       power fails in this operation, None: never
    before_operation   called before each of them
    torn         function of a byte count: mask of that size, 1 for each bit that the operation has
                 not reached. None: the power fails just after it
    """

    def __init__(self, board: Board) -> None:
        super().__init__(board, "FLASH", BASE, None, {CR: CR_LOCK, OPTCR: 0xC0FF_AAFD})
        self.state = board.engine.state.flash
        self.sectors = board.chip.places
        self.wear = [0] * len(self.sectors)
        self.worn: set[int] = set()
        self._cut_at: int | None = None
        self.torn: Callable[[int], bytes] | None = None
        self._before_operation: Callable[[], None] | None = None
        self._keys: list[int] = []

    def reset(self) -> None:
        super().reset()
        self._keys, self._status = [], 0
        self.tell()

    def tell(self) -> None:
        """Let native.c know what it programs by: CR, the clock, and from which operation on it may not."""
        self.state.control = self.registers[CR]
        self.state.unit_cycles = self.board.clock.cycles(PROGRAM_S)
        self.state.seen_from = NEVER if self._cut_at is None else self._cut_at
        if self._before_operation is not None:
            self.state.seen_from = 0

    @property
    def operations(self) -> int:
        return int(self.state.operations)

    @operations.setter
    def operations(self, count: int) -> None:
        self.state.operations = count

    @property
    def _status(self) -> int:
        return int(self.state.status)

    @_status.setter
    def _status(self, value: int) -> None:
        self.state.status = value

    @property
    def cut_at(self) -> int | None:
        return self._cut_at

    @cut_at.setter
    def cut_at(self, operation: int | None) -> None:
        self._cut_at = operation
        self.tell()

    @property
    def before_operation(self) -> Callable[[], None] | None:
        return self._before_operation

    @before_operation.setter
    def before_operation(self, callback: Callable[[], None] | None) -> None:
        self._before_operation = callback
        self.tell()

    @property
    def locked(self) -> bool:
        return bool(self.registers[CR] & CR_LOCK)

    @property
    def wait_states(self) -> int:
        return self.registers.get(ACR, 0) & 15

    def read(self, offset: int) -> int:
        return self._status if offset == SR else super().read(offset)

    def write(self, offset: int, value: int) -> None:
        if offset == KEYR:
            self._keys = [*self._keys, value][-2:]
            if self._keys == KEYS:
                self.registers[CR] &= ~CR_LOCK
                self.tell()
        elif offset == SR:
            self._status &= ~(value & SR_CLEARED_BY_WRITING)
        elif offset == CR:
            self._control(value)
        else:
            super().write(offset, value)
            if offset == ACR:
                self.board.clock_changed()

    def _control(self, value: int) -> None:
        if self.locked:
            return
        self.registers[CR] = value & ~CR_STRT
        self.tell()
        if not value & CR_STRT:
            return
        if value & CR_MER:
            for sector in range(len(self.sectors)):
                self._erase(sector)
        elif value & CR_SER and value >> 3 & 15 < len(self.sectors):
            self._erase(value >> 3 & 15)
        else:
            self._status |= SR_ERSERR

    def _erase(self, sector: int) -> None:
        offset, size = self.sectors[sector]
        self._count()
        self.wear[sector] += 1
        if sector in self.worn:
            self._status |= SR_OPERR
            return
        content = bytes([ERASED]) * size
        if self._power_fails():
            if self.torn is not None:  # some bits are not erased yet
                content = _or(self.board.memory.flash[offset : offset + size], _invert(self.torn(size)))
            self.board.write_flash(offset, content)
            self.board.cut_power()
            return
        self.board.write_flash(offset, content)
        self.board.stall(self.board.chip.erase_s[size])

    def store(self, offset: int, data: bytes) -> bool:
        """A store hit flash, which stays as it is but for what is programmed here. False: it is forbidden."""
        control, unit = self.registers[CR], len(data)
        if not control & CR_PG or self.locked:
            return False
        self.board.look_again()
        if unit != 1 << (control >> 8 & 3):
            self._status |= SR_PGPERR
        else:
            self._program_units(offset, data)
        if offset % unit:
            self.state.rest = unit
        return True

    def _program_units(self, offset: int, data: bytes) -> None:
        """Bits only ever go from 1 to 0. A store that is not aligned is two units."""
        unit = len(data)
        for start in range(offset // unit * unit, offset + unit, unit):
            old = self.board.memory.flash[start : start + unit]
            new = bytearray(old)
            first, last = max(start, offset), min(start, offset) + unit
            new[first - start : last - start] = data[first - offset : last - offset]
            self._program(start, old, bytes(new))
            if not self.board.powered:
                return

    def _count(self) -> None:
        if self.before_operation is not None:
            self.before_operation()
        self.operations += 1

    def _program(self, offset: int, old: bytes, new: bytes) -> None:
        self._count()
        if self._power_fails():
            if self.torn is not None:  # some bits are not cleared yet
                new = _or(new, self.torn(len(new)))
            self.board.write_flash(offset, _and(old, new))
            self.board.cut_power()
            return
        self.board.write_flash(offset, _and(old, new))
        self.board.stall(PROGRAM_S)

    def _power_fails(self) -> bool:
        return self.cut_at is not None and self.operations >= self.cut_at


def _and(a: bytes, b: bytes) -> bytes:
    return bytes(x & y for x, y in zip(a, b, strict=True))


def _or(a: bytes, b: bytes) -> bytes:
    return bytes(x | y for x, y in zip(a, b, strict=True))


def _invert(a: bytes) -> bytes:
    return bytes(x ^ 0xFF for x in a)
