"""Loads and stores. `a_` is the address, `p_` where the host has it."""

from __future__ import annotations

from .instruction import Instruction, Rule, UnknownInstructionError, number, register, registers, value


def address(i: Instruction, text: str, rest: list[str]) -> tuple[str, str]:
    """The address of an access as C, and what it does to its base register afterwards."""
    before = text.endswith("!")
    inside = [part.strip() for part in text.rstrip("!")[1:-1].split(",")]
    base = inside[0]
    if base == "pc":
        if len(inside) > 2 or (len(inside) == 2 and not inside[1].startswith("#")):
            raise UnknownInstructionError(text)
        return f"{((i.pc & ~3) + (number(inside[1]) if len(inside) == 2 else 0)) & 0xFFFFFFFF:#x}u", ""
    register(base)
    offset = ""
    if len(inside) > 1:
        offset = value(i, " ".join(inside[1:]))[0]
    where = f"{base} + {offset}" if offset else base
    if rest:
        return base, f"{base} += {value(i, rest[0])[0]};"
    return where, f"{base} = a_;" if before else ""


def load(kind: str, cast: str = "") -> Rule:
    def rule(i: Instruction) -> str:
        d = register(i.ops[0])
        where, then = address(i, i.ops[1], i.ops[2:])
        if then and d == i.ops[1].strip("[]!").split(",")[0]:
            raise UnknownInstructionError(i.name)
        if i.ops[1].startswith("[pc") and i.literal and kind == "uint32_t":
            return f"LITERAL({d}, {where}, {i.literal(int(where.rstrip('u'), 16), 4):#x}u);"
        return f"{{ uint32_t a_ = {where}; LOAD({kind}, {d}, a_, {cast}); {then} }}"

    return rule


def store(kind: str) -> Rule:
    def rule(i: Instruction) -> str:
        where, then = address(i, i.ops[1], i.ops[2:])
        return f"{{ uint32_t a_ = {where}; STORE({kind}, {register(i.ops[0])}, a_); {then} }}"

    return rule


def words(i: Instruction, direction: str, names: list[str], address: str, then: str) -> str:
    """Several words, one after the other: aligned, or Unicorn sees to it."""
    moves = " ".join(f"{direction}_WORD({name}, p_, {4 * n}, a_);" for n, name in enumerate(names))
    return f"{{ uint32_t a_ = {address}; WORDS_{direction}({len(names)}, a_); {moves} {then} }}"


def double(direction: str) -> Rule:
    def rule(i: Instruction) -> str:
        names = [register(op) for op in i.ops[:2]]
        where, then = address(i, i.ops[2], i.ops[3:])
        base = i.ops[2].strip("[]!").split(",")[0]
        if then and base in names:
            raise UnknownInstructionError(i.name)
        return words(i, direction, names, where, then)

    return rule


def multiple(direction: str, down: bool) -> Rule:
    def rule(i: Instruction) -> str:
        base, names = register(i.ops[0].rstrip("!")), registers(i.ops[1])
        back = i.ops[0].endswith("!")
        if "pc" in names or (back and base in names):
            raise UnknownInstructionError(i.name)
        size = 4 * len(names)
        where = f"{base} - {size}u" if down else base
        then = (f"{base} = a_;" if down else f"{base} = a_ + {size}u;") if back else ""
        return words(i, direction, names, where, then)

    return rule


def _push(i: Instruction) -> str:
    names = registers(i.ops[0])
    return words(i, "STORE", names, f"sp - {4 * len(names)}u", "sp = a_;")


def _pop(i: Instruction) -> str:
    names = registers(i.ops[0])
    if "pc" in names:
        raise UnknownInstructionError(i.name)
    return words(i, "LOAD", names, "sp", f"sp = a_ + {4 * len(names)}u;")


def _transfer(direction: str) -> Rule:
    """VLDR and VSTR."""

    def rule(i: Instruction) -> str:
        where, _ = address(i, i.ops[1], [])
        return words(i, direction, registers(i.ops[0]), where, "")

    return rule


MEMORY: dict[str, Rule] = {
    "ldr": load("uint32_t"),
    "ldrb": load("uint8_t"),
    "ldrh": load("uint16_t"),
    "ldrsb": load("int8_t", "(uint32_t)"),
    "ldrsh": load("int16_t", "(uint32_t)"),
    "str": store("uint32_t"),
    "strb": store("uint8_t"),
    "strh": store("uint16_t"),
    "ldrd": double("LOAD"),
    "strd": double("STORE"),
    "ldm": multiple("LOAD", False),
    "ldmdb": multiple("LOAD", True),
    "stm": multiple("STORE", False),
    "stmdb": multiple("STORE", True),
    "push": _push,
    "pop": _pop,
    "vldr": _transfer("LOAD"),
    "vstr": _transfer("STORE"),
    "vldmia": multiple("LOAD", False),
    "vldmdb": multiple("LOAD", True),
    "vstmia": multiple("STORE", False),
    "vstmdb": multiple("STORE", True),
    "vpush": _push,
    "vpop": _pop,
}
