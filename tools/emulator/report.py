"""Where instructions go, and what SRAM a scenario really takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .elf import Image
from .memory import FLASH_BASE, SRAM_BASE

if TYPE_CHECKING:
    from .board import Board
    from .counters import Counters

PAINTS = (0xA5, 0x5A)  # no byte has both values
ROWS = 20  # of a table at most
STACK, OTHER = "(stack)", "(no symbol)"


@dataclass(frozen=True)
class FunctionCost:
    """calls          times its first instruction began a block (a loop back to there counts, too)
    instructions   retired in it, without what it calls"""

    calls: int
    instructions: int


@dataclass(frozen=True)
class CallCost:
    """calls          that began
    instructions   of those that returned: with what they call, without exception handlers"""

    calls: int
    instructions: int


@dataclass(frozen=True)
class CacheUse:
    """An ESTIMATE (cache.h has its assumptions).

    instruction_misses, data_misses   lines that had to be fetched
    write_backs                       lines that were written and had to leave
    stalls                            cycles that the core stood still for all that
    """

    instruction_misses: int
    data_misses: int
    write_backs: int
    stalls: int


@dataclass(frozen=True)
class SramUse:
    """Bytes of SRAM that were written.

    touched       all of them
    by_symbol     {variable: bytes}, the largest first; "(stack)" and "(no symbol)" for what has no name
    by_section    {section: bytes}; the stack's section holds what was touched there
    stack_depth   from the initial stack pointer down to the lowest byte touched
    total         touched, with the stack counted by its depth: what a static report must reach
    """

    touched: int
    by_symbol: dict[str, int]
    by_section: dict[str, int]
    stack_depth: int
    total: int


def profile(image: Image, counters: Counters) -> dict[str, FunctionCost]:
    """Cost by function from the block counters of flash, the dearest first."""
    retired, entries = memoryview(counters.retired).cast("B").cast("Q"), counters.entries
    costs: dict[str, FunctionCost] = {}
    for function in image.functions:
        if not FLASH_BASE <= function.address < FLASH_BASE + image.chip.flash_size:
            continue
        first = (function.address - FLASH_BASE) >> 1
        instructions = sum(retired[first : first + max(function.size, 2) // 2])
        if instructions and function.name not in costs:
            costs[function.name] = FunctionCost(entries[first], instructions)
    return dict(sorted(costs.items(), key=lambda item: (-item[1].instructions, item[0])))


def sram_use(image: Image, initial_sp: int, touched: bytes) -> SramUse:
    """Account for the touched bytes of SRAM.

    initial_sp   where the stack begins
    touched      a byte for each one of SRAM, 1 where it was written
    """
    limit = image.symbols.get("__stack_limit", SRAM_BASE) - SRAM_BASE
    top = min(initial_sp - SRAM_BASE, len(touched))
    stack = touched[limit:top]
    lowest = stack.find(1)
    depth = len(stack) - lowest if lowest >= 0 else 0
    rest = bytearray(touched)
    rest[limit:top] = bytes(len(stack))
    by_symbol = {STACK: stack.count(1)}
    for variable in image.variables:
        first = variable.address - SRAM_BASE
        if 0 <= first < len(touched):
            count = rest[first : first + variable.size].count(1)
            rest[first : first + variable.size] = bytes(variable.size)
            if count:
                by_symbol[variable.name] = by_symbol.get(variable.name, 0) + count
    by_symbol[OTHER] = rest.count(1)
    by_section = {
        section.name: touched[section.address - SRAM_BASE :][: section.size].count(1)
        for section in image.elf.sections
        if 0 <= section.address - SRAM_BASE < len(touched)
    }
    ordered = dict(sorted(by_symbol.items(), key=lambda item: (-item[1], item[0])))
    total = touched.count(1) - stack.count(1) + depth
    return SramUse(touched.count(1), ordered, by_section, depth, total)


def measure_sram(board: Board, scenario: Callable[[Board], object]) -> SramUse:
    """The SRAM that a scenario writes, exactly.

    board      is switched on anew, twice, with SRAM painted in two colours: a byte that the firmware writes
               differs from one of them at least
    scenario   drives the board from power-on; must do the same both times
    """
    masks = []
    for paint in PAINTS:
        board.power_on(paint)
        scenario(board)
        masks.append(int.from_bytes(board.touched_mask(), "little"))
    union = (masks[0] | masks[1]).to_bytes(len(board.memory.sram), "little")
    return sram_use(board.image, board.initial_sp, union)


def profile_table(costs: dict[str, FunctionCost]) -> str:
    """The dearest functions as text."""
    total = sum(cost.instructions for cost in costs.values()) or 1
    lines = [f"{'instructions':>14} {'share':>6} {'calls':>10}  function"]
    for name, cost in list(costs.items())[:ROWS]:
        lines.append(f"{cost.instructions:>14,} {cost.instructions / total:>6.1%} {cost.calls:>10,}  {name}")
    return "\n".join(lines)


def sram_table(use: SramUse) -> str:
    """What was touched, by variable, as text."""
    lines = [f"{'bytes':>9}  variable"]
    lines += [f"{count:>9,}  {name}" for name, count in list(use.by_symbol.items())[:ROWS]]
    lines.append(f"{use.touched:>9,}  touched in all; stack {use.stack_depth:,} deep; total {use.total:,}")
    return "\n".join(lines)
