"""memory_report on firmware compiled here, with stack frames and sections of known sizes."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import plans
import pytest
from click.testing import CliRunner

from microtrain.base.plan import read_plan
from microtrain.memory_report import cli
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.stack import EXCEPTION_FRAME, Stack
from microtrain.memory_report.usage import over
from microtrain.pictures.arena import arena_kinds
from microtrain.pictures.arena_map import draw

CC = "arm-none-eabi-gcc"
CPU = ["-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"]
FLAGS = [
    *CPU,
    "-std=c11",
    "-O2",
    "-ffreestanding",
    "-nostdlib",
    "-Wl,--build-id=none",
    "-Wl,--no-warn-rwx-segments",
]
MODEL_ID = bytes(range(1, 33)).hex()

pytestmark = pytest.mark.skipif(shutil.which(CC) is None, reason=f"{CC} is not installed")

LINKER_SCRIPT = """
ENTRY(Reset_Handler)
MEMORY { CODE (rx) : ORIGIN = 0x08000000, LENGTH = 128K
         CKPT (r) : ORIGIN = 0x08020000, LENGTH = 128K
         WEIGHTS (r) : ORIGIN = 0x08040000, LENGTH = 512K
         CKPT2 (r) : ORIGIN = 0x080c0000, LENGTH = 256K
         RAM (rw) : ORIGIN = 0x20000000, LENGTH = 320K }
__code_start = ORIGIN(CODE); __code_end = __code_start + LENGTH(CODE);
__checkpoint_a_start = ORIGIN(CKPT); __checkpoint_a_end = __checkpoint_a_start + LENGTH(CKPT);
__weights_region_start = ORIGIN(WEIGHTS); __weights_region_end = __weights_region_start + LENGTH(WEIGHTS);
__checkpoint_b_start = ORIGIN(CKPT2); __checkpoint_b_end = __checkpoint_b_start + LENGTH(CKPT2);
__ram_start = ORIGIN(RAM); __ram_end = __ram_start + LENGTH(RAM);
SECTIONS {
  .isr_vector : { KEEP(*(.isr_vector)) } > CODE
  .text : { *(.text*) } > CODE
  .rodata : { *(.rodata*) } > CODE
  .checkpoint : { *(.checkpoint) } > CKPT
  .weights : { *(.weights) } > WEIGHTS
  .stack (NOLOAD) : { __stack_limit = .; . += 1K; __stack_top = .; } > RAM
  .data : { *(.data*) } > RAM AT > CODE
  .bss (NOLOAD) : { *(.bss*) } > RAM
  /DISCARD/ : { *(.ARM.exidx*) *(.eh_frame*) }
}
"""

# Frames: leaf 20 + 12 = 32, floats 8 + 16 + 8 = 32, middle 16, tail 8, Reset 8; SysTick 24, fault 400.
SOURCE = """
#include <stdint.h>
#define NAKED __attribute__((naked, used, noinline))
extern uint32_t __stack_top;
NAKED void leaf(void) { __asm("push {r4-r7, lr}\\n sub sp, #12\\n add sp, #12\\n pop {r4-r7, pc}"); }
NAKED void floats(void) { __asm("push {r4, lr}\\n vpush {s16-s19}\\n vpush {d10}\\n"
                                "vpop {d10}\\n vpop {s16-s19}\\n pop {r4, pc}"); }
NAKED void tail(void) { __asm("str lr, [sp, #-8]!\\n bl floats\\n ldr lr, [sp], #8\\n b leaf"); }
NAKED void middle(void) { __asm("push {r3-r5, lr}\\n cmp r0, #0\\n it eq\\n popeq {r3-r5, pc}\\n"
                                "bl tail\\n bl leaf\\n pop {r3-r5, pc}"); }
NAKED void SysTick_Handler(void) { __asm("push {r3-r7, lr}\\n pop {r3-r7, pc}"); }
NAKED void HardFault_Handler(void) { __asm("sub sp, #400\\n 1: b 1b"); }
NAKED void Default_Handler(void) { __asm("sub sp, #200\\n 1: b 1b"); }
NAKED void not_reached(void) { __asm("push {r4, lr}\\n blx r0\\n bl not_reached\\n pop {r4, pc}"); }
EXTRA
NAKED void Reset_Handler(void) { __asm("push {r4, lr}\\n bl middle\\n CALL\\n 1: b 1b"); }
__attribute__((section(".isr_vector"), used)) void *const vectors[20] = {
    &__stack_top, Reset_Handler, Default_Handler, HardFault_Handler, [4 ... 14] = Default_Handler,
    [15] = SysTick_Handler, [16 ... 19] = Default_Handler};
