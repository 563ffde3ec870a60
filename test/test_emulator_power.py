"""A board that is switched on again keeps what was translated, and nobody can tell it from a new one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from emulator_firmware import ask, booted, build
from unicorn import arm_const

from microtrain.emulator import Board, EmulatorError, Fault, snapshot
from microtrain.emulator.clock import VirtualClock
from microtrain.emulator.core import Core
from microtrain.emulator.engine import Engine
from microtrain.emulator.memory import FLASH_BASE, Memory
from microtrain.emulator.registers import Register

SECTOR_4, SECTOR_5 = 0x0802_0000, 0x0804_0000
KEYR, CR = 0x4002_3C04, 0x4002_3C10
STACKS = (arm_const.UC_ARM_REG_MSP, arm_const.UC_ARM_REG_PSP)
REGISTERS = {*snapshot.REGISTERS, *STACKS, Register.EPSR, Register.IPSR, Register.XPSR} - {Register.NZCVQG}
NOT_OF_POWER = ("operations", "wear")  # the flash has them for ever
LETTERS = b"axmcdbRWg"  # the FPU, exceptions, masks, code in SRAM, the stack, loops, the cached memories
LOOP = "fee7"  # b .


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), "-DWAIT_STATES=7")


def state_of(board: Board) -> dict[str, object]:
    """Registers, memories, time, counts, and each part as a snapshot describes it."""
    taken = snapshot.take(board)
    for name in NOT_OF_POWER:
        del taken["parts"]["FLASH"][name]
    return taken | {
        "processor": [board.engine.get(register) for register in sorted(REGISTERS)],
        "pc": board.pc,
        "memory": (board.memory.sram[:], board.memory.flash[:]),
        "time": (board.instructions, board.now, board.seconds),
        "counted": (board.profile(), board.cache_use(), board.calls()),
        "native": [getattr(board.engine.state, name) for name in ("handlers", "inside", "fpu_off")],
    }


def live(board: Board) -> list[object]:
    """From power-on through all that the firmware can do: every state on the way."""
    states: list[object] = [state_of(board)]
    booted(board)
    board.watch_calls(["bench"])
    for letter in LETTERS:
        states += [ask(board, bytes([letter])), state_of(board)]
    return [*states, ask(board, b"f"), state_of(board)]


def like(board: Board, elf: Path, **options: Any) -> Board:
    """A new board with the other one's flash."""
    new = Board(elf, **options)
    new.memory.flash[:] = board.memory.flash[:]
    new.power_on()
    return new


def same_again(elf: Path, **options: Any) -> bool:
    board = Board(elf, **options)
    live(board)
    told: list[int] = []
    board.on_block(lambda address, _size: told.append(address))
    board.run(instructions=12_345)  # anywhere
    board.watch_calls([])
    board.power_on()
    new = like(board, elf, **options)
    try:
        return live(board) == live(new) and not told
    except Fault:
        return False


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"caches": True}, {"paced": True}], ids=str)
def test_a_board_switched_on_again_is_as_new(elf: Path, options: dict[str, Any]) -> None:
    assert same_again(elf, **options)


def old_registers(patch: pytest.MonkeyPatch) -> None:
    """The context that is put back is the one of the last moment."""
    whole = Engine._make_new_again

    def stale(engine: Engine) -> None:
        engine._fresh = engine._uc.context_save()
        whole(engine)

    patch.setattr(Engine, "_make_new_again", stale)


def old_ram(patch: pytest.MonkeyPatch) -> None:
    whole = Memory.paint
    painted: set[Memory] = set()

    def once(memory: Memory, value: int) -> None:
        if memory not in painted:
            painted.add(memory)
            whole(memory, value)

    patch.setattr(Memory, "paint", once)


def old_hooks(patch: pytest.MonkeyPatch) -> None:
    whole = Engine._make_new_again

    def forgetful(engine: Engine) -> None:
        engine._until_reset.clear()
        whole(engine)

    patch.setattr(Engine, "_make_new_again", forgetful)


