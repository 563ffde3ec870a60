"""What instructions do to registers and stack, in the terms of values.py: what all architectures share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .instructions import Code
from .values import (
    RETURN,
    SYSTEM_SPACE,
    Entry,
    Numbers,
    OnStack,
    Registers,
    State,
    Value,
    is_system,
    numbers,
)

if TYPE_CHECKING:
    from .routine import Walk


@dataclass(frozen=True)
class Write:
    """A store to the system control space. address, value: None where not known."""

    where: str
    address: int | None
    size: int
    value: int | None


@dataclass(frozen=True)
class Control:
    """An instruction that changes what traps do: csrrw, csrrs, csrrc, mret. value: None where not known."""

    where: str
    op: str
    csr: int = 0
    value: int | None = None


@dataclass
class Routine:
    """What was found out about the code that is entered at one address.

    most      deepest stack of its own, bytes
    calls     depth at each call; jumps that do not come back are calls here
    returns   whether it may come back
    result    its first result when it does
    changes   registers of KEPT that it does not give back as they were
    reads     registers whose value from entry it uses for more than saving it
    above     words above its own stack that it writes, as bytes above the stack pointer at entry
    writes    its stores to the system control space
    controls  its changes of what traps do, on a RISC-V core
    begins    where it lets the stack begin
    problems  why its stack may be deeper, or not be what the caller expects
    """

    name: str
    most: int = 0
    calls: dict[int, int] = field(default_factory=dict)
    returns: bool = False
    result: Value = None
    changes: set[int] = field(default_factory=set)
    reads: set[int] = field(default_factory=set)
    above: set[int] = field(default_factory=set)
    writes: dict[Write, None] = field(default_factory=dict)
    controls: dict[Control, None] = field(default_factory=dict)
    begins: Value = None
    problems: dict[str, None] = field(default_factory=dict)

    def problem(self, text: str) -> None:
        self.problems[f"{self.name} {text}"] = None

    def uses(self, value: Value) -> None:
        """A value is used for more than being saved or copied."""
        if isinstance(value, Entry) and value != RETURN:
            self.reads.add(value.register)

    def hands_on(self, value: Value, address: int) -> None:
        """A value goes where it is not followed: to memory, or to a function that uses it."""
        self.uses(value)
        if is_system(value):
            self.writes[Write(f"{self.name} at {address:#010x}", None, 0, None)] = None


class Effects(ABC):
    """Applies an architecture's instructions to states, and keeps what the routine is asked for later."""

    registers: Registers

    def __init__(self, code: Code, routine: Routine, entry: int) -> None:
        self.code = code
        self.routine = routine
        self.entry = entry

    @abstractmethod
    def step(self, walk: Walk, i: Any, state: State) -> None:
        """All of an instruction: what it changes, and where it goes."""

    @abstractmethod
    def called(self, i: Any) -> str:
        """The register through which an instruction calls."""

    @abstractmethod
    def grows(self, i: Any) -> bool:
        """Whether an instruction that sets the stack pointer adds to it."""

    def fixed(self) -> dict[int, Value]:
        """Registers that hold the same everywhere."""
        return {}

    def load(self, state: State, place: Value) -> Value:
        """A word: saved on the stack, or in memory that nothing writes."""
        if isinstance(place, OnStack):
            return state.slots.get(place.depth)
        if not isinstance(place, Numbers):
            return None
        words = [self.constant(address) for address in place.values]
        return numbers(word for word in words if word is not None) if None not in words else None

    def constant(self, address: int) -> int | None:
        """A word that nothing writes: of the code's literals or of constants."""
        section = self.code.firmware.elf.section_at(address)
        if section is None or not section.bits or (section.write and not section.execute):
            return None
        if address + 4 > section.address + section.size:
            return None
        return self.code.firmware.elf.word(address)

    def store(self, i: Any, state: State, place: Value, size: int, value: Value, system: bool) -> None:
        """system: the address was made from one in the system control space."""
        if isinstance(place, OnStack):
            self.store_on_stack(i, state, place.depth, size, value)
            return
        self.routine.hands_on(value, i.address)
        if isinstance(value, OnStack):
            state.share()
        where = f"{self.routine.name} at {i.address:#010x}"
        if isinstance(place, Numbers):
            word = value.one if isinstance(value, Numbers) else None
            for address in sorted(a for a in place.values if a in SYSTEM_SPACE):
                self.routine.writes[Write(where, address, size, word)] = None
        elif system:
            self.routine.writes[Write(where, None, size, None)] = None

    def store_on_stack(self, i: Any, state: State, depth: int, size: int, value: Value) -> None:
        self.routine.most = max(self.routine.most, depth)
        self.routine.above |= set(range(max(0, -depth) & ~3, size - depth, 4))
        if isinstance(value, OnStack):
            state.share()
        saved = isinstance(value, Entry) and (value.register in state.of.kept or value == RETURN)
        state.save(depth, size, value if saved or isinstance(value, Numbers) else None)
        if not saved:
            self.routine.hands_on(value, i.address)

    def move_stack(self, i: Any, state: State, value: Value) -> None:
        """A new stack pointer. What is not known leaves it where it is, as a problem."""
        if not isinstance(value, OnStack):
            grows = "grows its stack by an amount that only it knows"
            what = grows if self.grows(i) else "sets the stack pointer"
            self.routine.problem(f"{what} (`{self.code.text(i)}`)")
            return
        if value.depth < 0:
            self.routine.problem(
                f"takes {-value.depth} bytes off the stack that it did not put there (`{self.code.text(i)}`)"
            )
        state.depth = max(0, value.depth)
        state.slots = {slot: saved for slot, saved in state.slots.items() if slot <= state.depth}
        self.routine.most = max(self.routine.most, state.depth)
