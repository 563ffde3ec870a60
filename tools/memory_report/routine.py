"""Follows every way through the code that is entered at one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capstone import arm

from .effects import Effects, Routine, text
from .instructions import Code, Unknown
from .values import KEPT, LOW, LR, PC, RETURN, Entry, Field, Numbers, OnStack, State, Value, meet

ENDLESS = 1 << 20  # a depth that only a loop which pushes can reach
DEPTHS = 64  # so many depths at one instruction, too
CALLS = {arm.ARM_INS_BL, arm.ARM_INS_BLX}
FLAGS = ("msr", "vmrs", "fmstat", "svc")  # they change flags, beside what the disassembler says


class Walk:
    """Where ways meet, what is true on all of them is kept; each depth is followed for itself."""

    def __init__(self, code: Code, entry: int, routine_at: Callable[[int], Routine]) -> None:
        self.code = code
        self.entry = entry
        self.routine_at = routine_at
        self.routine = Routine(code.name(entry))
        self.effects = Effects(code, self.routine)
        self._states: dict[tuple[int, int, int | None], State] = {}
        self._depths: dict[int, set[int]] = {}
        self._work: list[tuple[int, int, int | None]] = []
        self._endless = False

    def run(self) -> Routine:
        self.go(self.entry, State())
        while self._work and not self._endless:
            key = self._work.pop()
            rest = len(self._work)
            self.visit(key[0], self._states[key].copy())
            self._work[rest:] = sorted(self._work[rest:], key=lambda found: found[0])
        return self.routine

    def go(self, address: int, state: State) -> None:
        """An instruction may be reached like this."""
        key = (address, state.depth, state.held)
        known = self._states.get(key)
        if known is None:
            self._states[key] = state.copy()
            depths = self._depths.setdefault(address, set())
            depths.add(state.depth)
            if len(depths) > DEPTHS or state.depth > ENDLESS:
                self.routine.problem("grows its stack in a loop")
                self._endless = True
        elif not known.merge(state):
            return
        self._work.append(key)

    def visit(self, address: int, state: State) -> None:
        """One instruction. In an IT block it runs or not, and all with the same condition do as it does."""
        i = self.code.at(address)
        if i is None:
            self.routine.problem(f"goes to {address:#010x}, where no code is")
        elif isinstance(i, Unknown):
            raw = self.code.firmware.elf.read(address, i.size).hex()
            self.routine.problem(f"has an instruction that is not known ({raw})")
            self.go(address + i.size, state)
        elif i.id == arm.ARM_INS_IT or i.cc in (arm.ARM_CC_AL, arm.ARM_CC_INVALID):
            state.held = None
            self.execute(i, state)
        else:
            if state.held != i.cc:
                skipped = state.copy()
                skipped.held = opposite(i.cc)
                self.go(address + i.size, skipped)
            if state.held != opposite(i.cc):
                state.held = None if changes_flags(i) else i.cc
                self.execute(i, state)

    def execute(self, i: Any, state: State) -> None:
        """Apply an instruction, and go where it goes."""
        after = i.address + i.size
        if i.id in CALLS:
            self.call(i, state, self.effects.operand(i, i.operands[0], state))
        elif i.id == arm.ARM_INS_B:
            self.jump(i.operands[-1].imm, state)
        elif i.id in (arm.ARM_INS_CBZ, arm.ARM_INS_CBNZ):
            self.jump(i.operands[-1].imm, state.copy())
            self.go(after, state)
        elif i.id in (arm.ARM_INS_TBB, arm.ARM_INS_TBH):
            based = i.operands[0].mem.base == PC
            self.choose(
                i, state, self.code.byte_table(after, 1 if i.id == arm.ARM_INS_TBB else 2) if based else []
            )
        elif i.id == arm.ARM_INS_BX:
            self.leave(i, state, state.get(i.operands[0].reg))
        elif i.id == arm.ARM_INS_LDR and i.operands[0].reg == PC and i.operands[1].mem.index:
            base = state.get(i.operands[1].mem.base)
            start = base.one if isinstance(base, Numbers) else None
            self.choose(i, state, self.code.word_table(start) if start is not None else [])
        elif i.id != arm.ARM_INS_UDF:
            self.effects.apply(i, state)
            if state.left:
                self.leave(i, state, state.target)
            else:
                self.go(after, state)

    def choose(self, i: Any, state: State, targets: list[int]) -> None:
        """A jump through a table."""
        if not targets:
            self.leave(i, state, None)
        for target in sorted(set(targets)):
            self.jump(target, state.copy())

    def leave(self, i: Any, state: State, target: Value) -> None:
        """pc gets a value: the return address, a known one, or one that is not known."""
        target = self.resolved(target)
        if target == RETURN:
            self.back(state)
        elif isinstance(target, Numbers):
            for address in sorted(target.values):
                self.jump(address, state.copy())
        else:
            self.routine.problem(f"jumps through a pointer at {i.address:#010x} (`{text(i)}`)")
            self.routine.returns = True

    def jump(self, target: int, state: State) -> None:
        """A branch. As the last act of a function it is a call that comes back for it."""
        target &= ~1
        state.held = None
        if target != self.entry and self.code.starts_function(target):
            callee = self.routine_at(target)
            if not callee.returns or state.balanced():
                self.reach(target, state, callee)
                if callee.returns:
                    self.back(state)
                return
        self.go(target, state)

    def call(self, i: Any, state: State, target: Value) -> None:
        """A call goes on behind it, unless the function is proven not to come back."""
        state.held = None
        after = i.address + i.size
        target = self.resolved(target)
        if not isinstance(target, Numbers):
            name = i.reg_name(i.operands[0].reg)
            self.routine.problem(f"calls through a pointer ({name}) at {i.address:#010x}")
            self.after(state, Routine(name))
            self.go(after, state)
            return
        for address in sorted(value & ~1 for value in target.values):
            callee, done = self.routine_at(address), state.copy()
            self.reach(address, done, callee)
            if callee.returns:
                self.go(after, done)

    def resolved(self, target: Value) -> Value:
        """Of a member of a struct the functions that may be there."""
        return Numbers(self.code.fields[target.offset]) if isinstance(target, Field) else target

    def reach(self, target: int, state: State, callee: Routine) -> None:
        """A function is entered: what it costs, and what its caller knows afterwards."""
        self.routine.calls[target] = max(self.routine.calls.get(target, 0), state.depth)
        for register in sorted(callee.reads):
            self.routine.hands_on(state.get(register), target)
        for above in sorted(callee.above):
            depth = state.depth - above
            state.forget(depth, 4)
            if depth <= 0:
                self.routine.above.add(-depth)
        self.after(state, callee)

    def after(self, state: State, callee: Routine) -> None:
        result = callee.result
        if isinstance(result, Entry):
            result = state.get(result.register) if result != RETURN else None
        elif isinstance(result, OnStack):
            result = None
        for register in (*LOW[:4], LOW[12], LR, *callee.changes):
            state.set(register, None)
        state.set(LOW[0], result)

    def back(self, state: State) -> None:
        """It returns: with an even stack, or the caller's would be another."""
        routine = self.routine
        if state.depth:
            routine.problem(f"returns with {state.depth} bytes still on its stack")
        result = state.get(LOW[0])
        routine.result = meet(routine.result, result) if routine.returns else result
        routine.returns = True
        routine.changes |= {register for register in KEPT if state.get(register) != Entry(register)}


def opposite(condition: int) -> int:
    """eq and ne, hs and lo, ...: neighbours in the disassembler's list."""
    return int((condition - 1 ^ 1) + 1)


def changes_flags(i: Any) -> bool:
    return bool(i.update_flags) or i.insn_name() in FLAGS
