"""elfcheck and the memory report on an RV32 ELF."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from microtrain.base.elf import ANY_MACHINE, read_elf
from microtrain.base.errors import FileError
from microtrain.elfcheck.cli import main as elfcheck
from microtrain.elfcheck.rules import check
from microtrain.memory_report.cli import main as report
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.stack import Stack
from microtrain.memory_report.traps import analyse

CC = "riscv64-unknown-elf-gcc"
if shutil.which(CC) is None:
    pytest.skip(f"{CC} is not installed", allow_module_level=True)

SCRIPT = """
__flash = 0x20000000; __flash_size = 64K; __ram = 0x80000000; __ram_size = 16K;
ENTRY(_start)
MEMORY { FLASH (rx) : ORIGIN = 0x20000000, LENGTH = 64K  RAM (rw) : ORIGIN = 0x80000000, LENGTH = 16K }
SECTIONS {
    .text : { *(.text*) *(.rodata*) } > FLASH
    .stack (NOLOAD) : { __stack_limit = .; . += 4K; __stack_top = .; } > RAM
    .data : { *(.data*) *(.sdata*) } > RAM AT > FLASH
    .bss (NOLOAD) : { *(.bss*) *(.sbss*) *(COMMON) } > RAM
}
"""
SOURCE = """
#include <stdint.h>
void start(void);
__attribute__((naked, used)) void _start(void) { __asm("la sp, __stack_top\\n tail start"); }
uint8_t room[5000];
static volatile uint32_t ticks;
float scale = 3.0f;
__attribute__((interrupt, aligned(4))) void trap(void) 
{ volatile uint8_t own[200]; own[ticks & 7] = 1; ticks++; }
__attribute__((aligned(4))) void fault(void)
{ volatile uint8_t own[900]; own[0] = 1; for (;;) { own[1] = own[0]; } }
float work(float a, float b)
{ volatile uint8_t own[500]; own[0] = (uint8_t)a; return a * scale + b * own[0]; }
void start(void) { __asm volatile("csrw mtvec, %0" :: "r"(trap)); HERE
    for (;;) { room[0] = (uint8_t)work(1.0f, 2.0f); } }
