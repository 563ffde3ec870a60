"""Power cuts while a board forgets its checkpoints: it must wake with the newest one or with none.

`forget` runs once for each slot that may hold the newest checkpoint. Its flash, all that a power cut leaves,
is copied at instructions and before each flash operation; what a cut within an operation leaves is mixed from
the copies before and behind it. A second board boots from each different copy (soak.power).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from lab.soak.line import BoardLine, LineError, State
from lab.soak.power import Plan, Survivor
from microtrain.emulator import Board, Fault

SLOTS = ("a", "b")
FLASH = 0x0800_0000
ERASED = 0xFF
ALIGNMENT = 32  # bytes: records begin at multiples of it
RECORD = (0x5243_544D).to_bytes(4, "little")  # at the start of each

Torn = Callable[[int], bytes]  # a mask of so many bytes: 1 for each bit that an operation has not reached


@dataclass(frozen=True)
class Report:
    """How many power cuts there were, and a sentence for each that the board did not bear."""

    cuts: int = 0
    losses: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Cut:
    """When the power failed, in words, and what that leaves in flash.

    first   what an earlier cut had left: where the board woke with nothing then, it may not find more now
    """

    when: str
    flash: bytes
    first: bytes | None = None


def cut_forget(elf: Path, classes: int, cuts: int, seed: int, advance: Callable[[], None]) -> Report:
    """Cut the power of `forget`, half of the cuts with the newest checkpoint in each slot.

    cuts      about how many: behind each flash operation, then half done and at random instructions
    advance   called for each
    Errors    LineError or Fault where the board fails without a cut
    """
    line, survivor, draws = BoardLine(Board(elf)), Survivor(Plan(elf, classes)), random.Random(seed)
    none = survivor.state(blank(line.board))
    losses, done = [], 0
    for newest in SLOTS:
        held = prepare(line, classes, newest)
        if survivor.state(line.board.flash_content()) != held:
            raise LineError("the board does not wake with its newest checkpoint, without any power cut")
        for cut in forget_cuts(line, cuts // len(SLOTS), draws):
            found = survivor.state(cut.flash)
            late = cut.first is not None and survivor.state(cut.first) == none
            if found != none and (found != held or late):
                losses.append(
                    f"newest checkpoint in slot {newest}, cut {cut.when}: the board wakes with {found}"
                )
            done += 1
            advance()
    return Report(done, losses)


def forget_cuts(line: BoardLine, cuts: int, draws: random.Random) -> Iterator[Cut]:
    """Cuts in a `forget` of the checkpoints that the board has now."""
    full, block = line.board.flash_content(), stride(line.board)
    start = boot_from(line, full)
    operations = list(pairwise(watch(line, lambda: line.do("forget"))))
    end, erases = line.board.instructions, [pair for pair in operations if is_erase(*pair)]
    for number, (_, after) in enumerate(operations, 1):
        yield Cut(f"behind flash operation {number}", after)
    half = max(0, cuts // 2 - len(operations))
    for turn in range(half):
        pair = draws.choice(erases if turn % 2 else operations)  # an erase has many ways to be half done
        torn = blocks(draws, block) if turn % 4 else draws.randbytes
        cut = Cut(f"in flash operation {operations.index(pair) + 1}", half_done(*pair, torn))
        yield second_cut(line, cut, torn, draws) if turn % 4 == 2 else cut
    boot_from(line, full)
    rest = max(0, cuts - len(operations) - half)
    yield from at_instructions(line, sorted(draws.randrange(start + 1, end) for _ in range(rest)))


def second_cut(line: BoardLine, first: Cut, torn: Torn, draws: random.Random) -> Cut:
    """The board wakes from a first cut, is told to forget again, and that is cut too."""
    try:
        boot_from(line, first.flash)
        operations = list(pairwise(watch(line, lambda: line.do("forget"))))
    except (Fault, LineError):
        return first  # which the survivor will not bear either
    number = draws.randrange(len(operations))
    when = f"{first.when}, and again in flash operation {number + 1} of the repeated command"
    return Cut(when, half_done(*operations[number], torn), first.flash)


def at_instructions(line: BoardLine, instants: list[int]) -> Iterator[Cut]:
    """Cuts of a `forget` at instructions since power-on."""
    found: list[Cut] = []
    pending = iter(instants)

    def cut() -> int | None:
        flash = line.board.flash_content()
        if found and found[-1].flash == flash:
            flash = found[-1].flash  # kept once
        found.append(Cut(f"after {line.board.instructions} instructions", flash))
        return next(pending, None)

    line.alarm, line.on_alarm = next(pending, None), cut
    line.do("forget")
    line.alarm = None
    yield from found


# ---------------------------------------------------------------- a board with checkpoints


def slot(board: Board, name: str) -> slice:
    """Where a slot, "a" or "b", is in flash."""
    start, end = (board.image.symbols[f"__checkpoint_{name}_{edge}"] - FLASH for edge in ("start", "end"))
    return slice(start, end)


def blank(board: Board) -> bytes:
    """The board's flash without any checkpoint, as new."""
    flash = bytearray(board.flash_content())
    for place in (slot(board, name) for name in SLOTS):
        flash[place] = bytes([ERASED]) * (place.stop - place.start)
    return bytes(flash)


