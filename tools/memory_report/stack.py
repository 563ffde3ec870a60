"""The deepest the stack can get: call graph and frames read from the machine code.

    worst = thread + for each exception that can be on top of another: frame + handler

The thread is everything that the reset handler reaches; interrupts.py says which exceptions count. An
exception stores up to 0x68 bytes (with the FPU's registers, at once or later: Armv7-M Architecture Reference
Manual, B1.5.6 and B1.5.7) and up to 4 more to align the stack to 8.

What is trusted, not proven: stores through pointers and into arrays stay inside their objects, so that they
change neither saved registers nor registers of the core; the index of a jump table is one of its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from microtrain.base.errors import Error

from .effects import Routine, Write
from .instructions import Code
from .routine import Walk

EXCEPTION_FRAME = 0x68 + 4
DEEPEST_CALLS = 100


@dataclass(frozen=True)
class Frame:
    """One function on the deepest path, and the bytes of stack between its entry and the next one's."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Path:
    """A chain of calls and its stack."""

    frames: tuple[Frame, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(frame.bytes for frame in self.frames)


@dataclass(frozen=True)
class Stack:
    """Result. reserved: bytes between __stack_limit and __stack_top, None where the ELF has no such names.

    handler   deepest handler that interrupts the thread; empty where the vector table holds none that count
    nested    further handlers that can be on top of it at the same time
    fault     deepest of those that end the program: not counted
    problems  why the true depth may be larger; none: the bound is proven
    frame     what the core itself stores for an exception
    """

    thread: Path
    handler: Path
    nested: tuple[Path, ...]
    fault: Path
    reserved: int | None
    problems: tuple[str, ...]
    frame: int = EXCEPTION_FRAME

    @property
    def worst(self) -> int:
        handlers = [path for path in (self.handler, *self.nested) if path.frames]
        return self.thread.bytes + sum(self.frame + path.bytes for path in handlers)


def reserved(names: Mapping[str, int]) -> int | None:
    """Bytes of stack that the linker script keeps free."""
    ends = (names.get("__stack_top"), names.get("__stack_limit"))
    return ends[0] - ends[1] if ends[0] is not None and ends[1] is not None else None


class Analysis:
    """Routines and their depths, each computed once."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._routines = {at: Routine(name, returns=True) for at, name in code.outside.items()}
        self._paths: dict[int, Path] = {}
        self._active: dict[int, Walk] = {}

    def routine(self, address: int) -> Routine:
        """What the code at an address does; inside a recursion a guess, together with a problem.

        Errors   Error where calls are nested deeper than this follows
        """
        address &= ~1
        if address in self._active:
            walks = list(self._active.values())
            cycle = [w.routine.name for w in walks[list(self._active).index(address) :]]
            walks[-1].routine.problems[f"recursion: {' > '.join((*cycle, cycle[0]))}"] = None
            return Routine(cycle[0], returns=True)
        if len(self._active) == DEEPEST_CALLS:
            top = next(iter(self._active.values())).routine.name
            raise Error(f"more than {DEEPEST_CALLS} functions call one another in a row below {top}.")
        if address not in self._routines:
            self._active[address] = Walk(self.code, address, self.routine)
            self._routines[address] = self._active[address].run()
            del self._active[address]
        return self._routines[address]

    def reached(self, roots: Iterable[int]) -> list[Routine]:
        """Every routine that these may call, each once."""
        found: dict[int, Routine] = {}
        work = [root & ~1 for root in reversed(list(roots))]
        while work:
            address = work.pop()
            if address not in found:
                found[address] = self.routine(address)
                work += reversed(found[address].calls)
        return list(found.values())

    def problems(self, roots: Iterable[int]) -> list[str]:
        return list(dict.fromkeys(text for routine in self.reached(roots) for text in routine.problems))

    def writes(self, roots: Iterable[int]) -> list[Write]:
        return list(dict.fromkeys(write for routine in self.reached(roots) for write in routine.writes))

    def path(self, address: int) -> Path:
        """The deepest chain of calls that starts with the code at an address; a recursion counts once."""
        address &= ~1
        if address not in self._paths:
            routine = self.routine(address)
            self._paths[address] = Path()
            best = Path((Frame(routine.name, routine.most),))
            for target, depth in routine.calls.items():
                below = self.path(target)
                if depth + below.bytes > best.bytes or (
                    depth + below.bytes == best.bytes and len(best.frames) == 1
                ):
                    best = Path((Frame(routine.name, depth), *below.frames))
            self._paths[address] = best
        return self._paths[address]
