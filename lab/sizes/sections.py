"""Which sections of object files need which others: what a linker keeps of them for a function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

LOADED = 2  # SHF_ALLOC


@dataclass
class Sections:
    """Sections by "object:section".

    bytes   of each, as aligned as the linker places code
    needs   sections and names of symbols that each refers to
    where   the section that defines a global symbol
    """

    bytes: dict[str, int] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)

    def reached(self, names: Iterable[str]) -> set[str]:
        """All sections that some sections or symbols need."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            name = name if name in self.bytes else self.where.get(name, "")
            if name and name not in found:
                found.add(name)
                waiting += self.needs[name]
        return found

    def total(self, names: Iterable[str]) -> int:
        return sum(self.bytes[name] for name in names)


def read(folder: Path) -> Sections:
    """The object files of a build, without those of the model."""
    found = Sections()
    for path in sorted(folder.rglob("*.o")):
        with path.open("rb") as file:
            _add(found, str(path.relative_to(folder)), ELFFile(file))
    return found


def loaded_bytes(path: Path) -> int:
    """Code and constants of one object file."""
    with path.open("rb") as file:
        return sum(_size(section) for section in ELFFile(file).iter_sections() if _kept(section))


def _kept(section: object) -> bool:
    header = section.header  # type: ignore[attr-defined]
    return bool(header.sh_flags & LOADED and header.sh_type == "SHT_PROGBITS" and header.sh_size)


def _size(section: object) -> int:
    return -(-int(section.header.sh_size) // 4) * 4  # type: ignore[attr-defined]


def _add(found: Sections, name: str, elf: ELFFile) -> None:
    """The sections of one object file, with what they refer to."""
    own = {i: f"{name}:{s.name}:{i}" for i, s in enumerate(elf.iter_sections()) if _kept(s)}
    for index, key in own.items():
        found.bytes[key], found.needs[key] = _size(elf.get_section(index)), set()
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    for symbol in symbols:
        if symbol["st_shndx"] in own and symbol["st_info"]["bind"] != "STB_LOCAL":
            found.where[symbol.name] = own[symbol["st_shndx"]]
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection) and section["sh_info"] in own:
            for relocation in section.iter_relocations():
                symbol = symbols[relocation["r_info_sym"]]
                found.needs[own[section["sh_info"]]].add(own.get(symbol["st_shndx"], symbol.name))
