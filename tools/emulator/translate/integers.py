"""What instructions do to the core registers and the flags."""

from __future__ import annotations

import itertools
import re

from .instruction import (
    Instruction,
    Rule,
    UnknownInstructionError,
    destination_and_two,
    number,
    register,
    shifted,
    value,
)

ITS = ["it" + "".join(rest) for n in range(4) for rest in itertools.product("te", repeat=n)]


def logic(form: str) -> Rule:
    def rule(i: Instruction) -> str:
        d, a, b = destination_and_two(i)
        y, carry = value(i, b)
        return _logical(i, d, form.format(a=register(a), b=y), carry)

    return rule


def move(form: str) -> Rule:
    def rule(i: Instruction) -> str:
        y, carry = value(i, i.ops[1])
        return _logical(i, register(i.ops[0]), form.format(b=y), carry)

    return rule


def _logical(i: Instruction, d: str, result: str, carry: str | None) -> str:
    if not i.sets:
        return f"{d} = {result};"
    kept = f"uint32_t c_ = {carry}; " if carry is not None else ""
    after = " cf = c_;" if carry is not None else ""
    return f"{{ {kept}{d} = {result}; nf = zf = {d};{after} }}"


def test(form: str) -> Rule:
    def rule(i: Instruction) -> str:
        y, carry = value(i, i.ops[1])
        kept = f" cf = {carry};" if carry is not None else ""
        return f"{{ nf = zf = {form.format(a=register(i.ops[0]), b=y)};{kept} }}"

    return rule


def shift(kind: str) -> Rule:
    def rule(i: Instruction) -> str:
        d, a, b = destination_and_two(i)
        if b.startswith("#"):
            result, carry = shifted(kind, register(a), number(b))
            return _logical(i, d, result, carry)
        if not i.sets:
            return f"{d} = {kind}_by({register(a)}, {register(b)});"
        return f"{{ cf = {kind}_carry({a}, {b}, cf); nf = zf = {d} = {kind}_by({a}, {b}); }}"

    return rule


def _rrx(i: Instruction) -> str:
    result, carry = value(i, f"{i.ops[1]} rrx")
    return _logical(i, register(i.ops[0]), result, carry)


def sum_of(x: str, y: str, carry: str) -> Rule:
    """x + y + carry, where x and y are told by the operands {a} and {b} (AddWithCarry)."""

    def rule(i: Instruction) -> str:
        d, first, second = destination_and_two(i)
        a = f"{i.pc & ~3:#x}u" if first == "pc" else register(first)
        b = value(i, second)[0]
        if i.sets:
            return f"{{ {_with_flags(x.format(a=a, b=b), y.format(a=a, b=b), carry)} {d} = r_; }}"
        return f"{d} = {x.format(a=a, b=b)} + {y.format(a=a, b=b)} + {carry};"

    return rule


def compare(x: str, y: str, carry: str) -> Rule:
    def rule(i: Instruction) -> str:
        a, b = register(i.ops[0]), value(i, i.ops[1])[0]
        return f"{{ {_with_flags(x.format(a=a, b=b), y.format(a=a, b=b), carry)} }}"

    return rule


def _with_flags(x: str, y: str, carry: str) -> str:
    """r_, and the flags that it sets. A difference is x + ~y + 1, whose carry says that y is not above x."""
    text = f"uint32_t x_ = {x}, y_ = {y}, r_ = x_ + y_ + {carry};"
    if carry == "0u":
        of = "r_ < x_"
    elif carry == "1u":
        of = "x_ >= ~y_"
    else:
        of = f"(uint32_t)(((uint64_t)x_ + y_ + {carry}) >> 32)"
    return f"{text} cf = {of}; nf = zf = r_; vf = ~(x_ ^ y_) & (x_ ^ r_);"


def _adr(i: Instruction) -> str:
    return f"{register(i.ops[0])} = {(i.pc & ~3) + number(i.ops[1]):#x}u;"


