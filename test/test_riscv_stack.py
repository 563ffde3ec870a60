"""The proven stack on RISC-V cores: what a compiler or a person writes, and each instruction's fields."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from microtrain.base.disassembly import decoder
from microtrain.base.elf import ANY_MACHINE, Elf, read_elf
from microtrain.memory_report.chip import Chip, Region
from microtrain.memory_report.firmware import Firmware, one_name_each
from microtrain.memory_report.instructions import Code
from microtrain.memory_report.riscv_code import REGISTERS, Instruction, decode
from microtrain.memory_report.stack import Analysis

CC = "riscv64-unknown-elf-gcc"
if shutil.which(CC) is None:
    pytest.skip(f"{CC} is not installed", allow_module_level=True)

FLAGS = ("-march=rv32imafc", "-mabi=ilp32f", "-nostdlib", "-O2")
DEEP, SMALL = 2000, 420
LEAVES = f"""
deep: addi sp, sp, -{DEEP}; addi sp, sp, {DEEP}; ret
small: addi sp, sp, -{SMALL}; addi sp, sp, {SMALL}; ret
"""
ENTER, LEAVE = "addi sp, sp, -16; sw ra, 12(sp); ", "; lw ra, 12(sp); addi sp, sp, 16; ret"


def built(folder: Path, source: str, name: str, *flags: str) -> Elf:
    (folder / name).write_text(source)
    command = [CC, *FLAGS, *flags, name, "-lgcc", "-o", "program.elf"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return read_elf(folder / "program.elf", ANY_MACHINE)


def proved(elf: Elf, name: str) -> tuple[int, list[str]]:
    """Bytes that a function needs, and the problems."""
    chip = Chip(Region("flash", 0, 1 << 31), Region("SRAM", 1 << 31, 0), ())
    analysis = Analysis(Code(Firmware(elf, one_name_each(elf.symbols), chip)))
    address = elf.names[name]
    return analysis.path(address).bytes, analysis.problems([address])


def attack(folder: Path, body: str, **more: str) -> tuple[int, list[str]]:
    text = LEAVES + f"attack: {body}\n" + "".join(f"{name}: {lines}\n" for name, lines in more.items())
    typed = re.sub(r"^(\w+):", r".type \1, %function\n.globl \1\n\1:", text, flags=re.MULTILINE)
    start = ".globl _start\n_start: la sp, stack; call attack; 1: j 1b\n.comm stack, 16\n"
    return proved(built(folder, start + typed, "attack.S", "-march=rv32imafc_zicsr"), "attack")


@pytest.mark.parametrize(
    ("body", "need"),
    [
        (ENTER + "call deep" + LEAVE, 16 + DEEP),
        ("tail deep", DEEP),
        ("beqz a0, deep; tail small", DEEP),
        (ENTER + "la a5, deep; beqz a0, 1f; la a5, small; 1: jalr a5" + LEAVE, 16 + DEEP),
        (ENTER + "lw ra, 12(sp); addi sp, sp, 16; la t1, deep; jr t1", DEEP),
        ("li t0, -4096; add sp, sp, t0; li t0, 4096; add sp, sp, t0; ret", 4096),
        ("addi sp, sp, -32; sw s0, 28(sp); addi s0, sp, 32; addi sp, sp, -64; addi sp, s0, -32; "
         "lw s0, 28(sp); addi sp, sp, 32; ret", 96),
        ("sw a0, -64(sp); ret", 64),
        ("fsw fa0, -80(sp); ret", 80),
        ("addi sp, sp, -16; sw ra, 12(sp); jal t0, 2f; lw ra, 12(sp); addi sp, sp, 16; ret; "
         "2: addi sp, sp, -48; addi sp, sp, 48; jr t0", 64),
        (".option norvc; slli zero, zero, 31; ebreak; srai zero, zero, 7; .option rvc; "
         "addi sp, sp, -32; addi sp, sp, 32; ret", 32),
        ("addi sp, sp, -32; ebreak", 32),
    ],
)  # fmt: skip
def test_every_way_through_the_code_counts(body: str, need: int, tmp_path: Path) -> None:
    assert attack(tmp_path, body) == (need, [])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (ENTER + "lw a5, 0(a0); jalr a5" + LEAVE, "calls through a pointer (a5)"),
        (ENTER + "la a5, small; add a5, a5, a0; jalr a5" + LEAVE, "calls through a pointer (a5)"),
        ("jr a0", "jumps through a pointer"),
        ("mv ra, a0; ret", "jumps through a pointer"),
        (ENTER + "call small; addi sp, sp, 16; ret", "jumps through a pointer"),
        (ENTER + "sw a0, 12(sp)" + LEAVE, "jumps through a pointer"),
        ("addi sp, sp, -16; ret", "returns with 16 bytes still on its stack"),
        ("addi sp, sp, 16; ret", "takes 16 bytes off the stack that it did not put there"),
        ("sub sp, sp, a0; ret", "an amount that only it knows"),
        ("mv sp, a0; ret", "sets the stack pointer"),
        ("la sp, stack; ret", "sets the stack pointer"),
        ("csrrw sp, mscratch, sp; ret", "sets the stack pointer"),
        ("1: addi sp, sp, -16; bnez a0, 1b; ret", "in a loop"),
        (ENTER + "call attack" + LEAVE, "recursion: attack > attack"),
        (".insn 4, 0x0000100b; ret", "an instruction that is not known"),
        ("la gp, small; ret", "changes gp"),
        ("la a5, small; lw a4, 0(a5); add a5, a5, a4; jr a5", "attack"),
    ],
)
def test_what_cannot_be_followed_is_a_problem(body: str, problem: str, tmp_path: Path) -> None:
    problems = attack(tmp_path, body)[1]
    assert any(problem in text for text in problems), problems


SWITCH = """
void used(volatile char *p, int n);
__attribute__((noinline)) int leaf(int n) { volatile char room[1024]; room[n & 7] = 1; return room[n & 3]; }
int pick(int n, int x) {
    switch (n) {
    case 0: return leaf(x) + 1;
    case 1: return x * 3;
    case 2: return leaf(x + 2) * 5;
    case 3: return x ^ 77;
    case 4: { volatile char room[2500]; room[x & 7] = 1; return leaf(room[x & 3]); }
    case 5: return x - 9;
    case 6: return leaf(x) - 8;
    default: return 0;
    }
}
float divide(float a, float b) { return a / b; }
int _start(int n) { return pick(n, n) + (int)divide((float)n, 3.0f); }
"""
SOFT = ("-march=rv32imc", "-mabi=ilp32")


@pytest.mark.parametrize(
    "flags", [(), ("-fpie",), ("-msave-restore",), SOFT], ids=["", "pie", "millicode", "soft"]
)
def test_what_a_compiler_makes_of_a_switch_is_followed(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Its table of addresses, or of distances where it may lie anywhere; floats are calls without an FPU."""
    elf = built(tmp_path, SWITCH, "switch.c", "-fno-inline", "-static", "-no-pie", *flags)
    need, problems = proved(elf, "pick")
    assert problems == [] and 2500 + 1024 < need < 2500 + 1024 + 128
    assert proved(elf, "divide")[1] == []


