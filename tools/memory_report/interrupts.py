"""Which exceptions can be on the stack at once, by what the firmware writes to the system control space.

After a reset all exceptions that have a priority have the same (Armv7-M Architecture Reference Manual,
B1.5.4), so that none interrupts another; HardFault and NMI interrupt anything. Where the firmware writes a
priority, every handler may be on top of every other. A store to the system control space whose address is not
known is a problem, and so is a vector table that cannot be read.

Handlers of faults, and the one handler of all the interrupts that nobody enables, are not counted where they
are proven to end the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from microtrain.base.elf import Section
from microtrain.base.errors import Error

from .chip import WEIGHTS
from .effects import Write
from .firmware import Firmware
from .instructions import Code
from .stack import Analysis, Path, Stack, reserved
from .values import SYSTEM_SPACE

NMI, HARD_FAULT = 2, 3
ABOVE_ALL = (NMI, HARD_FAULT)
FAULTS = range(2, 7)  # NMI, HardFault, MemManage, BusFault, UsageFault
PRIORITIES = (range(0xE000E400, 0xE000E7F0), range(0xE000ED18, 0xE000ED24))  # NVIC_IPRn, SHPR1 to SHPR3
MOST_VECTORS = 16 + 496
VTOR = range(0xE000ED08, 0xE000ED0C)


@dataclass(frozen=True)
class Vectors:
    """A vector table: handlers by number, 0 where there is none. stack: what its first word says."""

    handlers: dict[int, int]
    stack: int | None = None

    def ending(self) -> set[int]:
        """Handlers that may end the program: of faults, and the one that fills most of the table."""
        rest = [handler for number, handler in self.handlers.items() if number >= FAULTS.stop and handler]
        common = {h for h in rest if len(rest) > 2 and rest.count(h) > len(rest) // 2}
        return common | {self.handlers[number] for number in FAULTS if self.handlers.get(number)}


def analyse(firmware: Firmware) -> Stack:
    """The deepest stack of a firmware for a Cortex-M.

    Errors   Error where the ELF has no reset handler, or calls are nested too deep
    """
    analysis = Analysis(Code(firmware))
    table = first_table(analysis)
    reset = table.handlers.get(1, firmware.elf.entry)
    if analysis.code.at(reset & ~1) is None:
        raise Error(
            f"{firmware.path} has no reset handler (vector 1, or the entry point): build the firmware."
        )
    return Exceptions(analysis, table, reset).result()


class Exceptions:
    """All handlers of a firmware. tables: the first one, and those that its code puts in its place."""

    def __init__(self, analysis: Analysis, table: Vectors, reset: int) -> None:
        self.analysis = analysis
        self.firmware = analysis.code.firmware
        self.reset = reset
        self.tables = [table]
        self.problems: dict[str, None] = {}
        self.find_tables()

    def find_tables(self) -> None:
        """Handlers may name further tables, whose handlers may name more."""
        places: set[int] = set()
        while True:
            new = {w.value for w in self.writes() if moves_table(w) and w.value is not None} - places
            if not new:
                return
            for place in sorted(new):
                self.tables += self.table_at(place)
            places |= new

    def table_at(self, place: int) -> list[Vectors]:
        section = self.firmware.elf.section_at(place)
        if section is None or not section.bits or section.write:
            self.problems[f"the vector table is moved to {place:#010x}, where the ELF holds none"] = None
            return []
        return [vectors(self.analysis, section, place)]

    def counted(self) -> dict[int, set[int]]:
        """Handlers by number, without those that end the program."""
        found: dict[int, set[int]] = {}
        for table in self.tables:
            ending = {h for h in table.ending() if not self.analysis.routine(h).returns}
            for number, handler in table.handlers.items():
                if number >= NMI and handler and handler not in ending:
                    found.setdefault(number, set()).add(handler)
        return found

    def roots(self) -> list[int]:
        handlers = set().union(*self.counted().values())
        return [self.reset, *sorted(handlers)]

    def writes(self) -> list[Write]:
        return self.analysis.writes(self.roots())

    def result(self) -> Stack:
        chain = self.chain()
        roots = self.roots()
        fault = self.deepest({h for t in self.tables for h in t.ending()} - set(roots))
        problems = dict.fromkeys((*self.analysis.problems(roots), *self.problems, *self.doubts()))
        thread = self.analysis.path(self.reset)
        return Stack(
            thread,
            chain[0] if chain else Path(),
            tuple(chain[1:]),
            fault,
            reserved(self.firmware.elf.names),
            tuple(problems),
        )

    def chain(self) -> list[Path]:
        """The handlers that can be on top of one another and need most."""
        counted = self.counted()
        top = [self.deepest(counted[number]) for number in ABOVE_ALL if number in counted]
        rest = [self.deepest(handlers) for number, handlers in counted.items() if number not in ABOVE_ALL]
        rest.sort(key=lambda path: -path.bytes)
        nest = any(sets_priority(write) for write in self.writes())
        return [*(rest if nest else rest[:1]), *top]

    def deepest(self, handlers: set[int]) -> Path:
        paths = (self.analysis.path(handler) for handler in sorted(handlers))
        return max(paths, key=lambda path: path.bytes, default=Path())

    def doubts(self) -> Iterator[str]:
        """What would make the sum of thread and handlers another one."""
        for write in self.writes():
            if write.address is None:
                yield (
                    f"{write.where} may write to the system control space, where is not known: it could set "
                    "priorities or move the vector table"
                )
            elif moves_table(write) and write.value is None:
                yield f"{write.where} moves the vector table to where is not known"
        for routine in map(self.analysis.routine, self.roots()[1:]):
            if routine.above:
                yield f"{routine.name} changes the stack of what it interrupts"
        for section, address in pointers(self.analysis.code):
            yield f"{section.name} holds the address of a system register, {address:#010x}, for some pointer"
        top = self.firmware.elf.names.get("__stack_top")
        if top is not None and self.tables[0].stack not in (None, top):
            yield f"the stack begins at {self.tables[0].stack:#010x}, not at __stack_top"
        if not self.tables[0].handlers:
            yield "no vector table was found, so that no handler is counted"


def first_table(analysis: Analysis) -> Vectors:
    """The table that a reset uses: at the start of the flash, or where a section's name says; else empty."""
    firmware = analysis.code.firmware
    start = firmware.chip.flash.start
    boot = firmware.elf.section_at(start)
    if boot is not None and boot.bits and boot.size >= 8:
        stack, reset = firmware.elf.word(start), firmware.elf.word(start + 4)
        begins = firmware.chip.sram.start < stack <= firmware.chip.sram.end
        if begins and reset & 1 and analysis.code.at(reset & ~1) is not None:
            return vectors(analysis, boot, start)
    section = next((s for s in firmware.elf.sections if "vector" in s.name and s.bits), None)
    return Vectors({}) if section is None else vectors(analysis, section, section.address)


