"""A port with an emulated board behind it that has a hard life: a noisy line, power cuts and resets."""

from __future__ import annotations

import random
from dataclasses import dataclass

from microtrain.emulator import Board, Stop, Until

SYNC_BYTE = 0xA5
BURST = 6  # bytes that one disturbance on the line damages, at most


@dataclass
class Troubles:
    """What has happened so far."""

    power_cuts: int = 0
    resets: int = 0
    damaged: int = 0


class HardLife:
    """A Port (device.link). Times are the board's own.

    every   instructions from one power cut or reset to the next, on average
    noise   share of writes and reads in which the line is disturbed
    calm    no trouble from now on

    Text has no check sum: a digit that becomes another one is another command. So lines are hit by bytes that
    no line may hold, and frames by any.
    """

    def __init__(self, board: Board, draws: random.Random, every: int, noise: float) -> None:
        self.board, self.draws, self.every, self.noise = board, draws, every, noise
        self.troubles = Troubles()
        self.calm = False
        self._received = bytearray()
        self._plan_trouble()

    def write(self, data: bytes) -> None:
        self.board.feed(self._disturb(data))

    def read(self, size: int, timeout_s: float) -> bytes:
        if not self._received:
            self._run(timeout_s)
            self._received += self._disturb(self.board.take_output())
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def close(self) -> None:
        self._received.clear()

    # ---------------------------------------------------------------- trouble
    def _plan_trouble(self) -> None:
        """Instructions since power-on of the next power cut or reset."""
        self._trouble_at = self.board.instructions + round(self.draws.expovariate(1 / self.every)) + 1

    def _run(self, timeout_s: float) -> None:
        """Until the board has said something and rests, or the time is up, whatever happens meanwhile."""
        board, resting = self.board, False
        end_s = board.seconds + timeout_s
        while not (resting and board.output):
            stop = board.run(
                seconds=max(0.0, end_s - board.seconds),
                instructions=None if self.calm else self._trouble_at - board.instructions,
                stop_on_sleep=not resting,
                until=Until.BYTE if resting else None,
            )
            resting = stop is Stop.SLEEP
            if not self.calm and board.instructions >= self._trouble_at:
                left_s = end_s - board.seconds
                self._strike()
                end_s = board.seconds + left_s
            elif stop is Stop.LIMIT:
                return

    def _strike(self) -> None:
        """Half of the times the power fails, else somebody presses the reset button."""
        if self.draws.random() < 0.5:
            self.troubles.power_cuts += 1
            self.board.power_on()
        else:
            self.troubles.resets += 1
            self.board.press_reset()
        self._plan_trouble()

    # ---------------------------------------------------------------- noise
    def _disturb(self, data: bytes) -> bytes:
        """Damage some bytes of some writes."""
        if self.calm or not data or self.draws.random() >= self.noise:
            return data
        self.troubles.damaged += 1
        noisy, in_frame = bytearray(data), SYNC_BYTE in data
        for _ in range(self.draws.randint(1, BURST)):
            place = self.draws.randrange(len(noisy))
            noisy[place] = self.draws.randrange(0 if in_frame else 0x80, 256)
        if self.draws.random() < 0.3 and in_frame:
            del noisy[self.draws.randrange(len(noisy))]
        return bytes(noisy)