# ---------------------------------------------------------------- each instruction


def says(found: Instruction) -> list[str]:
    """An instruction as binutils writes it, without short names."""
    rd, a, b = (REGISTERS[n] for n in (found.rd, found.a, found.b))
    if found.op in ("lw", "lb", "lh", "lbu", "lhu"):
        return [found.op, rd, str(found.imm), a]
    if found.op in ("sw", "sb", "sh"):
        return [found.op, b, str(found.imm), a]
    if found.op in ("lui", "auipc"):
        return [found.op, rd, hex(found.imm >> 12 & 0xFFFFF)]
    if found.op in ("addi", "andi", "ori", "xori"):
        return [found.op, rd, a, str(found.imm)]
    if found.op == "slli":
        return [found.op, rd, a, hex(found.imm)]
    if found.op == "jal":
        return [found.op, rd, f"{found.address + found.imm:x}"]
    if found.op == "branch":
        return [a, b, f"{found.address + found.imm:x}"]
    return [found.op, rd, a, b]


def objdumps(path: Path) -> dict[int, list[str]]:
    """What binutils reads, by address; of branches not which one it is."""
    command = ["riscv64-unknown-elf-objdump", "-d", "-M", "no-aliases", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^ *([0-9a-f]+):\t[0-9a-f]+ +\t(\S+)(?:\t([^#<\n]*))?", text, re.MULTILINE)
    said = {int(at, 16): [name, *re.findall(r"[-\w]+", operands)] for at, name, operands in rows}
    return {at: words[words[0].startswith("b") :] for at, words in said.items()}


def decoded(elf: Elf) -> list[Instruction]:
    section, found = next(s for s in elf.sections if s.execute), []
    at, end = section.address, section.address + section.size
    while at < end:
        one = decode(at, elf.read(at, min(4, end - at)))
        assert one is not None, hex(at)
        found.append(one)
        at += one.size
    return found


def lines() -> list[str]:
    """Instructions whose fields matter to the stack, with numbers at the edges of what 16 bits can hold."""
    loads = [f"{op} {r}, {n}({s})" for op in ("lw", "sw", "lb", "sh", "lhu") for r in ("a0", "s3", "t6")
             for n in (-2048, -4, 0, 4, 64, 124, 252, 2044) for s in ("sp", "a5", "t3")]  # fmt: skip
    sums = [f"{op} {r}, {s}, {n}" for op in ("addi", "andi", "ori", "xori") for r in ("a0", "sp", "t6")
            for s in ("sp", "a0", "s4") for n in (-2048, -496, -32, -1, 16, 31, 32, 496, 2047)]  # fmt: skip
    shifts = [f"slli {r}, {s}, {n}" for r in ("a0", "t6") for s in ("a0", "t6") for n in (1, 16, 31)]
    pairs = [f"{op} {r}, {s}, {t}" for op in ("add", "sub", "and", "or", "mul") for r in ("a0", "sp", "t6")
             for s in ("a0", "zero", "t6") for t in ("a1", "s1", "t5")]  # fmt: skip
    high = [f"lui {r}, {n}" for r in ("a0", "t6") for n in (1, 31, 0xFFFE0, 0xFFFFF, 0x12345)]
    return [*loads, *sums, *shifts, *pairs, *high]


def fields(i: Instruction) -> tuple[str, int, set[int], int]:
    """Without the order of what is added."""
    return i.op, i.rd, {i.a, i.b}, i.imm


def test_fields_are_those_that_binutils_reads(tmp_path: Path) -> None:
    """An instruction of 16 bits has the fields of the one of 32 that the same line makes."""
    text = ".globl _start\n_start:\n" + "\n".join(lines()) + "\n"
    jumps = "1: nop\n" + "jal ra, 1b\njal zero, 2f\nbeq a0, zero, 1b\nbltu a0, t6, 2f\n" * 60 + "2: nop\n"
    (tmp_path / "whole").mkdir()
    whole = built(tmp_path / "whole", text + jumps, "all.S", "-march=rv32imaf")
    said, found = objdumps(whole.path), decoded(whole)
    assert {i.size for i in found} == {4} and len(found) == len(said) > 600
    assert [says(i) for i in found if says(i) != said[i.address]] == []
    assert [i for i in found if says(replace(i, imm=i.imm + 4, rd=i.rd ^ 1)) == said[i.address]] == []
    short = decoded(built(tmp_path, text, "all.S"))
    assert sum(i.size == 2 for i in short) > 60 and len(short) == len(lines())
    pairs = zip(short, found, strict=False)
    assert [(i, j) for i, j in pairs if fields(i) != fields(j)] == []


def test_jumps_of_16_bits_go_where_binutils_says(tmp_path: Path) -> None:
    jumps = "nop\njal ra, 1b\nj 1b\nj 2f\nbeqz a0, 1b\nbnez s1, 2f\n" * 8
    elf = built(tmp_path, f".globl _start\n_start: 1: nop\n{jumps}2: nop\n", "jumps.S")
    said = objdumps(elf.path)
    found = [i for i in decoded(elf) if i.op in ("jal", "branch")]
    assert sum(i.size == 2 for i in found) > 30
    assert [i for i in found if f"{i.address + i.imm:x}" != said[i.address][-1]] == []


def test_whatever_is_no_instruction_is_none() -> None:
    """Every halfword, against the disassembler; which takes hints for none, and some that are reserved."""
    capstone, reserved = decoder("riscv"), {"c.lui", "c.unimp"}
    for half in (n for n in range(0x10000) if n & 3 != 3):
        data = half.to_bytes(2, "little")
        found, said = decode(0, data), next(capstone.disasm_lite(data, 0, 1), None)
        assert found is not None or said is None or said[2] in reserved, hex(half)
        assert said is not None or found is None or found.rd == 0, hex(half)
