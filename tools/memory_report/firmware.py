"""What a linked ELF says: sections with their load addresses, symbols, and the bytes at an address."""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from microtrain.base.errors import Error
from microtrain.base.reading import reading

from .chip import Chip, chip_of


@dataclass(frozen=True)
class Section:
    """An allocated section.

    load   address of its bytes in flash; its own address where it is not copied
    bits   False: it has no bytes in the file (.bss, the stack's reservation)
    """

    name: str
    address: int
    load: int
    size: int
    write: bool
    execute: bool
    bits: bool

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + self.size


@dataclass(frozen=True)
class Symbol:
    """A function or an object. file: the source it was compiled from, for local symbols."""

    name: str
    address: int
    size: int
    function: bool
    file: str


@dataclass(frozen=True, eq=False)
class Firmware:
    """An ELF file, read.

    names   every symbol's address, linker script symbols included
    chip    the one that it was linked for
    marks   (address, "t" or "d") where code and literal data begin (ELF for the Arm architecture, 5.5.5)
    """

    path: Path
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    names: dict[str, int]
    marks: tuple[tuple[int, str], ...]
    contents: tuple[tuple[int, bytes], ...]
    entry: int
    chip: Chip

    def read(self, address: int, size: int) -> bytes:
        """Bytes as they lie in memory before start. Error outside the sections with contents."""
        for start, data in self.contents:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise Error(f"{self.path} holds nothing at {address:#010x}: it is not a whole firmware image.")

    def word(self, address: int) -> int:
        value: int = struct.unpack("<I", self.read(address, 4))[0]
        return value

    def symbol(self, name: str) -> Symbol | None:
        return next((s for s in self.symbols if s.name == name), None)

    def section_at(self, address: int) -> Section | None:
        return next((s for s in self.sections if s.holds(address)), None)

    def mark_at(self, address: int) -> str:
        """ "t" where code stands, "d" where data does."""
        index = bisect.bisect_right(self.marks, (address, "z")) - 1
        return self.marks[index][1] if index >= 0 else "t"


def load_firmware(path: Path) -> Firmware:
    """Read an ELF. Error where it is missing, no ELF, or not for Arm."""
    if not path.exists():
        raise Error(f"no such ELF file: {path}. `pio run` builds it; --elf names it.")
    wrong = f"{path} is not an ELF file that can be read"
    with reading(Error, lambda why: f"{wrong} ({why}): build again."), path.open("rb") as file:
        elf = ELFFile(file)
        if elf["e_machine"] != "EM_ARM" or elf["e_type"] != "ET_EXEC":
            raise Error(f"{path} is not a linked firmware for Arm: name the firmware.elf of `pio run`.")
        return read_elf(path, elf)


def read_elf(path: Path, elf: Any) -> Firmware:
    sections, contents = [], []
    segments = list(elf.iter_segments("PT_LOAD"))
    for section in elf.iter_sections():
        if not section["sh_flags"] & SH_FLAGS.SHF_ALLOC or not section["sh_size"]:
            continue
        sections.append(read_section(section, segments))
        if sections[-1].bits:
            contents.append((section["sh_addr"], section.data()))
    table = elf.get_section_by_name(".symtab")
    if table is None:
        raise Error(f"{path} has no symbols: link it without -s and do not strip it.")
    names, symbols, marks = read_symbols(table)
    return Firmware(
        path,
        tuple(sections),
        tuple(symbols),
        names,
        tuple(sorted(marks)),
        tuple(contents),
        elf["e_entry"] & ~1,
        chip_of(path, names),
    )


def read_section(section: Any, segments: list[Any]) -> Section:
    flags, address = section["sh_flags"], section["sh_addr"]
    load = address
    for segment in segments:
        if segment.section_in_segment(section):
            load = address - segment["p_vaddr"] + segment["p_paddr"]
            break
    return Section(
        section.name,
        address,
        load,
        section["sh_size"],
        bool(flags & SH_FLAGS.SHF_WRITE),
        bool(flags & SH_FLAGS.SHF_EXECINSTR),
        section["sh_type"] != "SHT_NOBITS",
    )


def read_symbols(table: Any) -> tuple[dict[str, int], list[Symbol], list[tuple[int, str]]]:
    """All names, the functions and objects (one name an address), and the code and data marks."""
    names: dict[str, int] = {}
    best: dict[tuple[int, bool], tuple[int, Symbol]] = {}
    marks: list[tuple[int, str]] = []
    file = ""
    for entry in table.iter_symbols():
        kind, binding = entry["st_info"]["type"], entry["st_info"]["bind"]
        if kind == "STT_FILE":
            file = entry.name
        elif entry.name[:2] in ("$t", "$d", "$a"):
            marks.append((entry["st_value"], "d" if entry.name[1] == "d" else "t"))
        elif entry["st_shndx"] != "SHN_UNDEF" and entry.name:
            names[entry.name] = entry["st_value"]
            if kind in ("STT_FUNC", "STT_OBJECT"):
                function = kind == "STT_FUNC"
                address = entry["st_value"] & ~1 if function else entry["st_value"]
                source = file if binding == "STB_LOCAL" else ""
                rank = ("STB_GLOBAL", "STB_LOCAL", "STB_WEAK").index(binding)
                symbol = Symbol(entry.name, address, entry["st_size"], function, source)
                key = (address, function)
                if key not in best or rank < best[key][0]:
                    best[key] = (rank, symbol)
    return names, [symbol for _, symbol in sorted(best.values(), key=lambda v: v[1].address)], marks
