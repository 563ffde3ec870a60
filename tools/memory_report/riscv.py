"""What one instruction of a 32-bit RISC-V core does, and where it goes."""

from __future__ import annotations

from collections.abc import Callable
from operator import mul, or_, xor
from typing import TYPE_CHECKING

from .effects import Control, Effects
from .riscv_code import GP, RA, REGISTERS, SP, ZERO, Instruction
from .values import (
    Behind,
    Field,
    Listed,
    Numbers,
    OnStack,
    Registers,
    State,
    Value,
    combine,
    masked,
    number,
    numbers,
    plus,
)

if TYPE_CHECKING:
    from .routine import Walk

RESULT, ARGUMENTS = 10, range(10, 18)
KEPT = frozenset((8, 9, *range(18, 28)))
SCRATCH = frozenset((RA, *range(5, 8), *ARGUMENTS, *range(28, 32)))
SIZES = {"sb": 1, "sh": 2, "sw": 4, "fsw": 4, "fsd": 8, "amo": 4}
LOADS = ("lb", "lh", "lw", "lbu", "lhu", "flw", "fld", "lr")
SHIFTS = {"sh1add": 1, "sh2add": 2, "sh3add": 3}
COMBINED: dict[str, Callable[[int, int], int]] = {
    "or": or_,
    "ori": or_,
    "xori": xor,
    "mul": mul,
    "slli": lambda x, y: x << y,
    "sll": lambda x, y: x << (y & 31),
}
SEMIHOSTING = bytes.fromhex("1310f001"), bytes.fromhex("13507040")  # slli and srai of zero around an ebreak