struct info { const char *name; uint32_t id; };
__attribute__((used)) const struct info model_info = {"tiny", 0x04030201u};
__attribute__((used)) const uint8_t table[100] = {1};
__attribute__((used, section(".weights"))) const uint8_t weights[1000] = {1};
__attribute__((used, section(".weights"))) const uint8_t model_trainables_init[64] = {1};
__attribute__((used)) uint32_t counters[3] = {1, 2, 3};
__attribute__((used)) uint8_t model_arena[ARENA], model_trainables[64];
__attribute__((used)) static uint8_t rx_ring[128];
__attribute__((used)) uint32_t other[5];
"""


def build(
    folder: Path,
    extra: str = "",
    call: str = "nop",
    arena: int = 256,
    name: str = "firmware",
    script: str = LINKER_SCRIPT,
    source: str = SOURCE,
) -> Path:
    """Compile and link a source. extra: more functions, of which the reset handler calls `call`."""
    folder.mkdir(exist_ok=True)
    (folder / "link.ld").write_text(script)
    source = source.replace("EXTRA", extra).replace("CALL", call).replace("ARENA", str(arena))
    (folder / f"{name}.c").write_text(source)
    elf = folder / f"{name}.elf"
    subprocess.run([CC, *FLAGS, f"{name}.c", "-T", "link.ld", "-o", elf.name], cwd=folder, check=True)
    return elf


def tensor(name: str, kind: str, size: int, offset: int, birth: int, death: int) -> dict[str, Any]:
    return {"name": name, "kind": kind, "bytes": size, "offset": offset, "birth": birth, "death": death,
            "shape": [1, 1, size], "dtype": "s8"}  # fmt: skip


def write_plan(folder: Path, **changes: Any) -> Path:
    """Arena of 256 bytes; its peak is step 2: 96 + 64 (shared in place) + 40 + 16, 40 between them."""
    tensors = [tensor("image", "input", 96, 0, 0, 1), tensor("block.1/out", "activation", 96, 0, 2, 3)]
    tensors += [tensor("block.1/in", "saved", 64, 96, 0, 2), tensor("in place", "error", 64, 96, 2, 3)]
    tensors += [tensor("scratch:2", "scratch", 40, 160, 2, 2), tensor("mask<a>", "mask", 16, 240, 1, 3)]
    steps = [
        {"index": i, "phase": "forward" if i < 2 else "backward", "op": f"op{i}", "layer": f"block.{i}",
         "macs": 0, "text": ""}
        for i in range(4)
    ]  # fmt: skip
    document = {
        "name": "tiny", "model_id": MODEL_ID, "budget": {"sram": 4096, "flash": 8192},
        "arena": {"bytes": 256, "lower_bound": 216, "peak_step": 2}, "tensors": tensors, "steps": steps,
    }  # fmt: skip
    return plans.write_plan(folder, **{**document, **changes})


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("elf"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away from a plan that a build of the project may have left."""
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(cli.main, [str(a) for a in arguments])


def stack_of(folder: Path, extra: str = "", call: str = "nop", source: str = SOURCE) -> Stack:
    return analyse(load_firmware(build(folder, extra, call, source=source)))


def test_stack_is_exact(elf: Path) -> None:
    """Reset 8 + middle 16 + tail 8 + floats 32 = 64; tail gives its 8 back before it jumps."""
    stack = analyse(load_firmware(elf))
    names = [(frame.name, frame.bytes) for frame in stack.thread.frames]
    assert names == [("Reset_Handler", 8), ("middle", 16), ("tail", 8), ("floats", 32)]
    assert stack.handler.bytes == 24 and stack.fault.bytes == 400
    assert stack.worst == 64 + EXCEPTION_FRAME + 24 == 64 + 0x68 + 4 + 24
    assert stack.reserved == 1024
    assert stack.problems == ()


