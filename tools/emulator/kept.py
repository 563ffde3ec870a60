"""An emulated board that stays on from one command to the next: its flash and its SRAM are in a file.

The file lies beside the firmware's ELF and is replaced as a whole. A new firmware is uploaded to the board in
it, as to a real one: sectors that the ELF does not touch keep their content, checkpoints among them.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import mmap
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import unicorn

from microtrain.base.errors import Error, FileError
from microtrain.base.files import replacing
from microtrain.base.npz import read_npz
from microtrain.base.reading import reading

from . import snapshot
from .board import Board
from .errors import EmulatorError
from .memory import FLASH_BASE
from .port import EmulatedPort

REST_S = 60.0  # virtual seconds in which a command that was cut off comes to its end
EVERY_S = 60.0  # of the host's time between two copies, for a process that is killed
FORMAT = 1
OPEN = "in use"  # in the lock file while a command runs


class KeptPort(EmulatedPort):
    """The serial line of the board that is kept for a firmware.

    fresh   forget the board that was kept, and take a new one
    path    the file; told: one line about it and what the board begins with
    Errors  EmulatorError where another process has it, or it is of another chip; Error where it is damaged
    """

    def __init__(self, elf: Path, fresh: bool = False) -> None:
        self.path = elf.with_suffix(".board")
        board = Board(elf)
        self._lock: IO[str] | None = locked(self.path)
        try:
            killed = self._lock.read() == OPEN
            what = "a new board" if fresh or not self.path.exists() else restore(board, self.path)
            mark(self._lock, OPEN)
        except BaseException:
            self._lock.close()
            raise
        if killed:
            what += ", as it was at most a minute before the last command was killed"
        self.told = f"emulated board: {what}, kept in {self.path}"
        self._failed = False
        self._copied = time.monotonic()
        super().__init__(board)

    def read(self, size: int, timeout_s: float) -> bytes:
        try:
            with uninterrupted():
                data = super().read(size, timeout_s)
        except Error:
            self._failed = True
            raise
        if time.monotonic() - self._copied > EVERY_S and snapshot.at_rest(self.board):
            self._keep()
        return data

    def close(self) -> None:
        """Let the board come to rest and keep it.

        Errors   Error where the file cannot be written
        """
        super().close()
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        with lock:
            if not self._failed and not snapshot.at_rest(self.board):
                self._rest()
            self._keep()
            mark(lock, "")

    def _rest(self) -> None:
        """Finish what the command that was cut off has begun."""
        try:
            with uninterrupted():
                self.board.run(seconds=REST_S, stop_on_sleep=True)
        except Error:
            self._failed = True
        self.board.take_output()

    def _keep(self) -> None:
        keep(self.board, self.path, on=not self._failed and snapshot.at_rest(self.board))
        self._copied = time.monotonic()


def keep(board: Board, path: Path, on: bool) -> None:
    """Write a board to its file.

    on       with its SRAM and all that its next instruction depends on; otherwise the power is cut
    Errors   FileError where the file cannot be written
    """
    about: dict[str, Any] = {"format": FORMAT, "chip": board.chip.name, "program": program(board)}
    arrays = {"flash": np.frombuffer(board.flash_content(), np.uint8)}
    if on:
        about |= {"model": model(), "machine": snapshot.take(board)}
        arrays["sram"] = np.frombuffer(board.memory.sram[:], np.uint8)
        if board.memory.sdram is not None and (sdram := board.memory.sdram[:]).strip(b"\0"):
            arrays["sdram"] = np.frombuffer(sdram, np.uint8)
    with replacing(path) as part, part.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]


def read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What keep() wrote: about the board, and the content of its memories.

    Errors   EmulatorError where the file is damaged
    """
    with reading(EmulatorError, lambda reason: damaged(path, reason)):
        try:
            arrays = read_npz(path)
        except FileError as error:
            raise ValueError(str(error)) from error
        about = json.loads(str(arrays.pop("about")))
        if about["format"] != FORMAT or not isinstance(about["chip"], str):
            raise ValueError(f"format {about['format']!r:.20}")
        return about, {name: array.astype(np.uint8).tobytes() for name, array in arrays.items()}


