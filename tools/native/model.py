"""A generated model, compiled for the host with the kernels it will run on, driven through model_api.h."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from microtrain.base.hostcc import Parts, compiled
from microtrain.base.paths import FIRMWARE
from microtrain.base.plan import FIXED, TFLITE

HOST = Path(__file__).resolve().parent / "host.c"
EXACT = ("-std=c11", "-ffp-contract=off", "-fPIC")  # what the numbers depend on
CHECKED = ("-O2", "-Wall", "-Wextra", "-Werror")
INCLUDE = (FIRMWARE / "include", FIRMWARE / "src/kernels")
Regions = tuple[tuple[int, int], ...]  # (offset, bytes) in the arena


class Sgd(ctypes.Structure):
    """struct sgd."""

    _fields_ = [
        ("lr_weight", ctypes.c_float),
        ("lr_bias", ctypes.c_float),
        ("lr_head", ctypes.c_float),
        ("seed", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
    ]


def kernels() -> tuple[Path, ...]:
    """The C files of the kernels."""
    return tuple(sorted((FIRMWARE / "src/kernels").glob("*.c")))


def compile_model(
    folder: Path,
    into: Path,
    flags: tuple[str, ...] = CHECKED,
    cc: str = "gcc",
    forced: Path | None = None,
    more: tuple[Path, ...] = (),
) -> Path:
    """A shared library, in the folder `into`, of the generated files in `folder`.

    forced   a header that is included before every source
    more     further C files
    Errors   Error without that compiler, or where a file is missing or does not compile
    """
    flags = (*flags, *arithmetic(folder))
    parts = Parts(
        what=f"the model in {folder}",
        name="model",
        sources=(compile_kernels(flags, cc, forced), HOST, folder / "model_weights.c", *more),
        flags=(*EXACT, "-shared", *flags),
        include=(*INCLUDE, folder),
        others=(folder / "model.c",),
        forced=forced,
        hint="convert again",
    )
    return compiled(parts, into, cc)


def arithmetic(folder: Path) -> tuple[str, ...]:
    """The flags that say how a generated model requantizes."""
    header = folder / "model.h"
    text = header.read_text(encoding="utf-8") if header.is_file() else ""
    choices = (choice.upper() for choice in (FIXED, TFLITE))
    return tuple(f"-DMICROTRAIN_{choice}=1" for choice in choices if f"#define MODEL_{choice} " in text)


def compile_kernels(flags: tuple[str, ...], cc: str = "gcc", forced: Path | None = None) -> Path:
    """One object file of all kernels, which is kept for every model. Errors as compile_model()."""
    parts = Parts("the kernels", "kernels", kernels(), (*EXACT, "-r", *flags), INCLUDE, forced=forced)
    return compiled(parts, None, cc, ".o")


class Model:
    """A library that compile_model() made. One at a time in a process: its memory is the library's."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.lib = ctypes.CDLL(str(library.resolve()))
        self.lib.model_logits.restype = ctypes.POINTER(ctypes.c_float)
        self.lib.model_backward.restype = ctypes.c_float
        self.lib.model_backward.argtypes = [ctypes.c_uint32, ctypes.POINTER(Sgd)]
        text = (folder / "model.h").read_text(encoding="utf-8")
        self.trainable_bytes = _define(text, "MODEL_TRAINABLE_BYTES")
        self.init_bytes = _define(text, "MODEL_INIT_BYTES")
        self.arena_bytes = _define(text, "MODEL_ARENA_BYTES")
        self.classes = _define(text, "MODEL_CLASSES")
        names = ("MODEL_HEIGHT", "MODEL_WIDTH", "MODEL_CHANNELS")
        self.shape = tuple(_define(text, name) for name in names)
        self.reset()

    def _symbol(self, name: str) -> int:
        return ctypes.addressof(ctypes.c_uint8.in_dll(self.lib, name))

    def reset(self) -> None:
        """Trainables as after conversion."""
        start = self._symbol("model_trainables")
        ctypes.memset(start, 0, self.trainable_bytes)
        ctypes.memmove(start, self._symbol("model_trainables_init"), self.init_bytes)

    def enter(self, image: np.ndarray) -> None:
        """Let in the rows of a stored image, int8 [h][w][c]."""
        assert image.shape == self.shape
        self.lib.model_start()
        self._take(image)

    def _take(self, rows: np.ndarray) -> None:
        rows = np.ascontiguousarray(rows, np.int8)
        self.lib.host_take(ctypes.c_void_p(rows.ctypes.data), len(rows), rows[0].size if len(rows) else 0)

    def slide(self, rows: np.ndarray) -> None:
        """Behind an inference, of a model with windows that overlap: move on, and let in the new rows."""
        self.lib.model_slide()
        self._take(rows)

    def forward(self, image: np.ndarray, train: bool) -> np.ndarray:
        """Logits of a stored image, int8 [h][w][c]."""
        self.enter(image)
        self.lib.model_forward(int(train))
        return self.logits()

    def front(self, image: np.ndarray) -> None:
        """The first half of the forward pass: what it leaves depends on the stored image alone."""
        self.enter(image)
        self.lib.host_front()

    def rest(self, train: bool) -> np.ndarray:
        """The second half: logits float32 [classes]."""
        self.lib.host_rest(int(train))
        return self.logits()

    def front_of_record(self, image: np.ndarray) -> None:
        """The forward pass up to what a record holds, which is no more than front() leaves."""
        self.enter(image)
        self.lib.model_front()

    def rest_of_record(self, train: bool) -> np.ndarray:
        """The forward pass from there on: logits float32 [classes]."""
        self.lib.model_rest(int(train))
        return self.logits()

    def through_record(self, size: int) -> None:
        """Put what front_of_record() left into a record of so many bytes, and back: a code may change it."""
        record = (ctypes.c_uint8 * size)()
        self.lib.model_keep(record)
        self.lib.model_recall(record)

    def logits(self) -> np.ndarray:
        return np.array(self.lib.model_logits()[: self.classes], np.float32)

    def backward(self, label: int | np.ndarray, sgd: Sgd) -> float:
        """Loss, backward pass and update for the image of the last forward pass with train.

        label  or the target, where the model learns by one: float32 [targets]
        """
        if isinstance(label, np.ndarray):
            assert label.size == self.classes
            target = np.ascontiguousarray(label, np.float32)
            ctypes.memmove(self._symbol("model_target"), target.ctypes.data, target.nbytes)
            label = 0
        return float(self.lib.model_backward(label, ctypes.byref(sgd)))

    def imprint_clear(self) -> None:
        """Begin the statistics of features anew. Only where the model was converted with them."""
        self.lib.model_imprint_clear()

    def imprint_add(self, label: int) -> None:
        """Add the features of the last forward pass without train."""
        self.lib.model_imprint_add(label)

    def imprint_solve(self) -> int:
        """Make the head of the statistics; returns how many classes it knows."""
        return int(self.lib.model_imprint_solve())

    def arena(self, offset: int, size: int) -> bytes:
        """What the last step left in some bytes of the arena."""
        return ctypes.string_at(self._symbol("model_arena") + offset, size)

    def keep(self, regions: Regions) -> np.ndarray:
        """Copy of the regions of the arena, uint8 [sum of their bytes]."""
        return np.frombuffer(b"".join(self.arena(*region) for region in regions), np.uint8)

    def restore(self, regions: Regions, kept: np.ndarray) -> None:
        """Put back what keep() returned."""
        source = kept.ctypes.data
        for offset, size in regions:
            ctypes.memmove(self._symbol("model_arena") + offset, source, size)
            source += size

    def load(self, trainables: bytes) -> None:
        """Put back what trainables() returned."""
        assert len(trainables) == self.trainable_bytes
        ctypes.memmove(self._symbol("model_trainables"), trainables, len(trainables))

    def trainables(self) -> bytes:
        return ctypes.string_at(self._symbol("model_trainables"), self.trainable_bytes)


def _define(text: str, name: str) -> int:
    return int(next(line.split()[2] for line in text.splitlines() if line.startswith(f"#define {name} ")))
