"""Instructions of a firmware, by address, and the functions that they belong to."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from microtrain.base.disassembly import decoder
from microtrain.base.elf import Symbol

from . import riscv_code
from .firmware import Firmware

WIDE = 0x1D  # the upper five bits of a first halfword from here on: an instruction of two (Armv7-M ARM, A5.1)


@dataclass(frozen=True)
class Unknown:
    """An encoding the disassembler does not know."""

    address: int
    size: int


class Code:
    """The code of a firmware; a stretch of it is decoded when first looked at.

    fields   offset in a struct to the functions that may be in that member; of a firmware none are
    outside  functions of somebody else, by an address that stands for each
    """

    def __init__(
        self,
        firmware: Firmware,
        fields: Mapping[int, frozenset[int]] | None = None,
        outside: Mapping[int, str] | None = None,
    ) -> None:
        self.firmware = firmware
        self.fields = fields or {}
        self.outside = outside or {}
        self.functions = [s for s in firmware.symbols if s.function]
        self._starts = [s.address for s in self.functions]
        self._edges = sorted({*self._starts, *(address for address, _ in firmware.elf.marks)})
        self._decoded: set[int] = set()
        self._instructions: dict[int, Any] = {}
        self._riscv = firmware.elf.machine == "riscv"
        self._decoder = decoder(firmware.elf.machine)
        self._decoder.detail = not self._riscv  # what that says of RISC-V, riscv_code.py knows better

    def starts_function(self, address: int) -> bool:
        index = bisect.bisect_left(self._starts, address)
        if address in self.outside:
            return True
        return index < len(self._starts) and self._starts[index] == address

    def function_at(self, address: int) -> Symbol | None:
        """The function whose code holds `address`; of several, the one that starts last."""
        for index in range(bisect.bisect_right(self._starts, address) - 1, -1, -1):
            if address < self.end(self.functions[index]):
                return self.functions[index]
        return None

    def end(self, function: Symbol) -> int:
        """Where a function's code ends; one without a size (assembly) reaches to the next."""
        if function.size:
            return function.address + function.size
        index = bisect.bisect_right(self._starts, function.address)
        section = self.firmware.elf.section_at(function.address)
        limit = section.address + section.size if section else function.address
        return min(limit, self._starts[index]) if index < len(self._starts) else limit

    def name(self, address: int) -> str:
        """What to call the code that starts at an address."""
        function = self.function_at(address)
        if address in self.outside:
            return self.outside[address]
        if function is None:
            return f"{address:#010x}"
        offset = address - function.address
        return f"{function.name}+{offset}" if offset else function.name

    def at(self, address: int) -> Any | None:
        """The instruction that begins at an address; None where none does."""
        section = self.firmware.elf.section_at(address)
        if section is None or not section.execute or not section.bits:
            return None
        index = bisect.bisect_right(self._edges, address)
        end = section.address + section.size
        low = max(section.address, self._edges[index - 1] if index else 0)
        high = min(end, self._edges[index]) if index < len(self._edges) else end
        if low not in self._decoded:
            self._decoded.add(low)
            if self.firmware.elf.mark_at(low) == "t":
                self._decode(low, high)
        return self._instructions.get(address)

    def _decode(self, low: int, high: int) -> None:
        """Instructions between two edges; the disassembler starts again behind what it does not know."""
        data = self.firmware.elf.read(low, high - low)
        at = low
        while at < high:
            for instruction in self._disassembled(data[at - low :], at):
                self._instructions[at] = instruction
                at += instruction.size
            if at < high:
                wide = self._is_wide(data[at - low : at - low + 2])
                self._instructions[at] = Unknown(at, 4 if wide else 2)
                at += self._instructions[at].size

    def _disassembled(self, data: bytes, at: int) -> Iterator[Any]:
        """Up to what is not known."""
        if not self._riscv:
            yield from self._decoder.disasm(data, at)
            return
        begin = at
        while (found := riscv_code.decode(at, data[at - begin : at - begin + 4])) is not None:
            yield found
            at += found.size

    def _is_wide(self, half: bytes) -> bool:
        if len(half) < 2:
            return False
        return half[0] & 3 == 3 if self._riscv else half[1] >> 3 >= WIDE

    def text(self, i: Any) -> str:
        """An instruction as an assembler would write it."""
        found = next(self._decoder.disasm_lite(self.raw(i.address, i.size), i.address, 1), None)
        return " ".join(found[2:]) if found else f".insn {self.raw(i.address, i.size).hex()}"

    def raw(self, address: int, size: int) -> bytes:
        """Bytes of code; none where there is none."""
        section = self.firmware.elf.section_at(address)
        inside = section is not None and section.bits and section.holds(address + size - 1)
        return self.firmware.elf.read(address, size) if inside else b""

    def address_table(self, start: int, base: int, at: int) -> list[int]:
        """Targets of a jump through constants: in a row, addresses in the function that jumps."""
        found: list[int] = []
        while len(word := self.raw(start + 4 * len(found), 4)) == 4:
            target = int.from_bytes(word, "little") + base & 0xFFFFFFFF
            if self.at(target) is None or self._whole(target) != self._whole(at):
                break
            found.append(target)
        return found

    def _whole(self, address: int) -> str | None:
        """The function of an address; its unlikely part is another symbol."""
        function = self.function_at(address)
        return None if function is None else function.name.split(".cold")[0]

    def byte_table(self, start: int, width: int) -> list[int]:
        """Targets of tbb and tbh, twice each distance from the table; the first target ends it."""
        found: list[int] = []
        at = start
        while self._is_data(at) and at < first_after(start, found):
            distance = int.from_bytes(self.firmware.elf.read(at, width), "little")
            fills_up = width == 1 and (at - start) % 2 == 1 and not self._is_data(at + 1)
            if distance or not fills_up:
                found.append(start + 2 * distance)
            at += width
        return found

    def word_table(self, start: int) -> list[int]:
        """Addresses of code in the data at `start`; a jump to what is none ends in a fault."""
        found: list[int] = []
        at = start
        while self._is_data(at) and at < first_after(start, found):
            target = self.firmware.elf.word(at)
            if target & 1 and self.at(target & ~1) is not None:
                found.append(target & ~1)
            at += 4
        return found

    def _is_data(self, address: int) -> bool:
        section = self.firmware.elf.section_at(address)
        return (
            section is not None
            and section.bits
            and not section.write
            and address + 4 <= section.address + section.size
            and self.firmware.elf.mark_at(address) == "d"
        )


def first_after(start: int, addresses: list[int]) -> float:
    return min((address for address in addresses if address > start), default=math.inf)
