"""The firmware file: what to load, its symbols, and the source line of an address."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elftools.dwarf.lineprogram import LineProgram
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from microtrain.base.reading import reading

from .chips import CHIPS, STM32F746, Chip
from .errors import EmulatorError
from .memory import FLASH_BASE


@dataclass(frozen=True)
class Symbol:
    """A function or a variable: where it lies and how many bytes it takes."""

    address: int
    size: int
    name: str


@dataclass(frozen=True)
class Section:
    """An allocated section, at the address where the program sees it."""

    name: str
    address: int
    size: int


class Image:
    """An ELF file for one of the chips.

    chip        the one that its linker script names
    segments    (address in flash, bytes) of what is to be programmed
    symbols     {name: value}
    functions   sorted by address
    variables   sorted by address
    sections    the allocated ones
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            file = path.open("rb")
        except OSError as error:
            reason = error.strerror or str(error)
            raise EmulatorError(
                f"cannot read {path}: {reason}. Build the firmware with `pio run`."
            ) from error
        wrong = f"{path} is not an ELF file"
        with (
            file,
            reading(EmulatorError, lambda why: f"{wrong} ({why}): give the .elf that `pio run` makes."),
        ):
            self._read(ELFFile(file))

    def _read(self, elf: ELFFile) -> None:
        if elf["e_machine"] != "EM_ARM":
            raise EmulatorError(f"{self.path} is not for ARM: give the .elf of the board's environment.")
        self._read_symbols(elf)
        self.chip = self._find_chip()
        self.segments = [
            (segment["p_paddr"], segment.data())
            for segment in elf.iter_segments()
            if segment["p_type"] == "PT_LOAD" and segment["p_filesz"]
        ]
        for address, data in self.segments:
            if address < FLASH_BASE or address + len(data) > FLASH_BASE + self.chip.flash_size:
                raise EmulatorError(
                    f"{self.path} has {len(data)} bytes for {address:#010x}, outside the "
                    f"{self.chip.flash_size // 1024} KB of the {self.chip.name}'s flash: "
                    "check the linker script."
                )
        self.sections = [
            Section(section.name, section["sh_addr"], section["sh_size"])
            for section in elf.iter_sections()
            if section["sh_flags"] & 2 and section["sh_size"]
        ]

    def _find_chip(self) -> Chip:
        """The chip of the symbol __device_id; without one the STM32F746."""
        number = self.symbols.get("__device_id", STM32F746.device_id)
        if number not in CHIPS:
            known = ", ".join(f"{chip.name} ({chip.device_id:#x})" for chip in CHIPS.values())
            raise EmulatorError(
                f"{self.path} is for a chip with the device id {number:#x}, of which there is no model; "
                f"there are {known}."
            )
        return CHIPS[number]

    def _read_symbols(self, elf: ELFFile) -> None:
        self.symbols: dict[str, int] = {}
        functions, variables = [], []
        table = elf.get_section_by_name(".symtab")
        for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
            if not symbol.name or symbol.name.startswith("$") or symbol["st_shndx"] == "SHN_UNDEF":
                continue
            self.symbols[symbol.name] = symbol["st_value"]
            kind, size = symbol["st_info"]["type"], symbol["st_size"]
            if kind == "STT_FUNC":
                functions.append(Symbol(symbol["st_value"] & ~1, size, symbol.name))
            elif kind == "STT_OBJECT" and size:
                variables.append(Symbol(symbol["st_value"], size, symbol.name))
        self.functions = sorted(set(functions), key=lambda s: (s.address, s.name))
        self.variables = sorted(set(variables), key=lambda s: (s.address, s.name))
        self._starts = [function.address for function in self.functions]

    def function(self, pc: int) -> Symbol | None:
        """The function that holds an instruction."""
        i = bisect.bisect_right(self._starts, pc & ~1) - 1
        if i < 0:
            return None
        found = self.functions[i]
        return found if pc < found.address + max(found.size, 2) else None

    def line(self, pc: int) -> str:
        """`file.c:12` of an instruction, "?" where the debug information does not say."""
        starts, names = self._lines
        i = bisect.bisect_right(starts, pc & ~1) - 1
        return names[i] if i >= 0 else "?"

    def where(self, pc: int) -> str:
        """An address in words: `0x08000123 in conv2d_fwd_s8 (conv2d.c:45)`."""
        function = self.function(pc)
        return f"{pc:#010x} in {function.name if function else '?'} ({self.line(pc)})"

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
