"""General-purpose pins (RM0385, 6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .base import Peripheral, bit

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

MODER, IDR, ODR, BSRR, AFRL = 0x00, 0x10, 0x14, 0x18, 0x20
OUTPUT, ALTERNATE = 1, 2
GPIO_BASE = 0x4002_0000


class Gpio(Peripheral):
    """A port of 16 pins: outputs read back, inputs read what was put on them from outside.

    levels     bit n: pin n is held high from outside
    watchers   called when the firmware has changed a pin
    """

    def __init__(self, board: Board, port: str) -> None:
        index = board.chip.ports.index(port)
        super().__init__(board, f"GPIO{port}", GPIO_BASE + 0x400 * index, (0x30, index))
        self.levels = 0
        self.watchers: list[Callable[[], None]] = []

    def read(self, offset: int) -> int:
        if offset != IDR:
            return super().read(offset)
        driven = sum(1 << pin for pin in range(16) if self._is_output(pin))
        return self.registers.get(ODR, 0) & driven | self.levels & ~driven & 0xFFFF

    def write(self, offset: int, value: int) -> None:
        if offset == BSRR:  # low half sets, high half resets; setting wins
            output = self.registers.get(ODR, 0)
            self.registers[ODR] = output & ~(value >> 16) & 0xFFFF | value & 0xFFFF
        else:
            super().write(offset, value)
        for watcher in self.watchers:
            watcher()

    def serves(self, pin: int, function: int) -> bool:
        """Whether a pin belongs to a peripheral, its alternate function."""
        chosen = self.registers.get(AFRL + pin // 8 * 4, 0) >> pin % 8 * 4 & 15
        return self.registers.get(MODER, 0) >> 2 * pin & 3 == ALTERNATE and chosen == function

    def _is_output(self, pin: int) -> bool:
        return self.registers.get(MODER, 0) >> 2 * pin & 3 == OUTPUT

    def is_high(self, pin: int) -> bool:
        """Whether the firmware drives a pin high."""
        return self._is_output(pin) and bool(bit(self.registers.get(ODR, 0), pin))

    def drives_low(self, pin: int) -> bool:
        """Whether the firmware drives a pin low."""
        return self._is_output(pin) and not bit(self.registers.get(ODR, 0), pin)

    def hold(self, pin: int, high: bool) -> None:
        """Put a level on a pin from outside."""
        self.levels = self.levels & ~(1 << pin) | int(high) << pin
