"""From an address to the register of a peripheral."""

from __future__ import annotations

from typing import TYPE_CHECKING

from microtrain.emulator.engine import PAGE, SYSTEM_PAGE
from microtrain.emulator.errors import PeripheralFault

from .base import BLOCK, Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

DWT_PAGE = 0xE000_1000


class Bus:
    """Called by the engine for each access that native.c does not serve.

    pages   addresses of the 4 KB pages where something answers; all others fault
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self._blocks: dict[int, Peripheral] = {}

    def connect(self, peripherals: list[Peripheral]) -> None:
        self._blocks = {peripheral.base: peripheral for peripheral in peripherals}

    @property
    def pages(self) -> list[int]:
        return sorted({base & ~(PAGE - 1) for base in self._blocks} | {DWT_PAGE, SYSTEM_PAGE})

    def read(self, address: int, size: int) -> int:
        """1, 2 or 4 bytes of a register. What goes wrong stops the board: nothing may be raised through C."""
        try:
            word = self._read_word(address & ~3)
        except Exception as error:
            self.board.stop_for(error)
            return 0
        return word >> 8 * (address & 3) & (1 << 8 * size) - 1

    def write(self, address: int, size: int, value: int) -> None:
        if not self.board.powered:
            return
        try:
            if size < 4 and not self._takes_bytes(address):
                value = self._widen(address, size, value)
            self._write_word(address & ~3, value & 0xFFFF_FFFF)
        except Exception as error:
            self.board.stop_for(error)

    def _takes_bytes(self, address: int) -> bool:
        peripheral = self._blocks.get(address & ~(BLOCK - 1))
        return peripheral is not None and address & (BLOCK - 1) in peripheral.byte_registers

    def _widen(self, address: int, size: int, value: int) -> int:
        """A byte or halfword within its register; GPIO and NVIC are written so."""
        shift, mask = 8 * (address & 3), (1 << 8 * size) - 1
        old = self._read_word(address & ~3) if self._keeps(address) else 0
        return old & ~(mask << shift) | (value & mask) << shift

    @staticmethod
    def _keeps(address: int) -> bool:
        """Whether a narrow write leaves the rest of its register: not where a 1 sets or clears something."""
        return not SYSTEM_PAGE + 0x100 <= address < SYSTEM_PAGE + 0x300 and address & 0x3FF != 0x18

    def _read_word(self, address: int) -> int:
        page, offset = address & ~(PAGE - 1), address & (PAGE - 1)
        if page == SYSTEM_PAGE:
            return self.board.core.read(offset)
        if page == DWT_PAGE:
            return self.board.cycle_counter.read(offset)
        return self._peripheral(address).read(address & (BLOCK - 1))

    def _write_word(self, address: int, value: int) -> None:
        page, offset = address & ~(PAGE - 1), address & (PAGE - 1)
        if page == SYSTEM_PAGE:
            self.board.core.write(offset, value)
        elif page == DWT_PAGE:
            self.board.cycle_counter.write(offset, value)
        else:
            self._peripheral(address).write(address & (BLOCK - 1), value)

    def _peripheral(self, address: int) -> Peripheral:
        """The peripheral at an address.

        Errors   PeripheralFault where none is there, or its clock is off (the chip: reads 0, drops writes)
        """
        peripheral = self._blocks.get(address & ~(BLOCK - 1))
        if peripheral is None:
            raise PeripheralFault("BusFault: no peripheral of this board model", address)
        if not self.board.rcc.is_on(peripheral.clock):
            raise PeripheralFault(f"access to {peripheral.name} while its clock is off in RCC", address)
        return peripheral
