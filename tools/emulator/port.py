"""The emulated board as a serial port for a client on the host."""

from __future__ import annotations

from pathlib import Path

from .board import Board
from .loop import Stop, Until

DEFAULT_BAUD = 115200
SENT_S = 1.0  # at most, for bytes on their way to the board
FLUSH_S = 0.05  # time for the firmware to finish what it has begun to say


class EmulatedPort:
    """Like a serial port, but times are the board's own: virtual seconds, and they pass only in `read`.

    board   the board behind it; the line starts at DEFAULT_BAUD, as the firmware does
    """

    def __init__(self, elf: Path | str | Board) -> None:
        self.board = elf if isinstance(elf, Board) else Board(elf)
        self._received = bytearray()
        self.set_baud(DEFAULT_BAUD)

    def set_baud(self, baud: int) -> None:
        """The host's rate from now on; bytes arrive damaged, both ways, where the device has another one.

        What was written before goes out at the old rate.
        """
        if self.board.usart.due is not None:
            self.board.run(seconds=SENT_S, stop_on_sleep=True)
            self._received += self.board.take_output()
        self.board.usart.host_baud = baud

    def write(self, data: bytes) -> None:
        self.board.feed(data)

    def read(self, size: int, timeout_s: float) -> bytes:
        """Up to `size` bytes, when the firmware has sent some and gone to sleep; b"" when none came in time.

        Errors   Fault where the firmware fails
        """
        if not self._received:
            self._run(timeout_s)
            self._received += self.board.take_output()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _run(self, timeout_s: float) -> None:
        """Until there is output, and the firmware has nothing more to do at once."""
        board = self.board
        end_s = board.seconds + timeout_s
        stop = board.run(seconds=timeout_s, stop_on_sleep=True)
        if not board.output and stop is Stop.SLEEP and board.seconds < end_s:
            stop = board.run(seconds=end_s - board.seconds, until=Until.BYTE)
            if stop is Stop.OUTPUT:
                board.run(seconds=FLUSH_S, stop_on_sleep=True)

    def close(self) -> None:
        """Drop what was not read; a second call does nothing."""
        self._received.clear()
