"""The memory protection unit: which addresses may be read (ARMv7-M, B3.5). Nothing else of it is modelled."""

from __future__ import annotations

CTRL, RNR, RBAR, RASR = 0xD94, 0xD98, 0xD9C, 0xDA0  # from 0xE000E000
BY_REGION = (RBAR, RASR)
REGIONS = 8
CTRL_ENABLE, CTRL_PRIVDEFENA, RASR_ENABLE = 1 << 0, 1 << 2, 1 << 0
NO_ACCESS = 0


def key(offset: int, registers: dict[int, int]) -> int:
    """Under which a register is kept: those of a region are seen at one address, one region at a time."""
    return offset if offset == CTRL else _of_region(offset, registers.get(RNR, 0) % REGIONS)


def _of_region(offset: int, number: int) -> int:
    return offset | (number + 1) << 16


def readable(registers: dict[int, int], address: int) -> bool:
    """Whether privileged code may read here: the last region that holds it decides."""
    control = registers.get(CTRL, 0)
    if not control & CTRL_ENABLE:
        return True
    for number in reversed(range(REGIONS)):
        attributes = registers.get(_of_region(RASR, number), 0)
        size = 2 << (attributes >> 1 & 31)
        start = registers.get(_of_region(RBAR, number), 0) & -size
        if attributes & RASR_ENABLE and start <= address < start + size:
            return attributes >> 24 & 7 != NO_ACCESS
    return bool(control & CTRL_PRIVDEFENA)
