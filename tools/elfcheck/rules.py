"""What must not be in a firmware, and where it was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from microtrain.base.elf import ANY_MACHINE, CHECKPOINTS, EXTERNAL, Elf, read_elf

from .instructions import Instruction, instructions

# double helpers of libgcc: RTABI section 4.1.2 (__aeabi_dadd, __aeabi_f2d, ...), older names (__muldf3, ...)
DOUBLE_HELPER = re.compile(
    r"__aeabi_(c?d(add|sub|rsub|mul|div|neg|cmp|rcmp)\w*|d2\w+|\w+2d)$"
    r"|__(add|sub|mul|div|neg|cmp|eq|ne|lt|le|gt|ge|unord|pow)df\w*$"
    r"|__(extendsfdf2|truncdfsf2|fixdf\w+|fixunsdf\w+|float\w*df)$"
)
FPV5 = re.compile(r"v(maxnm|minnm|rint[axzmnpr]|sel(eq|ge|gt|vs)|cvt[amnp])(\.|$)")
FUSED = re.compile(r"v(fma|fms|fnma|fnms|mla|mls|nmla|nmls)(\.|$)")
RISCV_DOUBLE = re.compile(r"(c\.)?(f\w+\.(\w+\.)?d(\.\w+)?|f[ls]d(sp)?)$")
RISCV_FUSED = re.compile(r"fn?m(add|sub)\.")
HEAP = re.compile(r"_*(malloc|calloc|realloc|free|memalign|sbrk)(_r)?$")
PRINTF = re.compile(r"_*(v?(s|sn|f|as|d)?i?printf|(v?(s|f)?i?scanf)|puts|dtoa|strtod|printf_float)(_r)?$")

DRIVER = "external_flash_init"


@dataclass(frozen=True)
class Finding:
    """One thing that must not be there.

    rule   double | fused | fpu | heap | printf | sector | external | unknown
    where  function or section
    what   the instruction or symbol
    """

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({REASONS[self.rule]})"


REASONS = {
    "double": "double precision: the FPU has none, and the numeric contract allows none; write 0.1f, not 0.1",
    "fused": "fused or chained multiply-add rounds differently; build with -ffp-contract=off",
    "fpu": "an instruction of FPv5, which the Cortex-M4's FPU has not; see FPU_V5",
    "heap": "the firmware has no heap",
    "printf": "printf and its family; use firmware/include/text.h",
    "sector": "upload would erase a checkpoint; see firmware/ld",
    "external": "in flash beside the chip lie constants alone, and a driver opens it; see MODEL_EXTERNAL",
    "unknown": "not an instruction this checker can read, so nothing is proven about it",
}


def check(path: Path) -> list[Finding]:
    """All findings: instructions and calls by address, then sections, then symbols. Errors: FileError."""
    elf = read_elf(path, ANY_MACHINE).with_symbols()
    return [*_instructions(elf), *_sectors(elf), *_external(elf), *_symbols(elf)]


def _forbidden(name: str) -> str | None:
    """The rule that a function of this name breaks."""
    rules = (("double", DOUBLE_HELPER), ("heap", HEAP), ("printf", PRINTF))
    return next((rule for rule, pattern in rules if pattern.match(name)), None)


def _symbols(elf: Elf) -> Iterator[Finding]:
    for name in sorted({s.name for s in elf.symbols if s.kind in ("function", "none")}):
        if rule := _forbidden(name):
            yield Finding(rule, "symbol table", name)


def has_checkpoints(elf: Elf) -> bool:
    """Whether an ELF says where they are. One for Arm must; no script of firmware/ld is for RISC-V."""
    return elf.machine == "arm" or all(f"{symbol}_start" in elf.names for symbol in CHECKPOINTS)


def _sectors(elf: Elf) -> Iterator[Finding]:
    """What is loaded over a checkpoint, or cleared by loaders that go by the load address, as Renode does."""
    if not has_checkpoints(elf):
        return
    for section in elf.sections:
        for name, symbol in zip("AB", CHECKPOINTS, strict=True):
            start, end = elf.value(f"{symbol}_start"), elf.value(f"{symbol}_end")
            if section.load < end and section.load + section.size > start:
                yield Finding("sector", section.name, f"lies in the flash of checkpoint {name}")


def _external(elf: Elf) -> Iterator[Finding]:
    """What lies in flash beside the chip: constants, which nothing reads before the driver has run."""
    start, end = (elf.names.get(f"{EXTERNAL}_{which}", 0) for which in ("start", "end"))
    for section in elf.sections:
        if start <= section.load < end:
            if section.execute or section.write:
                yield Finding("external", section.name, "is code, or start values of variables")
            if DRIVER not in elf.names:
                yield Finding("external", section.name, f"there is no {DRIVER}")


def _instructions(elf: Elf) -> Iterator[Finding]:
    for instruction in instructions(elf):
        where = f"{instruction.function} at {instruction.address:#010x}"
        called = None if _forbidden(instruction.function) else _forbidden(instruction.calls or "")
        if rule := _rule(instruction, elf):
            yield Finding(rule, where, instruction.text)
        elif called:
            yield Finding(called, where, f"calls {instruction.calls}")


def _rule(instruction: Instruction, elf: Elf) -> str | None:
    if instruction.mnemonic == "":
        return "unknown"
    return _riscv_rule(instruction) if elf.machine == "riscv" else _arm_rule(instruction, elf.fpv5)


def _riscv_rule(instruction: Instruction) -> str | None:
    if RISCV_DOUBLE.match(instruction.mnemonic):
        return "double"
    return "fused" if RISCV_FUSED.match(instruction.mnemonic) else None


def _arm_rule(instruction: Instruction, fpv5: bool) -> str | None:
    if ".f64" in instruction.mnemonic:
        return "double"
    if FPV5.match(instruction.mnemonic) and not fpv5:
        return "fpu"
    return "fused" if FUSED.match(instruction.mnemonic) else None
