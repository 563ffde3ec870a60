"""What the engine has to do with translated code: it takes it when it is there, and leaves it in time."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

from .counters import Counters
from .memory import FLASH_BASE, Memory
from .native import NativeState
from .translate.blocks import Span
from .translate.build import Translate, Translation

PAGE_TABLE = 8 << 20  # bytes: a pointer for each page of 4 KB of all addresses, of which few are touched


class Speedup:
    """Translated code of one engine.

    library   native.c
    state     what it shares with Python
    """

    def __init__(self, library: ctypes.CDLL, state: NativeState, memory: Memory) -> None:
        self._library, self._state, self._memory = library, state, memory
        self._translation: Translation | None = None
        self._ran = self._seen = 0
        self._owners = (ctypes.c_uint16 * (len(memory.flash) // 2))()
        self._runs = (ctypes.c_uint64 * 0)()
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._pages = tuple(mmap.mmap(-1, PAGE_TABLE, flags=private) for _ in "rw")
        state.owners = ctypes.addressof(self._owners)
        state.readable, state.writable = (ctypes.addressof(ctypes.c_char.from_buffer(p)) for p in self._pages)

    def begin(self, functions: Sequence[Span], when: Translate, strict: bool) -> None:
        """Have the hot ones of these functions of the firmware translated."""
        end = FLASH_BASE + len(self._memory.flash)
        inside = [f for f in functions if f.start >= FLASH_BASE and f.start + f.size <= end]
        if when is not Translate.NEVER:
            self._translation = Translation(inside, self._memory.read, when, strict)

    def look(self, counters: Counters) -> None:
        """After a run: take the translation when it is there."""
        total = self._state.total
        self._ran += max(0, total - self._seen)  # since the engine was made: `total` starts over
        self._seen = total
        if self._translation is None:
            return
        if library := self._translation.look(self._ran, counters, bool(self._state.caches_on)):
            self._runs = (ctypes.c_uint64 * ctypes.c_uint32.in_dll(library, "translation_blocks").value)()
            self._state.runs = ctypes.addressof(self._runs)
            address = ctypes.addressof(ctypes.c_byte.in_dll(library, "translation"))
            self._library.native_install(self._state, address)

    def end(self) -> None:
        """Go on without: single blocks are looked at, or the code is another one now."""
        self._translation = None
        self._library.native_install(self._state, None)

    def map_external(self, address: int | None) -> None:
        """Where the host has the flash beside the chip; None: it cannot be read."""
        self._library.native_external(self._state, address)