def test_report_is_exact(elf: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    result = run("--elf", elf, "--plan", write_plan(tmp_path), "--json", out)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    size = {s.name: s.size for s in load_firmware(elf).elf.sections}
    assert report["flash"]["kinds"] == {
        "code": size[".isr_vector"] + size[".text"],
        "weights": 1000,
        "tables": size[".rodata"],
        "trainables' start values": 64,
        ".data's start values": 12,
    }
    assert size[".isr_vector"] == 80 and 113 <= size[".rodata"] <= 116
    assert report["sram"]["kinds"] == {
        ".data": 12, ".bss, the rest": 20, "arena": 256, "trainables": 64, "serial buffers": 128,
        "worst stack": 196,
    }  # fmt: skip
    assert report["sram"]["total"] == 676
    assert report["sram"]["arena"] == {"activation": 96, "error": 64, "scratch": 40, "mask": 16, "unused": 40}
    assert report["flash"]["regions"]["weights"] == {"used": 1064, "size": 524288}
    assert report["flash"]["regions"]["checkpoint A"]["used"] == 0
    assert report["symbols"]["weights"] == {"bytes": 1000, "where": "flash"}
    assert "Reset_Handler 8 > middle 16 > tail 8 > floats 32" in result.output


def test_recursion_is_an_error(tmp_path: Path) -> None:
    extra = 'NAKED void a(void) { __asm("push {r4, lr}\\n bl b\\n pop {r4, pc}"); }'
    extra += 'NAKED void b(void) { __asm("push {r4, lr}\\n bl a\\n pop {r4, pc}"); }'
    assert stack_of(tmp_path, extra, "bl a").problems == ("recursion: a > b > a",)
    result = run("--elf", build(tmp_path, extra, "bl a"), "--plan", write_plan(tmp_path))
    assert result.exit_code == 1 and "the stack is not bounded: recursion: a > b > a" in result.output


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("push {r4, lr}\\n blx r0\\n pop {r4, pc}", "indirect calls through a pointer (r0)"),
        ("bx r3", "indirect jumps through a pointer"),
        ("sub sp, sp, r0\\n bx lr", "indirect grows its stack by an amount that only it knows"),
        ("msr msp, r0\\n bx lr", "indirect sets the stack pointer"),
        ("1: push {r4}\\n b 1b", "indirect grows its stack in a loop"),
    ],
)
def test_what_cannot_be_bounded_is_an_error(body: str, problem: str, tmp_path: Path) -> None:
    extra = f'NAKED void indirect(void) {{ __asm("{body}"); }}'
    problems = stack_of(tmp_path, extra, "bl indirect").problems
    assert len(problems) == 1 and problems[0].startswith(problem)


def test_stores_at_the_stack_pointer_do_not_move_it(tmp_path: Path) -> None:
    body = r"sub sp, #400\n stm.w sp, {r0, r1, r4, r5}\n ldm.w sp, {r0, r1}\n add sp, #400\n bx lr"
    stack = stack_of(tmp_path, f'NAKED void deep(void) {{ __asm("{body}"); }}', "bl deep")
    assert stack.problems == () and stack.thread.frames[-1].bytes == 400


def test_a_pointer_with_a_known_value_is_followed(tmp_path: Path) -> None:
    """Long calls: the address is loaded just before, from a literal or by movw and movt."""
    extra = 'NAKED void deep(void) { __asm("sub sp, #256\\n add sp, #256\\n bx lr"); }'
    for load in ("ldr r3, =deep", "movw r3, #:lower16:deep\\n movt r3, #:upper16:deep"):
        body = f"push {{r4, lr}}\\n {load}\\n blx r3\\n pop {{r4, pc}}\\n .ltorg"
        far = f'NAKED void far(void) {{ __asm("{body}"); }}'
        stack = stack_of(tmp_path, extra + far, "bl far")
        assert stack.problems == () and stack.thread.bytes == 8 + 8 + 256


def test_compiled_functions_agree_with_gcc(tmp_path: Path) -> None:
    """-fstack-usage knows each frame of compiled C: switches, floats, big buffers, at every level."""
    extra = """
    __attribute__((noinline)) float f(const float *x) { float s = 0; for (int i = 0; i < 40; i++) {
      s += x[i] * s; __asm volatile("" ::: "s16", "s20", "r8"); } return s; }
    __attribute__((noinline)) int big(int a) { volatile char b[700]; b[a] = 1; leaf(); return b[a / 2]; }
    __attribute__((noinline, used)) int choose(int a, float *x) { switch (a) { case 0: return big(a) + 1;
      case 1: return (int)f(x); case 2: return a * 3; case 3: return big(3) * 5; case 4: leaf(); return 7;
      case 5: return big(7); default: return 0; } }
    """
    for level in ("-O0", "-O1", "-O2", "-Os", "-O3"):
        elf = build(tmp_path, extra, "bl choose")
        subprocess.run(
            [CC, *FLAGS, level, "-fstack-usage", "firmware.c", "-T", "link.ld", "-o", elf.name],
            cwd=tmp_path,
            check=True,
        )
        rows = [line.split("\t") for p in tmp_path.glob("*.su") for line in p.read_text().splitlines()]
        frames = {row[0].rsplit(":", 1)[1]: int(row[1]) for row in rows}
        stack = analyse(load_firmware(elf))
        assert stack.problems == ()
        path = {frame.name: frame.bytes for frame in stack.thread.frames}
        # a tail call leaves the frame first
        assert path["big"] == frames["big"] and path["choose"] in (frames["choose"], 0), level
        assert stack.thread.bytes == 8 + path["choose"] + frames["big"] + 32


