"""The chip's memories (RM0385, section 2.2.2 and table 3), flash divided as in firmware/ld."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024


@dataclass(frozen=True)
class Region:
    """A range of addresses with one use."""

    name: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    def holds(self, address: int) -> bool:
        return self.start <= address < self.end


FLASH = Region("flash", 0x08000000, 1024 * KB)
SRAM = Region("SRAM", 0x20000000, 320 * KB)
ITCM = Region("ITCM RAM", 0x00000000, 16 * KB)

FLASH_REGIONS = (
    Region("code, sectors 0-3", 0x08000000, 128 * KB),
    Region("checkpoint A, sector 4", 0x08020000, 128 * KB),
    Region("weights, sectors 5-6", 0x08040000, 512 * KB),
    Region("checkpoint B, sector 7", 0x080C0000, 256 * KB),
)
