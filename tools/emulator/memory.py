"""The memories of a chip and its board: flash, SRAM, the page with the unique id, perhaps SDRAM and flash
beside the chip."""

from __future__ import annotations

import ctypes
import mmap

from .chips import Chip

FLASH_BASE = 0x0800_0000
SRAM_BASE = 0x2000_0000
SDRAM_BASE = 0xC000_0000  # on the FMC, which is not modelled: it is simply there
SDRAM_SIZE = 8 << 20
ERASED = 0xFF

SYSTEM_MEMORY_SIZE = 4096  # the page with the unique id and the size of the flash
UNIQUE_ID = bytes(range(0x10, 0x1C))


class Memory:
    """Host memory shared with Unicorn: it can be read, painted and programmed without going through it.

    flash, sram, sdram, external   the bytes; no SDRAM, no flash beside the chip: None
    flash_view, ...      the same as ctypes arrays, for their addresses
    """

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.flash = mmap.mmap(-1, chip.flash_size)
        self.sram = mmap.mmap(-1, chip.sram_size)
        self.sdram = mmap.mmap(-1, SDRAM_SIZE) if chip.has_camera else None
        self.external = mmap.mmap(-1, chip.external.size) if chip.external else None
        self.system = mmap.mmap(-1, SYSTEM_MEMORY_SIZE)
        self.flash_view = (ctypes.c_char * chip.flash_size).from_buffer(self.flash)
        self.sram_view = (ctypes.c_char * chip.sram_size).from_buffer(self.sram)
        self.sdram_view = (ctypes.c_char * SDRAM_SIZE).from_buffer(self.sdram) if self.sdram else None
        external = self.external
        self.external_view = (ctypes.c_char * len(external)).from_buffer(external) if external else None
        self._external_erased = False
        self.system_view = (ctypes.c_char * SYSTEM_MEMORY_SIZE).from_buffer(self.system)
        self.flash[:] = bytes([ERASED]) * chip.flash_size
        unique_id, flash_kb = (a % SYSTEM_MEMORY_SIZE for a in (chip.unique_id, chip.flash_kb))
        self.system[unique_id : unique_id + len(UNIQUE_ID)] = UNIQUE_ID
        self.system[flash_kb : flash_kb + 2] = (chip.flash_size // 1024).to_bytes(2, "little")

    @property
    def system_base(self) -> int:
        return self.chip.unique_id & -SYSTEM_MEMORY_SIZE

    @property
    def flash_bases(self) -> list[int]:
        """Where flash is seen."""
        alias = self.chip.flash_alias
        return [FLASH_BASE] if alias is None else [FLASH_BASE, alias]

    def erase_external(self) -> None:
        """Flash beside the chip as it is bought: done when somebody looks, since it takes its time."""
        if self.external is not None and not self._external_erased:
            self.external[:] = bytes([ERASED]) * len(self.external)
            self._external_erased = True

    def program(self, address: int, data: bytes) -> None:
        """What an upload writes."""
        if self.in_external(address):
            self.erase_external()
        memory, offset = self.locate(address, len(data))
        memory[offset : offset + len(data)] = data

    def paint(self, value: int) -> None:
        """Fill SRAM, whose content after power-on is undefined."""
        self.sram[:] = bytes([value]) * len(self.sram)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of flash, SRAM or SDRAM.

        Errors   ValueError where any of them is outside all of these
        """
        memory, offset = self.locate(address, size)
        return memory[offset : offset + size]

    def locate(self, address: int, size: int) -> tuple[mmap.mmap, int]:
        """The memory that holds `size` bytes at `address`, and the offset there."""
        areas = [(self.flash, base) for base in self.flash_bases] + [(self.sram, SRAM_BASE)]
        if self.sdram:
            areas.append((self.sdram, SDRAM_BASE))
        if self.external and self.chip.external:
            areas.append((self.external, self.chip.external.base))
        for memory, base in areas:
            if base <= address and address + size <= base + len(memory):
                return memory, address - base
        raise ValueError(
            f"{size} bytes at {address:#010x} are neither in flash nor in SRAM nor elsewhere on the board"
        )

    def in_external(self, address: int) -> bool:
        external = self.chip.external
        return external is not None and external.base <= address < external.base + external.size

    def in_flash(self, address: int) -> bool:
        return any(base <= address < base + len(self.flash) for base in self.flash_bases)
