"""Files that would run code, or take the machine's memory, where they are read carelessly.

Annotations stay real: torch.jit.script does not take them as text.
"""

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.trace,))


class Tiny(nn.Module):
    """A network that converts: 1x8x8 in, three classes out."""

    shape = (1, 8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


class Writer(nn.Module):
    """TorchScript that writes a file when torch.jit.load restores its state."""

    path: str

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.head = nn.Linear(64, 3)

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.path = state[0]
        self.training = state[1]
        torch.save(torch.zeros(1), state[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1))


class WriterOutside(nn.Module):
    """The same as a part of a network that is otherwise in order."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.net = Tiny()
        self.extra = Writer(path)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def scripted(path: Path, net: nn.Module) -> Path:
    torch.jit.save(torch.jit.script(net.eval()), path)
    return path


def exported(path: Path, net: nn.Module | None = None) -> Path:
    torch.export.save(torch.export.export((net or Tiny()).eval(), (torch.zeros(1, 1, 8, 8),)), path)
    return path


def with_pickle(path: Path, part: str, trace: Path) -> Path:
    """An exported program with a bomb in the place of one of its parts."""
    good = exported(path.with_suffix(".good.pt"))
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            bad = part in name and not name.endswith(".json")
            new.writestr(name, pickle.dumps(Bomb(trace)) if bad else old.read(name))
    return path


def zip_bomb(path: Path, size: int = 3 << 30) -> Path:
    """An export with an entry that unpacks to `size` bytes."""
    exported(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, allowZip64=True) as file:
        root = file.namelist()[0].partition("/")[0]
        with file.open(f"{root}/extra/microtrain.json", "w", force_zip64=True) as entry:
            for _ in range(size >> 20):
                entry.write(bytes(1 << 20))
    return path


def huge_npz(path: Path, name: str = "images", shape: str = "(1125899906842624, 3)") -> Path:
    """An array whose header promises 3 PiB."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (117 - len(header)) + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{name}.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
        )
    return path


def pickled_npz(path: Path, trace: Path, name: str = "images") -> Path:
    np.savez(path, **{name: np.array([Bomb(trace)], dtype=object)}, allow_pickle=True)
    return path


def saved(value: Callable[[], object] | object) -> bytes:
    """What torch.save makes of a value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
