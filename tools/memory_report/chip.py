"""The chip's memories, as the linker script of the firmware divides them (firmware/ld)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.elf import CHECKPOINTS, DTCM, EXTERNAL
from microtrain.base.errors import Error

REGIONS = {
    "code": "__code",
    "weights": "__weights_region",
    "checkpoint A": CHECKPOINTS[0],
    "checkpoint B": CHECKPOINTS[1],
}
WEIGHTS = (".weights", ".external")  # sections of constants alone, in the chip's flash and beside it
RAM = "__ram"
PICOLIBC = {"__flash", "__flash_size", "__ram", "__ram_size"}  # of its linker script


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


@dataclass(frozen=True)
class Chip:
    """regions: what the flash is divided into, by address; they follow one another.

    external   flash beside the chip
    dtcm       the part of the SRAM that never waits (tightly coupled memory)
    """

    flash: Region
    sram: Region
    regions: tuple[Region, ...]
    external: Region | None = None
    dtcm: Region | None = None

    @property
    def memories(self) -> tuple[Region, ...]:
        return (self.flash, self.sram, *([self.external] if self.external else []))


def chip_of(path: Path, names: Mapping[str, int]) -> Chip:
    """The chip that an ELF was linked for, by symbols of firmware/ld or of picolibc. Error without them."""
    if names.keys() >= PICOLIBC and f"{RAM}_start" not in names:
        flash = Region("flash", names["__flash"], names["__flash_size"])
        code = Region("code", flash.start, flash.size)
        return Chip(flash, Region("SRAM", names["__ram"], names["__ram_size"]), (code,))

    def region(name: str, symbol: str) -> Region:
        start, end = (names.get(f"{symbol}_{which}") for which in ("start", "end"))
        if start is None or end is None:
            raise Error(f"{path} has no {symbol}_start and {symbol}_end: link with a script of firmware/ld.")
        return Region(name, start, end - start)

    regions = sorted((region(*item) for item in REGIONS.items()), key=lambda r: r.start)
    flash = Region("flash", regions[0].start, regions[-1].end - regions[0].start)
    beside = region("external", EXTERNAL) if f"{EXTERNAL}_start" in names else None
    fast = region("DTCM", DTCM) if f"{DTCM}_start" in names else None
    return Chip(flash, region("SRAM", RAM), tuple(regions), beside, fast)
