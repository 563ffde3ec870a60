"""Functions as the blocks that Unicorn would run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import capstone

from microtrain.base.disassembly import decoder

from .instruction import Instruction, decoded, number

PAGE = 1024  # bytes; Unicorn ends a block where a page of the MMU ends
BYTES_MAX = 2048  # of a block
UNSEEN_MAX = 32  # instructions of a block that has not run: where Unicorn would end a longer one is not known
HAS_FPU = 1 << 15  # BLOCK_HAS_FPU of native.h
ENDS = {"bx", "tbb", "tbh", "svc", "bkpt", "wfi", "isb", "cpsid", "cpsie", "msr", "vmsr"}
Read = Callable[[int, int], bytes]  # (address, size)


@dataclass(frozen=True)
class Span:
    """A function of the firmware: its first address, and its bytes."""

    start: int
    size: int


@dataclass
class Block:
    """Instructions from where something jumps to up to the next jump.

    entered   it is jumped to from outside the function, returned to, or a table says so
    """

    address: int
    instructions: list[Instruction]
    entered: bool = False

    @property
    def last(self) -> Instruction:
        return self.instructions[-1]

    @property
    def size(self) -> int:
        return self.last.after - self.address

    @property
    def note(self) -> int:
        """As native.c's `blocks` has it."""
        fpu = any(i.size == 4 and i.name.startswith("v") for i in self.instructions)
        return self.size << 16 | (HAS_FPU if fpu else 0) | len(self.instructions)

    def following(self) -> list[int]:
        """Where it may go, as far as its text tells."""
        targets = jump(self.last)
        return [self.last.after] if targets is None else targets


@dataclass
class Function:
    """blocks   by address"""

    start: int
    end: int
    blocks: dict[int, Block] = field(default_factory=dict)


class Translator:
    """Finds the blocks of functions.

    read    code by address and size
    sizes   bytes of each block that has run, by its address: Unicorn ends long ones where its buffer is full
    """

    def __init__(self, read: Read, sizes: Mapping[int, int]) -> None:
        self._read, self._sizes = read, sizes
        self._decoder = decoder("arm")
        self._decoder.detail = True

    def functions(self, wanted: Sequence[Span], known: Sequence[Span]) -> list[Function]:
        """The wanted ones. known: all functions, which make the addresses that code returns to."""
        found = [self.function(span) for span in wanted]
        made = {address for span in known for address in self._made(span)}
        mark_entered(found, made)
        return found

    def function(self, span: Span) -> Function:
        """What can be reached from where the function begins, and from blocks of it that have run."""
        found = Function(span.start, span.start + span.size)
        waiting = [span.start, *(a for a in sorted(self._sizes) if found.start <= a < found.end)]
        while waiting:
            address = waiting.pop()
            if address in found.blocks or not found.start <= address < found.end:
                continue
            block = self._block(found, address)
            if block.instructions and (self._sizes.get(address) or len(block.instructions) <= UNSEEN_MAX):
                found.blocks[address] = block
                waiting += [*block.following(), *_returned(block.last)]
        return found

    def _block(self, function: Function, address: int) -> Block:
        block = Block(address, [])
        code = self._read(address, min(BYTES_MAX, function.end - address))
        it: list[int] = []
        for raw in self._decoder.disasm(code, address):
            i = self._instruction(raw)
            i.it = it.pop(0) if it else 0
            if i.name.startswith("it"):
                it = it_states(raw.bytes[0])
            block.instructions.append(i)
            if jump(i) is not None or i.after >= function.end or self._full(block):
                break
        return block

    def _full(self, block: Block) -> bool:
        """Whether Unicorn ends it although it goes on."""
        if known := self._sizes.get(block.address):
            return block.size >= known
        return _page_ends(block.address, block.last.after, self._word(block.last.after, 2))

    def _made(self, span: Span) -> set[int]:
        """Addresses that a function makes of PC."""
        code = (
            self._instruction(raw)
            for raw in self._decoder.disasm(self._read(span.start, span.size), span.start)
        )
        return {address & ~1 for i in code if (address := _constant(i)) is not None}

    def _instruction(self, raw: capstone.CsInsn) -> Instruction:
        i = decoded(raw.address, raw.size, raw.mnemonic, raw.op_str, raw.cc)
        i.literal = self._word
        return i

    def _word(self, address: int, size: int) -> int:
        return int.from_bytes(self._read(address, size), "little")


def jump(i: Instruction) -> list[int] | None:
    """Where an instruction that ends a block goes, as far as its text tells; None: it ends none."""
    after = [i.after] if i.cond else []
    if i.name == "b":
        return [number(i.ops[0]), *after]
    if i.name in ("cbz", "cbnz"):
        return [number(i.ops[1]), i.after]
    if i.name in ENDS or i.name in ("bl", "blx") or "pc" in _written(i):
        return after
    return None


def _written(i: Instruction) -> str:
    """The operand that names what is written, where that can be PC."""
    if i.name == "pop":
        return i.ops[0]
    if i.name in ("ldm", "ldmdb"):
        return i.ops[1]
    return i.ops[0] if i.name in ("ldr", "mov", "add") else ""


def mark_entered(functions: Sequence[Function], made: set[int]) -> None:
    """Find the blocks at which other functions, returns and tables enter.

    made   addresses that code makes of PC: it may go there later
    """
    blocks = {address: block for function in functions for address, block in function.blocks.items()}
    wanted = set(made)
    for function in functions:
        named: set[int] = set()
        for block in function.blocks.values():
            named.update(block.following())
            wanted.update(
                _returned(block.last), {*block.following(), *_called(block.last)} - function.blocks.keys()
            )
        wanted |= {function.start, *(function.blocks.keys() - named)}
    for address in wanted & blocks.keys():
        blocks[address].entered = True


def _called(i: Instruction) -> list[int]:
    return [number(i.ops[0])] if i.name == "bl" else []


def _returned(i: Instruction) -> list[int]:
    return [i.after] if i.name in ("bl", "blx") else []


def _constant(i: Instruction) -> int | None:
    """The address that an instruction makes of PC."""
    if i.name == "adr":
        return (i.pc & ~3) + number(i.ops[1])
    if i.name in ("addw", "subw", "add", "sub") and i.ops[1:2] == ["pc"] and len(i.ops) == 3:
        offset = number(i.ops[2])
        return (i.pc & ~3) + (offset if i.name.startswith("add") else -offset)
    return None


def it_states(first: int) -> list[int]:
    """ITSTATE before each instruction that an IT makes conditional (ITAdvance). first: the IT's lower byte"""
    states, state = [], first
    while state & 0xF:
        states.append(state)
        state = (state & 0xE0) | (state << 1 & 0x1F)
        if not state & 0x7:
            state = 0
    return states


def _page_ends(start: int, after: int, following: int) -> bool:
    """Whether a block ends because its page does, or the instruction behind it reaches into the next one.

    following   the first halfword of that instruction
    """
    crosses = after % PAGE == PAGE - 2 and following >> 11 >= 0x1D
    return after // PAGE != start // PAGE or crosses
