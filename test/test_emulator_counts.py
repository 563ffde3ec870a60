"""What the emulated board counts: calls of functions with their callees, misses of modelled caches."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator_firmware import ask, booted, build

from microtrain.emulator import Board, CacheUse, EmulatorError, cycles, native
from microtrain.emulator.engine import Engine

HIT, MISS, MISS_WRITE_BACK = 0, 1, 2  # as in cache.h
LINE = 32
FLASH_LINE, SRAM_LINE, WRITE_BACK = 12, 12, 8  # cycles, as in cache.h
DTCM, SRAM1 = 0x2000_8000, 0x2003_0000


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), "-DWAIT_STATES=7")


# ---------------------------------------------------------------- calls
def call_of_bench(elf: Path, delay: int) -> tuple[int, int]:
    """Instructions of one call of `bench`, and all that the board took, after `delay` instructions."""
    board = booted(Board(elf))
    board.run(instructions=delay)
    board.watch_calls(["bench"], only_inside=True)
    before = board.instructions
    ask(board, b"b")
    cost = board.calls()["bench"]
    assert cost.calls == 1
    assert sum(entry.instructions for entry in board.profile().values()) == cost.instructions
    return cost.instructions, board.instructions - before


def test_a_call_takes_the_same_however_it_is_interrupted(elf: Path) -> None:
    first, second = call_of_bench(elf, 100), call_of_bench(elf, 12_345)
    assert first[0] == second[0]
    assert first[1] > first[0] + 1000  # the ticks that came in between are not in it


def test_a_planted_fault_in_the_interrupts_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where handlers are taken for the call's own, ticks get into its count."""
    right = call_of_bench(elf, 100)[0]
    for name in ("enter", "leave"):
        monkeypatch.setattr(Engine, name, forgetful(getattr(Engine, name)))
    assert call_of_bench(elf, 100)[0] > right


def forgetful(method: Callable[..., object]) -> Callable[..., object]:
    """A method of Engine that forgets which handlers run."""

    def changed(self: Engine, *arguments: object) -> object:
        result = method(self, *arguments)
        self.state.handlers = 0
        return result

    return changed


def test_calls_include_what_they_call(elf: Path) -> None:
    board = booted(Board(elf))
    board.watch_calls(["deep", "bench", "put_hex"])
    for command in (b"d", b"d", b"b"):
        ask(board, command)
    calls, alone = board.calls(), board.profile()
    assert [calls[name].calls for name in ("deep", "bench", "put_hex")] == [2, 1, 3]
    assert calls["deep"].instructions == alone["deep"].instructions  # recursion belongs to the outer call
    assert calls["bench"].instructions > alone["bench"].instructions


def test_only_known_functions_can_be_watched(elf: Path) -> None:
    board = Board(elf)
    with pytest.raises(EmulatorError, match="has no function nowhere"):
        board.watch_calls(["nowhere"])
    with pytest.raises(EmulatorError, match="65 functions are more than the 64"):
        board.watch_calls(["deep"] * 65)


# ---------------------------------------------------------------- caches
@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Callable[[native.Cache, int, int], int]:
    """cache_access of cache.h."""
    folder = tmp_path_factory.mktemp("cache")
    source = folder / "access.c"
    source.write_text(
        '#include "cache.h"\nuint32_t touch(struct cache *c, uint32_t address, int write);\n'
        "uint32_t touch(struct cache *c, uint32_t address, int write)\n"
        "{\n    (void)line_fill;\n    (void)in_dtcm;\n    return cache_access(c, address, write);\n}\n"
    )
    library = folder / "access.so"
    include = f"-I{native.HERE}"
    subprocess.run(["gcc", "-shared", "-fPIC", include, str(source), "-o", str(library)], check=True)
    touch = ctypes.CDLL(str(library)).touch
    touch.argtypes = [ctypes.POINTER(native.Cache), ctypes.c_uint32, ctypes.c_int]
    return lambda cache, address, write: int(touch(ctypes.byref(cache), address, write))


def test_streams_worked_out_by_hand(access: Callable[[native.Cache, int, int], int]) -> None:
    cache = native.Cache(sets=2, ways=2)
    a, b, c = 0x2002_0000, 0x2002_0040, 0x2002_0080  # all of set 0
    other = 0x2002_0020  # set 1
    stream = [
        *((a, 0, MISS), (a + 31, 0, HIT), (other, 0, MISS), (b, 1, MISS), (a, 0, HIT)),
        (c, 0, MISS_WRITE_BACK),  # b was used longest ago, and written
        *((a, 0, HIT), (b, 0, MISS), (c, 1, MISS), (c, 0, HIT)),
        (a, 0, MISS),  # b goes, clean
        (b, 0, MISS_WRITE_BACK),  # c goes, written before it was read
        (other, 0, HIT),
    ]
    assert [access(cache, address, write) for address, write, _ in stream] == [found for *_, found in stream]


def walked(elf: Path, start: int, size: int, command: bytes) -> CacheUse:
    """What the caches did while the firmware walked twice over memory, one word per line."""
    board = booted(Board(elf, caches=True))
    for name, value in (("walk_start", start), ("walk_bytes", size)):
        board.write_memory(board.image.symbols[name], value.to_bytes(4, "little"))
    board.watch_calls(["walk"], only_inside=True)
    ask(board, command)
    assert board.calls()["walk"].calls == 1
    return board.cache_use()


@pytest.mark.parametrize(
    ("start", "size", "command", "misses", "write_backs"),
    [
        (SRAM1, 2048, b"R", 64, 0),  # fits: the second time all is there
        (SRAM1, 8192, b"R", 512, 0),  # twice the cache: least recently used never hits
        (SRAM1, 2048, b"W", 64, 0),
        (SRAM1, 8192, b"W", 512, 512 - 128),  # all that was written leaves, but for what is still there
        (DTCM, 8192, b"W", 0, 0),
        (0x0808_0000, 8192, b"R", 512, 0),
    ],
)
def test_the_firmwares_own_accesses_are_seen(
    elf: Path, start: int, size: int, command: bytes, misses: int, write_backs: int
) -> None:
    use = walked(elf, start, size, command)
    assert (use.data_misses, use.write_backs) == (misses, write_backs)
    assert 1 <= use.instruction_misses <= 4  # the loop's own lines, once
    line = FLASH_LINE if start < DTCM else SRAM_LINE
    stalls = misses * line + write_backs * WRITE_BACK + use.instruction_misses * FLASH_LINE
    assert use.stalls == stalls


def test_modelled_caches_change_no_result_and_no_count(elf: Path) -> None:
    plain, cached = booted(Board(elf)), booted(Board(elf, caches=True))
    for command in (b"a", b"x", b"d"):
        assert ask(plain, command) == ask(cached, command)
        assert plain.instructions == cached.instructions
    assert plain.cache_use() == CacheUse(0, 0, 0, 0)


def test_stalls_are_part_of_the_estimate(elf: Path) -> None:
    if not any(map(shutil.which, cycles.VERSIONS)):
        pytest.skip("llvm-mca is not installed")
    board = booted(Board(elf, caches=True))
    board.write_memory(board.image.symbols["walk_bytes"], (8192).to_bytes(4, "little"))
    board.watch_calls(["walk"], only_inside=True)
    ask(board, b"R")
    found = cycles.estimate(board)
    assert found.cycles == found.issue + board.cache_use().stalls
    assert found.by_function["walk"] == pytest.approx(found.cycles, rel=0.01)
    assert "512 of data" in cycles.report(board)