def old_code_in_sram(patch: pytest.MonkeyPatch) -> None:
    whole = Engine._make_new_again

    def forgetful(engine: Engine) -> None:
        engine.state.code_pages[:] = bytes(len(engine.state.code_pages))
        whole(engine)

    patch.setattr(Engine, "_make_new_again", forgetful)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "registers of before": old_registers,
    "SRAM of before": old_ram,
    "calls of before": lambda patch: patch.setattr(Engine, "_forget_calls", lambda _: None),
    "a hook of before": old_hooks,
    "counts of before": lambda patch: patch.setattr(Board, "clear_profile", lambda _: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_in_the_second_start_is_caught(
    elf: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[fault](monkeypatch)
    assert not same_again(elf)


# ---------------------------------------------------------------- code that changes
def run_at(board: Board, address: int, code: str, instructions: int, **registers: int) -> None:
    """Run instructions that are put at an address of flash."""
    data = bytes.fromhex(code + LOOP)
    if board.read_memory(address, len(data)) != data:
        board.write_memory(address, data)
    for name, value in registers.items():
        board.engine.set(Register[name.upper()], value)
    board.loop.pc, board.loop.asleep = address | 1, False
    board.run(instructions=instructions)


def open_flash(board: Board, psize: int) -> None:
    for key in (0x4567_0123, 0xCDEF_89AB):
        board.debug_write(KEYR, 4, key)
    board.debug_write(CR, 4, 1 | psize << 8)


def second_r1(elf: Path) -> int:
    """What a function sets r1 to that was changed from outside while the power was off; it had run before."""
    board = Board(elf)
    run_at(board, SECTOR_4, "ff21", 3)  # movs r1, #255
    assert board.register(Register.R1) == 255
    board.memory.flash[SECTOR_4 - FLASH_BASE] = 15
    board.power_on()
    run_at(board, SECTOR_4, "0f21", 3)
    return board.register(Register.R1)


def test_code_that_is_changed_between_two_starts_runs_as_it_is_now(elf: Path) -> None:
    assert second_r1(elf) == 15


def test_a_stale_block_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Engine._make_new_again

    def trusting(engine: Engine) -> None:
        engine._flash_seen.raw = engine.memory.flash[:]
        whole(engine)

    monkeypatch.setattr(Engine, "_make_new_again", trusting)
    assert second_r1(elf) == 255


def overwritten(elf: Path) -> list[int]:
    """A function in flash is called, programmed over, and called again: r2, r3, and its first halfword."""
    board = booted(Board(elf))
    board.write_memory(SECTOR_5, bytes.fromhex("ff217047"))  # movs r1, #255; bx lr
    open_flash(board, psize=1)
    # blx r4; mov r2, r1; strh r5, [r6]; blx r4; mov r3, r1
    run_at(board, SECTOR_4, "a0470a463580a0470b46", 9, r4=SECTOR_5 | 1, r5=0x210F, r6=SECTOR_5)
    half = int.from_bytes(board.read_memory(SECTOR_5, 2), "little")
    return [board.register(Register.R2), board.register(Register.R3), half]


def test_code_that_is_programmed_over_runs_as_it_is_now(elf: Path) -> None:
    assert overwritten(elf) == [255, 15, 0x210F]


def test_a_block_that_outlives_its_code_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_drop_stale", lambda engine: engine._stale.clear())
    assert overwritten(elf) == [255, 255, 0x210F]


def test_a_block_in_sram_is_counted_as_it_is_now(elf: Path) -> None:
    """Four bytes are two instructions, and then one."""
    counts = []
    board = booted(Board(elf))
    for code in ("00bf00bf", "aff30080"):  # nop; nop, and nop.w
        before = board.instructions
        board.write_memory(0x2003_0000, bytes.fromhex(code + LOOP))
        board.loop.pc, board.loop.asleep = 0x2003_0001, False
        board.engine.translate_anew()
        board.run(seconds=1e-9)
        counts.append(board.instructions - before)
    assert counts[0] == counts[1] + 1


def sram_code(elf: Path) -> int:
    """What code in SRAM sets r1 to that another code was in the place of before the power-on."""
    board = Board(elf)
    for code in ("ff21", "0f21"):  # movs r1, #255, and #15
        board.power_on()
        board.write_memory(0x2003_0000, bytes.fromhex(code + LOOP))
        board.loop.pc = 0x2003_0001
        board.run(instructions=3)
    return board.register(Register.R1)


def test_code_in_sram_does_not_outlive_the_power(elf: Path) -> None:
    assert sram_code(elf) == 15


def test_code_in_sram_that_outlives_it_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_code_in_sram(monkeypatch)
    assert sram_code(elf) == 255


# ---------------------------------------------------------------- the FPU before it is on
def faults_before_cpacr(elf: Path) -> bool:
    """An instruction of the FPU that has run before is the first one behind a power-on."""
    board = booted(Board(elf))
    run_at(board, SECTOR_4, "b0ee600a", 2)  # vmov.f32 s0, s1
    board.power_on()
    with pytest.raises(Fault, match="FPU instruction before CPACR") as caught:
        run_at(board, SECTOR_4, "b0ee600a", 2)
    return caught.value.pc == SECTOR_4


def test_the_fpu_is_off_at_each_power_on(elf: Path) -> None:
    assert faults_before_cpacr(elf)


def test_what_comes_before_the_fpus_instruction_is_done(elf: Path) -> None:
    board = Board(elf)
    with pytest.raises(Fault, match="FPU instruction before CPACR") as caught:
        run_at(board, SECTOR_4, "0721b0ee600a", 9)  # movs r1, #7
    assert (caught.value.pc, board.register(Register.R1)) == (SECTOR_4 + 2, 7)


def test_an_fpu_that_stays_on_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Engine.restart

    def left_on(engine: Engine, *arguments: object) -> None:
        whole(engine, *arguments)  # type: ignore[arg-type]
        engine.state.fpu_off = 0

    monkeypatch.setattr(Engine, "restart", left_on)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        faults_before_cpacr(elf)


# ---------------------------------------------------------------- programming flash
def programmed(elf: Path, seen: bool) -> list[object]:
    """The firmware programs, by native.c or with Python looking at each operation."""
    board = booted(Board(elf))
    if seen:
        board.flash.before_operation = lambda: None
    return [ask(board, b"f"), state_of(board), board.flash.operations, board.flash.wear]


def test_native_code_programs_as_the_controller_does(elf: Path) -> None:
    assert programmed(elf, seen=False) == programmed(elf, seen=True)


def test_a_unit_that_takes_no_time_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualClock, "cycles", lambda clock, seconds: round(seconds * clock.hz) & ~4095)
    timeless = programmed(elf, seen=False)
    monkeypatch.undo()
    assert timeless != programmed(elf, seen=True)


@pytest.mark.parametrize("seen", [False, True])
def test_an_unaligned_store_is_two_units(elf: Path, seen: bool) -> None:
    """And Unicorn, which brings its bytes once more, one by one, programs nothing with them."""
    board = booted(Board(elf))
    board.write_memory(SECTOR_5, b"\xff" * 16)
    open_flash(board, psize=2)
    if seen:
        board.flash.before_operation = lambda: None
    before = board.flash.operations
    # str r5, [r6]; str r5, [r7]
    run_at(board, SECTOR_4, "35603d60", 3, r5=0x1234_5678, r6=SECTOR_5 + 2, r7=SECTOR_5 + 8)
    assert board.read_memory(SECTOR_5, 16).hex() == "ffff78563412ffff78563412ffffffff"
    assert board.flash.operations - before == 3
    assert board.debug_read(0x4002_3C0C, 4) == 0


# ---------------------------------------------------------------- exceptions
def idle_and_busy(board: Board) -> list[object]:
    """A second of ticks, and bytes that come while the firmware computes."""
    states = live(board)
    board.run(seconds=1.0)
    board.feed(b"b" + b"xg" * 20)
    board.run(seconds=0.5)
    return [*states, state_of(board), board.take_output()]


def by_python(patch: pytest.MonkeyPatch) -> None:
    """Every return from an exception is Python's."""
    whole = Engine.run

    def run(engine: Engine, pc: int, until: int = 0xFFFF_FFFF) -> object:
        engine.state.may_return = 0
        return whole(engine, pc, until)

    patch.setattr(Engine, "run", run)


@pytest.mark.parametrize("paced", [False, True])
def test_returns_from_exceptions_are_the_same_in_c(
    elf: Path, paced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = idle_and_busy(Board(elf, paced=paced))
    by_python(monkeypatch)
    assert native == idle_and_busy(Board(elf, paced=paced))


def test_a_return_that_is_not_noted_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = idle_and_busy(Board(elf))
    monkeypatch.setattr(Core, "active", property(lambda core: core._active))
    with pytest.raises((AssertionError, Fault, EmulatorError, ValueError)):
        assert idle_and_busy(Board(elf)) == right


# ---------------------------------------------------------------- boards side by side
def test_two_boards_in_turn_and_on_two_threads_are_alone(elf: Path) -> None:
    alone = live(Board(elf))
    in_turn = [Board(elf), Board(elf)]
    for board in in_turn:
        booted(board)
    for letter in LETTERS:
        said = [ask(board, bytes([letter])) for board in in_turn]
        assert said[0] == said[1]
    in_turn[0].memory.flash[:] = Board(elf).memory.flash[:]
    in_turn[0].power_on()
    assert live(in_turn[0]) == alone
    found: list[list[object]] = []
    threads = [threading.Thread(target=partial(_note, found, elf)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone, alone]


def _note(found: list[list[object]], elf: Path) -> None:
    board = Board(elf)
    live(board)
    board.memory.flash[:] = Board(elf).memory.flash[:]
    board.watch_calls([])
    board.power_on()
    found.append(live(board))
