"""The order of code in flash: the search counts as the emulator does, and the linker keeps to its order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from emulator_firmware import ask, booted, build

from lab.order.cli import FILE, written
from lab.order.search import Misses, addresses, search
from lab.order.trace import PERIODS, WINDOW, Trace, placed, shortened
from microtrain.base.errors import Error
from microtrain.emulator import Board
from microtrain.emulator.memory import FLASH_BASE

LINE, SETS, WAYS = 32, 64, 2
NAMES = (".text.a", ".text.gap", ".text.b", ".text.c", ".text.far")
SIZES = np.array([64, 1984, 64, 2048, 6144])


def trace(ran: list[str], names: tuple[str, ...] = NAMES, sizes: np.ndarray = SIZES) -> Trace:
    """Each section that ran, whole, one block a line."""
    blocks = [(names.index(n), at, LINE) for n in ran for at in range(0, int(sizes[names.index(n)]), LINE)]
    return Trace(names, sizes, FLASH_BASE, np.array(blocks, np.uint32))


def naive(found: Trace, starts: np.ndarray) -> int:
    """Misses of a cache whose sets are lists, the line used last at the end."""
    sets: list[list[int]] = [[] for _ in range(SETS)]
    missed = 0
    for section, offset, size in found.blocks.tolist():
        address = int(starts[section]) + offset
        for line in range(address // LINE, (address + size - 1) // LINE + 1):
            own = sets[line % SETS]
            missed += line not in own
            if line in own:
                own.remove(line)
            own.append(line)
            del own[:-WAYS]
    return missed


def test_misses_are_those_of_a_naive_cache() -> None:
    chance = random.Random(4)
    ran = [chance.choice(NAMES) for _ in range(200)]
    for order in ([], [".text.c", ".text.a"], list(reversed(NAMES))):
        found = trace(ran)
        assert Misses([found])(order) == naive(found, addresses(found, order)) > 0


def test_sections_that_an_order_leaves_out_lie_behind_it_as_before() -> None:
    starts = addresses(trace([".text.a"]), [".text.c", ".text.b"]) - FLASH_BASE
    assert starts.tolist() == [2112, 2176, 2048, 0, 4160]


def test_the_search_parts_what_fights_for_a_set() -> None:
    """a, b and the end of c meet in the same two lines of the cache as the linker had them: 2 KB apart."""
    found = trace([".text.a", ".text.b", ".text.c"] * 50)
    count = Misses([found])
    before = count(NAMES)
    order, after = search(count, NAMES, 200)
    assert after == count(order) < before
    assert after == 68  # each line once
    assert search(count, NAMES, 200) == (order, after)


def test_long_loops_of_a_trace_are_cut_and_cost_what_they_cost() -> None:
    once = [(0, 0, 32), (2, 0, 32), (0, 32, 32)]
    loop = np.array(once * 100, np.uint32)
    short = shortened(loop)
    assert 6 <= len(short) < 12
    many = [(3, 32 * i, 32) for i in range(PERIODS + 1)]
    assert len(shortened(np.array(many * 3, np.uint32))) == 3 * len(many)  # too long to be told
    whole, cut = (Trace(NAMES, SIZES, FLASH_BASE, blocks) for blocks in (loop, short))
    assert Misses([whole])([]) == Misses([cut])([]) == 3


def test_a_sample_comes_from_all_along_the_trace() -> None:
    blocks = np.arange(9 * WINDOW * 3, dtype=np.uint32).reshape(-1, 3)
    found = Trace(NAMES, SIZES, FLASH_BASE, blocks).sampled().blocks
    assert len(found) == 3 * WINDOW
    assert [int(found[i, 0]) for i in (0, WINDOW, 2 * WINDOW)] == [0, 12 * WINDOW, 24 * WINDOW]


def test_a_loop_that_misses_is_not_cut_out_of_sight() -> None:
    """Three lines of one set, round and round: of the rounds two stay, and miss."""
    names, sizes = (".text.x", ".text.y", ".text.z"), np.array([2048, 2048, 2048])
    loop = np.array([(i, 0, 32) for i in range(3)] * 100, np.uint32)
    assert Misses([Trace(names, sizes, FLASH_BASE, shortened(loop))])([]) >= 6


def test_a_map_of_the_linker_is_read(tmp_path: Path) -> None:
    path = tmp_path / "firmware.map"
    path.write_text(
        " .text.gone     0x00000000       0x10 a.o\n .text.b        0x08000210       0x20 a.o\n"
        " .text.a_long_name\n                0x08000200       0x10 a.o\n"
        " .rodata.c      0x08000300       0x10 a.o\n"
    )
    assert placed(path) == [(".text.a_long_name", 0x0800_0200, 16), (".text.b", 0x0800_0210, 32)]
    path.write_text("nothing")
    with pytest.raises(Error, match="ffunction-sections"):
        placed(path)


def test_blocks_are_told_as_they_are_counted(tmp_path: Path) -> None:
    board = booted(Board(build(tmp_path)))
    board.watch_calls(["walk"], only_inside=True)
    told: Counter[int] = Counter()
    board.on_block(lambda address, size: told.update([address]))
    ask(board, b"R")
    entries = board.engine.counters[0].entries
    assert sum(told.values()) > 100
    assert all(abs(count - entries[(at - FLASH_BASE) // 2]) <= 1 for at, count in told.items())


def names_of(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line[2:].split()[0] for line in lines if line.startswith("*(")]


def test_the_linker_keeps_to_the_order(example: Built) -> None:
    """What the example links of the listed functions begins the code, and follows in turn."""
    order = names_of(FILE)
    assert FILE.read_text(encoding="utf-8") == written(order)
    rank = {name: i for i, name in enumerate(order)}
    parts = [name for name, _, _ in placed(example.elf.with_suffix(".map"))]
    ranks = [rank[name] for name in parts if name in rank]
    assert len(ranks) > 20
    assert ranks == sorted(ranks)
    assert parts[0] in rank
