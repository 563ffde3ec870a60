"""The memories of a board as the processor sees them: where each is mapped, and which the caches see."""

from __future__ import annotations

import ctypes

import unicorn

from .memory import FLASH_BASE, SDRAM_BASE, SDRAM_SIZE, SRAM_BASE, SYSTEM_MEMORY_SIZE, Memory
from .native import DTCM_BYTES

READ_WRITE = unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE
READ_EXECUTE = unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC
WIDEST = 8  # bytes of one access


def map_memory(uc: unicorn.Uc, memory: Memory) -> None:
    flash, sram = ctypes.addressof(memory.flash_view), ctypes.addressof(memory.sram_view)
    for base in memory.flash_bases:
        uc.mem_map_ptr(base, len(memory.flash), READ_EXECUTE, flash)
        uc.mem_protect(base, len(memory.flash), READ_EXECUTE)  # stores are dropped from here on
    uc.mem_map_ptr(SRAM_BASE, len(memory.sram), unicorn.UC_PROT_ALL, sram)
    system = ctypes.addressof(memory.system_view)
    uc.mem_map_ptr(memory.system_base, SYSTEM_MEMORY_SIZE, unicorn.UC_PROT_READ, system)
    if memory.external_view is not None and memory.chip.external is not None:
        view, external = ctypes.addressof(memory.external_view), memory.chip.external
        uc.mem_map_ptr(external.base, external.size, unicorn.UC_PROT_NONE, view)
    if memory.sdram_view is not None:
        uc.mem_map_ptr(SDRAM_BASE, SDRAM_SIZE, READ_WRITE, ctypes.addressof(memory.sdram_view))


def cached(memory: Memory) -> list[tuple[int, int]]:
    """First and last address of all data that the caches see, and of accesses that reach into it."""
    ranges = [
        (FLASH_BASE, len(memory.flash)),
        (SRAM_BASE + DTCM_BYTES, len(memory.sram) - DTCM_BYTES),
    ]
    if external := memory.chip.external:
        ranges.append((external.base, external.size))
    return [(base - WIDEST + 1, base + size - 1) for base, size in ranges]