def _mul(i: Instruction) -> str:
    d, a, b = destination_and_two(i)
    return f"{d} = {register(a)} * {register(b)};" + (f" nf = zf = {d};" if i.sets else "")


def form(text: str) -> Rule:
    """A statement with the operands in it: {0} is the first. Registers and numbers alone."""

    def rule(i: Instruction) -> str:
        if len(i.ops) != len(set(re.findall(r"\{\d\}", text))):
            raise UnknownInstructionError(i.name)
        return text.format(*(f"{number(op)}u" if op.startswith("#") else register(op) for op in i.ops))

    return rule


def rotated(text: str) -> Rule:
    """Likewise, where the last operand may be shifted or rotated."""

    def rule(i: Instruction) -> str:
        *ops, last = i.ops
        values = [f"{number(op)}u" if op.startswith("#") else register(op) for op in ops]
        return text.format(*values, value(i, last)[0])

    return rule


def halves(text: str) -> dict[str, Rule]:
    """smla<x><y> and kin: which half of each operand."""
    return {
        x + y: form(text.format(x=f"{_half[x]}({{1}})", y=f"{_half[y]}({{2}})")) for x in "bt" for y in "bt"
    }


_half = {"b": "low_half", "t": "high_half"}


def _none(_i: Instruction) -> str:
    return ";"


def _extract(text: str) -> Rule:
    def rule(i: Instruction) -> str:
        lowest, width = number(i.ops[2]), number(i.ops[3])
        return text.format(register(i.ops[0]), register(i.ops[1]), 32 - width - lowest, 32 - width)

    return rule


def _insert(i: Instruction) -> str:
    source = "0u" if i.name == "bfc" else register(i.ops[1])
    lowest, width = number(i.ops[-2]), number(i.ops[-1])
    mask = ((1 << width) - 1) << lowest
    d = register(i.ops[0])
    return f"{d} = ({d} & {~mask & 0xFFFF_FFFF:#x}u) | ({source} << {lowest} & {mask:#x}u);"


def _saturate(signed: bool) -> Rule:
    name = "ssat" if signed else "usat"

    def rule(i: Instruction) -> str:
        y = value(i, i.ops[2])[0]
        return f"{register(i.ops[0])} = {name}({number(i.ops[1])}, (int32_t){y}, &qf);"

    return rule


