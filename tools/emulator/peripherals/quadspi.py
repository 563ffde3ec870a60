"""QUADSPI (RM0385, 14) and the flash behind it, an N25Q128A or one like it: its commands, and the window in
memory, which opens only where everything is set so that the flash would answer with its bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from microtrain.emulator.chips import ExternalFlash
from microtrain.emulator.errors import PeripheralFault

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

CR, DCR, SR, FCR, DLR, CCR, DR = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x20
CR_ABORT, SR_TCF, SR_FTF, SR_BUSY = 1 << 1, 1 << 1, 1 << 2, 1 << 5
INDIRECT_WRITE, INDIRECT_READ, MAPPED = 0, 1, 3
RESET_ENABLE, RESET_MEMORY, READ_ID, QUAD_IO_FAST_READ = 0x66, 0x99, 0x9F, 0xEB
LINES = (0, 1, 2, 4)  # of IMODE, ADMODE, DMODE
LINE_BYTES = 32  # of the core's cache
BRIDGE_CYCLES = 4  # from the AXI bus to AHB, as cache.h has it for SRAM
NO_ANSWER = 0xFF
BUSY_SEEN = 2  # so that who looks once, and at another bit, goes on too early


@dataclass
class SerialFlash:
    """What the flash knows: which lines it listens on, and whether a reset was announced.

    kind   what is on the board; None: nothing, or nothing that answers
    """

    kind: ExternalFlash | None
    lines: int = 1
    reset_enabled: bool = field(default=False)

    def command(self, instruction: int, lines: int) -> bytes:
        """What it answers, over and over where it is asked for more.

        Errors   PeripheralFault for a command that this model has not
        """
        if self.kind is None or lines != self.lines:
            return bytes([NO_ANSWER])
        announced, self.reset_enabled = self.reset_enabled, instruction == RESET_ENABLE
        if instruction == RESET_MEMORY and announced:
            self.lines = 1
        elif instruction == READ_ID:
            return self.kind.identity
        elif instruction not in (RESET_ENABLE, RESET_MEMORY):
            raise PeripheralFault(f"the model of {self.kind.name} has no command {instruction:#04x}", 0)
        return bytes([NO_ANSWER])


class QuadSpi(Peripheral):
    """Commands are over as soon as they are given; nothing is programmed or erased. BUSY is seen twice behind
    a command, and behind the last byte that is read: until then its registers take nothing.

    flash    the chip behind it, which outlives resets
    mapped   the window in memory is open, as far as QUADSPI goes
    """

    def __init__(self, board: Board, kind: ExternalFlash) -> None:
        super().__init__(board, "QUADSPI", kind.controller, kind.clock)
        self.kind = kind
        self.flash = SerialFlash(kind)
        self._fifo = bytearray()
        self._unseen = 0  # times that BUSY is still to be seen, behind what is over

    def reset(self) -> None:
        super().reset()
        self._fifo.clear()
        self._unseen = 0

    @property
    def mapped(self) -> bool:
        return bool(self.registers.get(CR, 0) & 1) and self._mode == MAPPED

    @property
    def busy(self) -> bool:
        return self.mapped or bool(self._fifo) or self._unseen > 0

    @property
    def _mode(self) -> int:
        return self.registers.get(CCR, 0) >> 26 & 3

    @property
    def hz(self) -> int:
        """Of the flash's clock."""
        return self.board.rcc.core_hz // self._divider

    @property
    def _divider(self) -> int:
        return (self.registers.get(CR, 0) >> 24) + 1

    def read(self, offset: int) -> int:
        if offset == SR:  # the level of the FIFO in bits 8 to 13
            state = len(self._fifo) << 8 | (SR_FTF if self._fifo else 0) | (SR_BUSY if self.busy else 0)
            self._unseen = max(self._unseen - 1, 0)
            return super().read(SR) | state
        if offset == DR:
            word, self._fifo = self._fifo[:4], self._fifo[4:]
            self._unseen = BUSY_SEEN
            return int.from_bytes(word, "little")
        return super().read(offset)

    def write(self, offset: int, value: int) -> None:
        if offset == FCR:
            self.registers[SR] = self.registers.get(SR, 0) & ~value
        elif offset == CR and value & CR_ABORT:
            self.registers[CCR] = 0
            self._fifo.clear()
            self._unseen = 0
            super().write(CR, value & ~CR_ABORT)
        elif self.mapped and offset != CR:
            self._refuse("a register is written in memory-mapped mode, before ABORT ends it", offset)
        elif self.busy and not self.mapped:
            self._refuse("a register is written while it is busy: SR says so, or bytes wait in DR", offset)
        else:
            if offset == CCR:
                self._begin(value)
            super().write(offset, value)
        self.board.window_changed()

    def _begin(self, value: int) -> None:
        if not self.registers.get(CR, 0) & 1:
            self._refuse("a command is given while QUADSPI_CR has it off", CCR)
        self._check_wires()
        mode, instruction, lines = value >> 26 & 3, value & 0xFF, LINES[value >> 8 & 3]
        if mode == MAPPED:
            self._check_window(value)
            return
        answer, data_lines = self.flash.command(instruction, lines), LINES[value >> 24 & 3]
        if mode == INDIRECT_READ and data_lines:
            count = self.registers.get(DLR, 0) + 1
            heard = answer if data_lines == self.flash.lines else bytes([NO_ANSWER])
            self._fifo = bytearray((heard * count)[:count])
        self.registers[SR] = self.registers.get(SR, 0) | SR_TCF
        self._unseen = BUSY_SEEN

    def _check_wires(self) -> None:
        for name, (port, pin, function) in self.kind.pins.items():
            if not self.board.gpio[port].serves(pin, function):
                self._refuse(
                    f"{name} is on P{port}{pin}, whose alternate function {function} is not chosen", CCR
                )
        if self.hz > self.kind.max_hz:
            self._refuse(f"a clock of {self.hz} Hz is above the {self.kind.max_hz} of {self.kind.name}", CR)

    def _check_window(self, ccr: int) -> None:
        """Whether the flash would give its bytes: it says nothing where it is asked in another way."""
        high_s = ((self.registers.get(DCR, 0) >> 8 & 7) + 1) / self.hz
        wanted = {
            "the instruction": (ccr & 0xFF, QUAD_IO_FAST_READ),
            "lines of the instruction": (LINES[ccr >> 8 & 3], self.flash.lines),
            "lines of the address": (LINES[ccr >> 10 & 3], 4),
            "bytes of the address": ((ccr >> 12 & 3) + 1, 3),
            "lines of alternate bytes": (LINES[ccr >> 14 & 3], 0),
            "dummy cycles": (ccr >> 18 & 31, self.kind.dummy_cycles),
            "lines of data": (LINES[ccr >> 24 & 3], 4),
            "SIOO, FRCM, DHHC and DDRM": (ccr >> 28, 0),
            "FSIZE": (self.registers.get(DCR, 0) >> 16 & 31, self.kind.size.bit_length() - 2),
            "nanoseconds of chip select high, too few": (min(high_s, self.kind.high_s), self.kind.high_s),
        }
        for what, (found, right) in wanted.items():
            if found != right:
                self._refuse(f"{what}: {found}, where {self.kind.name} needs {right}", CCR)

    def _refuse(self, why: str, offset: int) -> None:
        raise PeripheralFault(f"QUADSPI: {why}", self.base + offset)

    def cycles(self) -> tuple[int, int]:
        """Core cycles that a line of the cache takes, and a new command before one: chip select high, eight
        clocks of instruction, six of address, dummy cycles."""
        before = (self.registers.get(DCR, 0) >> 8 & 7) + 1 + 8 + 6 + self.kind.dummy_cycles
        return 2 * LINE_BYTES * self._divider + BRIDGE_CYCLES, before * self._divider
