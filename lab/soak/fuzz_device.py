"""Damaged frames and lines, and bytes at random, for the emulated board: nothing may change.

None of the lines is one that may: whatever becomes of them, the board must stand where it stood.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from microtrain.device.protocol import (
    DATA,
    HEADER,
    HEADER_BYTES,
    ROW,
    SYNC,
    WEIGHTS,
    Frame,
    crc16,
    encode,
)
from microtrain.emulator import Board, Fault

from .line import BoardLine, LineError

BATCH = 20  # frames between two looks at the board
ROW_BYTES, PUSH_BYTES = 8, 64  # of the model that the board has
SILENCE_S = 0.7  # longer than a frame may take to arrive
HARMLESS = (
    *("help", "ping", "info", "image", "row 0 0 00ff", "infer", "eval 1", "stats", "sha", "led 1", "push"),
    *("train", "train 99", "train x", "seed", "seed -1", "seed 4294967296", "rate", "rate 1e9", "rate nan"),
    *("autosave", "autosave 1x", "save now", "forget 1", "reset 0", "reboot 1", "rehearse 0", "replay 101"),
    *("push 64 00000000 6c6c756e", "push 65 0 6c6c756e", "push 64 0 0", "baud 1", "pattern", "selftest 1"),
)
KEPT = ("steps", "seed", "saves", "erases_a", "erases_b")  # of `stats`


@dataclass
class Report:
    """Frames and lines that were sent, and what failed, in words."""

    frames: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Item:
    """Bytes for the line. intact: frames and `row` lines in them that the board may take."""

    data: bytes
    intact: int = 0


def draw(draws: random.Random) -> Item:
    """A frame or a line, most of them damaged."""
    makers = (damaged_frame, damaged_frame, damaged_frame, odd_frame, wrong_length, damaged_line, garbage)
    return draws.choice(makers)(draws)


def some_frame(draws: random.Random) -> Frame:
    kind = draws.choice((ROW, ROW, WEIGHTS, WEIGHTS, DATA, draws.randrange(256)))
    size = draws.choice((8, 8, 64, 0, draws.randrange(512), draws.randrange(500, 560)))
    position = draws.choice((0, draws.randrange(9), draws.randrange(70), draws.getrandbits(32)))
    return Frame(kind, draws.randrange(256), position, draws.randbytes(size))


def acceptable(frame: Frame) -> int:
    """1 for rows of the image, and for weights, which a line may have announced."""
    size = len(frame.payload)
    rows = frame.kind == ROW and size > 0 and size % ROW_BYTES == 0
    return int(rows or (frame.kind == WEIGHTS and 0 < size <= PUSH_BYTES))


def odd_frame(draws: random.Random) -> Item:
    """Intact, but not what the board waits for: no push is complete with the CRC that was announced."""
    frame = some_frame(draws)
    return Item(encode(frame), intact=acceptable(frame))


def damaged_frame(draws: random.Random) -> Item:
    """A few flipped bits, a byte lost or one too many."""
    frame = some_frame(draws)
    data = bytearray(encode(frame))
    what = draws.randrange(4)
    if what == 0:
        del data[draws.randrange(len(data))]
    elif what == 1:
        data.insert(draws.randrange(1, len(data)), draws.randrange(256))
    else:
        for place in draws.sample(range(8 * len(data)), draws.choice((1, 1, 2, 7))):
            data[place // 8] ^= 1 << place % 8
    return Item(bytes(data), intact=acceptable(frame) * (what == 1))  # where the last byte has come twice


def wrong_length(draws: random.Random) -> Item:
    """A header that is right, in front of bytes that are too many or too few for it."""
    frame = some_frame(draws)
    size = draws.choice((0, 513, 520, 0xFFFF, draws.randrange(1200)))
    header = HEADER.pack(SYNC, frame.kind, frame.sequence, frame.position, size)
    rest = encode(frame)[HEADER_BYTES:] + draws.randbytes(draws.randrange(700))
    return Item(
        header + struct.pack("<H", crc16(header)) + rest,
        intact=acceptable(frame) * (size == len(frame.payload)),
    )


def damaged_line(draws: random.Random) -> Item:
    line = bytearray(draws.choice(HARMLESS).encode("ascii"))
    row = line.startswith(b"row")  # is answered like a frame
    if draws.randrange(2):
        line.insert(draws.randrange(len(line) + 1), draws.choice((0, 9, 127, 128, 255, 0x5A)))
    if draws.randrange(8) == 0:
        line += b"x" * draws.randrange(100, 2000)
    return Item(bytes(line) + draws.choice((b"\n", b"\r\n", b"\r")), intact=int(row))


def garbage(draws: random.Random) -> Item:
    return Item(draws.randbytes(draws.randrange(1, 100)))


class Target:
    """A board that has learned and saved something, and what it says of that."""

    def __init__(self, elf: Path) -> None:
        self.line = BoardLine(Board(elf))
        self.start()

    def start(self) -> None:
        self.line.boot()
        self.line.train(5, 3)
        self.line.do("seed 77")
        self.line.do("save")
        self.state = self.look()

    def look(self) -> tuple[str, ...]:
        stats = dict(line.split(" ", 1) for line in self.line.ask("stats")[:-1])
        return self.line.do("sha"), *(stats[name] for name in KEPT)

    def bear(self, batch: list[Item]) -> None:
        """Send a batch. LineError or Fault where the board does not live through it unchanged."""
        board = self.line.board
        board.take_output()
        board.feed(b"".join(item.data for item in batch))
        said = self._listen() + self._send(b"\n")
        taken = said.count(b"ok row") + said.count(b"ok weights")
        if taken > sum(item.intact for item in batch):
            raise LineError(f"{taken} frames are taken, more than were intact")
        self.line.do("ping")
        self.line.do("image")  # ends a push that has begun
        if self.look() != self.state:
            raise LineError(f"{self.state} has become {self.look()}")

    def _send(self, data: bytes) -> bytes:
        self.line.board.feed(data)
        return self._listen()

    def _listen(self) -> bytes:
        self.line.board.run(seconds=60, stop_on_sleep=True)
        self.line.board.run(seconds=SILENCE_S)
        return self.line.board.take_output()


def fuzz(
    elf: Path, frames: int, seed: int, advance: Callable[[int], None], failures: int | None = None
) -> Report:
    """Send this many frames and lines.

    advance    called with the number in each batch
    failures   as many end it; None: none does
    """
    draws, target, report = random.Random(seed), Target(elf), Report()
    while report.frames < frames and (failures is None or len(report.failures) < failures):
        batch = [draw(draws) for _ in range(min(BATCH, frames - report.frames))]
        try:
            target.bear(batch)
        except (Fault, LineError) as error:
            report.failures.append(f"frames {report.frames} to {report.frames + len(batch)}: {error}")
            target.start()
        report.frames += len(batch)
        advance(len(batch))
    return report
