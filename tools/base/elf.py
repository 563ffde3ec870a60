"""A firmware's ELF: sections and segments with their load addresses, symbols, bytes, and source lines.

The one reader of ELF files: the memory report, elfcheck and the emulator add what is their own.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elftools.dwarf.lineprogram import LineProgram
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section as Part
from elftools.elf.sections import SymbolTableSection
from elftools.elf.segments import Segment

from .errors import FileError
from .reading import reading

FP_ARMV8 = 7  # Tag_FP_arch (addenda to the Arm ABI): 7 and 8 are FP for Armv8
MACHINES = {("EM_ARM", 32): "arm", ("EM_RISCV", 32): "riscv"}
MACHINE_NAMES = {"arm": "Arm", "riscv": "RISC-V of 32 bits"}
ANY_MACHINE = tuple(MACHINE_NAMES)
CHECKPOINTS = "__checkpoint_a", "__checkpoint_b"  # symbols of firmware/ld, with _start and _end
EXTERNAL = "__external_region"  # that of flash beside the chip
DTCM = "__dtcm"  # that of SRAM that never waits
SYMBOL = "IIIBBH"  # st_name, st_value, st_size, st_info, st_other, st_shndx
KINDS = {0: "none", 1: "object", 2: "function"}  # STT_NOTYPE, STT_OBJECT, STT_FUNC
BINDINGS = {0: "STB_LOCAL", 1: "STB_GLOBAL", 2: "STB_WEAK"}
STT_FILE, SHN_UNDEF = 4, 0


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
    """A name.

    value    as the ELF has it: of a function it is odd (Thumb)
    kind     function, object, none (assembly, linker scripts) or other
    binding  STB_GLOBAL, STB_LOCAL, STB_WEAK or other
    file     the source it was compiled from, for local symbols
    """

    name: str
    value: int
    size: int
    kind: str
    binding: str
    defined: bool
    file: str

    @property
    def address(self) -> int:
        return self.value & ~1 if self.function else self.value

    @property
    def function(self) -> bool:
        return self.kind == "function"


@dataclass(frozen=True, eq=False)
class Elf:
    """An ELF file, read.

    machine   "arm" or "riscv"
    entry     where it starts
    sections  the allocated ones that are not empty
    segments  (address in flash, bytes) of what is to be programmed
    contents  (address, bytes) of sections as they lie in memory before start
    symbols   in the file's order, marks left out; empty where the file is stripped
    names     value of every defined symbol, linker script symbols included
    marks     (address, "t" or "d") where code and literal data begin (ELF for the Arm architecture, 5.5.5);
              of RISC-V each section with code begins with "t"
    fpv5      linked for an FPU with the instructions of FPv5
    """

    path: Path
    machine: str
    entry: int
    sections: tuple[Section, ...]
    segments: tuple[tuple[int, bytes], ...]
    contents: tuple[tuple[int, bytes], ...]
    symbols: tuple[Symbol, ...]
    names: dict[str, int]
    marks: tuple[tuple[int, str], ...]
    fpv5: bool

    def with_symbols(self) -> Elf:
        """The same. FileError where it was stripped."""
        if not self.symbols:
            raise FileError(f"{self.path} has no symbols: link it without -s and do not strip it.")
        return self

    def value(self, name: str) -> int:
        """Value of a symbol. FileError where there is none."""
        if name not in self.names:
            raise FileError(f"{self.path} has no {name}: link it with a script of firmware/ld.")
        return self.names[name]

    def read(self, address: int, size: int) -> bytes:
        """Bytes as they lie in memory before start. FileError outside the sections with contents."""
        for start, data in self.contents:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        raise FileError(f"{self.path} holds nothing at {address:#010x}: it is not a whole firmware image.")

    def word(self, address: int) -> int:
        value: int = struct.unpack("<I", self.read(address, 4))[0]
        return value

    def section_at(self, address: int) -> Section | None:
        return next((s for s in self.sections if s.holds(address)), None)

    def mark_at(self, address: int) -> str:
        """ "t" where code stands, "d" where data does."""
        index = bisect.bisect_right(self.marks, (address, "z")) - 1
        return self.marks[index][1] if index >= 0 else "t"

    def line(self, address: int) -> str:
        """`file.c:12` of an instruction, "?" where the debug information does not say."""
        starts, names = self._lines
        i = bisect.bisect_right(starts, address & ~1) - 1
        return names[i] if i >= 0 else "?"

    @cached_property
    def _lines(self) -> tuple[list[int], list[str]]:
        """Addresses where a source line begins, sorted, and the line that begins there."""
        rows: dict[int, str] = {}
        with self.path.open("rb") as file:
            elf = ELFFile(file)
            if elf.has_dwarf_info():
                dwarf = elf.get_dwarf_info()
                for unit in dwarf.iter_CUs():
                    program = dwarf.line_program_for_CU(unit)
                    if program is not None:
                        _add_rows(rows, program)
        starts = sorted(rows)
        return starts, [rows[start] for start in starts]


def read_elf(path: Path, machines: tuple[str, ...] = ("arm",)) -> Elf:
    """Read a linked firmware. FileError where it is missing, damaged, none, or for none of these machines."""
    if not path.exists():
        raise FileError(f"no such ELF file: {path}. Build the firmware with `pio run`.")
    wrong = f"{path} is not an ELF file that can be read"
    with reading(FileError, lambda why: f"{wrong} ({why}): build again."), path.open("rb") as file:
        elf = ELFFile(file)
        machine = MACHINES.get((elf["e_machine"], elf.elfclass), "")
        if machine not in machines or elf["e_type"] != "ET_EXEC":
            names = " or ".join(MACHINE_NAMES[name] for name in machines)
            wanted = f"a linked firmware for {names}"
            raise FileError(f"{path} is not {wanted}: name the firmware.elf of `pio run`.")
        return _read(path, elf, machine)


def _read(path: Path, elf: ELFFile, machine: str) -> Elf:
    loaded = list(elf.iter_segments("PT_LOAD"))
    parts = [p for p in elf.iter_sections() if p["sh_flags"] & SH_FLAGS.SHF_ALLOC and p["sh_size"]]
    table = elf.get_section_by_name(".symtab")
    symbols = list(_symbols(table)) if isinstance(table, SymbolTableSection) else []
    marks = {(s.value, "d" if s.name[1] == "d" else "t") for s in symbols if _is_mark(s)}
    if machine == "riscv":
        marked = {at for at, _ in marks}
        marks |= {(p["sh_addr"], "t") for p in parts if _is_code(p) and p["sh_addr"] not in marked}
    symbols = [s for s in symbols if not _is_mark(s)]
    return Elf(
        path=path,
        machine=machine,
        entry=elf["e_entry"] & ~1,
        sections=tuple(_section(part, loaded) for part in parts),
        segments=tuple((s["p_paddr"], s.data()) for s in loaded if s["p_filesz"]),
        contents=tuple((p["sh_addr"], p.data()) for p in parts if p["sh_type"] != "SHT_NOBITS"),
        symbols=tuple(symbols),
        names={s.name: s.value for s in symbols if s.defined},
        marks=tuple(sorted(marks)),
        fpv5=_has_fpv5(elf),
    )


def _section(part: Part, segments: list[Segment]) -> Section:
    flags, address = part["sh_flags"], part["sh_addr"]
    home = next((s for s in segments if s.section_in_segment(part)), None)
    return Section(
        name=part.name,
        address=address,
        load=address if home is None else address - home["p_vaddr"] + home["p_paddr"],
        size=part["sh_size"],
        write=bool(flags & SH_FLAGS.SHF_WRITE),
        execute=bool(flags & SH_FLAGS.SHF_EXECINSTR),
        bits=part["sh_type"] != "SHT_NOBITS",
    )


def _symbols(table: SymbolTableSection) -> Iterator[Symbol]:
    """Every symbol that has a name, mapping symbols included (ELF specification, Symbol Table). pyelftools
    takes fifty times as long, most of what opening a firmware took."""
    entry = struct.Struct(("<" if table.elffile.little_endian else ">") + SYMBOL)
    names, data, file = table.stringtable.data(), table.data(), ""
    if table["sh_entsize"] != entry.size or len(data) != table["sh_size"] or len(data) % entry.size:
        raise ValueError("its symbol table is cut off")
    for start, value, size, info, _, section in entry.iter_unpack(data):
        name = names[start : max(start, names.find(b"\0", start))].decode(errors="replace")
        binding = BINDINGS.get(info >> 4, "other")
        if info & 15 == STT_FILE:
            file = name
        elif name:
            yield Symbol(
                name=name,
                value=value,
                size=size,
                kind=KINDS.get(info & 15, "other"),
                binding=binding,
                defined=section != SHN_UNDEF,
                file=file if binding == "STB_LOCAL" else "",
            )


def _is_mark(symbol: Symbol) -> bool:
    return symbol.name[:2] in ("$t", "$d", "$a", "$x")


def _is_code(part: Part) -> bool:
    return bool(part["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)


def _has_fpv5(elf: ELFFile) -> bool:
    """By the build attributes of what was linked."""
    section = elf.get_section_by_name(".ARM.attributes")
    if section is None:
        return False
    attributes = (a for part in section.subsections for sub in part.subsubsections for a in sub.attributes)
    return any(a.tag == "TAG_FP_ARCH" and a.value >= FP_ARMV8 for a in attributes)


def _add_rows(rows: dict[int, str], program: LineProgram) -> None:
    """Add one compilation unit's line table: files are numbered from 0 in DWARF 5, from 1 before."""
    first = 0 if program["version"] >= 5 else 1
    files = [entry.name.decode(errors="replace") for entry in program["file_entry"]]
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if state.end_sequence:
            rows.setdefault(state.address, "?")
        elif 0 <= state.file - first < len(files):
            rows[state.address] = f"{Path(files[state.file - first]).name}:{state.line}"
