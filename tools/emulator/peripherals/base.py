"""What every peripheral is: registers that read back what was written, except where it knows better."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microtrain.emulator.board import Board

BLOCK = 0x400  # bytes of address space a peripheral


class Peripheral:
    """Plain registers. A subclass overrides `read` and `write` for single ones.

    name     as in the reference manual
    base     its address
    clock    (offset of its enable register in RCC, bit), None: always on
    byte_registers   offsets of registers that take bytes: one written there does not keep what was in it
    """

    byte_registers: frozenset[int] = frozenset()

    def __init__(
        self,
        board: Board,
        name: str,
        base: int,
        clock: tuple[int, int] | None = None,
        after_reset: dict[int, int] | None = None,
    ) -> None:
        self.board = board
        self.name = name
        self.base = base
        self.clock = clock
        self._after_reset = dict(after_reset or {})
        self.registers: dict[int, int] = dict(self._after_reset)

    def reset(self) -> None:
        self.registers = dict(self._after_reset)

    def read(self, offset: int) -> int:
        """The 32-bit register at `offset`."""
        return self.registers.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        self.registers[offset] = value


def bit(value: int, position: int) -> int:
    """0 or 1."""
    return value >> position & 1
