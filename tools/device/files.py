"""Writing a file so that nothing half-written ever bears its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from device.errors import DeviceError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the name `path` when the block ends well and vanishes otherwise.

    Errors   DeviceError where the file cannot be written
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except (OSError, RuntimeError) as error:
        raise DeviceError(
            f"{path} cannot be written ({getattr(error, 'strerror', None) or error})."
        ) from error
    finally:
        part.unlink(missing_ok=True)
