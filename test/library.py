"""An exported library on this machine: its functions by name, and a flash whose troubles a test chooses."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from microtrain.base.objects import objects
from microtrain.convert.emit.code import generate
from microtrain.convert.export.write import export
from microtrain.convert.pipeline import Compiled

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Werror")
OK, NONE, MORE = 0, 1, 2
ARGUMENT, INSTANCE, MEMORY, ALIGNMENT, BUSY, INPUT, ORDER, LABEL = range(-1, -9, -1)
NO_STATISTICS, EMPTY, FULL, OTHER_MODEL, FORMAT, SLOT, STORAGE = range(-9, -16, -1)
KERNEL, TABLES = -16, -17
TASK = -19
NO_RECORDS = -21
WORDS = 36

u32, pointer = ctypes.c_uint32, ctypes.c_void_p


class Memory(ctypes.Structure):
    _fields_ = (("arena", pointer), ("arena_bytes", u32), ("trainables", pointer), ("trainable_bytes", u32))


class Sizes(ctypes.Structure):
    _fields_ = tuple(
        (name, u32)
        for name in (
            *("arena_bytes", "trainable_bytes", "slot_bytes", "height", "width", "channels"),
            *("row_bytes", "input_bytes", "classes", "targets", "sound_samples"),
            *("hop_rows", "hop_samples", "record_bytes", "memory_bytes"),
        )
    )


class State(ctypes.Structure):
    _fields_ = (
        ("rows_missing", u32),
        ("steps", u32),
        ("mean_loss", ctypes.c_float),
        ("looks", u32),
        ("diverged", ctypes.c_int),
        ("under_way", ctypes.c_int),
        ("records", u32),
    )


READ = ctypes.CFUNCTYPE(ctypes.c_int, pointer, u32, u32, pointer, u32)
ERASE = ctypes.CFUNCTYPE(ctypes.c_int, pointer, u32)
SYNC = ctypes.CFUNCTYPE(ctypes.c_int, pointer)


class Storage(ctypes.Structure):
    _fields_ = (
        ("context", pointer),
        ("read", READ),
        ("program", READ),
        ("erase", ERASE),
        ("sync", SYNC),
        ("slot_bytes", u32),
        ("program_bytes", u32),
        ("clears", ctypes.c_int),
    )


@dataclass
class Flash:
    """Two slots of NOR flash. Once `fails` calls have gone well, one fails; with `cut` all that follow too.

    A program or an erase that fails has done half of its work; what a failed read leaves behind looks blank.
    """

    slot_bytes: int
    unit: int = 4
    clears: bool = True
    fails: int | None = None
    cut: bool = False
    slots: list[bytearray] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self.slots = self.slots or [bytearray(b"\xff" * self.slot_bytes) for _ in range(2)]
        self.functions = (READ(self.read), READ(self.program), ERASE(self.erase), SYNC(self.sync))
        self.storage = Storage(None, *self.functions, self.slot_bytes, self.unit, int(self.clears))

    def fail(self) -> bool:
        call, self.calls = self.calls, self.calls + 1
        return self.fails is not None and (call >= self.fails if self.cut else call == self.fails)

    def read(self, _context: int, slot: int, offset: int, to: int, size: int) -> int:
        assert offset + size <= self.slot_bytes, "read past the slot"
        if self.fail():
            ctypes.memset(to, 0xFF, size)
            return 1
        ctypes.memmove(to, bytes(self.slots[slot][offset : offset + size]), size)
        return 0

    def program(self, _context: int, slot: int, offset: int, data: int, size: int) -> int:
        assert offset % self.unit == 0 and size % self.unit == 0 and offset + size <= self.slot_bytes
        new, old = ctypes.string_at(data, size), bytes(self.slots[slot][offset : offset + size])
        cleared = self.clears and not any(new)
        assert cleared or old == b"\xff" * size, "programmed twice"
        failed, alive = self.fail(), self.fails is None or self.calls - 1 <= self.fails
        done = (size // 2 if alive else 0) if failed else size
        self.slots[slot][offset : offset + done] = new[:done]
        return int(failed)

    def erase(self, _context: int, slot: int) -> int:
        failed, alive = self.fail(), self.fails is None or self.calls - 1 <= self.fails
        done = (self.slot_bytes // 2 if alive else 0) if failed else self.slot_bytes
        self.slots[slot][:done] = b"\xff" * done
        return int(failed)

    def sync(self, _context: int) -> int:
        return int(self.fail())


def written(compiled: Compiled, name: str, folder: Path, generated: Path) -> Path:
    """The library with a model of this name."""
    generated.mkdir(parents=True, exist_ok=True)
    for file, text in generate(compiled, "a test").files.items():
        (generated / file).write_text(text)
    export(folder, generated, name)
    return folder


def sources(folder: Path) -> list[Path]:
    return [*sorted((folder / "src").glob("*.c")), *sorted((folder / "src/microtrain").glob("*.c"))]


def shared(folder: Path, cc: str = "gcc", flags: Sequence[str] = ("-O2",)) -> ctypes.CDLL:
    """All of a library as one that this machine loads."""
    made = folder / f"library-{cc}.so"
    asked = (*STRICT, *flags, "-fPIC", "-Isrc")
    parts = objects(cc, asked, sources(folder), folder, folder / f"objects-{cc}")
    subprocess.run([cc, *flags, "-shared", *map(str, parts), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


class Learner:
    """An instance of a model. Its memory is its own."""

    def __init__(self, lib: ctypes.CDLL, name: str) -> None:
        self.lib = lib
        self.model = ctypes.addressof(ctypes.c_uint8.in_dll(lib, name))
        self.sizes = Sizes()
        lib.microtrain_text.restype = ctypes.c_char_p
        assert lib.microtrain_sizes(pointer(self.model), ctypes.byref(self.sizes)) == OK
        self.words = (ctypes.c_uint64 * WORDS)()
        self.arena = (ctypes.c_uint64 * (self.sizes.arena_bytes // 8 + 1))()
        self.learned = (ctypes.c_uint64 * (self.sizes.trainable_bytes // 8 + 1))()
        addresses = ctypes.addressof(self.arena), ctypes.addressof(self.learned)
        self.memory = Memory(addresses[0], self.sizes.arena_bytes, addresses[1], self.sizes.trainable_bytes)
        assert lib.microtrain_init(self.words, pointer(self.model), ctypes.byref(self.memory)) == OK

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.sizes.height, self.sizes.width, self.sizes.channels

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self.lib, f"microtrain_{name}")(self.words, *arguments))

    def feed(self, pixels: np.ndarray) -> int:
        assert pixels.shape == self.shape and pixels.dtype == np.uint8
        return self.call("feed", np.ascontiguousarray(pixels).ctypes.data_as(pointer))

    def train(self, pixels: np.ndarray, label: int) -> float:
        loss = ctypes.c_float()
        assert self.feed(pixels) == OK
        assert self.call("train", u32(label), ctypes.byref(loss)) == OK
        return loss.value

    def feed_in_pieces(self, pixels: np.ndarray, work: int) -> int:
        """How many pieces it took."""
        rows = [np.ascontiguousarray(row) for row in pixels]
        pieces = 0
        for y, row in enumerate(rows):
            assert self.call("feed_row_begin", u32(y), row.ctypes.data_as(pointer)) == OK
            pieces += self.finish(work)[1]
        return pieces

    def finish(self, work: int) -> tuple[float, int]:
        """The loss, and how many pieces it took."""
        loss = ctypes.c_float()
        for pieces in range(1, 1_000_000):
            status = self.call("step", u32(work), ctypes.byref(loss))
            if status != MORE:
                assert status == OK
                return loss.value, pieces
        raise AssertionError("a step never ends")

    def train_in_pieces(self, pixels: np.ndarray, label: int, work: int) -> tuple[float, int]:
        """The loss, and how many pieces it took."""
        fed = self.feed_in_pieces(pixels, work)
        assert self.call("train_begin", u32(label)) == OK
        loss, pieces = self.finish(work)
        return loss, fed + pieces

    def scores_in_pieces(self, pixels: np.ndarray, work: int) -> np.ndarray:
        scores, label = np.zeros(self.sizes.classes, np.float32), u32()
        self.feed_in_pieces(pixels, work)
        assert self.call("predict_begin") == OK
        self.finish(work)
        assert self.call("scores", scores.ctypes.data_as(pointer), ctypes.byref(label)) == OK
        assert label.value == scores.argmax()
        return scores

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        scores, label = np.zeros(self.sizes.classes, np.float32), u32()
        assert self.feed(pixels) == OK
        assert self.call("predict", scores.ctypes.data_as(pointer), ctypes.byref(label)) == OK
        assert label.value == scores.argmax()
        return scores

    def remember(self, records: int) -> int:
        """Give the instance memory for so many."""
        size = self.sizes.memory_bytes + (records - self.sizes.classes) * self.sizes.record_bytes
        self.remembered = (ctypes.c_uint64 * (size // 8 + 1))()
        return self.call("remember", self.remembered, u32(size))

    def recall(self, left: int = 1, of: int = 1) -> float:
        loss = ctypes.c_float()
        assert self.call("recall", u32(left), u32(of), ctypes.byref(loss)) == OK
        return loss.value

    def recall_in_pieces(self, left: int, of: int, work: int) -> float:
        assert self.call("recall_begin", u32(left), u32(of)) == OK
        return self.finish(work)[0]

    def state(self) -> State:
        state = State()
        assert self.call("state", ctypes.byref(state)) == OK
        return state

    def trainables(self) -> bytes:
        return ctypes.string_at(self.learned, self.sizes.trainable_bytes)

    def storage(self, name: str, flash: Flash) -> int:
        """save, load or forget."""
        return self.call(name, ctypes.byref(flash.storage))


def images(shape: tuple[int, int, int], count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)
