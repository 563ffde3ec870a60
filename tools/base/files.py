"""Writing a file so that nothing half-written ever bears its name."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from microtrain.base.errors import FileError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` when the block ends well and vanishes otherwise.

    Errors   FileError where the file cannot be written
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except (OSError, RuntimeError) as error:
        raise FileError(f"{path} cannot be written ({getattr(error, 'strerror', None) or error}).") from error
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, document: Any) -> None:
    """Write a document as JSON. Errors: FileError where the file cannot be written"""
    with replacing(path) as part:
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def unpacked(archive: Path, folder: Path) -> Path:
    """The one folder that a tar archive holds, as `folder`; unpacked where there is none yet. Of several
    processes that unpack it at once the first one's stays.

    Errors   FileError where the archive is missing or damaged
    """
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    try:
        with tarfile.open(archive) as file:
            if hasattr(tarfile, "data_filter"):  # not in Python 3.11 before 3.11.4
                file.extraction_filter = tarfile.data_filter
            file.extractall(part)
        next(p for p in part.iterdir() if p.is_dir()).replace(folder)
    except (OSError, tarfile.TarError, StopIteration) as error:
        if folder.is_dir():
            return folder
        raise FileError(
            f"{archive} cannot be unpacked ({error}): MICROTRAIN_DATA names the folder it is in."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder
