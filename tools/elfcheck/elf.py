"""Functions, sections and instructions of a Cortex-M ELF."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import capstone
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section as ElftoolsSection
from elftools.elf.sections import Symbol, SymbolTableSection

from microtrain.base.errors import Error
from microtrain.base.reading import reading

FP_ARMV8 = 7


@dataclass(frozen=True)
class Section:
    """A stretch of flash that an upload writes: load address and size in bytes."""

    name: str
    address: int
    size: int


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction.

    mnemonic  "" stands for bytes that are marked as code but are none
    calls     function at which a branch with a fixed address goes in, else None
    """

    address: int
    function: str
    mnemonic: str
    text: str
    calls: str | None


@dataclass(frozen=True)
class Elf:
    """fpv5: linked for an FPU with the instructions of FPv5."""

    functions: tuple[str, ...]
    addresses: dict[str, int]
    fpv5: bool
    loaded: tuple[Section, ...]
    instructions: tuple[Instruction, ...]

    def address(self, name: str) -> int:
        """Value of a symbol. Error where there is none."""
        if name not in self.addresses:
            raise Error(f"the ELF has no {name}: link it with a script of firmware/ld.")
        return self.addresses[name]


def read(path: Path) -> Elf:
    """Take an ELF apart. Errors: Error."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror}; build it with `pio run`.") from error
    with file, reading(Error, lambda why: f"{path} is not an ELF file ({why}); build one with `pio run`."):
        return _read(ELFFile(file), path)


def _read(elf: ELFFile, path: Path) -> Elf:
    table = elf.get_section_by_name(".symtab")
    if elf["e_machine"] != "EM_ARM":
        raise Error(f"{path} is made for {elf['e_machine']}, not for Arm: name the firmware's ELF.")
    if not isinstance(table, SymbolTableSection):
        raise Error(f"{path} has no symbol table: name the ELF that was linked, not a stripped one.")
    symbols = [symbol for symbol in table.iter_symbols() if symbol.name]
    names = {s.name for s in symbols if s["st_info"]["type"] in ("STT_FUNC", "STT_NOTYPE")}
    functions = tuple(sorted(name for name in names if not name.startswith("$")))
    addresses = {symbol.name: symbol["st_value"] for symbol in symbols}
    return Elf(functions, addresses, _has_fpv5(elf), tuple(_loaded(elf)), tuple(_instructions(elf, symbols)))


def _has_fpv5(elf: ELFFile) -> bool:
    """By the build attributes (addenda to the Arm ABI, Tag_FP_arch): 7 and 8 are FP for Armv8."""
    section = elf.get_section_by_name(".ARM.attributes")
    if section is None:
        return False
    attributes = (a for part in section.subsections for sub in part.subsubsections for a in sub.attributes)
    return any(a.tag == "TAG_FP_ARCH" and a.value >= FP_ARMV8 for a in attributes)


def _loaded(elf: ELFFile) -> Iterator[Section]:
    """Sections with content, at the address where flash holds it."""
    segments = list(elf.iter_segments("PT_LOAD"))
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_PROGBITS" or not section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
            continue
        for segment in segments:
            if section["sh_size"] and segment.section_in_segment(section):
                address = section["sh_addr"] - segment["p_vaddr"] + segment["p_paddr"]
                yield Section(section.name, address, section["sh_size"])


def _instructions(elf: ELFFile, symbols: list[Symbol]) -> Iterator[Instruction]:
    functions = sorted((s["st_value"] & ~1, s.name) for s in symbols if s["st_info"]["type"] == "STT_FUNC")
    marks = sorted((s["st_value"], s.name[:2]) for s in symbols if s.name[:2] in ("$t", "$d", "$a"))
    starts, names = [address for address, _ in functions], dict(functions)
    mode = capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8
    decoder = capstone.Cs(capstone.CS_ARCH_ARM, mode)
    decoder.skipdata = True
    for section in elf.iter_sections():
        if not section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR or section["sh_type"] != "SHT_PROGBITS":
            continue
        for address, code in _thumb_code(section, marks):
            for found in decoder.disasm(code, address):
                index = bisect.bisect_right(starts, found.address) - 1
                yield Instruction(
                    address=found.address,
                    function=functions[index][1] if index >= 0 else "?",
                    mnemonic="" if found.mnemonic.startswith(".") else found.mnemonic,
                    text=f"{found.mnemonic} {found.op_str}".strip(),
                    calls=_target(found.mnemonic, found.op_str, names),
                )


def _target(mnemonic: str, operands: str, names: dict[int, str]) -> str | None:
    """The function that a branch with a fixed address goes to."""
    if not mnemonic.startswith("b") or not operands.startswith("#"):
        return None
    return names.get(int(operands[1:], 16))


def _thumb_code(section: ElftoolsSection, marks: list[tuple[int, str]]) -> Iterator[tuple[int, bytes]]:
    """The parts of a section that the mapping symbols call Thumb code; the rest are literals."""
    start, data = section["sh_addr"], section.data()
    end = start + len(data)
    inside = [mark for mark in marks if start <= mark[0] < end]
    for (address, kind), (until, _) in zip(inside, [*inside[1:], (end, "")], strict=True):
        if kind == "$t" and until > address:
            yield address, data[address - start : until - start]
