"""Arrays in .npz files that are not trusted: no pickles, and no more memory than the file has bytes for."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from .archive import damaged, open_archive

KINDS = "biufU"  # numbers and text; objects would be pickles


def read_npz(source: Path | IO[bytes], name: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an .npz by name. FileError where it is damaged, or holds anything but plain arrays.

    name  of the file, for messages
    """
    name = name or str(source)
    with open_archive(source, name, rooted=False) as archive:
        paths = [p for p in archive.paths if p.endswith(".npy")]
        return {p.removesuffix(".npy"): array_of(archive.bytes(p), archive.name, p) for p in paths}


def read_npy(path: Path) -> np.ndarray:
    """The array of an .npy. FileError where it is damaged; OSError where it cannot be read."""
    return array_of(path.read_bytes(), str(path), path.name)


def array_of(data: bytes, name: str, path: str) -> np.ndarray:
    """One .npy. Its header must promise just the bytes that follow it. name, path: for messages"""
    file = io.BytesIO(data)
    try:
        version = npy.read_magic(file)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
        size = int(dtype.itemsize)
        for n in shape:
            size *= n
        follow = len(file.getbuffer()) - file.tell()
        if dtype.kind not in KINDS or min(shape, default=0) < 0 or size != follow:
            raise ValueError(f"{path} is {dtype} {list(shape)} in {follow} bytes")
        flat = np.frombuffer(file.getbuffer(), dtype, offset=file.tell())
        if dtype.kind == "U" and size and _points(flat).max() > sys.maxunicode:
            raise ValueError(f"{path} has numbers of characters that there are not")
        return flat.reshape(shape, order="F" if fortran else "C").copy()
    except Exception as error:  # whatever NumPy makes of a header that is none
        raise damaged(name, error) from error


def _points(text: np.ndarray) -> np.ndarray:
    """The numbers of all characters of an array of text, in which it may have whatever a file says."""
    return text.view(np.dtype("u4").newbyteorder(text.dtype.byteorder))
