"""What is known of registers and of the stack's words before an instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SYSTEM_SPACE = range(0xE000E000, 0xE000F000)  # system control space, Armv7-M ARM, B3.2
WORD = 0xFFFFFFFF
MOST_NUMBERS = 32  # that are followed at once
MOST_GROWTH = 6  # after which a value gets no more numbers: a loop counts


@dataclass(frozen=True)
class Numbers:
    """One of a few words, 0 to 2**32 - 1."""

    values: frozenset[int]

    @property
    def one(self) -> int | None:
        return next(iter(self.values)) if len(self.values) == 1 else None


@dataclass(frozen=True)
class OnStack:
    """An address on the stack: so many bytes below the stack pointer at entry."""

    depth: int


@dataclass(frozen=True)
class Entry:
    """What a register held at entry."""

    register: int


@dataclass(frozen=True)
class System:
    """Perhaps an address in the system control space; which one is not known."""


@dataclass(frozen=True)
class Field:
    """A word of a struct whose address is not known, so many bytes from its begin."""

    offset: int


@dataclass(frozen=True)
class Behind:
    """An address in constants, some bytes behind a known one."""

    start: int


@dataclass(frozen=True)
class Listed:
    """A word of the constants that begin at an address, and a base; which word is not known."""

    start: int
    base: int = 0


# None: not known, and not made from a system address
Value = Numbers | OnStack | Entry | System | Field | Behind | Listed | None
RETURN = Entry(-1)  # the return address


@dataclass(frozen=True)
class Registers:
    """Those of an architecture, by numbers of its own.

    link      where a call keeps its return address; result: of a function
    kept      a function gives them back as it found them, where it keeps to the ABI
    scratch   a call may change them
    """

    sp: int
    link: int
    result: int
    kept: frozenset[int]
    scratch: frozenset[int]

    def at_entry(self, fixed: dict[int, Value]) -> dict[int, Value]:
        """What is known of them where a function begins. fixed: hold the same everywhere."""
        entries: dict[int, Value] = {r: Entry(r) for r in sorted(self.kept | self.scratch)}
        return entries | {self.link: RETURN} | fixed


def numbers(values: Iterable[int]) -> Numbers | None:
    """These words; None where they are too many to follow."""
    found = frozenset(value & WORD for value in values)
    return Numbers(found) if 0 < len(found) <= MOST_NUMBERS else None


def number(value: int) -> Numbers:
    return Numbers(frozenset((value & WORD,)))


def is_system(value: Value) -> bool:
    return isinstance(value, System) or (
        isinstance(value, Numbers) and any(word in SYSTEM_SPACE for word in value.values)
    )


def meet(a: Value, b: Value, counts: bool = False) -> Value:
    """What is known where a value may be either. counts: it may get no more numbers."""
    if a == b:
        return a
    both = None
    if isinstance(a, Numbers) and isinstance(b, Numbers) and (not counts or b.values <= a.values):
        both = numbers(a.values | b.values)
    return System() if both is None and (is_system(a) or is_system(b)) else both


def combine(a: Value, b: Value, operation: Callable[[int, int], int]) -> Value:
    """What an operation makes of two values of which all is known."""
    if not isinstance(a, Numbers) or not isinstance(b, Numbers):
        return None
    return numbers(operation(x, y) for x in a.values for y in b.values)


def plus(a: Value, b: Value, sign: int = 1) -> Value:
    """a + b or a - b, of numbers and addresses on the stack."""
    if isinstance(a, Numbers) and isinstance(b, OnStack) and sign > 0:
        a, b = b, a
    if isinstance(a, OnStack) and isinstance(b, Numbers) and b.one is not None:
        return OnStack(a.depth - sign * (b.one - (WORD + 1 if b.one >> 31 else 0)))
    return combine(a, b, lambda x, y: x + sign * y)


def masked(a: Value, b: Value) -> Value:
    """a & b: of a small mask all parts, where the rest is not known."""
    known = combine(a, b, lambda x, y: x & y)
    mask = b.one if isinstance(b, Numbers) else None
    if known is not None or mask is None or mask >= MOST_NUMBERS:
        return known
    return numbers(value & mask for value in range(mask + 1))


@dataclass
class State:
    """Before an instruction.

    of         the architecture's registers
    depth      bytes between the stack pointer at entry and now
    held       the condition that holds as long as an IT block does not change the flags
    registers  what is known of them; one that is missing is not known
    slots      words of the stack of which something is known, by their depth
    shared     somebody else may know where they are: only saved registers are kept in slots
    grown      how often a register or a slot has got more numbers, where ways met here
    left       pc was written, with `target`
    """

    of: Registers
    registers: dict[int, Value]
    depth: int = 0
    held: int | None = None
    slots: dict[int, Value] = field(default_factory=dict)
    shared: bool = False
    grown: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    left: bool = False
    target: Value = None

    def copy(self) -> State:
        return State(self.of, dict(self.registers), self.depth, self.held, dict(self.slots), self.shared)

    def get(self, register: int) -> Value:
        return OnStack(self.depth) if register == self.of.sp else self.registers.get(register)

    def set(self, register: int, value: Value) -> None:
        if isinstance(value, OnStack):
            self.share()
        if value is None:
            self.registers.pop(register, None)
        else:
            self.registers[register] = value

    def share(self) -> None:
        """An address on the stack is made, so that stores through pointers may go there."""
        self.shared = True
        self.slots = {slot: value for slot, value in self.slots.items() if isinstance(value, Entry)}

    def save(self, depth: int, size: int, value: Value) -> None:
        """Bytes of the stack are written."""
        self.forget(depth, size)
        kept = isinstance(value, Entry) or (isinstance(value, Numbers) and not self.shared)
        if kept and size == 4 and depth >= 4 and depth % 4 == 0:
            self.slots[depth] = value

    def forget(self, depth: int, size: int) -> None:
        """Bytes of the stack hold something else."""
        for slot in [s for s in self.slots if depth - size < s < depth + 4]:
            del self.slots[slot]

    def merge(self, other: State) -> bool:
        """Keep what is true of both; True where that is less than before."""
        before = (self.registers, self.slots, self.shared)
        self.registers = meet_all(self.registers, other.registers, self.grown[0])
        if other.shared:
            self.share()
        self.slots = meet_all(self.slots, other.slots, self.grown[1])
        return (self.registers, self.slots, self.shared) != before

    def balanced(self) -> bool:
        """Whether a jump to another function is as if the caller had called that."""
        kept = all(self.get(r) == Entry(r) for r in self.of.kept)
        return self.depth == 0 and kept and self.get(self.of.link) == RETURN


def meet_all(a: dict[int, Value], b: dict[int, Value], grown: dict[int, int]) -> dict[int, Value]:
    """What is known where either may be; grown: how often each has got more numbers."""
    if a == b:
        return a
    known: dict[int, Value] = {}
    for key in {**a, **b}:
        value = meet(a.get(key), b.get(key), grown.get(key, 0) >= MOST_GROWTH)
        if value is not None:
            known[key] = value
        if value != a.get(key):
            grown[key] = grown.get(key, 0) + 1
    return known
