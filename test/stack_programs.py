"""Random assembly programs for test_stack_fuzz.py: what they do to the stack is known only by running them.

r10 holds the input, whose bits decide; a function keeps r4 to r11 unless it is meant not to.
"""

from __future__ import annotations

import random
from collections.abc import Callable

BITS = 12  # of the input
DEEPEST_NEST = 3


class Program:
    """One program. wild: it also does what no compiler does, but what a core runs all the same."""

    def __init__(self, name: str, seed: int, wild: bool) -> None:
        self.name = name
        self.rng = random.Random(seed)
        self.wild = wild
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.labels = 0
        self.loops = 0
        for _ in range(self.rng.randint(3, 5)):
            self.function()
        self.begin("main")
        self.emit("push {r4-r9, lr}")
        for _ in range(2):
            self.piece(0)
        self.emit("pop {r4-r9, pc}")
        self.end("main")

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def begin(self, name: str) -> None:
        full = f"{self.name}_{name}"
        self.emit(".balign 4", f".type {full}, %function", f".global {full}", f"{full}:")

    def end(self, name: str) -> None:
        self.emit(".ltorg", f".size {self.name}_{name}, . - {self.name}_{name}")

    def label(self) -> str:
        self.labels += 1
        return f".L{self.name}_{self.labels}"

    def size(self) -> int:
        return 4 * self.rng.choice([1, 2, 3, 9, 25, 60, 120])

    def callee(self) -> str:
        return self.rng.choice(self.functions)

    def function(self) -> None:
        """A function of some pieces; it ends with one of the ways there are to end."""
        name = f"f{len(self.functions)}"
        self.begin(name)
        if not self.functions:
            size = self.size()
            self.emit(f"sub sp, #{size}", "str r0, [sp]", f"add sp, #{size}", "bx lr")
        else:
            self.emit("push {r4-r9, lr}")
            for _ in range(self.rng.randint(1, 2)):
                self.piece(1)
            self.emit(*self.ending())
        self.end(name)
        self.functions.append(f"{self.name}_{name}")

    def ending(self) -> list[str]:
        skip, bit = self.label(), self.bit()
        endings = [
            ["pop {r4-r9, pc}"],
            ["pop {r4-r9, lr}", "bx lr"],
            ["pop {r4-r9, lr}", "mov pc, lr"],
            ["pop {r4-r9}", "ldr pc, [sp], #4"],
            ["pop {r4-r9, lr}", f"b {self.callee()}"],
            [bit, "it ne", "popne {r4-r9, pc}", "sub sp, #40", "add sp, #40", "pop {r4-r9, pc}"],
            [bit, f"beq {skip}", "pop {r4-r9, pc}", f"{skip}: pop {{r4-r9}}", "pop {r0}", "bx r0"],
        ]
        if self.wild and self.rng.random() < 0.3:
            endings = [
                [f"ldr r3, ={self.callee()}", "ldr lr, [sp, #24]", "str r3, [sp, #24]", "pop {r4-r9, pc}"],
                [f"ldr r3, ={self.callee()}", "pop {r4-r9, lr}", "push {r3}", "pop {pc}"],
                [f"ldr r3, ={self.callee()}", "pop {r4-r9, lr}", "push {r3}", "ldr pc, [sp], #4"],
                [f"ldr r3, ={self.callee()}", "pop {r4-r9, lr}", "mov pc, r3"],
                [f"ldr r3, ={self.callee()}", "pop {r4-r9, lr}", "push {r3}", "ldm sp!, {pc}"],
                [f"ldr r3, ={self.table(1)}", "ldr r3, [r3]", "pop {r4-r9, lr}", "bx r3"],
            ]
        return self.rng.choice(endings)

    def bit(self) -> str:
        return f"tst r10, #{1 << self.rng.randrange(BITS)}"

    def table(self, count: int) -> str:
        """Pointers in memory that can be written."""
        label = self.label()
        words = ", ".join(self.callee() for _ in range(count))
        self.emit(".pushsection .data", ".balign 4", f"{label}: .word {words}", ".popsection")
        return label

    def piece(self, nest: int) -> None:
        if nest > DEEPEST_NEST:
            self.call()
            return
        kinds: list[Callable[[int], None]] = [
            self.room, self.pushes, self.choice, self.it_block, self.loop, self.frame, self.both_ways,
            lambda _: self.call(), lambda _: self.pointer(), lambda _: self.pointer(),
        ]  # fmt: skip
        if self.wild:
            kinds.append(lambda _: self.trick())
        self.rng.choice(kinds)(nest)

    def inner(self, nest: int) -> None:
        for _ in range(self.rng.randint(0, 2)):
            self.piece(nest + 1)

    def room(self, nest: int) -> None:
        size = self.size()
        ways = [(f"sub sp, #{size}", f"add sp, #{size}"),
                (f"sub.w sp, sp, #{size}", f"mov r2, #{size}\n add sp, r2"),
                (f"movw r3, #{size}\n sub sp, sp, r3", f"add.w sp, sp, #{size}"),
                (f"str r0, [sp, #-{min(size, 240)}]!", f"ldr r1, [sp], #{min(size, 240)}")]  # fmt: skip
        before, after = self.rng.choice(ways)
        self.emit(before)
        self.inner(nest)
        self.emit(after)

    def pushes(self, nest: int) -> None:
        ways = [("push {r0-r3}", "pop {r0-r3}"), ("push {r2, lr}", "pop {r2, lr}"),
                ("stmdb sp!, {r1, r2, r8}", "add sp, #12"), ("vpush {s16-s19}", "vpop {s16-s19}"),
                ("vpush {d8}", "vpop {d8}"), ("push {r4, r6, r11}", "ldm sp!, {r4, r6, r11}"),
                ("strd r0, r1, [sp, #-16]!", "ldrd r0, r1, [sp], #16")]  # fmt: skip
        before, after = self.rng.choice(ways)
        self.emit(before)
        self.inner(nest)
        self.emit(after)

    def choice(self, nest: int) -> None:
        other, join = self.label(), self.label()
        self.emit(self.bit(), f"beq.w {other}")
        self.inner(nest)
        self.emit(f"b.w {join}", f"{other}:")
        self.inner(nest)
        self.emit(f"{join}:")

    def both_ways(self, nest: int) -> None:
        """The same room on either way; it is given back behind where they meet."""
        other, join, size = self.label(), self.label(), self.size()
        self.emit(self.bit(), f"beq {other}", f"sub sp, #{size}", f"b {join}")
        self.emit(f"{other}: push {{r0}}", f"sub sp, #{size}", "add sp, #4", f"{join}:")
        self.inner(nest)
        self.emit(f"add sp, #{size}")

    def it_block(self, nest: int) -> None:
        size = self.size()
        ways = [["ittt ne", "pushne {r0-r2}", "movne r1, #7", "addne sp, #12"],
                ["itete eq", f"subeq sp, #{size}", "pushne {r3}", f"addeq sp, #{size}", "popne {r2}"],
                ["it eq", f"bleq {self.callee()}"]]  # fmt: skip
        self.emit(self.bit(), *self.rng.choice(ways))

    def loop(self, nest: int) -> None:
        if self.loops == 2:
            self.call()
            return
        label, counter = self.label(), f"r{4 + self.loops}"
        self.loops += 1
        self.emit(f"mov {counter}, #{self.rng.randint(1, 3)}", f"{label}:")
        self.inner(nest)
        self.emit(f"subs {counter}, #1", f"bne.w {label}")
        self.loops -= 1

    def frame(self, nest: int) -> None:
        """A frame pointer, which takes back whatever is below it."""
        size, above = self.size(), 4 * self.rng.randint(0, 1)
        self.emit("push {r7, lr}", f"sub sp, #{size}", f"add r7, sp, #{above}", f"bl {self.callee()}")
        self.emit(f"sub sp, #{self.size()}", f"bl {self.callee()}", "mov sp, r7")
        self.emit(f"add sp, #{size - above}", "pop {r7, lr}")

    def call(self) -> None:
        self.emit(f"bl {self.callee()}")

    def pointer(self) -> None:
        """A call through a register; which function it is depends on the input."""
        f, g, label = self.callee(), self.callee(), self.label()
        ways = [
            [f"ldr r3, ={f}", "blx r3"],
            [f"movw r3, #:lower16:{f}", f"movt r3, #:upper16:{f}", "blx r3"],
            [f"ldr r3, ={f}", self.bit(), "it ne", f"ldrne r3, ={g}", "blx r3"],
            [f"movw r3, #:lower16:{f}", f"movt r3, #:upper16:{f}", f"movw r2, #:lower16:{g}",
             f"movt r2, #:upper16:{g}", self.bit(), "it ne", "movne r3, r2", "blx r3"],
            [f"ldr r3, ={f}", self.bit(), f"beq {label}", f"ldr r3, ={g}", f"{label}: blx r3"],
            [f"ldr r8, ={f}", f"bl {g}", "blx r8"],
        ]  # fmt: skip
        self.emit(*self.rng.choice(ways))

    def trick(self) -> None:
        """What only a person would write, or an attacker."""
        f, g, label, size = self.callee(), self.callee(), self.label(), self.size()
        back = f"ldr lr, ={label}+1"
        words = self.rng.randint(2, 9)
        tricks = [
            [f"ldr r3, ={f}", back, "push {r3}", "pop {pc}", ".ltorg", ".balign 4", f"{label}:"],
            [f"ldr r3, ={f}", back, "bx r3", ".ltorg", ".balign 4", f"{label}:"],
            [f"ldr r3, ={f}", back, "mov pc, r3", ".ltorg", ".balign 4", f"{label}:"],
            [f"ldr r3, ={self.table(1)}", "ldr r3, [r3]", "blx r3"],
            [f"ldr r3, ={self.table(2)}", "and r2, r10, #1", "ldr r3, [r3, r2, lsl #2]", "blx r3"],
            ["mov r9, sp", "and r2, r10, #0x7f8", "sub sp, sp, r2", f"bl {f}", "mov sp, r9"],
            [f"mov r2, #{words}", f"{label}: push {{r0}}", "subs r2, #1", f"bne {label}", f"bl {f}",
             f"add sp, #{4 * words}"],
            ["sub sp, #8", f"ldr r3, ={f}", "str r3, [sp, #4]", "mov r1, sp", f"ldr r2, ={g}",
             "str r2, [r1, #4]", "ldr r3, [sp, #4]", "blx r3", "add sp, #8"],
            ["sub sp, #8", f"ldr r3, ={f}", "str r3, [sp, #4]", f"ldr r2, ={g}", f"bl {self.overwrites(4)}",
             "ldr r3, [sp, #4]", "blx r3", "add sp, #8"],
            ["push {r7}", "mov r7, sp", f"bl {self.moves_r7(size)}", "mov sp, r7", f"bl {f}",
             f"add sp, #{size}", "pop {r7}"],
            [f"bl {self.leaves(size)}", f"bl {f}", f"add sp, #{size}"],
            [f"ldr r8, ={f}", f"ldr r2, ={g}", f"bl {self.sets_r8()}", "blx r8"],
            ["push {r0, r1}", f"ldr lr, ={label}+1", f"b {self.shared_end(f)}", ".ltorg", ".balign 4",
             f"{label}:"],
            [f"ldr r3, ={f}", self.bit(), "it ne", f"ldrne r3, ={g}", "mov r6, r3", "blx r6"],
            [f"movw r3, #:lower16:{f}", f"movt r3, #:upper16:{f}", f"ldr r2, ={g}", "push {r2}",
             "ldm sp!, {r3}", "blx r3"],
            [f"ldr r3, ={f}", f"ldr r2, ={g}", self.bit(), "ite ne", "movne r1, r2", "moveq r1, r3",
             "orr r1, r1, #1", "blx r1"],
            ["str r0, [sp, #-64]"],
        ]  # fmt: skip
        self.emit(*self.rng.choice(tricks))

    def helper(self, *lines: str) -> str:
        """A function in a place of its own."""
        self.labels += 1
        name = f"{self.name}_h{self.labels}"
        self.emit(f".pushsection .text.{name}", ".balign 4", f".type {name}, %function", f"{name}:", *lines)
        self.emit(".ltorg", f".size {name}, . - {name}", ".popsection")
        return name

    def overwrites(self, offset: int) -> str:
        return self.helper(f"str r2, [sp, #{offset}]", "bx lr")

    def moves_r7(self, size: int) -> str:
        return self.helper(f"sub r7, #{size}", "bx lr")

    def leaves(self, size: int) -> str:
        return self.helper(f"sub sp, #{size}", "bx lr")

    def sets_r8(self) -> str:
        return self.helper("mov r8, r2", "bx lr")

    def shared_end(self, callee: str) -> str:
        """Code behind its beginning, which gives back what the jump to it had pushed."""
        middle = self.label()
        self.helper(
            "push {r0, r1}", f"{middle}: push {{lr}}", f"bl {callee}", "pop {lr}", "add sp, #8", "bx lr"
        )
        return middle
