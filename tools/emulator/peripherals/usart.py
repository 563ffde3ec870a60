"""The USART of the ST-LINK's virtual COM port (RM0385, 31; RM0390, USART); what is urgent is in native.c."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microtrain.emulator.chips import SerialLine
from microtrain.emulator.engine import PAGE
from microtrain.emulator.native import RX_FRAMING_ERROR, RX_QUEUE, UsartState

from .base import Peripheral

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

CR1_OVER8 = 1 << 15
ISR_ORE, ISR_RXNE = 1 << 3, 1 << 5
RQR_RXFRQ = 1 << 3
BITS_A_BYTE = 10  # 8N1
BURST = 512  # bytes that may arrive while the firmware is awake; half its receive ring
TOLERANCE = 0.03  # of the baud rate, before bytes arrive damaged


@dataclass(frozen=True)
class Layout:
    """Offsets of the registers, and CR1's UE. The older kind clears errors where DR is read behind SR."""

    cr1: int
    brr: int
    status: int
    receive: int
    send: int
    enable: int
    clear: int | None = None
    request: int | None = None


NEWER = Layout(0x00, 0x0C, 0x1C, 0x24, 0x28, 1 << 0, clear=0x20, request=0x18)
OLDER = Layout(0x0C, 0x08, 0x00, 0x04, 0x04, 1 << 13)


class Usart(Peripheral):
    """The serial line.

    Not paced (the default): bytes arrive as fast as the firmware takes them. After BURST of them the next
    ones wait until it sleeps, or until the time has passed that they take on a real line: an idle firmware
    loses nothing.
    Paced: bytes arrive at the rate that is programmed, whether the firmware is ready or not, and overrun.

    What a pin carries that is not the USART's is lost.

    host_baud   the rate of the host's end; where the firmware's differs, bytes arrive damaged, both ways.
                None: always the firmware's own
    listeners   called with the bytes that the firmware sent, as the host receives them
    """

    def __init__(self, board: Board, state: UsartState, line: SerialLine, paced: bool) -> None:
        super().__init__(board, line.name, line.base, line.clock)
        self.state = state
        self._line = line
        self.host_baud: int | None = None
        self.layout = at = OLDER if line.older else NEWER
        state.page, offset = line.base & -PAGE, line.base % PAGE
        state.status, state.receive, state.send = offset + at.status, offset + at.receive, offset + at.send
        state.clear, state.older, state.enable = offset + (at.clear or 0), int(line.older), at.enable
        self.paced = paced
        self.listeners: list[Callable[[bytes], None]] = []
        self._waiting: deque[int] = deque()
        self._noise = random.Random(0)
        self.due: int | None = None

    def reset(self) -> None:
        """As after a system reset; bytes that are still on the line are lost."""
        super().reset()
        self._waiting.clear()
        self.due = None
        stop = self.state.tx_stop
        self.state.powered = self.state.cr1 = self.state.full = self.state.errors = self.state.seen = 0
        self.state.rdr = self.state.rx_head = self.state.rx_tail = self.state.tx_count = 0
        self.state.tx_stop = stop

    def power(self, on: bool) -> None:
        self.state.powered = int(on)

    def write(self, offset: int, value: int) -> None:
        if offset in (self.layout.cr1, self.layout.brr):
            self.board.deliver()  # what was sent at the rate so far
        super().write(offset, value)
        if offset == self.layout.cr1:
            self.state.cr1 = value
        elif offset == self.layout.request and value & RQR_RXFRQ:
            self.state.full = 0
        self.board.look_again()

    def read(self, offset: int) -> int:
        return self.board.usart_status() if offset == self.layout.status else super().read(offset)

    @property
    def baud(self) -> float:
        """Bits a second that BRR stands for at the present clock, 0 before it is set."""
        brr = self.registers.get(self.layout.brr, 0)
        divider: float = brr
        if self.state.cr1 & CR1_OVER8:
            divider = (brr & ~15 | (brr & 7) << 1) / 2
        return self.board.rcc.apb_hz(self._line.apb) / divider if divider else 0.0

    @property
    def byte_cycles(self) -> int:
        """Core cycles that one byte takes on the line."""
        return max(1, round(BITS_A_BYTE * self.board.rcc.core_hz / (self.baud or 115200)))

    @property
    def _rates_differ(self) -> bool:
        """Whether host and firmware misunderstand each other; a firmware without a rate is not there yet."""
        own, other = self.baud, self.host_baud
        return own > 0 and other is not None and abs(own - other) > TOLERANCE * other

    def _is_wired(self, place: tuple[str, int]) -> bool:
        """Whether the firmware has given a pin to the USART."""
        port, pin = place
        return self.board.gpio[port].serves(pin, self._line.function)

    def feed(self, data: bytes) -> None:
        """Bytes from the host."""
        self._waiting.extend(data)
        if self.due is None and self._waiting:
            self.due = self.board.now + (self.byte_cycles if self.paced else 0)

    def fire(self) -> None:
        """The time `due` has come: the next bytes arrive."""
        if self.paced:
            self._arrive_until(self.board.now)
        else:
            self.refill()

    def refill(self) -> None:
        """Not paced: let the next burst arrive, if the firmware has taken the last one."""
        if self.paced:
            return
        count = min(BURST, len(self._waiting)) if self.hungry else 0
        self._push([self._waiting.popleft() for _ in range(count)])
        self.due = self.board.now + BURST * self.byte_cycles if self._waiting else None

    def _arrive_until(self, now: int) -> None:
        """Paced: the bytes of the time that has passed; one is lost where the one before it was not read."""
        while self.due is not None and self.due <= now:
            byte = self._waiting.popleft()
            if self.board.usart_status() & ISR_RXNE:
                self.state.errors |= ISR_ORE
            else:
                self._push([byte])
            self.due = self.due + self.byte_cycles if self._waiting else None

    def _push(self, data: list[int]) -> None:
        """Bytes that arrive together, at the rates of this moment."""
        if not data or (self.baud and not self._is_wired(self._line.receive)):
            return
        if self._rates_differ:
            data = [self._noise.randrange(256) | RX_FRAMING_ERROR for _ in data]
        rx, at = self.state.rx, self.state.rx_tail % RX_QUEUE
        room = min(len(data), RX_QUEUE - at)
        rx[at : at + room] = data[:room]
        rx[: len(data) - room] = data[room:]
        self.state.rx_tail += len(data)

    @property
    def hungry(self) -> bool:
        """Whether the firmware has taken all that has arrived."""
        return self.state.rx_head == self.state.rx_tail and not self.state.full

    def requests_interrupt(self) -> bool:
        """The level of the interrupt line."""
        return self.board.engine.usart_interrupts()

    def drain(self) -> bytes:
        """What the host has heard of the firmware since the last call."""
        count = self.state.tx_count
        if not count:
            return b""
        data = bytes(memoryview(self.state.tx)[:count])
        self.state.tx_count = 0
        if not self._is_wired(self._line.send):
            return b""
        return self._noise.randbytes(count) if self._rates_differ else data
