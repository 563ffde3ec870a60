"""Instructions of a Cortex-M ELF, function by function."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import capstone

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


def instructions(elf: Elf) -> Iterator[Instruction]:
    """All code of a firmware, by section and address."""
    functions = sorted((s.address, s.name) for s in elf.symbols if s.function)
    starts, names = [address for address, _ in functions], dict(functions)
    mode = capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8
    decoder = capstone.Cs(capstone.CS_ARCH_ARM, mode)
    decoder.skipdata = True
    for section in elf.sections:
        if not section.execute or not section.bits:
            continue
        for address, code in _thumb_code(elf, section):
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


def _thumb_code(elf: Elf, section: Section) -> Iterator[tuple[int, bytes]]:
    """The parts of a section that the mapping symbols call Thumb code; the rest are literals."""
    end = section.address + section.size
    inside = [mark for mark in elf.marks if section.holds(mark[0])]
    for (address, kind), (until, _) in zip(inside, [*inside[1:], (end, "")], strict=True):
        if kind == "t" and until > address:
            yield address, elf.read(address, until - address)