class RiscV(Effects):
    """RV32 with or without compressed instructions."""

    half = 0  # where the second instruction of a number for sp would be
    registers = Registers(SP, RA, RESULT, kept=KEPT, scratch=SCRATCH)

    def fixed(self) -> dict[int, Value]:
        pointer = self.code.firmware.elf.names.get("__global_pointer$")
        known: dict[int, Value] = {ZERO: number(0)}
        return known | {GP: number(pointer)} if pointer is not None else known

    def called(self, i: Instruction) -> str:
        return REGISTERS[i.a]

    def grows(self, i: Instruction) -> bool:
        return i.op in ("add", "sub") and i.a != ZERO

    def step(self, walk: Walk, i: Instruction, state: State) -> None:
        after = i.address + i.size
        if i.op == "jal":
            self.go_linked(walk, i, state, number(i.address + i.imm))
        elif i.op == "jalr":
            self.go_linked(walk, i, state, self.aimed(state.get(i.a), i.imm))
        elif i.op == "branch":
            walk.jump(i.address + i.imm, state.copy())
            walk.go(after, state)
        elif i.op == "mret":
            self.routine.controls[Control(self.where(i), "mret")] = None
            walk.back(state)
        elif i.op != "ebreak" or self.asks_debugger(i):
            self.apply(i, state)
            walk.go(after, state)

    def go_linked(self, walk: Walk, i: Instruction, state: State, target: Value) -> None:
        """A jump that keeps in rd where it came from. With another register than ra it is followed."""
        if i.rd == RA:
            walk.call(i, state, target)
            return
        if i.rd != ZERO:
            self.write(i, state, i.rd, number(i.address + i.size))
            if isinstance(target, Numbers):
                for address in sorted(target.values):
                    walk.go(address & ~1, state.copy())
                return
        if isinstance(target, Numbers) and len(target.values) > 1:  # words behind a table's end are no code
            target = numbers(value for value in target.values if self.code.at(value & ~1) is not None)
        if isinstance(target, Listed):
            walk.choose(i, state, self.code.address_table(target.start, target.base, i.address))
        else:
            walk.leave(i, state, target)

    def aimed(self, base: Value, distance: int) -> Value:
        """Where a jump through a register goes."""
        return plus(base, number(distance)) if isinstance(base, Numbers) else base if not distance else None

    def asks_debugger(self, i: Instruction) -> bool:
        """Whether an ebreak is one of semihosting: any other ends the program (RISC-V Semihosting, 2.2)."""
        before, after = self.code.raw(i.address - 4, 4), self.code.raw(i.address + i.size, 4)
        return i.size == 4 and (before, after) == SEMIHOSTING

    def apply(self, i: Instruction, state: State) -> None:
        """All of an instruction that does not jump."""
        if i.op.startswith("csr"):
            self.control(i, state)
        elif i.op in ("ecall", "ebreak"):
            for register in ARGUMENTS:
                state.set(register, None)
        elif i.op in LOADS:
            self.write(i, state, i.rd, self.loaded(i, state))
        elif i.op in SIZES:
            place = plus(state.get(i.a), number(i.imm))
            value = state.get(i.b) if i.op in ("sb", "sh", "sw") else None
            self.store(i, state, place, SIZES[i.op], value, False)
            self.write(i, state, i.rd, None)
        else:
            self.write(i, state, i.rd, self.value(i, state))

    def loaded(self, i: Instruction, state: State) -> Value:
        """A word that is known, one of a table of constants, or a member of a struct."""
        base = state.get(i.a)
        if i.op != "lw":
            return None
        if isinstance(base, Behind):
            return Listed(base.start + i.imm)
        value = self.load(state, plus(base, number(i.imm)))
        if value is None and not isinstance(base, OnStack) and i.imm in self.code.fields:
            return Field(i.imm)
        return value

    def value(self, i: Instruction, state: State) -> Value:
        """The result of moves, additions and what else makes addresses."""
        a, b = state.get(i.a), state.get(i.b)
        if i.op in ("lui", "auipc"):
            return number(i.imm + (i.address if i.op == "auipc" else 0))
        if i.op == "addi":
            return a if i.imm == 0 else plus(a, number(i.imm))
        if i.op == "add" and ZERO in (i.a, i.b):
            return b if i.a == ZERO else a
        if i.op in SHIFTS:
            a = combine(a, number(SHIFTS[i.op]), lambda x, y: x << y)
        if i.op in ("add", *SHIFTS):
            return plus(a, b) or self.based(a, b) or self.based(b, a)
        if i.op == "sub":
            return plus(a, b, -1)
        if i.op in ("and", "andi"):
            return masked(a, b if i.op == "and" else number(i.imm))
        operation = COMBINED.get(i.op)
        second = b if i.op in ("or", "mul", "sll") else number(i.imm)
        return combine(a, second, operation) if operation is not None else None

    def based(self, base: Value, index: Value) -> Value:
        """A known address of constants and an unknown index; or a word of such a table and a base."""
        start = base.one if isinstance(base, Numbers) else None
        if start is None:
            return None
        if isinstance(index, Listed) and not index.base:
            return Listed(index.start, start)
        return Behind(start) if self.constant(start & ~3) is not None else None

    def control(self, i: Instruction, state: State) -> None:
        """A csr instruction."""
        given = number(i.b) if i.op.endswith("i") else state.get(i.a)
        reads_only = given == number(0) and not i.op.startswith("csrrw")
        if not reads_only:
            value = given.one if isinstance(given, Numbers) else None
            self.routine.controls[Control(self.where(i), i.op.removesuffix("i"), i.imm, value)] = None
        self.write(i, state, i.rd, None)

    def where(self, i: Instruction) -> str:
        return f"{self.routine.name} at {i.address:#010x}"

    def write(self, i: Instruction, state: State, register: int, value: Value) -> None:
        if register == SP and self.sets_first(i, value):
            return
        if register == SP:
            self.move_stack(i, state, value)
        elif register == GP:
            if value != self.fixed().get(GP):
                self.routine.problem(f"changes gp (`{self.code.text(i)}`)")
        elif register != ZERO:
            state.set(register, value)

    def sets_first(self, i: Instruction, value: Value) -> bool:
        """Whether this is where the code that a reset starts lets the stack begin."""
        if self.entry != self.code.firmware.elf.entry:
            return False
        first = self.routine.begins
        if isinstance(value, Numbers):
            self.routine.begins, self.half = value, i.address + i.size
        elif first is not None and i.op == "addi" and i.a == SP and i.address == self.half:
            self.routine.begins = combine(first, number(i.imm), lambda x, y: x + y)
        else:
            return False
        return True
