"""What the report asks of an ELF: one name for each function and object, and the chip it is for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from microtrain.base.elf import ANY_MACHINE, Elf, Symbol, read_elf

from .chip import Chip, chip_of

RANKS = ("STB_GLOBAL", "STB_LOCAL", "STB_WEAK")  # which of several names at an address counts


@dataclass(frozen=True, eq=False)
class Firmware:
    """A linked firmware.

    symbols  functions and objects by address, one name each
    chip     the one that it was linked for
    """

    elf: Elf
    symbols: tuple[Symbol, ...]
    chip: Chip

    @property
    def path(self) -> Path:
        return self.elf.path

    def symbol(self, name: str) -> Symbol | None:
        return next((s for s in self.symbols if s.name == name), None)


def load_firmware(path: Path) -> Firmware:
    """Read an ELF. FileError where it is missing, no ELF, or for another machine."""
    elf = read_elf(path, ANY_MACHINE).with_symbols()
    return Firmware(elf, one_name_each(elf.symbols), chip_of(path, elf.names))


def one_name_each(symbols: tuple[Symbol, ...]) -> tuple[Symbol, ...]:
    best: dict[tuple[int, bool], Symbol] = {}
    for symbol in symbols:
        if symbol.defined and symbol.kind in ("function", "object"):
            key = (symbol.address, symbol.function)
            if key not in best or rank(symbol) < rank(best[key]):
                best[key] = symbol
    return tuple(sorted(best.values(), key=lambda s: s.address))


def rank(symbol: Symbol) -> int:
    return RANKS.index(symbol.binding) if symbol.binding in RANKS else len(RANKS)
