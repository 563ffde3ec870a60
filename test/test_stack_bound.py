"""The proven stack: code whose number was once too low, with the right number or a problem."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_memory_report import CC, LINKER_SCRIPT, SOURCE, build, run, stack_of

from microtrain.base.errors import Error
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.stack import EXCEPTION_FRAME

pytestmark = pytest.mark.skipif(shutil.which(CC) is None, reason=f"{CC} is not installed")

DEEP, SMALL, RESET = 2000, 420, 8


def functions(**bodies: str) -> str:
    """Assembly functions by name; lines are separated by `;`."""
    text = ".syntax unified\n.text\n"
    for name, body in bodies.items():
        text += f".balign 4\n.type {name}, %function\n.global {name}\n{name}:\n"
        text += body.replace(";", "\n") + f"\n.ltorg\n.size {name}, . - {name}\n"
    return "__asm(" + "\n".join(f'"{line}\\n"' for line in text.splitlines()) + ");\n"


LEAVES = {
    "deep": f"sub sp, #{DEEP}; add sp, #{DEEP}; bx lr",
    "small": f"sub sp, #{SMALL}; add sp, #{SMALL}; bx lr",
}
POINTER = "push {r4, lr}; ldr r3, =small; "
CALL = "blx r3; pop {r4, pc}"


def attack(folder: Path, body: str, **more: str) -> tuple[int, tuple[str, ...]]:
    """Bytes that `attack` needs by the report, and the problems."""
    stack = stack_of(folder, functions(**LEAVES, attack=body, **more), "bl attack")
    return stack.thread.bytes - RESET, stack.problems


@pytest.mark.parametrize(
    "body",
    [
        POINTER + "ldr r2, =deep; cmp r0, #0; it ne; movne r3, r2; " + CALL,
        POINTER + "cmp r0, #0; it ne; ldrne r3, =deep; " + CALL,
        POINTER + "ldr r2, =deep; cmp r0, #0; ite ne; movne r1, r2; moveq r1, r3; mov r3, r1; " + CALL,
        "push {r4, lr}; ldr r3, =deep; cbz r0, 1f; ldr r3, =small; 1: " + CALL,
        "push {r4, lr}; ldr r3, =deep; b 2f; 1: ldr r3, =small; 2: " + CALL,
        POINTER + "mov r4, #3; 1: blx r3; ldr r3, =deep; subs r4, #1; bne 1b; pop {r4, pc}",
    ],
)
def test_a_pointer_that_depends_on_a_condition(body: str, tmp_path: Path) -> None:
    assert attack(tmp_path, body) == (8 + DEEP, ())


@pytest.mark.parametrize(
    "change",
    [
        "ldm r0, {r3}", "pop {r3}; push {r3}", "ldm r3!, {r1, r2}", "ldr r1, [r3], #8", "ldrd r2, r3, [r0]",
        "umull r2, r3, r0, r1", "vmov r3, s0", "mrs r3, primask", "bl small",
        "cmp r0, #0; it ne; addne r3, r0",
        "cmp r0, #0; it ne; ldmne r0, {r3}", "bfi r3, r0, #1, #4", "svc #0",
    ],
)  # fmt: skip
def test_a_pointer_that_something_else_writes(change: str, tmp_path: Path) -> None:
    problems = attack(tmp_path, POINTER + change + "; " + CALL)[1]
    assert problems, change


def test_a_register_is_kept_over_a_call_only_where_the_callee_keeps_it(tmp_path: Path) -> None:
    body = "push {r6, lr}; ldr r6, =small; bl between; blx r6; pop {r6, pc}"
    assert attack(tmp_path, body, between="push {r6}; mov r6, r0; pop {r6}; bx lr") == (8 + SMALL, ())
    changed = attack(tmp_path, body, between="ldr r6, =deep; bx lr")[1]
    assert len(changed) == 1 and "attack calls through a pointer (r6)" in changed[0]
    frame = "push {r7, lr}; mov r7, sp; bl between; mov sp, r7; pop {r7, pc}"
    assert "sets the stack pointer" in attack(tmp_path, frame, between="sub r7, #2000; bx lr")[1][0]


def test_a_pointer_on_the_stack(tmp_path: Path) -> None:
    """It is known as long as nobody else knows where it is."""
    body = (
        "push {r4, lr}; sub sp, #8; ldr r3, =small; str r3, [sp, #4]; {}; ldr r3, [sp, #4]; add sp, #8; "
        + CALL
    )
    assert attack(tmp_path, body.replace("{}", "str r0, [r1]")) == (8 + SMALL, ())
    for change in ("mov r1, sp; str r0, [r1, #4]", "mov r0, sp; bl small", "strb r0, [sp, #5]", "bl between"):
        writes = "str r2, [sp, #4]; bx lr"
        assert attack(tmp_path, body.replace("{}", change), between=writes)[1], change


@pytest.mark.parametrize(
    "body",
    [
        "push {r0}; pop {pc}", "push {r0}; ldr pc, [sp], #4", "push {r0}; ldm sp!, {pc}", "mov lr, r0; bx lr",
        "ldr lr, [r0]; bx lr", "push {r4, lr}; str r0, [sp, #4]; pop {r4, pc}", "mov pc, r0", "add pc, r0",
        "bl small; bx lr", "ldr pc, [r0]",
        "push {r4, lr}; strh r0, [sp, #6]; pop {r4, pc}", "push {r4, lr}; bl over; pop {r4, pc}",
        "push {r4, lr}; it eq; moveq lr, r0; bx lr", "push {lr}; bl small; pop {r3}; bx r2",
        "push {r0, lr}; pop {pc}",
    ],
)  # fmt: skip
def test_a_return_is_to_the_caller(body: str, tmp_path: Path) -> None:
    problems = attack(tmp_path, body, over="str r0, [sp, #4]; bx lr")[1]
    assert any("jumps through a pointer" in text for text in problems), problems


def test_a_jump_through_the_stack_to_a_known_function_is_followed(tmp_path: Path) -> None:
    assert attack(tmp_path, "ldr r3, =deep; push {r3}; pop {pc}") == (DEEP, ())
    kept = "push {r4, lr}; mov r4, lr; bl small; mov lr, r4; pop {r4}; add sp, #4; bx lr"
    assert attack(tmp_path, kept) == (8 + SMALL, ())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("sub sp, #8; bx lr", "attack returns with 8 bytes still on its stack"),
        ("push {r0}; b small", "attack returns with 4 bytes"),
        ("add sp, #8; bx lr", "takes 8 bytes off the stack that it did not put there"),
        ("mov r0, sp; bic r0, #7; mov sp, r0; bx lr", "sets the stack pointer"),
        ("mov r1, sp; sub sp, sp, r0; mov sp, r1; bx lr", "an amount that only it knows"),
        ("msr psp, r0; bx lr", "sets the stack pointer"),
        ("msr control, r0; bx lr", "sets the stack pointer"),
        ("ldr sp, [r0]; bx lr", "sets the stack pointer"),
        ("push {r4, lr}; bl 1f; 1: pop {r4, pc}", "takes 8 bytes"),
        ("push {r4, lr}; bl small; .word 0", "attack"),
        ("mov r0, #1; .pushsection .rodata; 1: .word 1; .popsection; b 1b", "where no code is"),
        ("b 1f+2; 1: movw r0, #0x4770; bx lr", "where no code is"),
        (".inst.w 0xfbf0f000; bx lr", "not known"),
        ("push {r4, lr}; cmp r0, #0; it ne; bne 1f; pop {r4, pc}; 1: push {r0}; b 1b", "in a loop"),
    ],
)
def test_what_only_looks_like_an_even_stack_is_an_error(body: str, problem: str, tmp_path: Path) -> None:
    problems = attack(tmp_path, body)[1]
    assert any(problem in text for text in problems), problems


@pytest.mark.parametrize(
    ("body", "other", "need"),
    [
        ("b 3f", "sub sp, #8; add sp, #8; bx lr; 3: sub sp, #2000; add sp, #2000; bx lr", DEEP),
        ("push {r4, lr}; bl 3f; pop {r4, pc}",
         "sub sp, #500; 3: sub sp, #2000; add sp, #2000; bx lr", 8 + DEEP),
        ("push {r4, lr}; b 3f", "push {r4, lr}; 3: sub sp, #2000; add sp, #2000; pop {r4, pc}", 8 + DEEP),
        ("push {r4, lr}; bl untyped; pop {r4, pc}",
         "bx lr; untyped: sub sp, #2000; add sp, #2000; bx lr", 8 + DEEP),
        ("push {r7, lr}; add r7, sp, #4; sub sp, #60; subs r7, #4; mov sp, r7; sub sp, #96; mov sp, r7; "
         "pop {r7, pc}", "bx lr", 8 + 96),
        ("cmp r0, #0; ittt ne; subne sp, #80; strne r0, [sp]; addne sp, #80; it eq; bxeq lr; sub sp, #16; "
         "add sp, #16; bx lr", "bx lr", 80),
        (".inst.w 0xed2d8b21; add sp, #132; bx lr", "bx lr", 132),
        ("mov r2, #1024; sub sp, sp, r2; add sp, sp, r2; bx lr", "bx lr", 1024),
        ("str r0, [sp, #-64]; bx lr", "bx lr", 64),
        ("nop", "sub sp, #2000; add sp, #2000; bx lr", DEEP),
    ],
)  # fmt: skip
def test_every_way_through_the_code_counts(body: str, other: str, need: int, tmp_path: Path) -> None:
    assert attack(tmp_path, body, beyond=other) == (need, ())


def test_a_table_of_addresses_is_read_only_where_the_jump_says(tmp_path: Path) -> None:
    ways = "2: bx lr; 3: sub sp, #96; add sp, #96; bx lr"
    table = f"adr r3, 1f; ldr pc, [r3, r0, lsl #2]; .balign 4; 1: .word 2f+1, 3f+1; {ways}"
    assert attack(tmp_path, table) == (96, ())
    assert attack(tmp_path, f"tbb [pc, r0]; 1: .byte (2f-1b)/2, (3f-1b)/2; {ways}") == (96, ())
    assert attack(tmp_path, f"tbh [pc, r0, lsl #1]; 1: .hword (2f-1b)/2, (3f-1b)/2; {ways}") == (96, ())
    unknown = "ldr pc, [r0, r1, lsl #2]; .balign 4; 1: .word 2f+1; 2: bx lr"
    assert "jumps through a pointer" in attack(tmp_path, unknown)[1][0]


@pytest.mark.parametrize("before", ["", "nop; "], ids=["at a word", "between two"])
def test_an_address_from_adr_of_a_high_register_counts_from_a_whole_word(tmp_path: Path, before: str) -> None:
    """The assembler writes ADR.W as ADDW of pc, which reads pc as ADR does: its lowest bits are 0."""
    there = ".balign 4; 1: sub sp, #96; add sp, #96; bx lr"
    body = f".balign 4; {before}adr.w r8, 1f; orr r8, r8, #1; bx r8; {there}"
    assert attack(tmp_path, body) == (96, ())


def test_calls_too_deep_to_follow_are_one_sentence(tmp_path: Path) -> None:
    chain = {f"f{n}": f"push {{r4, lr}}; bl f{n + 1}; pop {{r4, pc}}" for n in range(400)}
    with pytest.raises(Error, match="call one another in a row below Reset_Handler"):
        attack(tmp_path, "b f0", **chain, f400="bx lr")


def test_recursion_through_a_known_pointer(tmp_path: Path) -> None:
    problems = attack(tmp_path, "push {r4, lr}; ldr r3, =attack; blx r3; pop {r4, pc}")[1]
    assert problems == ("recursion: attack > attack",)


VECTORS = "[16 ... 19] = Default_Handler"
HANDLERS = (
    'NAKED void Uart_Handler(void) { __asm("sub sp, #100\\n add sp, #100\\n bx lr"); }\n'
    'NAKED void Pin_Handler(void) { __asm("sub sp, #60\\n add sp, #60\\n bx lr"); }\n'
)
TWO = SOURCE.replace(VECTORS, "[16] = Uart_Handler, [17] = Pin_Handler, [18 ... 19] = Default_Handler")
THREAD = 64


def handlers(
    folder: Path, extra: str = "", call: str = "nop", source: str = TWO
) -> tuple[int, tuple[str, ...]]:
    """What is on top of the thread, and the problems."""
    stack = stack_of(folder, HANDLERS + extra, call, source)
    return stack.worst - stack.thread.bytes, stack.problems


def setter(body: str, more: str = "") -> str:
    return (
        f"#define WORD(a) (*(volatile uint32_t *)(a))\n{more}\n__attribute__((noinline, used)) "
        f"void setter(uint32_t a, uint32_t b) {{ (void)a; (void)b; {body} }}\n"
    )


def test_one_priority_lets_one_handler_in(tmp_path: Path) -> None:
    assert handlers(tmp_path) == (EXCEPTION_FRAME + 100, ())
    harmless = (
        "WORD(0xe000e100) = 3; WORD(0xe000ed14) |= 16; WORD(0xe000ed0c) = 0x05fa0004; WORD(0xe000e010) = 7;"
    )
    assert handlers(tmp_path, setter(harmless), "bl setter") == (EXCEPTION_FRAME + 100, ())


@pytest.mark.parametrize(
    "write",
    [
        "WORD(0xe000e400) = 0x40;", "*(volatile uint8_t *)0xe000e401 = 0x40;", "WORD(0xe000ed20) |= a;",
        "*(volatile uint8_t *)0xe000ed23 = 0xf0;", "*(volatile uint8_t *)(a ? 0xe000e410 : 0xe000e411) = 1;",
    ],
)  # fmt: skip
def test_priorities_let_all_handlers_nest(write: str, tmp_path: Path) -> None:
    assert handlers(tmp_path, setter(write), "bl setter") == (3 * EXCEPTION_FRAME + 100 + 60 + 24, ())


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("((volatile uint8_t *)0xe000e400)[a] = (uint8_t)b;", ""),
        ("((volatile uint32_t *)0xe000e100)[a >> 5] = b;", ""),
        ("helper((volatile uint32_t *)0xe000ed00);",
         "__attribute__((noinline)) void helper(volatile uint32_t *p) { p[7] = 1; }"),
        ("place = (volatile uint32_t *)0xe000ed00;", "volatile uint32_t *volatile place;"),
        ("*places[a] = b;", "volatile uint32_t *const places[2] = {(void *)0xe000e400, (void *)0xe000ed18};"),
        ('__asm volatile("vmov s0, %0\\n vmov r1, s0\\n str r1, [r1]" : : "r"(0xe000ed18) : "r1");', ""),
        ("*where(a, b) = b;", "__attribute__((noinline)) volatile uint32_t *where(uint32_t a, uint32_t b) "
         "{ return a ? (void *)0xe000ed18 : (void *)b; }"),
    ],
)  # fmt: skip
def test_a_write_that_cannot_be_followed_is_an_error(body: str, more: str, tmp_path: Path) -> None:
    problems = handlers(tmp_path, setter(body, more), "bl setter")[1]
    assert any("the system control space" in text or "a system register" in text for text in problems), (
        problems
    )


def test_faults_that_come_back_are_on_top_of_everything(tmp_path: Path) -> None:
    """One that ends the program is not counted, but only because it is proven to end it."""
    back = 'NAKED void NMI_Handler(void) { __asm("sub sp, #300\\n add sp, #300\\n bx lr"); }'
    vectors = TWO.replace("Default_Handler, HardFault_Handler,", "NMI_Handler, HardFault_Handler,")
    assert handlers(tmp_path, back, source=vectors) == (2 * EXCEPTION_FRAME + 100 + 300, ())
    default = TWO.replace("sub sp, #200\\n 1: b 1b", "sub sp, #200\\n add sp, #200\\n bx lr")
    assert default != TWO
    assert handlers(tmp_path, source=default) == (2 * EXCEPTION_FRAME + 200 + 200, ())
    maybe = TWO.replace("sub sp, #400\\n 1: b 1b", "sub sp, #400\\n bx r0")
    assert handlers(tmp_path, source=maybe)[1] != ()


def test_a_second_vector_table(tmp_path: Path) -> None:
    """Its handlers count, wherever it can be followed; in SRAM anything may be written into it."""
    other = (
        'NAKED void Other(void) { __asm("sub sp, #500\\n add sp, #500\\n bx lr"); }\n'
        "__attribute__((used)) void *const vectors_2[18] = {&__stack_top, [17] = Other};\n"
    )
    write = setter("WORD(0xe000ed08) = (uint32_t)vectors_2;")
    assert handlers(tmp_path, other + write, "bl setter") == (EXCEPTION_FRAME + 500, ())
    moved = handlers(tmp_path, other.replace("*const", "*") + write, "bl setter")[1]
    assert any("the vector table is moved to 0x2000" in text for text in moved)
    unknown = handlers(tmp_path, setter("WORD(0xe000ed08) = a;"), "bl setter")[1]
    assert any("moves the vector table to where is not known" in text for text in unknown)


def test_a_handler_that_changes_what_it_interrupts(tmp_path: Path) -> None:
    """As a scheduler does: the return goes to elsewhere."""
    scheduler = TWO.replace("push {r3-r7, lr}", "str r0, [sp, #24]").replace("pop {r3-r7, pc}", "bx lr")
    assert (
        "SysTick_Handler changes the stack of what it interrupts" in handlers(tmp_path, source=scheduler)[1]
    )


def test_the_stack_begins_where_it_is_reserved(tmp_path: Path) -> None:
    assert any(
        "not at __stack_top" in t for t in handlers(tmp_path, source=TWO.replace("&__stack_top,", "0,"))[1]
    )


def test_handlers_are_never_left_out_silently(tmp_path: Path) -> None:
    """A table without a telling name counts where the chip looks for it; nowhere, it is missed."""
    unnamed = LINKER_SCRIPT.replace(".isr_vector :", ".boot :")
    stack = analyse(load_firmware(build(tmp_path, HANDLERS, source=TWO, script=unnamed)))
    assert (stack.worst - stack.thread.bytes, stack.problems) == (EXCEPTION_FRAME + 100, ())
    dropped = LINKER_SCRIPT.replace(".isr_vector : { KEEP(*(.isr_vector)) } > CODE", "")
    dropped = dropped.replace("/DISCARD/ : {", "/DISCARD/ : { *(.isr_vector)")
    without = analyse(load_firmware(build(tmp_path, HANDLERS, source=TWO, script=dropped)))
    assert without.problems == ("no vector table was found, so that no handler is counted",)


def test_the_report_shows_nested_handlers(tmp_path: Path) -> None:
    extra = HANDLERS + setter("WORD(0xe000e400) = 0x40;")
    elf, out = build(tmp_path, extra, "bl setter", source=TWO), tmp_path / "report.json"
    result = run("--elf", elf, "--json", out)
    assert result.exit_code == 0, result.output
    assert "nested handler: Pin_Handler 60" in result.output
    nested = json.loads(out.read_text())["stack"]["nested"]
    assert [path["bytes"] for path in nested] == [60, 24]
