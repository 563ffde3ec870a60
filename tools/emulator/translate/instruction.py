"""One Thumb instruction, and its operands as C (ARM DDI 0403, A7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

CONDITIONS = {
    "eq": "zf == 0",
    "ne": "zf != 0",
    "hs": "cf != 0",
    "lo": "cf == 0",
    "mi": "nf >> 31",
    "pl": "!(nf >> 31)",
    "vs": "vf >> 31",
    "vc": "!(vf >> 31)",
    "hi": "cf != 0 && zf != 0",
    "ls": "cf == 0 || zf == 0",
    "ge": "!((nf ^ vf) >> 31)",
    "lt": "(nf ^ vf) >> 31",
    "gt": "zf != 0 && !((nf ^ vf) >> 31)",
    "le": "zf == 0 || (nf ^ vf) >> 31",
}
CODES = dict(enumerate(CONDITIONS, 1))  # capstone's numbers; 15: always
NAMES = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12"}
SHIFTS = ("lsl", "lsr", "asr", "ror", "rrx")
TAKES_S = (*SHIFTS, "and", "orr", "orn", "eor", "bic", "mov", "mvn", "add", "sub", "rsb", "adc", "sbc", "mul")
SETS_FLAGS = {"cmp", "cmn", "tst", "teq"}
GENERAL = (*(f"r{n}" for n in range(13)), "sp", "lr")
Rule = Callable[["Instruction"], str]  # what an instruction does, as C


class UnknownInstructionError(Exception):
    """An instruction that has no statements here."""


@dataclass
class Instruction:
    """One instruction.

    name     without condition, `s` and width; `vadd.f32` keeps its type
    cond     a key of CONDITIONS, or None: always
    sets     whether it sets the flags
    ops      its operands as text, a shift beside the register that it shifts
    it       ITSTATE when it is about to run: 0 outside an IT block
    """

    address: int
    size: int
    name: str
    cond: str | None
    sets: bool
    ops: list[str]
    it: int = 0
    literal: Callable[[int, int], int] | None = field(default=None, repr=False)

    @property
    def pc(self) -> int:
        """What it reads as PC."""
        return self.address + 4

    @property
    def after(self) -> int:
        return self.address + self.size


def decoded(address: int, size: int, mnemonic: str, operands: str, code: int) -> Instruction:
    """An instruction as capstone tells it."""
    name = mnemonic.removesuffix(".w").removesuffix(".n")
    cond = CODES.get(code)
    if cond and not name.startswith("it"):
        head, dot, rest = name.partition(".")
        name = head.removesuffix(cond) + dot + rest
    sets = name in SETS_FLAGS
    if name.endswith("s") and name[:-1] in TAKES_S:
        name, sets = name[:-1], True
    return Instruction(address, size, name, cond, sets, _operands(operands))


def _operands(text: str) -> list[str]:
    parts = [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", text) if part.strip()]
    parts = [re.sub(r"\b(sb|sl|fp|ip)\b", lambda m: NAMES[m[1]], part) for part in parts]
    joined: list[str] = []
    for part in parts:
        if part.split()[0] in SHIFTS and joined:
            joined[-1] += f" {part}"
        else:
            joined.append(part)
    return joined


def condition(i: Instruction) -> str | None:
    return None if i.cond is None else CONDITIONS[i.cond]


# ------------------------------------------------------------------ operands
def number(text: str) -> int:
    if not text.startswith("#"):
        raise UnknownInstructionError(text)
    return int(text[1:], 0) & 0xFFFF_FFFF


def register(text: str) -> str:
    if text not in GENERAL:
        raise UnknownInstructionError(text)
    return text


def single(text: str) -> str:
    if not re.fullmatch(r"s\d+", text):
        raise UnknownInstructionError(text)
    return text


def registers(text: str) -> list[str]:
    """Of a list in braces; d registers as the s registers that they are."""
    names: list[str] = []
    for name in text.strip("{}").split(", "):
        if name.startswith("d"):
            names += [f"s{2 * int(name[1:])}", f"s{2 * int(name[1:]) + 1}"]
        else:
            names.append(name)
    return names


def value(i: Instruction, text: str) -> tuple[str, str | None]:
    """An operand's value, and the carry of its shift: None where it has none, and C stays."""
    if text.startswith("#"):
        return f"{number(text):#x}u", _immediate_carry(number(text))
    if text == "pc":
        return f"{i.pc:#x}u", None
    parts = text.split()
    source = register(parts[0])
    if len(parts) == 1:
        return source, None
    if parts[1] == "rrx":
        return f"({source} >> 1 | cf << 31)", f"{source} & 1u"
    return shifted(parts[1], source, number(parts[2]))


def _immediate_carry(n: int) -> str | None:
    """Bit 31 of an immediate that was made by rotation (ThumbExpandImm_C)."""
    low, high = n & 0xFF, n >> 8 & 0xFF
    repeated = n in (low, low * 0x10001, high * 0x1000100, low * 0x1010101)
    return None if repeated else str(n >> 31)


def shifted(kind: str, x: str, by: int) -> tuple[str, str | None]:
    """x shifted by a constant, and the bit that fell out."""
    if by == 0:
        return x, None
    if kind == "lsl":
        return f"({x} << {by})", f"{x} >> {32 - by} & 1u"
    if kind == "lsr":
        return (f"({x} >> {by})" if by < 32 else "0u"), f"{x} >> {by - 1} & 1u"
    if kind == "asr":
        return f"(uint32_t)((int32_t){x} >> {min(by, 31)})", f"{x} >> {by - 1} & 1u"
    return f"({x} >> {by} | {x} << {32 - by})", f"{x} >> {by - 1} & 1u"


def destination_and_two(i: Instruction) -> tuple[str, str, str]:
    ops = i.ops if len(i.ops) == 3 else [i.ops[0], *i.ops]
    return register(ops[0]), ops[1], ops[2]
