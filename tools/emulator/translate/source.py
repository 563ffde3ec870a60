"""The C file of translated functions, to be compiled beside guest.h."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .blocks import Block, Function, jump
from .instruction import (
    GENERAL,
    Instruction,
    UnknownInstructionError,
    condition,
    number,
    register,
    registers,
)
from .memory import address
from .rules import statements

NAMES = (*GENERAL, "nf", "zf", "cf", "vf", "qf", "fpflags", *(f"s{n}" for n in range(32)))
READS = re.compile(r"\b(r\d+|sp|lr|[nzcvq]f|fpflags|s\d+)\b")
LEAVES = ("LOAD", "STORE", "HAND_OVER")  # what may hand over to Unicorn
NO_THUMB = "if (UNLIKELY(!IS_THUMB(t_))) { HAND_OVER(); }"


def source(functions: Sequence[Function]) -> str:
    texts: list[str] = []
    rows: list[str] = []
    for n, function in enumerate(functions):
        texts.append(_function(function, len(rows)))
        rows += [
            f"{{{a:#x}u, {block.note:#x}u, {n}u, {int(block.entered)}u}},"
            for a, block in sorted(function.blocks.items())
        ]
    return "\n".join(
        (
            '#include "guest.h"',
            *texts,
            "static const struct translated_function functions[] = {",
            *(f"{{{f.start:#x}u, {f.end:#x}u, f_{f.start:x}}}," for f in functions),
            "};",
            "static const struct translated_block blocks[] = {",
            *rows,
            "};",
            "const struct translation translation = {",
            f"functions, blocks, {len(functions)}u, {len(rows)}u, CACHES",
            "};",
            f"const uint32_t translation_blocks = {len(rows)}u;",
            "",
        )
    )


def _function(function: Function, first: int) -> str:
    """One function; its blocks are counted from `first` on."""
    blocks = sorted(function.blocks.items())
    body = "\n".join(_block(function, block, first + k) for k, (_, block) in enumerate(blocks))
    used = {*READS.findall(body), "lr", "sp"}
    kept = [name for name in NAMES if name in used]
    return "\n".join(
        (
            f"static void f_{function.start:x}(struct native *n, struct guest *g)",
            "{",
            *(f"uint32_t {name} = g->{_field(name)};" for name in kept),
            "uint8_t *const *readable = g->readable, *const *writable = g->writable;",
            "uint64_t *const runs = g->runs;",
            "int64_t left = g->left;",
            "uint64_t counting = g->counting, at = 0;",
            "(void)n, (void)readable, (void)writable;",
            "switch (g->pc) {",
            *(f"case {a:#x}u: goto B_{a:x};" for a, block in blocks if block.entered),
            "default: return;",
            "}",
            body,
            "hand_over: g->out = LEFT_WITHIN; goto leave;",
            "out_of_time: g->out = LEFT_IN_TIME;",
            "leave:",
            *(f"g->{_field(name)} = {name};" for name in kept),
            "g->pc = (uint32_t)at, g->it = (uint32_t)(at >> 32) & 0xffu;",
            "g->block = g->pc - (uint32_t)(at >> 40);",
            "g->left = left, g->counting = counting;",
            "}",
        )
    )


def _field(name: str) -> str:
    """Where struct guest has a register."""
    if name in GENERAL:
        return f"r[{GENERAL.index(name)}]"
    return f"s[{name[1:]}]" if re.fullmatch(r"s\d+", name) else name


def _block(function: Function, block: Block, count: int) -> str:
    kind = "BLOCK_ENTERED" if block.entered else "BLOCK"
    size = f"{len(block.instructions)}, {block.size}u"
    lines = [f"B_{block.address:x}: {kind}({count}, {block.address:#x}u, {size});"]
    for i in block.instructions:
        try:
            text = _ending(function, i) if jump(i) is not None else statements(i)
        except UnknownInstructionError:
            return "\n".join([*lines, f"{_place(block, i)} HAND_OVER();"])
        lines.append(_conditional(i, f"{_place(block, i)} {text}" if _may_leave(text) else text))
    return "\n".join([*lines, _go(function, block.last.after)])


def _may_leave(text: str) -> bool:
    return any(word in text for word in LEAVES)


def _place(block: Block, i: Instruction) -> str:
    """Where Unicorn goes on if it is this instruction: its address, ITSTATE, how far it is into the block."""
    return f"at = {(i.address - block.address) << 40 | i.it << 32 | i.address:#x}u;"


def _conditional(i: Instruction, text: str) -> str:
    needed = None if i.name.startswith("it") else condition(i)
    return f"if ({needed}) {{ {text} }}" if needed else text


def _go(function: Function, target: int) -> str:
    return f"goto B_{target:x};" if target in function.blocks else f"GO({target:#x}u);"


def _ending(function: Function, i: Instruction) -> str:
    """A jump; what follows the block, where it has a condition, stands behind it.

    Errors   UnknownInstructionError
    """
    if i.name == "b":
        return _go(function, number(i.ops[0]))
    if i.name in ("cbz", "cbnz"):
        relation = "==" if i.name == "cbz" else "!="
        return f"if ({register(i.ops[0])} {relation} 0u) {{ {_go(function, number(i.ops[1]))} }}"
    if i.name == "bl":
        return f"lr = {i.after | 1:#x}u; GO({number(i.ops[0]):#x}u);"
    if i.name == "blx":
        return f"{{ uint32_t t_ = {register(i.ops[0])}; {NO_THUMB} lr = {i.after | 1:#x}u; GO(t_ & ~1u); }}"
    if i.name == "bx":
        return f"{{ uint32_t t_ = {register(i.ops[0])}; {NO_THUMB} GO(t_ & ~1u); }}"
    if i.name in ("tbb", "tbh"):
        return _by_table(i)
    if i.name == "pop":
        names = registers(i.ops[0])
        return _loaded(names, "sp", f"sp = a_ + {4 * len(names)}u;")
    if i.name == "ldr":
        return _loaded(["pc"], *address(i, i.ops[1], i.ops[2:]))
    raise UnknownInstructionError(i.name)


def _loaded(names: list[str], where: str, then: str) -> str:
    """A jump to the last of several words."""
    last = 4 * (len(names) - 1)
    loads = " ".join(f"LOAD_WORD({name}, p_, {4 * k}, a_);" for k, name in enumerate(names[:-1]))
    return (
        f"{{ uint32_t a_ = {where}, t_; WORDS_LOAD({len(names)}, a_); memcpy(&t_, p_ + {last}, 4); "
        f"{NO_THUMB} {loads} LOAD_WORD(t_, p_, {last}, a_); {then} GO(t_ & ~1u); }}"
    )


def _by_table(i: Instruction) -> str:
    base, index = (part.strip() for part in i.ops[0].strip("[]").split(",")[:2])
    if base != "pc":
        raise UnknownInstructionError(i.name)
    kind, scale = ("uint8_t", "") if i.name == "tbb" else ("uint16_t", " * 2u")
    where = f"{i.pc:#x}u + {register(index)}{scale}"
    return f"{{ uint32_t a_ = {where}, t_; LOAD({kind}, t_, a_, ); GO({i.pc:#x}u + 2u * t_); }}"
