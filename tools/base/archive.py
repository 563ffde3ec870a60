"""Zip archives that are not trusted: bounded in memory, nothing is written to disk."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import FileError

MAX_BYTES = 1 << 30  # unpacked, all files together
MAX_FILES = 1 << 16
LONGEST = 120  # characters of what a file says, in a sentence
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others allocate what the file asks for


class Archive:
    """The files of an archive, by their path below its root folder, or by their whole path with `rooted` off.

    Each is read at most once. The same object is returned again, so that tensors of one storage share memory.
    """

    def __init__(self, file: zipfile.ZipFile, name: str, rooted: bool = True) -> None:
        self.name = name
        self._file = file
        self._entries = {(p.partition("/")[2] if rooted else "") or p: p for p in file.namelist()}
        self._read: dict[str, bytes] = {}
        check_size(file.infolist(), name)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def bytes(self, path: str) -> bytes:
        """One file. FileError where it is missing or damaged."""
        if path not in self._entries:
            raise FileError(f"{self.name} lacks {path[:LONGEST]}; save it again")
        if path not in self._read:
            try:
                self._read[path] = self._file.read(self._entries[path])
            except Exception as error:  # zipfile, zlib and struct have their own
                raise damaged(self.name, error) from error
        return self._read[path]

    def json(self, path: str) -> Any:
        """One file of JSON. FileError as bytes(), or where it is none."""
        try:
            return json.loads(self.bytes(path))
        except (ValueError, RecursionError) as error:
            raise damaged(self.name, error) from error


@contextmanager
def open_archive(source: Path | IO[bytes], name: str, rooted: bool = True) -> Iterator[Archive]:
    """The archive in a file. FileError where it is no zip file, or larger than MAX_BYTES."""
    try:
        file = zipfile.ZipFile(source)
    except Exception as error:  # a damaged directory may raise anything
        raise damaged(name, error) from error
    with file:
        yield Archive(file, name, rooted)


def check_size(entries: list[zipfile.ZipInfo], name: str) -> None:
    """FileError where the files unpack to more than MAX_BYTES, or by a method that cannot be bounded."""
    total = sum(entry.file_size for entry in entries)
    if total > MAX_BYTES or len(entries) > MAX_FILES:
        raise FileError(
            f"{name} would unpack to {len(entries)} files of {total >> 20} MB together; "
            f"{MAX_FILES} files and {MAX_BYTES >> 20} MB are the most that is read"
        )
    odd = next((entry for entry in entries if entry.compress_type not in METHODS), None)
    if odd is not None:
        raise FileError(f"{name} is packed by a method other than store and deflate; save it again")


def damaged(name: str, error: BaseException) -> FileError:
    """What to say of a file whose reading failed in whatever way."""
    return FileError(f"{name} is a damaged file ({reason(error)}); save it again")


def reason(error: BaseException) -> str:
    """The first line of an error, cut to a length that a sentence bears."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
