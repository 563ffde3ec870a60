"""What to say where reading a file fails, in whatever way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .archive import reason
from .errors import Error, FileError


@contextmanager
def reading(kind: type[Error], sentence: Callable[[str], str]) -> Iterator[None]:
    """Turns what a damaged file leads to, any exception, into one error; what is a sentence stays one.

    kind      of error to raise
    sentence  what it says, made of a line about what went wrong
    """
    try:
        yield
    except FileError as error:
        raise kind(str(error)) from error
    except Error:
        raise
    except Exception as error:
        raise kind(sentence(reason(error))) from error


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that is too long for the system is none."""
    try:
        return path.is_file()
    except OSError:
        return False
