"""I2C1 on the Arduino header (RM0385, 30), as a master, and the chips on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from microtrain.emulator.errors import PeripheralFault

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

BASE = 0x4000_5400
CR1, CR2, TIMINGR, ISR, ICR, RXDR, TXDR = 0x00, 0x04, 0x10, 0x18, 0x1C, 0x24, 0x28
CR1_PE, CR2_READ, CR2_START, CR2_AUTOEND = 1 << 0, 1 << 10, 1 << 13, 1 << 25
TXE, TXIS, RXNE, NACKF, STOPF, TC, BUSY = 1 << 0, 1 << 1, 1 << 2, 1 << 4, 1 << 5, 1 << 6, 1 << 15
PINS, AF4 = (("B", 8), ("B", 9)), 4  # SCL, SDA: D15, D14
OTYPER = 0x04


class Device(Protocol):
    """A chip on the bus."""

    def write(self, data: bytes) -> None: ...

    def read(self, count: int) -> bytes: ...


class I2c(Peripheral):
    """A transfer takes no time.

    devices   by 7-bit address
    stuck     something holds SDA down
    """

    def __init__(self, board: Board) -> None:
        super().__init__(board, "I2C1", BASE, (0x40, 21), {ISR: TXE})
        self.devices: dict[int, Device] = {}
        self.stuck = False

    def reset(self) -> None:
        super().reset()
        self._flags = 0
        self._left = 0
        self._data = bytearray()
        self._device: Device | None = None

    def read(self, offset: int) -> int:
        if offset == ISR:
            busy = BUSY if self.stuck or self._left or self._flags & TC else 0
            return TXE | self._flags | busy
        if offset == RXDR:
            return self._receive()
        return super().read(offset)

    def write(self, offset: int, value: int) -> None:
        if offset == ICR:
            self._flags &= ~(value & (NACKF | STOPF))
        elif offset == TXDR:
            self._send(value & 0xFF)
        elif offset == CR2 and value & CR2_START:
            super().write(offset, value & ~CR2_START)
            self._start(value)
        else:
            super().write(offset, value)
            if offset == CR1 and not value & CR1_PE:
                self._flags = self._left = 0

    def _start(self, value: int) -> None:
        if not self.registers.get(CR1, 0) & CR1_PE or not self.registers.get(TIMINGR, 0):
            raise PeripheralFault("I2C1 starts while it is off or has no timing", BASE + CR2)
        self._flags &= ~TC
        if self.stuck:
            return
        device = self.devices.get(value >> 1 & 0x7F) if self._connected else None
        if device is None:
            self._flags |= NACKF | STOPF
            return
        self._device, self._left = device, value >> 16 & 0xFF
        self._data = bytearray(device.read(self._left) if value & CR2_READ else b"")
        self._flags |= RXNE if value & CR2_READ else TXIS

    @property
    def _end(self) -> int:
        """What is up behind the last byte: a stop has been sent, or a repeated start may follow."""
        return STOPF if self.registers.get(CR2, 0) & CR2_AUTOEND else TC

    @property
    def _connected(self) -> bool:
        ports = [(self.board.gpio[port], pin) for port, pin in PINS]
        return all(p.serves(pin, AF4) and p.registers.get(OTYPER, 0) >> pin & 1 for p, pin in ports)

    def _send(self, byte: int) -> None:
        if not self._flags & TXIS or self._device is None:
            return
        self._data.append(byte)
        self._left -= 1
        if self._left == 0:
            self._flags = self._flags & ~TXIS | self._end
            self._device.write(bytes(self._data))

    def _receive(self) -> int:
        if not self._flags & RXNE:
            return 0
        self._left -= 1
        if self._left == 0:
            self._flags = self._flags & ~RXNE | self._end
        return self._data.pop(0)
