"""Which traps can be on a RISC-V core's stack, by what the firmware writes to its control registers.

A trap turns interrupts off and goes where mtvec says (The RISC-V Instruction Set Manual, volume II), and
stores nothing by itself: one handler is on top of the thread, unless handlers let interrupts in again or
return to elsewhere, which is a problem. So is a vector table of another kind (CLIC, supervisor mode).

Trusted beside what stack.py trusts: no instruction of a handler traps. Handlers that are proven to end the
program are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from microtrain.base.errors import Error

from .effects import Control
from .firmware import Firmware
from .instructions import Code
from .stack import Analysis, Path, Stack, reserved
from .values import Numbers

MSTATUS, MTVEC, MEPC = 0x300, 0x305, 0x341
OTHERS = {0x105: "stvec", 0x307: "mtvt", 0x7EC: "mtvt2", 0x7C0: "mtvec of a vendor"}
INTERRUPTS_ON = 8
CAUSES = 64  # that a table of jumps may have


def analyse(firmware: Firmware) -> Stack:
    """The deepest stack. Error where the ELF begins with no code, or calls are nested too deep."""
    analysis, reset = Analysis(Code(firmware)), firmware.elf.entry
    if analysis.code.at(reset) is None:
        raise Error(
            f"{firmware.path} begins at {reset:#010x}, where no code is: link it with an entry point."
        )
    handlers = found_handlers(analysis, reset)
    ending = {handler for handler in handlers if not analysis.routine(handler).returns}
    paths = {handler: analysis.path(handler) for handler in handlers}
    problems = dict.fromkeys(analysis.problems([reset, *sorted(handlers)]))
    problems |= dict.fromkeys(doubts(analysis, reset, handlers))
    return Stack(
        analysis.path(reset),
        deepest(paths, handlers - ending),
        (),
        deepest(paths, ending),
        reserved(firmware.elf.names),
        tuple(problems),
        frame=0,
    )


def deepest(paths: dict[int, Path], handlers: set[int]) -> Path:
    return max((paths[handler] for handler in sorted(handlers)), key=lambda path: path.bytes, default=Path())


def controls(analysis: Analysis, roots: list[int]) -> list[Control]:
    return [control for routine in analysis.reached(roots) for control in routine.controls]


def found_handlers(analysis: Analysis, reset: int) -> set[int]:
    """What mtvec may hold; handlers may set it anew."""
    found: set[int] = set()
    while True:
        values = {
            control.value
            for control in controls(analysis, [reset, *sorted(found)])
            if control.csr == MTVEC and control.op == "csrrw" and control.value is not None
        }
        new = {handler for value in values for handler in entries(analysis.code, value)}
        if new <= found:
            return found
        found |= new


def entries(code: Code, value: int) -> list[int]:
    """One for all, or as many as there are jumps in a row."""
    base, found = value & ~3, [value & ~3]
    while (
        value & 3 == 1 and len(found) < CAUSES and getattr(code.at(base + 4 * len(found)), "op", "") == "jal"
    ):
        found.append(base + 4 * len(found))
    return found


def doubts(analysis: Analysis, reset: int, handlers: set[int]) -> Iterator[str]:
    """What would make the sum of thread and handler another one."""
    thread, inside = controls(analysis, [reset]), controls(analysis, sorted(handlers))
    for control in (*thread, *inside):
        if control.csr == MTVEC and (control.op != "csrrw" or control.value is None or control.value & 2):
            yield f"{control.where} moves the trap vector to where is not known"
        if control.csr in OTHERS:
            yield f"{control.where} sets {OTHERS[control.csr]}, whose handlers are not followed"
        if control.csr == MEPC:
            yield f"{control.where} changes where a trap returns to"
    for control in inside:
        on = control.value is None or control.value & INTERRUPTS_ON
        if control.csr == MSTATUS and control.op != "csrrc" and on:
            yield f"{control.where} lets interrupts in while a trap is handled"
    for control in thread:
        if control.op == "mret":
            yield f"{control.where} leaves by mret, where to is not known"
    begins, top = analysis.routine(reset).begins, analysis.code.firmware.elf.names.get("__stack_top")
    if not isinstance(begins, Numbers):
        yield f"{analysis.routine(reset).name} does not set the stack pointer"
    elif top is not None and begins.one != top:
        yield f"the stack begins at {min(begins.values):#010x}, not at __stack_top"
