"""The errors that a user can mend."""

from __future__ import annotations

import reprlib


def short(value: object) -> str:
    """A value for a sentence, however large it is."""
    return _SHORT.repr(value)


LONGEST_NAME = 60
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST_NAME


def printable(text: str) -> str:
    """The text with ? for every character that a terminal obeys or that cannot be seen."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def one_line(name: str) -> str:
    """A name from a file, for a sentence: its end, which tells most, without what cannot be printed."""
    return "".join(c if c.isprintable() else "?" for c in name[-LONGEST_NAME:])


class Error(Exception):
    """One sentence that names the thing and the way out; commands print it and exit with 1.

    Names in it may come from files that are not trusted, so what a terminal obeys is left out of the text.
    """

    def __str__(self) -> str:
        return printable(super().__str__())


class FileError(Error):
    """A file is damaged, hostile, or not of the kind that was expected."""