def boot_from(line: BoardLine, flash: bytes) -> int:
    """Power on with this flash; returns the instructions until the board is ready."""
    line.board.memory.flash[:] = flash
    line.boot()
    return line.board.instructions


def prepare(line: BoardLine, classes: int, newest: str, full: bool = True) -> State:
    """Two checkpoints in each slot, the newest of all in slot `newest`. Returns the state that it holds.

    full   its slot has no room for another one: the next save erases the other slot
    """
    boot_from(line, blank(line.board))
    order = "ab" if newest == "b" else "aba"
    for number, name in enumerate(order):
        for step in (2 * number, 2 * number + 1):
            line.train(step, classes)
            line.do("save")
        if full or number + 1 < len(order):
            close(line.board, name)
    return line.state()


def records(board: Board, name: str) -> list[int]:
    """Where records begin in a slot, as offsets in flash."""
    place, flash = slot(board, name), board.flash_content()
    starts = range(place.start, place.stop, ALIGNMENT)
    return [start for start in starts if flash[start : start + len(RECORD)] == RECORD]


def stride(board: Board) -> int:
    """Bytes from one record to the next, of a board that has two of them in slot "a"."""
    first, second = records(board, "a")
    return second - first


def close(board: Board, name: str) -> None:
    """Leave no room behind the two records of a slot."""
    rest = slice(records(board, name)[1] + stride(board), slot(board, name).stop)
    board.memory.flash[rest] = bytes(rest.stop - rest.start)


# ---------------------------------------------------------------- what a cut leaves


def watch(line: BoardLine, do: Callable[[], object]) -> list[bytes]:
    """Flash before each flash operation of what `do` makes the board do, and behind the last one."""
    controller, copies = line.board.flash, list[bytes]()
    controller.before_operation = lambda: copies.append(line.board.flash_content())
    try:
        do()
    finally:
        controller.before_operation = None
    return [*copies, line.board.flash_content()]


def is_erase(before: bytes, after: bytes) -> bool:
    """Whether an operation has set bits; programming only clears them."""
    old, new = (np.frombuffer(content, np.uint8) for content in (before, after))
    return bool((new & ~old).any())


def half_done(before: bytes, after: bytes, torn: Torn) -> bytes:
    """What is left of an operation that the power cut stops."""
    old, new = (np.frombuffer(content, np.uint8) for content in (before, after))
    changed = np.flatnonzero(old != new)
    if not len(changed):
        return before
    reach = slice(changed[0], changed[-1] + 1)
    mask = np.frombuffer(torn(int(reach.stop - reach.start)), np.uint8)
    mixed = old.copy()
    mixed[reach] = old[reach] & mask | new[reach] & ~mask
    return mixed.tobytes()


def blocks(draws: random.Random, block: int) -> Torn:
    """Masks in which whole blocks of so many bytes are reached, or are not."""

    def mask(size: int) -> bytes:
        count = size // block + 1
        return b"".join(draws.choice((b"\x00", b"\xff")) * block for _ in range(count))[:size]

    return mask