def test_over_budget_exits_with_1(elf: Path, tmp_path: Path) -> None:
    plan = write_plan(tmp_path)
    for option, size, word in (
        ("--budget-sram", "600", "SRAM: 676 bytes are 76 more"),
        ("--budget-flash", "1K", "flash:"),
    ):
        result = run("--elf", elf, "--plan", plan, option, size)
        assert result.exit_code == 1 and word in result.output
    assert run("--elf", elf, "--plan", plan, "--budget-sram", "676").exit_code == 0
    tight = write_plan(tmp_path, budget={"sram": 675, "flash": 8192})
    assert run("--elf", elf, "--plan", tight).exit_code == 1


def test_memory_may_be_full_but_no_fuller() -> None:
    assert over("SRAM", 100, 100, None) == over("SRAM", 90, 100, 90) == []
    assert over("SRAM", 101, 100, None) == ["SRAM: 101 bytes are 1 more than the chip's 100"]
    assert over("SRAM", 91, 100, 90) == ["SRAM: 91 bytes are 1 more than the budget of 90"]


def test_chip_stack_and_checkpoint_limits(tmp_path: Path) -> None:
    deep = 'NAKED void deep(void) { __asm("sub sp, #1000\\n add sp, #1000\\n bx lr"); }'
    result = run("--elf", build(tmp_path, deep, "bl deep"), "--plan", write_plan(tmp_path))
    assert result.exit_code == 1 and "116 more than are reserved" in result.output
    for bytes_, code in ((884, 0), (888, 1)):  # to the word
        result = run("--elf", build(tmp_path, deep.replace("1000", str(bytes_)), "bl deep"))
        assert result.exit_code == code and ("4 more than are reserved" in result.output) == code
    slot = '__attribute__((used, section(".checkpoint"))) const int slot[4] = {1};'
    result = run("--elf", build(tmp_path, slot), "--plan", write_plan(tmp_path))
    assert result.exit_code == 1 and "checkpoint A holds 16 bytes" in result.output


def test_the_sizes_are_those_that_the_linker_script_gave(tmp_path: Path) -> None:
    """The same firmware on a chip with little SRAM is over, and without the symbols nothing is known."""
    small = LINKER_SCRIPT.replace("LENGTH = 320K", "LENGTH = 2K").replace("LENGTH = 256K", "LENGTH = 64K")
    out = tmp_path / "small.json"
    assert run("--elf", build(tmp_path, script=small), "--json", out).exit_code == 0
    report = json.loads(out.read_text())
    assert (report["sram"]["chip"], report["flash"]["chip"]) == (2048, (128 + 128 + 512 + 64) * 1024)
    result = run("--elf", build(tmp_path, script=LINKER_SCRIPT.replace("__ram_end =", "ram_end =")))
    assert result.exit_code == 1 and "has no __ram_start and __ram_end" in result.output


def test_diff_names_what_grew(tmp_path: Path) -> None:
    old, new = build(tmp_path, name="old"), build(tmp_path, arena=512, name="new")
    assert run("--elf", old, "--json", tmp_path / "old.json").exit_code == 0
    result = run("--elf", new, "--diff", tmp_path / "old.json")
    rows = [" ".join(line.split()) for line in result.output.split("Changes")[1].splitlines()]
    assert "SRAM arena 256 512 +256" in rows and "symbol model_arena 256 512 +256" in rows
    assert "SRAM, total 676 932 +256" in rows
    assert not any(row.startswith("flash") for row in rows)
    assert "No change in size." in run("--elf", old, "--diff", tmp_path / "old.json").output


