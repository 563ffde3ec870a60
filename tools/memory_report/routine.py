"""Follows every way through the code that is entered at one address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arm import Arm
from .effects import Effects, Routine
from .instructions import Code, Unknown
from .riscv import RiscV
from .values import RETURN, Entry, Field, Numbers, OnStack, State, Value, meet

ENDLESS = 1 << 20  # a depth that only a loop which pushes can reach
DEPTHS = 64  # so many depths at one instruction, too
ARCHITECTURES: dict[str, type[Effects]] = {"arm": Arm, "riscv": RiscV}


class Walk:
    """Where ways meet, what is true on all of them is kept; each depth is followed for itself."""

    def __init__(self, code: Code, entry: int, routine_at: Callable[[int], Routine]) -> None:
        self.code = code
        self.entry = entry
        self.routine_at = routine_at
        self.routine = Routine(code.name(entry))
        self.effects = ARCHITECTURES[code.firmware.elf.machine](code, self.routine, entry)
        self._states: dict[tuple[int, int, int], State] = {}
        self._depths: dict[int, set[int]] = {}
        self._work: list[tuple[int, int, int]] = []
        self._waiting: set[tuple[int, int, int]] = set()
        self._endless = False

    def run(self) -> Routine:
        of = self.effects.registers
        self.go(self.entry, State(of, of.at_entry(self.effects.fixed())))
        while self._work and not self._endless:
            key = self._work.pop()
            self._waiting.remove(key)
            rest = len(self._work)
            self.visit(key[0], self._states[key].copy())
            self._work[rest:] = sorted(self._work[rest:])
        return self.routine

    def go(self, address: int, state: State) -> None:
        """An instruction may be reached like this. The state is given away."""
        key = (address, state.depth, state.held or 0)
        known = self._states.get(key)
        if known is None:
            self._states[key] = state
            depths = self._depths.setdefault(address, set())
            depths.add(state.depth)
            if len(depths) > DEPTHS or state.depth > ENDLESS:
                self.routine.problem("grows its stack in a loop")
                self._endless = True
        elif not known.merge(state):
            return
        if key not in self._waiting:
            self._waiting.add(key)
            self._work.append(key)

    def visit(self, address: int, state: State) -> None:
        """One instruction."""
        i = self.code.at(address)
        if i is None:
            self.routine.problem(f"goes to {address:#010x}, where no code is")
        elif isinstance(i, Unknown):
            raw = self.code.firmware.elf.read(address, i.size).hex()
            self.routine.problem(f"has an instruction that is not known ({raw})")
            self.go(address + i.size, state)
        else:
            self.effects.step(self, i, state)

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
            self.routine.problem(f"jumps through a pointer at {i.address:#010x} (`{self.code.text(i)}`)")
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
            name = self.effects.called(i)
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
        for register in (*state.of.scratch, *callee.changes):
            state.set(register, None)
        state.set(state.of.result, result)

    def back(self, state: State) -> None:
        """It returns: with an even stack, or the caller's would be another."""
        routine = self.routine
        if state.depth:
            routine.problem(f"returns with {state.depth} bytes still on its stack")
        result = state.get(state.of.result)
        routine.result = meet(routine.result, result) if routine.returns else result
        routine.returns = True
        routine.changes |= {register for register in state.of.kept if state.get(register) != Entry(register)}
