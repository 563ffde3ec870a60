"""What can go wrong, each with one sentence that says what to do."""

from __future__ import annotations

from microtrain.base.errors import Error


class EmulatorError(Error):
    """Something the user can mend: one sentence that names the thing and the way out."""


class Fault(EmulatorError):  # noqa: N818 - the processor's own word for it
    """The firmware did what a Cortex-M faults on, or what this board has not got.

    kind       what happened ("BusFault on write", ...)
    address    the address that was accessed, or the instruction's
    pc         address of the instruction (of its basic block where a peripheral complains)
    function   function that holds pc, "?" where the ELF does not say
    line       "file.c:12", "?" without debug information
    """

    def __init__(self, text: str, kind: str, address: int, pc: int, function: str, line: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.address = address
        self.pc = pc
        self.function = function
        self.line = line


class PeripheralFault(EmulatorError):  # noqa: N818
    """A peripheral was used in a way that cannot work; the board makes it a Fault with function and line."""

    def __init__(self, kind: str, address: int) -> None:
        super().__init__(kind)
        self.kind = kind
        self.address = address
