"""The firmware built for this machine, as a process that a test talks to over its pipes."""

from __future__ import annotations

import binascii
import os
import select
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np

ROW, WEIGHTS, DATA = 1, 2, 3
H = W = 8  # of the null model
ANSWER_S = 10.0


def frame(kind: int, position: int, payload: bytes, sequence: int = 7) -> bytes:
    head = struct.pack("<2sBBIH", b"\xa5\x5a", kind, sequence, position, len(payload))
    head += struct.pack("<H", binascii.crc_hqx(head, 0xFFFF))
    return head + payload + struct.pack("<I", zlib.crc32(payload))


class Program:
    """The firmware as a process, its serial line the pipes."""

    def __init__(self, path: Path, flash: Path | None = None) -> None:
        """flash: the file that holds its checkpoints; None: it forgets them when it ends."""
        environment = os.environ | ({"MICROTRAIN_FLASH": str(flash)} if flash else {})
        self.process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.pending = b""
        self.boot()

    def boot(self) -> None:
        assert self.line().startswith("microtrain native null ")
        assert self.line() == "start power"
        self.checkpoint = self.line()
        assert self.checkpoint.startswith("checkpoint ")
        assert self.line() == "ready"

    def send(self, data: bytes | str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data.encode("ascii") if isinstance(data, str) else data)
        self.process.stdin.flush()

    def more(self, timeout_s: float) -> bool:
        """Take what has come; False when nothing came in time or the program has ended."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            return False
        data = self.process.stdout.read1(65536)  # type: ignore[attr-defined]
        self.pending += data
        return bool(data)

    def line(self) -> str:
        while b"\r\n" not in self.pending:
            assert self.more(ANSWER_S), f"no answer; so far {self.pending!r}"
        line, self.pending = self.pending.split(b"\r\n", 1)
        return line.decode("ascii")

    def take(self, size: int) -> bytes:
        while len(self.pending) < size:
            assert self.more(ANSWER_S), f"no answer; so far {self.pending!r}"
        data, self.pending = self.pending[:size], self.pending[size:]
        return data

    def ask(self, data: bytes | str) -> str:
        """Send a line or a frame; returns the line that ends the answer."""
        return self.ask_all(data)[-1]

    def ask_all(self, data: bytes | str) -> list[str]:
        self.send(data + "\n" if isinstance(data, str) else data)
        lines = [self.line()]
        while not lines[-1].startswith(("ok", "err")):
            lines.append(self.line())
        return lines

    def quiet(self, seconds: float) -> str:
        """Everything that is said until nothing is said for a while."""
        while self.more(seconds):
            pass
        text, self.pending = self.pending, b""
        return text.decode("ascii")

    def send_image(self, image: bytes) -> None:
        for y in range(H):
            assert self.ask(frame(ROW, y, image[W * y : W * (y + 1)], y)) == f"ok row {y} {y}"

    def logits(self) -> np.ndarray:
        line = self.ask_all("infer")[0].split()
        assert line[0] == "logits"
        return np.array([struct.unpack(">f", bytes.fromhex(word))[0] for word in line[1:]], np.float32)

    def sha(self) -> str:
        return self.ask("sha").split()[2]

    def pull(self) -> bytes:
        self.send("pull\n")
        data = self.take(12 + 64 + 4)
        assert data == frame(DATA, 0, data[12:76], sequence=0)
        assert self.line() == f"ok pull 64 {zlib.crc32(data[12:76]):08x}"
        return data[12:76]

    def start_push(self, data: bytes, crc: int | None = None, model: str = "6c6c756e") -> str:
        return self.ask(f"push {len(data)} {zlib.crc32(data) if crc is None else crc:08x} {model}")
