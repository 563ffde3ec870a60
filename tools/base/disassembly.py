"""The disassembler of an ELF's machine."""

from __future__ import annotations

import capstone

MACHINES = {
    "arm": (
        capstone.CS_ARCH_ARM,
        capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8,
    ),
    "riscv": (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV32 | capstone.CS_MODE_RISCVC),
}


def decoder(machine: str) -> capstone.Cs:
    """machine: as Elf.machine."""
    return capstone.Cs(*MACHINES[machine])
