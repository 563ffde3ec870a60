"""SPI2 on the Arduino header (RM0385, 32), as a master that sends and receives bytes, and one chip on it."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING, Protocol

from microtrain.emulator.errors import PeripheralFault
from microtrain.emulator.native import SpiState

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

BASE = 0x4000_3800
CR1, CR2, SR, DR = 0x00, 0x04, 0x08, 0x0C
CR1_MSTR, CR1_SPE = 1 << 2, 1 << 6
CR2_DS, CR2_DS_8BIT, CR2_FRXTH = 15 << 8, 7 << 8, 1 << 12
SR_RXNE, SR_TXE, SR_OVR = 1 << 0, 1 << 1, 1 << 6
FIFO_BYTES = 4
AF5 = 5
SELECT = ("A", 8)  # D10
PINS = (("I", 1), ("B", 14), ("B", 15))  # SCK, MISO, MOSI: D13, D12, D11
NOTHING = 0xFF  # MISO is pulled up


class Chip(Protocol):
    """What is connected."""

    def select(self) -> None: ...

    def exchange(self, byte: int) -> int: ...

    def burst(self) -> bytes:
        """What the chip will answer from here on, whatever it is sent; nothing where that is not so."""
        ...

    def burst_taken(self, count: int) -> None: ...


class Spi(Peripheral):
    """A transfer is over as soon as it begins. Bytes reach the chip only while its pins are set up for it.

    chip   None: nothing is connected
    """

    byte_registers = frozenset({DR})

    def __init__(self, board: Board, state: SpiState) -> None:
        super().__init__(board, "SPI2", BASE, (0x40, 14), {CR2: 0x700, SR: SR_TXE})
        self.state = state
        self.chip: Chip | None = None
        self._selected = False
        self._received: deque[int] = deque()

    def reset(self) -> None:
        super().reset()
        self._end_burst()
        self._selected = False
        self._received.clear()
        for port, _ in (SELECT, *PINS):
            watchers = self.board.gpio[port].watchers
            if self._look not in watchers:
                watchers.append(self._look)

    def _look(self) -> None:
        """A pin has changed: perhaps the chip is selected now, or no longer."""
        port, pin = SELECT
        selected = self.board.gpio[port].drives_low(pin) and self._connected
        if selected == self._selected:
            return
        self._selected = selected
        self._end_burst()
        if selected and self.chip is not None:
            self.chip.select()

    @property
    def _connected(self) -> bool:
        return all(self.board.gpio[port].serves(pin, AF5) for port, pin in PINS)

    def read(self, offset: int) -> int:
        if offset == SR:
            return SR_TXE | (SR_RXNE if self._received else 0)
        if offset == DR:
            return self._received.popleft() if self._received else 0
        return super().read(offset)

    def write(self, offset: int, value: int) -> None:
        if offset != DR:
            super().write(offset, value)
            return
        self._check(value)
        if self.state.streaming:
            self._end_burst()  # the chip has no more to hand out
        answer = self.chip.exchange(value) if self.chip is not None and self._selected else NOTHING
        if len(self._received) == FIFO_BYTES:
            raise PeripheralFault("SPI2 receives a fifth byte before the first one was read", BASE + DR)
        self._received.append(answer)
        self._begin_burst()

    def _check(self, value: int) -> None:
        """Errors   PeripheralFault where the model knows no such transfer, or the chip would do none"""
        cr1, cr2 = self.registers.get(CR1, 0), self.registers.get(CR2, 0)
        if not (cr1 & CR1_SPE and cr1 & CR1_MSTR):
            raise PeripheralFault("SPI2 sends while it is off or no master", BASE + DR)
        if cr2 & CR2_DS != CR2_DS_8BIT or not cr2 & CR2_FRXTH or value > 0xFF:
            raise PeripheralFault("SPI2 of this board model sends single bytes only", BASE + DR)

    def _begin_burst(self) -> None:
        """From now on native.c serves the registers, while the chip only hands out bytes."""
        data = self.chip.burst() if self.chip is not None and self._selected else b""
        if not data or len(self._received) != 1:
            return
        self._bytes = ctypes.create_string_buffer(data, len(data))
        self.state.stream, self.state.at, self.state.end = ctypes.addressof(self._bytes), 0, len(data)
        self.state.rdr, self.state.full = self._received.popleft(), 1
        self.state.streaming = 1

    def _end_burst(self) -> None:
        if self.state.streaming and self.chip is not None:
            self.chip.burst_taken(self.state.at)
            if self.state.full:
                self._received.append(self.state.rdr)
        self.state.streaming = self.state.full = 0