INTEGERS: dict[str, Rule] = {
    **dict.fromkeys(
        ("nop", *("it" + a + b + c for a in ("", "t", "e") for b in ("", "t", "e") for c in ("", "t", "e"))),
        _none,
    ),
    "and": logic("{a} & {b}"),
    "orr": logic("{a} | {b}"),
    "orn": logic("{a} | ~{b}"),
    "eor": logic("{a} ^ {b}"),
    "bic": logic("{a} & ~{b}"),
    "mov": move("{b}"),
    "movw": move("{b}"),
    "mvn": move("~{b}"),
    "movt": form("{0} = ({0} & 0xffffu) | {1} << 16;"),
    "tst": test("{a} & {b}"),
    "teq": test("{a} ^ {b}"),
    "lsl": shift("lsl"),
    "lsr": shift("lsr"),
    "asr": shift("asr"),
    "ror": shift("ror"),
    "rrx": _rrx,
    "add": sum_of("{a}", "{b}", "0u"),
    "addw": sum_of("{a}", "{b}", "0u"),
    "sub": sum_of("{a}", "~({b})", "1u"),
    "subw": sum_of("{a}", "~({b})", "1u"),
    "rsb": sum_of("~{a}", "{b}", "1u"),
    "adc": sum_of("{a}", "{b}", "cf"),
    "sbc": sum_of("{a}", "~({b})", "cf"),
    "cmp": compare("{a}", "~({b})", "1u"),
    "cmn": compare("{a}", "{b}", "0u"),
    "adr": _adr,
    "mul": _mul,
    "mla": form("{0} = {1} * {2} + {3};"),
    "mls": form("{0} = {3} - {1} * {2};"),
    "udiv": form("{0} = {2} == 0u ? 0u : {1} / {2};"),
    "sdiv": form("{0} = sdiv({1}, {2});"),
    "umull": form("SPLIT({0}, {1}, (uint64_t){2} * {3});"),
    "smull": form("SPLIT({0}, {1}, product({2}, {3}));"),
    "umlal": form("SPLIT({0}, {1}, joined({0}, {1}) + (uint64_t){2} * {3});"),
    "smlal": form("SPLIT({0}, {1}, joined({0}, {1}) + product({2}, {3}));"),
    "smmul": form("{0} = (uint32_t)(((int64_t)(int32_t){1} * (int32_t){2}) >> 32);"),
    "smmulr": form("{0} = (uint32_t)(((int64_t)(int32_t){1} * (int32_t){2} + 0x80000000ll) >> 32);"),
    "smmla": form("{0} = smmla({1}, {2}, {3}, 0u);"),
    "smmlar": form("{0} = smmla({1}, {2}, {3}, 0x80000000u);"),
    "smmls": form("{0} = smmls({1}, {2}, {3}, 0u);"),
    "smmlsr": form("{0} = smmls({1}, {2}, {3}, 0x80000000u);"),
    "smlad": form("{0} = dual({1}, {2}, {3}, &qf);"),
    "smuad": form("{0} = dual({1}, {2}, 0u, &qf);"),
    **{f"smla{k}": rule for k, rule in halves("{{0}} = accumulated({x} * {y}, {{3}}, &qf);").items()},
    **{f"smul{k}": rule for k, rule in halves("{{0}} = (uint32_t)({x} * {y});").items()},
    "qadd": form("{0} = saturated((int64_t)(int32_t){1} + (int32_t){2}, &qf);"),
    "qsub": form("{0} = saturated((int64_t)(int32_t){1} - (int32_t){2}, &qf);"),
    "ssat": _saturate(True),
    "usat": _saturate(False),
    "pkhbt": rotated("{0} = ({1} & 0xffffu) | ({2} & 0xffff0000u);"),
    "pkhtb": rotated("{0} = ({1} & 0xffff0000u) | ({2} & 0xffffu);"),
    "sxtb": rotated("{0} = (uint32_t)(int8_t){1};"),
    "sxth": rotated("{0} = (uint32_t)(int16_t){1};"),
    "uxtb": rotated("{0} = (uint8_t){1};"),
    "uxth": rotated("{0} = (uint16_t){1};"),
    "sxtab": rotated("{0} = {1} + (uint32_t)(int8_t){2};"),
    "sxtah": rotated("{0} = {1} + (uint32_t)(int16_t){2};"),
    "uxtab": rotated("{0} = {1} + (uint8_t){2};"),
    "uxtah": rotated("{0} = {1} + (uint16_t){2};"),
    "sxtb16": rotated("{0} = sxtb16({1});"),
    "sxtab16": rotated("{0} = halves_added({1}, sxtb16({2}));"),
    "uxtb16": rotated("{0} = {1} & 0xff00ffu;"),
    "uxtab16": rotated("{0} = halves_added({1}, {2} & 0xff00ffu);"),
    "clz": form("{0} = {1} == 0u ? 32u : (uint32_t)__builtin_clz({1});"),
    "rev": form("{0} = __builtin_bswap32({1});"),
    "rev16": form("{0} = ({1} >> 8 & 0xff00ffu) | ({1} << 8 & 0xff00ff00u);"),
    "rbit": form("{0} = rbit({1});"),
    "ubfx": _extract("{0} = {1} << {2} >> {3};"),
    "sbfx": _extract("{0} = (uint32_t)((int32_t)({1} << {2}) >> {3});"),
    "bfi": _insert,
    "bfc": _insert,
}
