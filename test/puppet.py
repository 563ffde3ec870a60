"""The firmware around a board whose troubles a test chooses, as a library (fixtures/puppet.c)."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterable
from pathlib import Path

from pio_build import NULL_MODEL, ROOT

from microtrain.base.hostcc import Parts, compiled

LINE_BYTES, SLOTS, SLOT_BYTES = 1 << 16, 2, 4096
ERASE_FAILS, STUCK, BIT = 1, 2, 3
U32, U8 = ctypes.c_uint32, ctypes.c_uint8
STRICT = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off")


class State(ctypes.Structure):
    """struct puppet."""

    _fields_ = (
        *((name, U32) for name in ("millis", "baud", "lost", "led", "button", "resets")),
        *((name, U32) for name in ("chunk", "baud_bad", "crashed")),
        *((name, U32 * SLOTS) for name in ("slot_bytes", "trouble", "bad")),
        *((name, U32) for name in ("in_size", "in_at", "out_size")),
        ("input", U8 * LINE_BYTES),
        ("output", U8 * LINE_BYTES),
        ("flash", (U8 * SLOT_BYTES) * SLOTS),
    )


def build(folder: Path) -> ctypes.CDLL:
    """Compile the firmware without its boards, with the null model and the puppet."""
    firmware = ROOT / "firmware/src"
    others = {firmware / "board", firmware / "main.c"}
    sources = [p for p in sorted(firmware.rglob("*.c")) if not others & {p, *p.parents}]
    sources += [*sorted(NULL_MODEL.glob("*.c")), ROOT / "test/fixtures/puppet.c"]
    include = (ROOT / "firmware/include", firmware / "kernels", NULL_MODEL)
    parts = Parts("the puppet", "puppet", tuple(sources), (*STRICT, "-shared", "-fPIC"), include)
    return ctypes.CDLL(str(shutil.copy(compiled(parts, cc="gcc"), folder / "puppet.so")))


class Puppet:
    """One board: erased flash, a good line. `state` is what a test changes and looks at."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.state = State.in_dll(library, "puppet")
        assert library.puppet_size() == ctypes.sizeof(State)
        ctypes.memset(ctypes.addressof(self.state), 0, ctypes.sizeof(State))
        self.state.chunk = LINE_BYTES
        for slot in range(SLOTS):
            self.state.slot_bytes[slot] = SLOT_BYTES
            ctypes.memset(self.state.flash[slot], 0xFF, SLOT_BYTES)

    def start(self) -> list[str]:
        """Power on; the lines of the banner."""
        self.state.out_size = 0
        self.library.puppet_start()
        return self.said()

    def send(self, data: bytes, poll: bool = True) -> None:
        """Let bytes arrive; the firmware looks at them at once unless `poll` is off."""
        waiting = bytes(self.state.input[self.state.in_at : self.state.in_size])
        arrived = waiting + data
        ctypes.memmove(self.state.input, arrived, len(arrived))
        self.state.in_at, self.state.in_size = 0, len(arrived)
        if poll:
            self.poll()

    def poll(self) -> bool:
        """One turn of the main loop. Whether the board restarted in it."""
        return bool(self.library.puppet_poll())

    def wait(self, milliseconds: int) -> None:
        """Let time pass, the firmware looking again at its end."""
        self.state.millis += milliseconds
        self.poll()

    def raw(self) -> bytes:
        """What was said since the last look."""
        size, self.state.out_size = self.state.out_size, 0
        return ctypes.string_at(self.state.output, size)

    def said(self) -> list[str]:
        return self.raw().decode("ascii").split("\r\n")[:-1]

    def ask(self, line: str) -> list[str]:
        """The lines of the answer to a line."""
        self.send(line.encode() + b"\n")
        return self.said()

    def train(self, steps: int) -> None:
        for n in range(steps):
            assert self.ask(f"pattern {n}") == ["ok pattern"]
            assert self.ask(f"train {n % 3}")[-1].startswith("ok")

    def slots(self) -> list[bytes]:
        return [bytes(self.state.flash[slot]) for slot in range(SLOTS)]

    def trouble(self, *kinds: int) -> None:
        """What is wrong with each slot from now on."""
        for slot, kind in enumerate(kinds):
            self.state.trouble[slot] = kind


def acknowledged(lines: Iterable[str]) -> list[str]:
    """Which of the answers are `ok`."""
    return [line for line in lines if line.startswith("ok")]
