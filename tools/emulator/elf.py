"""The firmware file: what to load, its symbols, and the source line of an address."""

from __future__ import annotations

import bisect
from pathlib import Path

from microtrain.base.elf import Symbol, read_elf

from .chips import CHIPS, STM32F746, Chip
from .errors import EmulatorError
from .memory import FLASH_BASE


class Image:
    """An ELF file for one of the chips.

    elf         all that is in it
    chip        the one that its linker script names
    symbols     {name: value}
    functions   sorted by address
    variables   sorted by address
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.elf = read_elf(path)
        self.symbols = self.elf.names
        self.chip = self._find_chip()
        self._check_segments()
        defined = sorted({s for s in self.elf.symbols if s.defined}, key=lambda s: (s.address, s.name))
        self.functions = [s for s in defined if s.function]
        self.variables = [s for s in defined if s.kind == "object" and s.size]
        self._starts = [function.address for function in self.functions]

    def _check_segments(self) -> None:
        for address, data in self.elf.segments:
            places = [(FLASH_BASE, self.chip.flash_size)]
            if self.chip.external:
                places.append((self.chip.external.base, self.chip.external.size))
            if not any(base <= address and address + len(data) <= base + size for base, size in places):
                raise EmulatorError(
                    f"{self.path} has {len(data)} bytes for {address:#010x}, outside the "
                    f"{self.chip.flash_size // 1024} KB of the {self.chip.name}'s flash: "
                    "check the linker script."
                )

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

    def function(self, pc: int) -> Symbol | None:
        """The function that holds an instruction."""
        i = bisect.bisect_right(self._starts, pc & ~1) - 1
        if i < 0:
            return None
        found = self.functions[i]
        return found if pc < found.address + max(found.size, 2) else None

    def line(self, pc: int) -> str:
        """`file.c:12` of an instruction, "?" where the debug information does not say."""
        return self.elf.line(pc)

    def where(self, pc: int) -> str:
        """An address in words: `0x08000123 in conv2d_fwd_s8 (conv2d.c:45)`."""
        function = self.function(pc)
        return f"{pc:#010x} in {function.name if function else '?'} ({self.line(pc)})"
