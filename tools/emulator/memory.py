"""An STM32F746NG's memory (RM0385, 2.2.2), 1 MB of flash and 320 KB of SRAM, and the board's SDRAM."""

from __future__ import annotations

import ctypes
import mmap

FLASH_BASE = 0x0800_0000
FLASH_ALIAS = 0x0020_0000  # the same flash through the ITCM bus
FLASH_SIZE = 1 << 20
SRAM_BASE = 0x2000_0000
SRAM_SIZE = 320 * 1024
SDRAM_BASE = 0xC000_0000  # on the FMC, which is not modelled: it is simply there
SDRAM_SIZE = 8 << 20
ERASED = 0xFF

SYSTEM_MEMORY = 0x1FF0_F000  # page with the unique id and the size of the flash (RM0385, 41.1 and 41.2)
SYSTEM_MEMORY_SIZE = 4096
UNIQUE_ID = bytes(range(0x10, 0x1C))


class Memory:
    """Host memory shared with Unicorn: it can be read, painted and programmed without going through it.

    flash, sram, sdram   the bytes
    flash_view, ...      the same as ctypes arrays, for their addresses
    """

    def __init__(self) -> None:
        self.flash = mmap.mmap(-1, FLASH_SIZE)
        self.sram = mmap.mmap(-1, SRAM_SIZE)
        self.sdram = mmap.mmap(-1, SDRAM_SIZE)
        self.system = mmap.mmap(-1, SYSTEM_MEMORY_SIZE)
        self.flash_view = (ctypes.c_char * FLASH_SIZE).from_buffer(self.flash)
        self.sram_view = (ctypes.c_char * SRAM_SIZE).from_buffer(self.sram)
        self.sdram_view = (ctypes.c_char * SDRAM_SIZE).from_buffer(self.sdram)
        self.system_view = (ctypes.c_char * SYSTEM_MEMORY_SIZE).from_buffer(self.system)
        self.flash[:] = bytes([ERASED]) * FLASH_SIZE
        self.system[0x420:0x42C] = UNIQUE_ID
        self.system[0x442:0x444] = (FLASH_SIZE // 1024).to_bytes(2, "little")

    def paint(self, value: int) -> None:
        """Fill SRAM, whose content after power-on is undefined."""
        self.sram[:] = bytes([value]) * SRAM_SIZE

    def read(self, address: int, size: int) -> bytes:
        """Bytes of flash, SRAM or SDRAM.

        Errors   ValueError where any of them is outside all of these
        """
        memory, offset = self.locate(address, size)
        return memory[offset : offset + size]

    def locate(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        """The memory that holds `size` bytes at `address`, and the offset there."""
        areas = (
            (self.flash, FLASH_BASE),
            (self.sram, SRAM_BASE),
            (self.sdram, SDRAM_BASE),
            (self.flash, FLASH_ALIAS),
        )
        for memory, base in areas:
            if base <= address and address + size <= base + len(memory):
                return memory, address - base
        raise ValueError(f"{size} bytes at {address:#010x} are neither in flash nor in SRAM nor in SDRAM")

    def in_sram(self, address: int, size: int) -> bool:
        return address >= SRAM_BASE and address + size <= SRAM_BASE + SRAM_SIZE