def restore(board: Board, path: Path) -> str:
    """Bring a board that was just made into the state of the kept one; says in words what that is.

    Errors   EmulatorError where it is of another chip, or the file is damaged
    """
    about, memories = read(path)
    if about["chip"] != board.chip.name:
        raise EmulatorError(
            f"{path} is a board with the chip {about['chip']:.20}, and the firmware is for the "
            f"{board.chip.name}: --fresh takes a new one."
        )
    with reading(EmulatorError, lambda reason: damaged(path, reason)):
        return resume(board, about, memories)


def damaged(path: Path, why: str) -> str:
    return f"the emulated board in {path} is damaged ({why}): --fresh takes a new one."


def resume(board: Board, about: dict[str, Any], memories: dict[str, bytes]) -> str:
    """restore() of what the file holds: what keep() wrote."""
    if about["program"] != program(board):
        upload(board, memories["flash"])
        return "with the new firmware, and the checkpoints that were in its flash"
    fill(board.memory.flash, memories["flash"])
    if "machine" not in about:
        return "switched on again with what its flash holds, as its last command failed"
    if about["model"] != model():
        return "switched on again with what its flash holds, as microtrain has changed"
    fill(board.memory.sram, memories["sram"])
    if board.memory.sdram is not None and "sdram" in memories:
        fill(board.memory.sdram, memories["sdram"])
    snapshot.put(board, about["machine"])
    return "still on"


def fill(memory: mmap.mmap, content: bytes) -> None:
    """ValueError where it has another size."""
    if len(content) != len(memory):
        raise ValueError(f"{len(content)} bytes for a memory of {len(memory)}")
    memory[:] = content


def upload(board: Board, flash: bytes) -> None:
    """Give a board with nothing but its firmware in flash what another one has in the other sectors."""
    written = [(a - FLASH_BASE, a - FLASH_BASE + len(data)) for a, data in board.image.elf.segments]
    if len(flash) != board.chip.flash_size:
        raise ValueError(f"{len(flash)} bytes of flash")
    for start, size in board.chip.places:
        if not any(first < start + size and start < end for first, end in written):
            board.memory.flash[start : start + size] = flash[start : start + size]


def program(board: Board) -> str:
    """SHA-256 of what an ELF puts into flash."""
    state = hashlib.sha256()
    for address, data in sorted(board.image.elf.segments):
        state.update(f"{address} {len(data)} ".encode() + data)
    return state.hexdigest()


@functools.cache
def model() -> str:
    """SHA-256 of this emulator: the SRAM of a board that another one ran is not taken over."""
    state = hashlib.sha256(unicorn.__version__.encode())
    here = Path(__file__).parent
    for path in sorted([*here.glob("**/*.py"), *here.glob("*.[ch]")]):
        state.update(path.read_bytes())
    return state.hexdigest()


def locked(path: Path) -> IO[str]:
    """A file beside `path` that only this process has open, until it is closed.

    Errors   EmulatorError where another process has it, or it cannot be made
    """
    name = path.with_name(f"{path.name}.lock")
    try:
        lock = name.open("a+", encoding="utf-8")
    except OSError as error:
        raise EmulatorError(
            f"the emulated board cannot be kept in {path} ({error.strerror}): "
            "copy the ELF to a folder of your own."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise EmulatorError(
            f"the emulated board in {path} is in use: wait until the other command ends."
        ) from error
    lock.seek(0)
    return lock


def mark(lock: IO[str], text: str) -> None:
    """Leave a text in the lock file."""
    lock.seek(0)
    lock.truncate()
    lock.write(text)
    lock.flush()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is done: one in the middle of an instruction would leave half a board."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt
