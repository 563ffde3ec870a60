"""The deepest the stack can get: call graph and frames read from the machine code.

    worst = thread + exception frame + deepest interrupt handler

The thread is everything that the reset handler reaches. All interrupts have one priority, so that one handler
at most is on top of it. An exception stores up to 0x68 bytes (with the FPU's registers: Armv7-M Architecture
Reference Manual, B1.5.6) and up to 4 more to align the stack to 8. Fault handlers, and the one handler of all
the interrupts that nobody enables, end the program: they are shown, not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memory_report.errors import ReportError
from memory_report.firmware import Firmware, Symbol
from memory_report.instructions import Code

EXCEPTION_FRAME = 0x68 + 4
FAULT_VECTORS = range(2, 7)  # NMI, HardFault, MemManage, BusFault, UsageFault
FIRST_VECTOR = 2
ENDLESS = 1 << 20  # a depth that only a loop which pushes can reach


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

    handler   deepest interrupt handler; empty where the vector table holds none but fault handlers
    problems  why the true depth may be larger; none: the bound is proven
    """

    thread: Path
    handler: Path
    fault: Path
    reserved: int | None
    problems: tuple[str, ...]

    @property
    def worst(self) -> int:
        return self.thread.bytes + (EXCEPTION_FRAME + self.handler.bytes if self.handler.frames else 0)


@dataclass(frozen=True)
class Use:
    """Stack of one function by itself: its own most, and its depth at each call."""

    most: int
    calls: dict[int, int] = field(default_factory=dict)


class Analysis:
    """Depths of functions, each computed once."""

    def __init__(self, firmware: Firmware) -> None:
        self.firmware = firmware
        self.code = Code(firmware)
        self.problems: dict[str, None] = {}  # ordered, no doubles
        self._uses: dict[int, Use] = {}
        self._paths: dict[int, Path] = {}
        self._active: list[Symbol] = []

    def path(self, address: int) -> Path:
        """The deepest chain of calls that starts with the function at an address."""
        address &= ~1
        if address in self._paths:
            return self._paths[address]
        function = self.code.function_at(address)
        if function is None:
            self.problems[
                f"code at {address:#010x} belongs to no function: give it a symbol of type function"
            ] = None
            return Path()
        if function in self._active:
            cycle = [*(f.name for f in self._active[self._active.index(function) :]), function.name]
            self.problems[f"recursion: {' > '.join(cycle)}"] = None
            return Path()
        self._active.append(function)
        use = self.use(function)
        best = Path((Frame(function.name, use.most),))
        for target, depth in use.calls.items():
            below = self.path(target)
            if depth + below.bytes > best.bytes or (
                depth + below.bytes == best.bytes and len(best.frames) == 1
            ):
                best = Path((Frame(function.name, depth), *below.frames))
        self._active.pop()
        self._paths[address] = best
        return best

    def use(self, function: Symbol) -> Use:
        """Follow every way through a function; where ways meet, the deeper one counts."""
        if function.address in self._uses:
            return self._uses[function.address]
        depths: dict[int, int] = {}
        calls: dict[int, int] = {}
        most = 0
        work = [(function.address, 0)]
        while work:
            address, depth = work.pop()
            if depths.get(address, -1) >= depth:
                continue
            depths[address] = depth
            step = self.code.step(address)
            if step is None:
                continue  # behind a call that does not return
            if step.problem:
                self.problems[f"{function.name} {step.problem}"] = None
            after = max(0, depth + step.grows)
            most = max(most, after)
            if most > ENDLESS:
                self.problems[f"{function.name} grows its stack in a loop"] = None
                break
            for target in (*step.calls, *step.jumps):
                calls[target] = max(calls.get(target, 0), after)
            work += [(address, after) for address in step.next]
        self._uses[function.address] = Use(most, calls)
        return self._uses[function.address]


def vectors(firmware: Firmware) -> list[int]:
    """Handlers of the vector table, by number; 0: none. Empty where there is no table."""
    section = next((s for s in firmware.sections if "vector" in s.name), None)
    if section is None:
        return []
    return [firmware.word(section.address + 4 * i) for i in range(section.size // 4)]


def analyse(firmware: Firmware) -> Stack:
    """The deepest stack of a firmware.

    Errors   ReportError where the ELF has no reset handler
    """
    analysis = Analysis(firmware)
    table = vectors(firmware)
    reset = table[1] if len(table) > 1 else firmware.entry
    if analysis.code.function_at(reset & ~1) is None:
        raise ReportError(
            f"{firmware.path} has no reset handler (vector 1, or the entry point): build the firmware."
        )
    faults = fault_handlers(table)
    handlers = {handler for handler in table[FIRST_VECTOR:] if handler} - faults
    thread = analysis.path(reset)
    handler = deepest(analysis, handlers)
    counted = tuple(analysis.problems)
    fault = deepest(analysis, faults)
    names = firmware.names
    reserved = None
    if "__stack_top" in names and "__stack_limit" in names:
        reserved = names["__stack_top"] - names["__stack_limit"]
    return Stack(thread, handler, fault, reserved, counted)


def fault_handlers(table: list[int]) -> set[int]:
    """Handlers of faults, and the one that fills most of the table, for interrupts that nobody enables."""
    faults = {table[i] for i in FAULT_VECTORS if i < len(table) and table[i]}
    rest = [handler for handler in table[FAULT_VECTORS.stop :] if handler]
    return faults | {handler for handler in rest if rest.count(handler) > len(rest) // 2 and len(rest) > 2}


def deepest(analysis: Analysis, roots: set[int]) -> Path:
    return max((analysis.path(root) for root in sorted(roots)), key=lambda p: p.bytes, default=Path())