def vectors(analysis: Analysis, section: Section, place: int) -> Vectors:
    """The table at an address: what its section is for, else as many words as a table has at most."""
    firmware = analysis.code.firmware
    only = "vector" in section.name
    end = min(section.address + section.size, place + 4 * MOST_VECTORS)
    words = [firmware.elf.word(address) for address in range(place, end - 3, 4)]
    handlers = {n: w for n, w in enumerate(words) if n and (only or can_run(analysis, w))}
    return Vectors(handlers, words[0] if words else None)


def can_run(analysis: Analysis, word: int) -> bool:
    """Whether a word may be a handler: anything else ends in a fault, or is data behind a table."""
    sram = analysis.code.firmware.chip.sram
    return bool(word & 1) and (analysis.code.at(word & ~1) is not None or sram.holds(word))


def pointers(code: Code) -> Iterator[tuple[Section, int]]:
    """Words of data that are addresses in the system control space.

    Weights are numbers, not addresses; literals inside of functions are followed where they are loaded.
    """
    firmware = code.firmware
    for section in firmware.elf.sections:
        if not section.bits or section.name.startswith(WEIGHTS):
            continue
        for address in range(section.address + 3 & ~3, section.address + section.size - 3, 4):
            word = firmware.elf.word(address)
            if word not in SYSTEM_SPACE or word % 4:
                continue
            if not section.execute or (
                firmware.elf.mark_at(address) == "d" and not code.function_at(address)
            ):
                yield section, word


def touches(write: Write, registers: range) -> bool:
    return (
        write.address is not None
        and write.address < registers.stop
        and write.address + write.size > registers.start
    )


def sets_priority(write: Write) -> bool:
    return any(touches(write, registers) for registers in PRIORITIES)


def moves_table(write: Write) -> bool:
    return touches(write, VTOR)
