"""Instructions of an ELF, function by function."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from microtrain.base.disassembly import decoder
from microtrain.base.elf import Elf, Section


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


def _arm_target(address: int, mnemonic: str, operands: str) -> int:
    """Where a branch with a fixed address goes, else -1."""
    return int(operands[1:], 16) if mnemonic.startswith("b") and operands.startswith("#") else -1


def _riscv_target(address: int, mnemonic: str, operands: str) -> int:
    """The same; they name a distance."""
    last = operands.split(", ")[-1]
    jumps = mnemonic.removeprefix("c.").startswith(("j", "b")) and "r" not in mnemonic
    return address + int(last, 0) if jumps and re.fullmatch(r"-?(0x[0-9a-f]+|\d)", last) else -1


TARGETS = {"arm": _arm_target, "riscv": _riscv_target}


def instructions(elf: Elf) -> Iterator[Instruction]:
    """All code of a firmware, by section and address."""
    functions = sorted((s.address, s.name) for s in elf.symbols if s.function)
    starts, names = [address for address, _ in functions], dict(functions)
    disassembler = decoder(elf.machine)
    disassembler.skipdata = True
    for section in elf.sections:
        if not section.execute or not section.bits:
            continue
        for address, code in _code(elf, section):
            for found in disassembler.disasm(code, address):
                index = bisect.bisect_right(starts, found.address) - 1
                yield Instruction(
                    address=found.address,
                    function=functions[index][1] if index >= 0 else "?",
                    mnemonic="" if found.mnemonic.startswith(".") else found.mnemonic,
                    text=f"{found.mnemonic} {found.op_str}".strip(),
                    calls=names.get(TARGETS[elf.machine](found.address, found.mnemonic, found.op_str)),
                )


def _code(elf: Elf, section: Section) -> Iterator[tuple[int, bytes]]:
    """The parts of a section that the mapping symbols call code; the rest are literals."""
    end = section.address + section.size
    inside = [mark for mark in elf.marks if section.holds(mark[0])]
    for (address, kind), (until, _) in zip(inside, [*inside[1:], (end, "")], strict=True):
        if kind == "t" and until > address:
            yield address, elf.read(address, until - address)
