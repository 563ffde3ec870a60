"""What instructions of the FPU do: single precision (guest.h has the arithmetic)."""

from __future__ import annotations

import re

from .instruction import CONDITIONS, GENERAL, Instruction, Rule, UnknownInstructionError, number, single


def real(text: str) -> Rule:
    """A statement of s registers."""

    def rule(i: Instruction) -> str:
        ops = [f"{number(op)}u" if op.startswith("#") else single(op) for op in i.ops]
        if len(ops) != len(set(re.findall(r"\{\d\}", text))):
            raise UnknownInstructionError(i.name)
        return text.format(*ops)

    return rule


def _vmov(i: Instruction) -> str:
    if len(i.ops) == 4:
        return f"{i.ops[0]} = {i.ops[2]}; {i.ops[1]} = {i.ops[3]};"
    if len(i.ops) != 2:
        raise UnknownInstructionError(i.name)
    d, s = i.ops
    if s.startswith("#"):
        return f"{single(d)} = bits_of({float(s[1:])!r}f);"
    for name in (d, s):
        if name not in GENERAL:
            single(name)
    return f"{d} = {s};"


def _compare(i: Instruction) -> str:
    other = "0u" if i.ops[1].startswith("#") else single(i.ops[1])
    return f"fpflags = vfp_compared({single(i.ops[0])}, {other});"


def _vmrs(i: Instruction) -> str:
    if i.ops[0] != "apsr_nzcv":
        raise UnknownInstructionError(i.name)
    return "nf = fpflags; zf = ~fpflags & 0x40000000u; cf = fpflags >> 29 & 1u; vf = fpflags << 3;"


def _select(cond: str) -> Rule:
    return real(f"{{0}} = {CONDITIONS[cond]} ? {{1}} : {{2}};")


REALS: dict[str, Rule] = {
    "vmov": _vmov,
    "vmov.f32": _vmov,
    "vadd.f32": real("{0} = vfp_sum({1}, {2});"),
    "vsub.f32": real("{0} = vfp_difference({1}, {2});"),
    "vmul.f32": real("{0} = vfp_product({1}, {2});"),
    "vnmul.f32": real("{0} = vfp_product({1}, {2}) ^ 0x80000000u;"),
    "vdiv.f32": real("{0} = vfp_quotient({1}, {2});"),
    "vsqrt.f32": real("{0} = vfp_root({1});"),
    "vabs.f32": real("{0} = {1} & 0x7fffffffu;"),
    "vneg.f32": real("{0} = {1} ^ 0x80000000u;"),
    "vmaxnm.f32": real("{0} = vfp_greater({1}, {2});"),
    "vminnm.f32": real("{0} = vfp_lesser({1}, {2});"),
    "vcmp.f32": _compare,
    "vcmpe.f32": _compare,
    "vmrs": _vmrs,
    "vcvt.f32.s32": real("{0} = bits_of((float)(int32_t){1});"),
    "vcvt.f32.u32": real("{0} = bits_of((float){1});"),
    "vcvt.f32.s16": real("{0} = vfp_scaled((int16_t){1}, {2});"),
    "vcvt.s32.f32": real("{0} = vfp_truncated({1});"),
    "vcvt.u32.f32": real("{0} = vfp_truncated_unsigned({1});"),
    "vcvtr.s32.f32": real("{0} = vfp_rounded({1});"),
    "vrintx.f32": real("{0} = vfp_integral({1});"),
    "vrintn.f32": real("{0} = vfp_integral({1});"),
    "vrintr.f32": real("{0} = vfp_integral({1});"),
    **{f"vsel{cond}.f32": _select(cond) for cond in ("eq", "vs", "ge", "gt")},
}