def test_equal_builds_give_equal_reports(elf: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("--elf", elf, "--plan", write_plan(tmp_path), "--json", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert str(tmp_path) not in (tmp_path / "a").read_text()


def test_arena_kinds_count_shared_bytes_once(tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    assert sum(arena_kinds(plan, 2).values()) == 256 and "saved" not in arena_kinds(plan, 2)
    assert arena_kinds(plan, 0) == {"input": 96, "saved": 64, "unused": 96}


@pytest.mark.parametrize("suffix", [".svg", ".html"])
def test_the_picture_shows_the_peak(suffix: str, tmp_path: Path) -> None:
    plan = read_plan(write_plan(tmp_path))
    picture = draw(plan, suffix)
    assert ("<!doctype html>" in picture) == (suffix == ".html")
    root = ElementTree.fromstring(picture[picture.index("<svg") : picture.index("</svg>") + 6])
    space = "{http://www.w3.org/2000/svg}"
    words = [e.text for e in root.iter(f"{space}text")]
    assert "What makes the peak, step 2" in words
    for name, size in (("block.1/out", "96"), ("in place", "64"), ("scratch:2", "40"), ("mask<a>", "16")):
        assert name in words and size in words
    assert "image" not in words[words.index("What makes the peak, step 2") :]
    assert any("lower bound 216 bytes" in str(w) for w in words)
    boxes = [e for e in root.iter(f"{space}rect") if e.get("class") == "tensor"]
    tips = {str(e.findtext(f"{space}title")).split(":")[0]: e for e in boxes}
    assert len(boxes) == 6 and {"image", "mask<a>"} <= tips.keys()
    image, mask = tips["image"], tips["mask<a>"]
    assert float(image.get("width", 0)) == pytest.approx(500) and float(
        mask.get("width", 0)
    ) == pytest.approx(750)
    assert float(image.get("height", 0)) / float(mask.get("height", 0)) == pytest.approx(6, rel=0.01)


def fails(sentence: str, *arguments: object) -> None:
    result = run(*arguments)
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit), result.output
    assert sentence in result.output and len(result.output.strip().splitlines()) == 1


def test_bad_input_is_one_sentence(elf: Path, tmp_path: Path) -> None:
    plan, text = write_plan(tmp_path), tmp_path / "text"
    text.write_text("{}")
    fails("no such ELF file", "--elf", tmp_path / "none.elf")
    fails("is not an ELF file", "--elf", text)
    fails("is not a linked firmware for Arm", "--elf", shutil.which("true"))
    fails("no such plan", "--elf", elf, "--plan", tmp_path / "none.json")
    fails("is not a plan.json", "--elf", elf, "--plan", text)
    fails("no such report", "--elf", elf, "--plan", plan, "--diff", tmp_path / "none")
    fails("is not a report that --json wrote", "--elf", elf, "--plan", plan, "--diff", text)
    fails(
        "--picture needs a plan, and firmware/generated/plan.json is not there",
        "--elf",
        elf,
        "--picture",
        "a.svg",
    )
    fails("written as .svg or .html", "--elf", elf, "--plan", plan, "--picture", tmp_path / "a.png")
    less = build(tmp_path, arena=248, name="less")
    fails("holds model 04030201, but", "--elf", less, "--plan", plan)
    other = write_plan(tmp_path, model_id="ff" * 32)
    fails("holds model 04030201, but", "--elf", elf, "--plan", other)
    for option in ("--json", "--picture"):
        place = tmp_path / "nowhere/a.svg"
        result = run("--elf", elf, "--plan", write_plan(tmp_path), option, place)
        assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
        assert f"{place} cannot be written (No such file or directory)." in result.output.replace("\n", " ")
    empty = write_plan(tmp_path, tensors=[])
    result = run("--elf", elf, "--plan", empty, "--picture", tmp_path / "a.svg")
    assert result.exit_code == 1 and "lists no tensors: there is nothing to draw" in result.output
    stripped = tmp_path / "stripped.elf"
    subprocess.run(["arm-none-eabi-strip", elf, "-o", stripped], check=True)
    fails("has no symbols", "--elf", stripped)
    truncated = tmp_path / "short.elf"
    truncated.write_bytes(elf.read_bytes()[:60])
    fails("short.elf is not an ELF file that can be read", "--elf", truncated)
    assert struct.unpack("<I", bytes.fromhex(MODEL_ID[:8]))[0] == 0x04030201
