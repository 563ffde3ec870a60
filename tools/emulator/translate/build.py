"""Which functions of a firmware are translated, when, and where the result is kept."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error
from microtrain.base.files import replacing
from microtrain.base.hostcc import Parts, cache_folder, compiled, compiler

from ..counters import Counters
from ..memory import FLASH_BASE
from ..native import FUNCTIONS_MAX
from .blocks import Read, Span, Translator
from .source import source

LONG = 1_000_000_000  # instructions after which a compiler is worth its time
SHORT = 20_000_000  # after which what is compiled already is looked for; enough to tell what is hot
SHARE = 1e-4  # of all instructions that a hot function has at least
OFTEN = 2e-6  # or calls of it, an instruction
FLAGS = (
    "-std=c11",
    "-O1",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
)
HERE = Path(__file__).parent  # guest.h


class Translate(Enum):
    """When to translate."""

    WHEN_LONG = "when long"  # beside the run, once that has taken long; at once where it is compiled already
    AT_ONCE = "at once"  # as soon as it is known what is hot, and wait for it
    NEVER = "never"


class Translation:
    """A firmware's hot functions, compiled.

    functions   of the firmware
    read        its code
    strict      Unicorn looks at each instruction: its blocks are shorter then
    """

    def __init__(self, functions: Sequence[Span], read: Read, when: Translate, strict: bool) -> None:
        self._functions = sorted({f for f in functions if f.size}, key=lambda f: f.start)
        self._read, self._when, self._strict = read, when, strict
        self._looked = False
        self._thread: threading.Thread | None = None
        self._made: Path | None = None
        self._library: ctypes.CDLL | None = None

    def look(self, ran: int, counters: Counters, caches: bool) -> ctypes.CDLL | None:
        """The compiled translation when it is there, once; to be asked now and then.

        ran   instructions so far
        """
        if self._library is not None or ran < SHORT:
            return None
        if not self._looked:
            self._looked = True
            place = self._place(caches)
            self._made = place if place.is_file() else None
        due = ran >= LONG or self._when is Translate.AT_ONCE
        if self._made is None and self._thread is None and due:
            self._begin(counters, caches)
        if self._made is None:
            return None
        try:
            self._library = ctypes.CDLL(str(self._made))
        except OSError:  # damaged: made anew when it is due
            self._made.unlink(missing_ok=True)
            self._made = None
        return self._library

    def _begin(self, counters: Counters, caches: bool) -> None:
        wanted, sizes = hot(self._functions, counters)

        def work() -> None:
            try:
                place = self._place(caches)
                build(self._source(wanted, sizes), caches, place)
                self._made = place
            except (Error, ValueError, LookupError):
                pass  # no compiler, or code that is none: Unicorn goes on alone

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        if self._when is Translate.AT_ONCE:
            self._thread.join()

    def _source(self, wanted: Sequence[Span], sizes: Mapping[int, int]) -> str:
        return source(Translator(self._read, sizes).functions(wanted, self._functions))

    def _place(self, caches: bool) -> Path:
        """Where the translation of this firmware is kept, by all that it is made of."""
        found = hashlib.sha256(repr((FLAGS, caches, self._strict, self._functions, compiler(None))).encode())
        for path in sorted((*HERE.parent.glob("*.h"), *HERE.glob("*.[hp]*"))):
            found.update(path.read_bytes())
        for function in self._functions:
            found.update(self._read(function.start, function.size))
        return cache_folder() / f"translated-{found.hexdigest()[:16]}.so"


def hot(functions: Sequence[Span], counters: Counters) -> tuple[list[Span], dict[int, int]]:
    """The functions that are worth it, and the bytes of each block that has run, by its address."""
    retired, entries = (np.ctypeslib.as_array(c) for c in (counters.retired, counters.entries))
    blocks = np.flatnonzero(entries)
    total = int(retired.sum())
    wanted = []
    for function in [*functions, *between(functions, blocks)]:
        first = (function.start - FLASH_BASE) // 2
        share = int(retired[first : first + function.size // 2].sum()) / max(1, total)
        if share >= SHARE or int(entries[first]) >= max(1, OFTEN * total):
            wanted.append((share, function))
    wanted.sort(key=lambda item: (-item[0], item[1].start))
    chosen = [function for _, function in wanted[:FUNCTIONS_MAX]]
    sizes = {FLASH_BASE + 2 * int(i): counters.blocks[int(i)] >> 16 for i in blocks}
    return sorted(chosen, key=lambda f: f.start), sizes


def between(functions: Sequence[Span], blocks: np.ndarray) -> list[Span]:
    """Code that has run outside all functions, as assembly behind a local name does."""
    found = []
    for one, other in itertools.pairwise(functions):
        first, last = one.start + one.size, other.start
        inside = blocks[(blocks >= (first - FLASH_BASE) // 2) & (blocks < (last - FLASH_BASE) // 2)]
        if inside.size:
            start = FLASH_BASE + 2 * int(inside[0])
            found.append(Span(start, last - start))
    return found


def build(text: str, caches: bool, place: Path) -> None:
    """Compile a translation.

    Errors   Error where there is no compiler; FileError where the file cannot be written
    """
    flags = (*FLAGS, "-DWITH_CACHES") if caches else FLAGS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "translated.c"
        path.write_text(text, encoding="ascii")
        library = compiled(Parts("translated code", "translated", (path,), flags, (HERE,)), Path(folder))
        with replacing(place) as part:
            shutil.copyfile(library, part)
