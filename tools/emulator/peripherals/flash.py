"""The flash interface (RM0385, 3; RM0390, 3): keys, clearing bits, erasing sectors while the core stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microtrain.emulator.memory import ERASED

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
WINDOW = 256  # bytes around a store that are looked at for others of the same basic block


@dataclass(frozen=True)
class _Store:
    """A store that opened flash: `data` at `offset`, and the `old` bytes around it from `first` on."""

    first: int
    old: bytes
    offset: int
    data: bytes
    refused: bool


class FlashController(Peripheral):
    """Unicorn keeps flash write-protected. A store that is allowed opens it until the basic block ends; then
    `settle` puts the AND of old and new content there and closes it.

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
        self.operations = 0
        self.sectors = board.chip.places
        self.wear = [0] * len(self.sectors)
        self.worn: set[int] = set()
        self.cut_at: int | None = None
        self.torn: Callable[[int], bytes] | None = None
        self.before_operation: Callable[[], None] | None = None
        self._keys: list[int] = []
        self._status = 0
        self._open: _Store | None = None

    def reset(self) -> None:
        super().reset()
        self._keys, self._status, self._open = [], 0, None

    @property
    def locked(self) -> bool:
        return bool(self.registers[CR] & CR_LOCK)

    @property
    def wait_states(self) -> int:
        return self.registers.get(ACR, 0) & 15

    def read(self, offset: int) -> int:
        self.settle()
        return self._status if offset == SR else super().read(offset)

    def write(self, offset: int, value: int) -> None:
        self.settle()
        if offset == KEYR:
            self._keys = [*self._keys, value][-2:]
            if self._keys == KEYS:
                self.registers[CR] &= ~CR_LOCK
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
        """A store hit flash. True: it may go on, `settle` corrects what it leaves."""
        control = self.registers[CR]
        if not control & CR_PG or self.locked:
            return False
        self.settle()
        first = max(0, offset - WINDOW // 2)
        old = bytes(self.board.memory.flash[first : min(len(self.board.memory.flash), offset + WINDOW // 2)])
        wrong_size = len(data) != 1 << (control >> 8 & 3)
        if wrong_size:
            self._status |= SR_PGPERR
        self._open = _Store(first, old, offset, data, wrong_size)
        self.board.open_flash(True)
        self.board.look_again()
        return True

    def settle(self) -> None:
        """Give flash the content that programming leaves: bits only ever go from 1 to 0."""
        if self._open is None:
            return
        store, self._open = self._open, None
        first, old, unit = store.first, store.old, len(store.data)
        new = bytearray(self.board.memory.flash[first : first + len(old)])
        new[store.offset - first : store.offset - first + unit] = store.data  # Unicorn may have dropped it
        self.board.open_flash(False)
        self.board.write_flash(first, old)
        if store.refused:
            return
        changed = sorted({(first + i) // unit * unit for i in range(len(old)) if old[i] != new[i]})
        for offset in changed or [store.offset]:
            start = max(0, offset - first)
            self._program(first + start, old[start : start + unit], bytes(new[start : start + unit]))
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
