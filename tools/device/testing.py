"""A device in memory, for tests of everything that talks to one. It speaks docs/protocol.md."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256

from .protocol import DATA, ROW, WEIGHTS, Frame, Line, Receiver, crc32, encode

SHAPE = (4, 5, 1)
CLASSES = 3
ARENA = 1536  # a push of more is not staged
MODEL_ID = "cdab2301" + "0" * 56
SHORT_ID = "0123abcd"  # its first four bytes as a little-endian number


class FakeDevice:
    """A device as a Port. Its model predicts pixel [0][0] % 3; a training step adds the label to every byte.

    noise  changes the bytes on their way to the device; gets the bytes and the count of writes so far
    """

    def __init__(self, noise: Callable[[bytes, int], bytes] | None = None, size: int = 24) -> None:
        self.noise = noise or (lambda data, count: data)
        self.block = self.initial = bytes(i & 255 for i in range(size))
        self.rows: dict[int, bytes] = {}
        self.staged: bytearray | None = None
        self.received, self.out = (
            Receiver(),
            bytearray(b"microtrain fake tiny 0123abcd\r\ncheckpoint none\r\nready\r\n"),
        )
        self.writes = self.trained = self.pulls = 0
        self.commands: list[str] = []
        self.corrupt_pulls = self.saves = 0
        self.diverges_at: int | None = None  # steps of training
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes += 1
        for item in self.received.feed(self.noise(data, self.writes)):
            if isinstance(item, Line):
                self.commands.append(item.text)
                self.line(item.text.split())
            else:
                self.frame(item)

    def read(self, size: int, timeout_s: float) -> bytes:
        if not self.out and self.received.inside_frame:
            self.received.reset()
            self.say("err frame timeout")
        data = bytes(self.out[:size])
        del self.out[:size]
        return data

    def close(self) -> None:
        self.closed = True

    def say(self, *lines: str) -> None:
        self.out += "".join(f"{line}\r\n" for line in lines).encode()

    def line(self, words: list[str]) -> None:
        command = getattr(self, f"do_{words[0]}", None)
        if command is None:
            self.say("err command unknown, try help")
        else:
            command(*words[1:])

    def frame(self, frame: Frame) -> None:
        if not frame.intact:
            self.say("err frame payload CRC")
        elif frame.kind == ROW:
            for i in range(0, len(frame.payload), SHAPE[1] * SHAPE[2]):
                row = frame.payload[i : i + SHAPE[1] * SHAPE[2]]
                self.rows[frame.position + i // len(row)] = row
            self.say(f"ok row {frame.position} {frame.sequence}")
        elif frame.kind == WEIGHTS and self.staged is not None:
            self.staged[frame.position : frame.position + len(frame.payload)] = frame.payload
            if len(self.staged) > ARENA:
                self.block = bytes(self.staged)
            done = frame.position + len(frame.payload) == len(self.staged)
            self.say("ok push done" if done else f"ok weights {frame.position} {frame.sequence}")
            if done:
                self.block = bytes(self.staged)

    def do_ping(self) -> None:
        self.say("ok pong")

    def do_info(self) -> None:
        self.say("board fake", "model tiny", f"id {SHORT_ID}", "input 4x5x1", f"classes {CLASSES}")
        self.say(
            f"arena {ARENA}", f"trainable {len(self.block)}", "baud 115200", "records 6", "api 1", "frame 512"
        )
        self.say("ok info")

    def do_image(self) -> None:
        self.rows = {}
        self.say("ok image")

    def predict(self) -> int | None:
        missing = SHAPE[0] - len(self.rows)
        if missing:
            self.say(f"err image rows missing {missing}")
            return None
        label = self.rows[0][0] % CLASSES
        self.rows = {}
        return label

    def do_infer(self) -> None:
        if (k := self.predict()) is not None:
            logits = [struct.pack(">f", 2.5 * (i == k)).hex() for i in range(CLASSES)]
            self.say("logits " + " ".join(logits), f"class {k}", f"ok infer {k}")

    def do_train(self, label: str) -> None:
        if (k := self.predict()) is not None:
            self.trained += 1
            self.block = bytes((b + int(label)) & 255 for b in self.block)
            if self.trained == self.diverges_at:
                self.say("diverged: back to step 0 at rate 0.5000")
            self.say(f"ok train {label} {k} 0.1250")

    def do_eval(self, label: str) -> None:
        if (k := self.predict()) is not None:
            self.say(f"ok eval {label} {k} 1 1")

    def do_stats(self, word: str = "") -> None:
        self.say("steps 7", "evaluated 0", f"saves {self.saves}", "saves_left 90", "ok stats")

    def do_selftest(self) -> None:
        self.say("kernels ok", "weights 01234567 ok", f"memory {ARENA} bytes ok", "ok selftest")

    def do_save(self) -> None:
        self.saves += 1
        self.say("busy erasing flash, up to 4 s", f"ok save {self.saves}")

    def do_autosave(self, steps: str) -> None:
        self.say(f"ok autosave {steps}")

    def do_forget(self) -> None:
        self.saves = 0
        self.say("ok forget")

    def do_rate(self, factor: str) -> None:
        self.say(f"ok rate {factor}")

    def do_seed(self, number: str) -> None:
        self.say(f"ok seed {number}")

    def do_replay(self, count: str) -> None:
        self.say(f"ok replay {count}")

    def do_keep(self, on: str) -> None:
        self.say(f"ok keep {on}")

    def do_head(self, factor: str) -> None:
        self.say(f"ok head {factor}")

    def do_idle(self, steps: str) -> None:
        self.say(f"ok idle {steps}")

    def do_rehearse(self, count: str) -> None:
        self.say(f"ok rehearse {count}")

    def do_sha(self) -> None:
        self.say(f"ok sha {sha256(self.block).hexdigest()}")

    def do_reset(self) -> None:
        self.block = self.initial
        self.say("ok reset")

    def do_pull(self) -> None:
        self.pulls += 1
        for start in range(0, len(self.block), 16):
            data = bytearray(encode(Frame(DATA, 0, start, self.block[start : start + 16])))
            if self.pulls <= self.corrupt_pulls:
                data[14] ^= 0x40
            self.out += data
        self.say(f"ok pull {len(self.block)} {crc32(self.block):08x}")

    def do_push(self, size: str, check: str, model_id: str) -> None:
        if model_id != SHORT_ID:
            self.say("err push another model")
            return
        self.staged = bytearray(int(size))
        self.say("ok push")
