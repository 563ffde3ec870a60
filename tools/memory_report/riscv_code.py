"""RISC-V instructions as the fields of their formats, a compressed one as what it stands for.

The RISC-V Instruction Set Manual, volume I: RV32I with M, A, F, D and C, and csr instructions. Of other
extensions those that are written in the formats OP and OP-IMM change nothing but their result.
"""

from __future__ import annotations

from dataclasses import dataclass

ZERO, RA, SP, GP = 0, 1, 2, 3
REGISTERS: tuple[str, ...] = ("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1")
REGISTERS += (*(f"a{n}" for n in range(8)), *(f"s{n}" for n in range(2, 12)), "t3", "t4", "t5", "t6")
LOADS = {0: "lb", 1: "lh", 2: "lw", 4: "lbu", 5: "lhu"}
STORES = {0: "sb", 1: "sh", 2: "sw"}
IMMEDIATES = {0: "addi", 4: "xori", 6: "ori", 7: "andi"}
OPERATIONS: dict[tuple[int, int], str] = {
    (0x00, 0): "add", (0x20, 0): "sub", (0x00, 1): "sll", (0x00, 6): "or", (0x00, 7): "and", (0x01, 0): "mul",
    (0x10, 2): "sh1add", (0x10, 4): "sh2add", (0x10, 6): "sh3add",
}  # fmt: skip
FLOAT_LOADS, FLOAT_STORES = {2: "flw", 3: "fld"}, {2: "fsw", 3: "fsd"}
TO_INTEGER = {0x50, 0x51, 0x60, 0x61, 0x70, 0x71}  # compare, convert, move: they write an integer register
FUSED = (0x43, 0x47, 0x4B, 0x4F)


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    op    its name in the base set; "other" where only its result matters
    rd    register that it writes, 0 where none; a, b: those that it reads
    imm   its number; of jumps the distance; of csr instructions the csr
    """

    address: int
    size: int
    op: str
    rd: int = 0
    a: int = 0
    b: int = 0
    imm: int = 0


def decode(address: int, data: bytes) -> Instruction | None:
    """The instruction at the begin of some bytes; None where it is none that is known."""
    if len(data) < 2:
        return None
    half = int.from_bytes(data[:2], "little")
    if half & 3 != 3:
        found = compressed(half)
        return None if found is None else Instruction(address, 2, *found)
    if len(data) < 4 or half & 0x1C == 0x1C:
        return None
    found = whole(int.from_bytes(data[:4], "little"))
    return None if found is None else Instruction(address, 4, *found)


Fields = tuple[str, int, int, int, int]


def whole(word: int) -> Fields | None:
    """An instruction of 32 bits: op, rd, a, b, imm."""
    opcode, rd, kind = word & 0x7F, word >> 7 & 31, word >> 12 & 7
    a, b, high = word >> 15 & 31, word >> 20 & 31, word >> 25
    upper, short = signed(word & 0xFFFFF000, 32), signed(word >> 20, 12)
    into = signed(high << 5 | rd, 12)
    if opcode in (0x37, 0x17):
        return ("lui" if opcode == 0x37 else "auipc", rd, 0, 0, upper)
    if opcode == 0x6F:
        return ("jal", rd, 0, 0, jump_distance(word))
    if opcode == 0x67 and kind == 0:
        return ("jalr", rd, a, 0, short)
    if opcode == 0x63 and kind not in (2, 3):
        return ("branch", 0, a, b, branch_distance(word))
    if opcode == 0x03 and kind in LOADS:
        return (LOADS[kind], rd, a, 0, short)
    if opcode == 0x23 and kind in STORES:
        return (STORES[kind], 0, a, b, into)
    if opcode == 0x13:
        name = "slli" if kind == 1 and high == 0 else IMMEDIATES.get(kind, "other")
        return (name, rd, a, 0, b if kind == 1 else short)
    if opcode == 0x33:
        return (OPERATIONS.get((high, kind), "other"), rd, a, b, 0)
    return rest(word)


def rest(word: int) -> Fields | None:
    """Those of memory order, the system, atomics and floats."""
    opcode, rd, kind = word & 0x7F, word >> 7 & 31, word >> 12 & 7
    a, b, high = word >> 15 & 31, word >> 20 & 31, word >> 25
    if opcode == 0x0F:
        return ("fence", 0, 0, 0, 0)
    if opcode == 0x73:
        return system(word)
    if opcode == 0x2F and kind == 2:
        return ("lr" if high >> 2 == 2 else "amo", rd, a, b, 0)
    if opcode == 0x07 and kind in FLOAT_LOADS:
        return (FLOAT_LOADS[kind], 0, a, 0, signed(word >> 20, 12))
    if opcode == 0x27 and kind in FLOAT_STORES:
        return (FLOAT_STORES[kind], 0, a, 0, signed(high << 5 | rd, 12))
    if opcode == 0x53:
        return ("other", rd if high in TO_INTEGER else 0, a, b, 0)
    return ("other", 0, 0, 0, 0) if opcode in FUSED else None


def system(word: int) -> Fields | None:
    """Calls of the environment, returns from traps, and csr instructions: a, or the number b."""
    rd, kind, a = word >> 7 & 31, word >> 12 & 7, word >> 15 & 31
    names = {0x00000073: "ecall", 0x00100073: "ebreak", 0x30200073: "mret", 0x10500073: "fence"}
    if kind == 0:
        return (names[word], 0, 0, 0, 0) if word in names else None
    if kind == 4:
        return None
    name = ("csrrw", "csrrs", "csrrc")[(kind & 3) - 1]
    return (f"{name}i", rd, 0, a, word >> 20) if kind & 4 else (name, rd, a, 0, word >> 20)


def compressed(half: int) -> Fields | None:
    """An instruction of 16 bits as the one of 32 that it stands for (C, table 16.5 to 16.7)."""
    kind, low, high = half >> 13, 8 + (half >> 2 & 7), 8 + (half >> 7 & 7)
    if half & 3 == 0:
        return short_memory(half, kind, low, high)
    if half & 3 == 1:
        return short_numbers(half, kind, low, high)
    return short_stack(half, kind)


def short_memory(half: int, kind: int, low: int, high: int) -> Fields | None:
    word = pick(half, (12, 5), (11, 4), (10, 3), (6, 2), (5, 6))
    double = pick(half, (12, 5), (11, 4), (10, 3), (6, 7), (5, 6))
    if kind == 0:
        places = ((12, 5), (11, 4), (10, 9), (9, 8), (8, 7), (7, 6), (6, 2), (5, 3))
        amount = pick(half, *places)
        return ("addi", low, SP, 0, amount) if amount else None
    found: dict[int, Fields] = {
        1: ("fld", 0, high, 0, double),
        2: ("lw", low, high, 0, word),
        3: ("flw", 0, high, 0, word),
        5: ("fsd", 0, high, 0, double),
        6: ("sw", 0, high, low, word),
        7: ("fsw", 0, high, 0, word),
    }
    return found.get(kind)


def short_numbers(half: int, kind: int, low: int, high: int) -> Fields | None:
    rd = half >> 7 & 31
    six = signed(pick(half, (12, 5), *((n + 2, n) for n in range(5))), 6)
    if kind in (0, 2):
        return ("addi", rd, rd if kind == 0 else ZERO, 0, six)
    if kind in (1, 5):
        places = ((12, 11), (11, 4), (10, 9), (9, 8), (8, 10), (7, 6), (6, 7), (5, 3), (4, 2), (3, 1), (2, 5))
        return ("jal", RA if kind == 1 else ZERO, 0, 0, signed(pick(half, *places), 12))
    if kind in (6, 7):
        near = pick(half, (12, 8), (11, 4), (10, 3), (6, 7), (5, 6), (4, 2), (3, 1), (2, 5))
        return ("branch", 0, high, 0, signed(near, 9))
    if kind == 3 and rd == SP:
        amount = signed(pick(half, (12, 9), (6, 4), (5, 6), (4, 8), (3, 7), (2, 5)), 10)
        return ("addi", SP, SP, 0, amount) if amount else None
    if kind == 3:
        return ("lui", rd, 0, 0, six << 12) if six else None
    which = half >> 10 & 3
    if which < 2:
        return ("other", high, high, 0, 0)
    if which == 2:
        return ("andi", high, high, 0, six)
    names = {0: "sub", 1: "other", 2: "or", 3: "and"}
    return None if half & 0x1000 else (names[half >> 5 & 3], high, high, low, 0)


def short_stack(half: int, kind: int) -> Fields | None:
    rd, b = half >> 7 & 31, half >> 2 & 31
    load = pick(half, (12, 5), (6, 4), (5, 3), (4, 2), (3, 7), (2, 6))
    double = pick(half, (12, 5), (6, 4), (5, 3), (4, 8), (3, 7), (2, 6))
    store = pick(half, (12, 5), (11, 4), (10, 3), (9, 2), (8, 7), (7, 6))
    if kind == 4:
        return short_jump(half, rd, b)
    found: dict[int, Fields] = {
        0: ("slli", rd, rd, 0, pick(half, *((n + 2, n) for n in range(5)))),
        1: ("fld", 0, SP, 0, double),
        2: ("lw", rd, SP, 0, load),
        3: ("flw", 0, SP, 0, load),
        5: ("fsd", 0, SP, 0, pick(half, (12, 5), (11, 4), (10, 3), (9, 8), (8, 7), (7, 6))),
        6: ("sw", 0, SP, b, store),
        7: ("fsw", 0, SP, 0, store),
    }
    if kind == 2 and rd == 0:
        return None
    return found[kind]


def short_jump(half: int, rd: int, b: int) -> Fields | None:
    linked = bool(half & 0x1000)
    if b:
        return ("add", rd, rd if linked else ZERO, b, 0)
    if rd:
        return ("jalr", RA if linked else ZERO, rd, 0, 0)
    return ("ebreak", 0, 0, 0, 0) if linked else None


def jump_distance(word: int) -> int:
    bits = (word >> 31) << 20 | (word >> 12 & 0xFF) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 0x3FF) << 1
    return signed(bits, 21)


def branch_distance(word: int) -> int:
    bits = (word >> 31) << 12 | (word >> 7 & 1) << 11 | (word >> 25 & 0x3F) << 5 | (word >> 8 & 15) << 1
    return signed(bits, 13)


def pick(bits: int, *places: tuple[int, int]) -> int:
    """A number of scattered bits: (where it stands, which bit of the number it is)."""
    return sum((bits >> at & 1) << bit for at, bit in places)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value