"""


def linked(folder: Path, here: str = "", more: str = "", source: str = SOURCE) -> Path:
    (folder / "link.ld").write_text(SCRIPT)
    (folder / "main.c").write_text(source + more)
    flags = (
        "-march=rv32imafc_zicsr",
        "-mabi=ilp32f",
        "-O2",
        "-g",
        "-ffp-contract=off",
        "-nostdlib",
        "-ffreestanding",
    )
    command = [CC, *flags, f"-DHERE={here}", "-T", "link.ld", "main.c", "-o", "main.elf"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "main.elf"


def stack(path: Path) -> Stack:
    return analyse(load_firmware(path))


def test_one_handler_is_on_top_of_the_thread(tmp_path: Path) -> None:
    found = stack(linked(tmp_path))
    assert found.problems == () and found.frame == 0 and found.reserved == 4096
    assert 500 < found.thread.bytes < 600 and 200 < found.handler.bytes < 300
    assert found.worst == found.thread.bytes + found.handler.bytes
    assert [frame.name for frame in found.handler.frames] == ["trap"]


def test_a_handler_that_ends_the_program_is_not_counted(tmp_path: Path) -> None:
    found = stack(linked(tmp_path, source=SOURCE.replace('"r"(trap)', '"r"(fault)')))
    assert (found.problems, found.handler.bytes) == ((), 0) and found.fault.bytes > 900


@pytest.mark.parametrize("cause", [0, 3])
def test_each_entry_of_a_vector_table_counts(cause: int, tmp_path: Path) -> None:
    jumps = "\\n ".join("j trap" if n == cause else "j fault" for n in range(4))
    table = f'__attribute__((naked, aligned(64))) void table(void) {{ __asm(".option norvc\\n {jumps}"); }}\n'
    source = SOURCE.replace("void start(void) {", f"{table}void start(void) {{")
    source = source.replace('"r"(trap)', '"r"((uint32_t)table | 1)')
    found = stack(linked(tmp_path, source=source))
    assert found.problems == () and 200 < found.handler.bytes < 300 and found.fault.bytes > 900


@pytest.mark.parametrize(
    ("handler", "here", "problem"),
    [
        ('__asm volatile("csrsi mstatus, 8");', "", "lets interrupts in while a trap is handled"),
        ('__asm volatile("csrw mepc, %0" :: "r"(ticks));', "", "changes where a trap returns to"),
        ("", '__asm volatile("csrw mtvec, %0" :: "r"(*(volatile int *)room));', "moves the trap vector"),
        ("", '__asm volatile("csrw 0x307, %0" :: "r"(room));', "sets mtvt"),
        ("", '__asm volatile("mret");', "leaves by mret"),
        ("", "((void (*)(void))(*(volatile int *)room))();", "calls through a pointer"),
    ],
)
def test_what_lets_the_stack_grow_unseen_is_a_problem(
    handler: str, here: str, problem: str, tmp_path: Path
) -> None:
    source = SOURCE.replace("ticks++; }", f"ticks++; {handler} }}")
    found = stack(linked(tmp_path, here=here, source=source))
    assert any(problem in text for text in found.problems), found.problems


def test_the_report_of_an_rv32_elf(tmp_path: Path) -> None:
    path, out = linked(tmp_path), tmp_path / "report.json"
    done = CliRunner().invoke(report, ["--elf", str(path), "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    size = subprocess.run(["riscv64-unknown-elf-size", path], check=True, capture_output=True, text=True)
    text, data, bss = map(int, size.stdout.splitlines()[1].split()[:3])
    assert document["flash"]["total"] == text + data and document["stack"]["exception_frame"] == 0
    worst = document["stack"]["worst"]
    assert document["sram"]["total"] == data + bss - 4096 + worst and 700 < worst < 900
    over = CliRunner().invoke(report, ["--elf", str(path), "--budget-sram", "5K"])
    assert over.exit_code == 1 and "more than the budget of 5120" in over.output


def test_lines_are_those_of_the_source(tmp_path: Path) -> None:
    elf = read_elf(linked(tmp_path), ANY_MACHINE)
    line = SOURCE.splitlines().index(next(text for text in SOURCE.splitlines() if "float work(" in text)) + 2
    assert elf.line(elf.names["work"]) == f"main.c:{line}"


def test_what_must_not_be_in_an_elf_is_found(tmp_path: Path) -> None:
    path = linked(tmp_path)
    assert check(path) == []
    said = CliRunner().invoke(elfcheck, [str(path)])
    assert said.exit_code == 0 and "no printf" in said.output and "checkpoints" not in said.output
    planted = {
        "fused": ("room[1] = (uint8_t)__builtin_fmaf(scale, scale, scale);", ""),
        "double": ("room[1] = (uint8_t)__muldf3(ticks, 2);", "int __muldf3(int a, int b) { return a * b; }"),
        "heap": ("room[1] = *(uint8_t *)malloc(3);", "void *malloc(__SIZE_TYPE__ n) { return room + n; }"),
    }
    for rule, (here, more) in planted.items():
        source = SOURCE.replace(
            "void start(void);", "void start(void); int __muldf3(int, int); void *malloc(__SIZE_TYPE__);"
        )
        flags = "__attribute__((noinline)) "
        found = check(linked(tmp_path, here, flags + more if more else "", source))
        assert {finding.rule for finding in found} == {rule}, found
        assert CliRunner().invoke(elfcheck, [str(path)]).exit_code == 1


def test_instructions_of_doubles_are_found(tmp_path: Path) -> None:
    text = "fadd.d fa0, fa0, fa1; fld fa0, 8(sp); fcvt.s.d fa0, fa0; fcvt.d.s fa0, fa0; flt.d a0, fa0, fa1"
    (tmp_path / "d.S").write_text(
        f".globl _start\n_start: {text}; fsd fa0, 0(sp); fadd.s fa0, fa0, fa1; ret\n"
    )
    command = [CC, "-march=rv32imafdc", "-mabi=ilp32d", "-nostdlib", "d.S", "-o", "d.elf"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert [finding.rule for finding in check(tmp_path / "d.elf")] == ["double"] * 6


def test_tools_for_boards_take_an_elf_for_arm_alone(tmp_path: Path) -> None:
    path = linked(tmp_path)
    with pytest.raises(FileError, match="is not a linked firmware for Arm: name"):
        read_elf(path)
