"""A generated model, compiled for the host with the kernels it will run on, driven through model_api.h."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from .emit import Output

FIRMWARE = Path(__file__).resolve().parents[2] / "firmware"
FLAGS = ["-std=c11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]


class Sgd(ctypes.Structure):
    """struct sgd."""

    _fields_ = [
        ("lr_weight", ctypes.c_float),
        ("lr_bias", ctypes.c_float),
        ("lr_head", ctypes.c_float),
        ("seed", ctypes.c_uint32),
        ("step", ctypes.c_uint32),
    ]


class NativeModel:
    """Compiles the generated files in `folder` and loads them."""

    def __init__(self, output: Output, folder: Path, compiler: str = "gcc") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in output.files.items():
            (folder / name).write_text(text)
        library = folder / f"model-{compiler}.so"
        sources = [
            *sorted((FIRMWARE / "src/kernels").glob("*.c")),
            folder / "model.c",
            folder / "model_weights.c",
        ]
        include = [f"-I{FIRMWARE / 'include'}", f"-I{FIRMWARE / 'src/kernels'}", f"-I{folder}"]
        subprocess.run(
            [compiler, *FLAGS, *include, *map(str, sources), "-lm", "-o", str(library)], check=True
        )
        self.lib = ctypes.CDLL(str(library))
        self.lib.model_row.restype = ctypes.c_void_p
        self.lib.model_logits.restype = ctypes.POINTER(ctypes.c_float)
        self.lib.model_backward.restype = ctypes.c_float
        self.lib.model_backward.argtypes = [ctypes.c_uint32, ctypes.POINTER(Sgd)]
        text = output.files["model.h"]
        self.trainable_bytes = _define(text, "MODEL_TRAINABLE_BYTES")
        self.init_bytes = _define(text, "MODEL_INIT_BYTES")
        self.classes = _define(text, "MODEL_CLASSES")
        names = ("MODEL_HEIGHT", "MODEL_WIDTH", "MODEL_CHANNELS")
        self.shape = tuple(_define(text, name) for name in names)
        self.reset()

    def _symbol(self, name: str) -> int:
        return ctypes.addressof(ctypes.c_uint8.in_dll(self.lib, name))

    def reset(self) -> None:
        start = self._symbol("model_trainables")
        ctypes.memset(start, 0, self.trainable_bytes)
        ctypes.memmove(start, self._symbol("model_trainables_init"), self.init_bytes)

    def forward(self, image: np.ndarray, train: bool) -> np.ndarray:
        """Logits of a stored image, int8 [h][w][c]."""
        assert image.shape == self.shape
        self.lib.model_start()
        for row in np.ascontiguousarray(image, np.int8):
            ctypes.memmove(self.lib.model_row(), row.ctypes.data, row.size)
            self.lib.model_take_row()
        self.lib.model_forward(int(train))
        return np.array(self.lib.model_logits()[: self.classes], np.float32)

    def backward(self, label: int, sgd: Sgd) -> float:
        return float(self.lib.model_backward(label, ctypes.byref(sgd)))

    def arena(self, offset: int, size: int) -> bytes:
        """What the last step left in some bytes of the arena."""
        return ctypes.string_at(self._symbol("model_arena") + offset, size)

    def trainables(self) -> bytes:
        return ctypes.string_at(self._symbol("model_trainables"), self.trainable_bytes)


def _define(text: str, name: str) -> int:
    return int(next(line.split()[2] for line in text.splitlines() if line.startswith(f"#define {name} ")))
