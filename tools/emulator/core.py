"""What Unicorn leaves out of a Cortex-M: exceptions and their priorities, and the system control space.

Source: ARMv7-M architecture reference manual, B1.5 and B3."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import mpu
from .memory import FLASH_BASE
from .systick import SysTick

if TYPE_CHECKING:
    from .board import Board

HARD_FAULT, MEM_MANAGE, BUS_FAULT, USAGE_FAULT, SVC, PENDSV, SYSTICK = 3, 4, 5, 6, 11, 14, 15
FIRST_IRQ = 16
FIXED_PRIORITY = {1: -3, 2: -2, HARD_FAULT: -1}
THREAD_PRIORITY = 256
CPUID, ICSR, VTOR, AIRCR, CCR = 0xD00, 0xD04, 0xD08, 0xD0C, 0xD14
SHPR1, SHCSR, CFSR, HFSR, BFAR = 0xD18, 0xD24, 0xD28, 0xD2C, 0xD38
CCSIDR, CSSELR, CPACR, DEMCR, STIR = 0xD80, 0xD84, 0xD88, 0xDFC, 0xF00
ISER, ICER, ISPR, ICPR, IPR = 0x100, 0x180, 0x200, 0x280, 0x400
MPU_TYPE, MVFR0, MVFR1, MVFR2 = 0xD90, 0xF40, 0xF44, 0xF48
CONSTANT = {
    "cortex-m7": {
        CPUID: 0x411F_C271,  # r1p1
        0xD78: 0x0900_0003,  # CLIDR: one level of separate caches
        0xD7C: 0x8303_C003,  # CTR
        MPU_TYPE: 0x0000_0800,  # 8 regions
        MVFR0: 0x1011_0021,  # single precision only
        MVFR1: 0x1100_0011,
        MVFR2: 0x0000_0040,  # FPv5
    },
    "cortex-m4": {
        CPUID: 0x410F_C241,  # r0p1
        MPU_TYPE: 0x0000_0800,
        MVFR0: 0x1011_0021,
        MVFR1: 0x1100_0011,
        MVFR2: 0,  # FPv4
    },
}
CACHE_SIZE_ID = {0: 0xF003_E019, 1: 0xF007_E009}  # 4 KB of data, 4 KB of instructions, lines of 32 bytes
ENABLE_BIT = {MEM_MANAGE: 16, BUS_FAULT: 17, USAGE_FAULT: 18}  # in SHCSR


class Core:
    """Exceptions and system control space.

    active    exceptions being handled, the innermost last
    pending   exceptions waiting
    lines     level of each peripheral's interrupt request, by interrupt number
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.lines: dict[int, Callable[[], bool]] = {}
        self._constant = CONSTANT[board.chip.cpu]
        self.systick = SysTick(board, lambda: self.pend(SYSTICK))
        self.reset()

    def reset(self) -> None:
        self._active: list[int] = []
        self.pending: set[int] = set()
        self.enabled: set[int] = set(range(FIRST_IRQ))
        self._priorities: dict[int, int] = {}
        self._registers: dict[int, int] = {VTOR: FLASH_BASE, CCR: 0x200}
        self.systick.reset()

    @property
    def active(self) -> list[int]:
        """The exceptions in progress, the innermost last; native.c may have returned from the only one."""
        if self.board.engine.state.returned:
            self.board.engine.state.returned = 0
            self._active.pop()
        return self._active

    # ---------------------------------------------------------------- priorities
    def _priority(self, number: int) -> int:
        return FIXED_PRIORITY.get(number, self._priorities.get(number, 0))

    def pend(self, number: int) -> None:
        self.pending.add(number)
        self.board.look_again()

    def candidate(self) -> int | None:
        """The most urgent exception that is pending and enabled, whether or not it is masked."""
        for irq, asserted in self.lines.items():
            if FIRST_IRQ + irq not in self.active and asserted():
                self.pending.add(FIRST_IRQ + irq)
        ready = [(self._priority(n), n) for n in self.pending if n in self.enabled]
        return min(ready)[1] if ready else None

    def preempts(self, number: int, masks: bool = True) -> bool:
        """Whether an exception may interrupt what runs now; without `masks`, only active ones count."""
        level = min((self._priority(n) for n in self.active), default=THREAD_PRIORITY)
        if masks:
            set_masks = self.board.engine.masks()
            level = min(level, set_masks >> 8 or THREAD_PRIORITY)
            level = min(level, 0) if set_masks & 1 else level
            level = min(level, -1) if set_masks & 2 else level
        return self._priority(number) < level

    def vector(self, number: int) -> int:
        """Address of a handler."""
        entry: int = struct.unpack("<I", self.board.memory.read(self._registers[VTOR] + 4 * number, 4))[0]
        return entry

    def escalate(self, number: int, status: int, address: int) -> int:
        """Note a fault in the status registers. Returns the exception that it becomes."""
        self._registers[CFSR] = self._registers.get(CFSR, 0) | status
        self._registers[BFAR] = address
        enabled = self._registers.get(SHCSR, 0) >> ENABLE_BIT.get(number, 31) & 1
        if enabled and self.preempts(number):
            return number
        self._registers[HFSR] = self._registers.get(HFSR, 0) | 1 << 30
        return HARD_FAULT

    # ---------------------------------------------------------------- registers, offsets from 0xE000E000
    def read(self, offset: int) -> int:
        if offset in (0x10, 0x14, 0x18, 0x1C):
            return self.systick.read(offset)
        if offset in self._constant:
            return self._constant[offset]
        if ISER <= offset < ISPR:
            return self._bits(self.enabled, offset & 0x7F)
        if ISPR <= offset < IPR - 0x100:
            return self._bits(self.pending, offset & 0x7F)
        if IPR <= offset < IPR + 0x100:
            return self._read_priorities(FIRST_IRQ + offset - IPR)
        if SHPR1 <= offset < SHCSR:
            return self._read_priorities(4 + offset - SHPR1)
        if offset == ICSR:
            pending = (PENDSV in self.pending) << 28 | (SYSTICK in self.pending) << 26
            return (self.active[-1] if self.active else 0) | pending
        if offset == AIRCR:
            return 0xFA05_0000 | self._registers.get(AIRCR, 0) & 0x700
        if offset == CCSIDR and self.board.chip.has_caches:
            return CACHE_SIZE_ID[self._registers.get(CSSELR, 0) & 1]
        if offset in mpu.BY_REGION:
            return self._registers.get(mpu.key(offset, self._registers), 0)
        return self._registers.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        if offset in (0x10, 0x14, 0x18):
            self.systick.write(offset, value)
        elif ISER <= offset < IPR - 0x100:
            self._write_bits(offset, value)
        elif IPR <= offset < IPR + 0x100:
            self._write_priorities(FIRST_IRQ + offset - IPR, value)
        elif SHPR1 <= offset < SHCSR:
            self._write_priorities(4 + offset - SHPR1, value)
        elif offset == ICSR:
            self._write_icsr(value)
        elif offset in (CFSR, HFSR):
            self._registers[offset] = self._registers.get(offset, 0) & ~value
        elif offset == AIRCR:
            if value >> 16 == 0x5FA:
                self._registers[AIRCR] = value
                if value & 4:
                    self.board.request_reset()
        elif offset == STIR:
            self.pend(FIRST_IRQ + (value & 0x1FF))
        elif offset == mpu.CTRL or offset in mpu.BY_REGION:
            self._registers[mpu.key(offset, self._registers)] = value
            self.board.window_changed()
        else:
            self._registers[offset] = value
            if offset == CPACR and value >> 20 & 15 == 15:
                self.board.fpu_enabled()

    @property
    def trace_enabled(self) -> bool:
        """DEMCR.TRCENA, without which the cycle counter stands still."""
        return bool(self._registers.get(DEMCR, 0) >> 24 & 1)

    def may_read(self, address: int) -> bool:
        """Whether the MPU lets code read here."""
        return mpu.readable(self._registers, address)

    def _bits(self, numbers: set[int], first: int) -> int:
        return sum(1 << i for i in range(32) if FIRST_IRQ + first * 8 + i in numbers)

    def _write_bits(self, offset: int, value: int) -> None:
        numbers = {FIRST_IRQ + (offset & 0x7F) * 8 + i for i in range(32) if value >> i & 1}
        bank = offset & ~0x7F
        if bank == ISER:
            self.enabled |= numbers
        elif bank == ICER:
            self.enabled -= numbers
        elif bank == ISPR:
            self.pending |= numbers
        elif bank == ICPR:
            self.pending -= numbers
        self.board.look_again()

    def _read_priorities(self, first: int) -> int:
        return sum(self._priorities.get(first + i, 0) << 8 * i for i in range(4))

    def _write_priorities(self, first: int, value: int) -> None:
        for i in range(4):  # the chip has 16 levels, in the upper four bits
            self._priorities[first + i] = value >> 8 * i & 0xF0

    def _write_icsr(self, value: int) -> None:
        for position, number in ((28, PENDSV), (26, SYSTICK)):
            if value >> position & 1:
                self.pend(number)
            elif value >> (position - 1) & 1:
                self.pending.discard(number)
