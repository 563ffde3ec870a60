"""What to say where reading a file fails, in whatever way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .archive import reason
from .errors import Error


@contextmanager
def reading(kind: type[Error], sentence: Callable[[str], str]) -> Iterator[None]:
    """Turns what a damaged file leads to, any exception, into one error; errors that say so already pass.

    kind      of error to raise
    sentence  what it says, made of a line about what went wrong
    """
    try:
        yield
    except Error:
        raise
    except Exception as error:
        raise kind(sentence(reason(error))) from error
