"""What is counted of each block that ran, as arrays over a memory."""

from __future__ import annotations

import ctypes
import mmap


class Counters:
    """Counters of a memory: entries, instructions and stall cycles by halfword, and native.c's notes on each
    block. Pages that hold no code that ran are never touched: nobody waits for zeros to be written."""

    def __init__(self, size: int) -> None:
        count = size // 2
        self._counted, self._noted = _zeros(3 * 8 * count), _zeros(4 * count)
        self.entries, self.retired, self.stalls = (
            (ctypes.c_uint64 * count).from_buffer(self._counted, 8 * count * i) for i in range(3)
        )
        self.blocks = (ctypes.c_uint32 * count).from_buffer(self._noted)

    def clear(self) -> None:
        """The counts, not the notes."""
        self._counted.madvise(mmap.MADV_DONTNEED)  # private pages without a file are zeros again (madvise(2))


def _zeros(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
