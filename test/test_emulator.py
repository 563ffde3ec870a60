"""The emulated board, on firmware of its own: every promise of tools/emulator has a case here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from emulator_firmware import (
    TOOLS,
    ask,
    booted,
    build,
    fault_of,
    line_of,
    other_baud_arrives_damaged,
    overrun_is_noted_once,
)

from microtrain.emulator import Board, EmulatedPort, EmulatorError, Fault, Stop, Until, cycles, native
from microtrain.emulator.clock import VirtualClock
from microtrain.emulator.loop import Loop
from microtrain.emulator.registers import Register

HZ = 216_000_000


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), "-DWAIT_STATES=7")


@pytest.fixture
def board(elf: Path) -> Board:
    return booted(Board(elf))


# ---------------------------------------------------------------- the processor
def test_arithmetic_is_the_chips(board: Board) -> None:
    assert ask(board, b"a") == {
        "data": 0x1234_5678,
        "sxtb16": 0xFFFF_0001,
        "smlad": 100 + 1 * 2 - 1 * 3,
        "div": 0xFFFF_FFFD,
        "ssat": 127,
        "q": 1,
        "third": 0x3EAA_AAAB,
        "rint": 2,
    }


def test_exceptions_nest_by_priority_and_keep_fpu_registers(board: Board) -> None:
    assert ask(board, b"x") == {
        "svcs": 3,
        "pendsvs": 3 * 3,
        "order": 123_123_123,
        "keep": 325,
        "flags": 0x8000_0000,
        "sp moved": 0,
        "masked": 9,
        "unmasked": 12,
    }


def test_time_is_counted_in_cycles_of_the_real_clock(board: Board) -> None:
    found = ask(board, b"t")
    assert board.clock.hz == HZ
    assert found["ticks"] == 10
    assert 9 * 216_000 < found["cycles"] <= 10 * 216_000 + 1000
    assert 2 * 216_000 < found["busy"] <= 3 * 216_000 + 1000
    assert found["masked"] == 1
    assert found["dcache"] == 0xF003_E019
    assert found["mpu"] == 0x800


def test_virtual_time_goes_on_where_the_clock_changes() -> None:
    clock = VirtualClock()
    clock.set_rate(16_000_000, HZ)
    assert clock.seconds(16_000_000 + HZ) == pytest.approx(2.0)
    assert clock.cycle(2.0) == 16_000_000 + HZ


def test_an_exception_is_taken_in_the_short_gap_between_two_masked_stretches(board: Board) -> None:
    before = board.instructions
    found = ask(board, b"m")
    assert found["ticks"] >= 3
    assert board.instructions - before < 4 * 216_000


def test_instruction_counts_repeat_exactly(elf: Path) -> None:
    counts = set()
    for slices in (None, 1000, 77):
        board = booted(Board(elf))
        board.feed(b"at")
        end = board.seconds + 0.05
        while board.seconds < end:
            board.run(seconds=end - board.seconds, instructions=slices)
        counts.add((board.take_output(), board.core.systick.due))
        if slices != 77:
            counts.add((b"instructions", board.instructions))
    assert len(counts) == 2


def test_run_stops_at_an_exact_count(board: Board) -> None:
    board.feed(b"b")
    for count in (1, 2, 3, 5, 1000, 12_345):
        before = board.instructions
        assert board.run(instructions=count) is Stop.LIMIT
        assert board.instructions == before + count


def test_profile_adds_up_to_the_instructions(board: Board) -> None:
    board.clear_profile()
    before = board.instructions
    ask(board, b"d")
    costs = board.profile()
    assert costs["deep"].calls == 6
    assert sum(cost.instructions for cost in costs.values()) == board.instructions - before


def test_a_watch_sees_every_call_and_costs_nothing(elf: Path) -> None:
    plain, watched = booted(Board(elf)), Board(elf)
    resets: list[int] = []
    handled: list[int] = []
    watched.watch("main", lambda: resets.append(watched.instructions))
    booted(watched)
    watched.watch("SVC_Handler", lambda: handled.append(watched.register(Register.IPSR)))
    assert ask(watched, b"x") == ask(plain, b"x")
    assert ask(watched, b"a") == ask(plain, b"a")
    assert len(resets) == 1
    assert handled == [11, 11, 11]
    assert watched.instructions == plain.instructions


def test_a_watch_on_nothing_is_one_sentence(board: Board) -> None:
    with pytest.raises(EmulatorError, match="no function nowhere"):
        board.watch("nowhere", lambda: None)


def test_fpu_needs_cpacr(tmp_path: Path) -> None:
    board = Board(build(tmp_path, "-DWAIT_STATES=7", "-DNO_FPU"))
    board.feed(b"a")
    with pytest.raises(Fault, match="FPU instruction before CPACR enables the FPU"):
        board.run(seconds=1)


def test_flash_wait_states_must_fit_the_clock(tmp_path: Path) -> None:
    board = Board(build(tmp_path, "-DWAIT_STATES=5"))
    with pytest.raises(Fault, match="216000000 Hz needs 7 flash wait states, FLASH_ACR has 5"):
        board.run(seconds=1)


# ---------------------------------------------------------------- sleep
def test_idle_time_is_skipped(board: Board) -> None:
    before = board.instructions
    assert board.run(seconds=2.0) is Stop.LIMIT
    assert board.seconds == pytest.approx(2.0, abs=0.01)
    assert 2000 * 5 < board.instructions - before < 2000 * 100


def test_run_can_stop_when_the_firmware_sleeps(board: Board) -> None:
    board.feed(b"a")
    assert board.run(seconds=1, stop_on_sleep=True) is Stop.SLEEP
    assert board.take_output().endswith(b"ok\r\n")
    assert board.seconds < 0.001


def test_port_waits_in_virtual_time(elf: Path) -> None:
    port = EmulatedPort(elf)
    assert port.read(4, 1.0) == b"boot"
    assert port.read(100, 1.0) == b"\r\n"
    before = port.board.seconds
    assert port.read(100, 0.25) == b""
    assert port.board.seconds - before == pytest.approx(0.25, abs=0.01)
    port.write(b"t")
    assert port.read(1000, 1.0).startswith(b"ticks=0000000a")
    port.close()


# ---------------------------------------------------------------- serial line
def test_echo_in_bulk_loses_nothing_and_takes_few_interrupts(board: Board) -> None:
    payload = bytes(33 + i % 13 for i in range(20_000))
    payload = payload.replace(b".", b"!")
    board.feed(b"e" + payload + b".")
    said = b""
    while not said.endswith(b"ok\r\n"):
        board.run(seconds=1, stop_on_sleep=True)
        said += board.take_output()
    echoed, results = said.split(b"\r\n", 1)
    found = dict(line.split(b"=") for line in results.splitlines() if b"=" in line)
    assert echoed == payload
    assert int(found[b"sum"], 16) == sum(payload)
    assert int(found[b"lost"], 16) == 0
    assert int(found[b"interrupts"], 16) < len(payload) // 100


def test_bytes_wait_for_a_firmware_that_does_not_read(board: Board) -> None:
    board.write_memory(board.image.symbols["deaf"], b"\x01")
    board.feed(b"?" * 20_000)
    assert board.run(seconds=5, stop_on_sleep=True) is Stop.SLEEP
    assert board.run(seconds=0.1) is Stop.LIMIT
    assert board.take_output() == b""
    board.write_memory(board.image.symbols["deaf"], b"\x00")
    board.run(seconds=1)
    assert board.take_output().count(b"what?") == 20_000


def test_paced_line_runs_at_the_baud_rate(elf: Path) -> None:
    board = booted(Board(elf, paced=True))
    assert board.usart.baud == pytest.approx(115200, rel=0.01)
    before = board.seconds
    board.feed(b"e" + b"x" * 100)
    board.run(seconds=0.02)
    said = board.take_output()
    assert said == b"x" * 100
    assert board.seconds - before == pytest.approx(0.02, abs=0.001)
    board.feed(b"y" * 100)
    board.run(seconds=50 * 10 / 115200)
    assert 48 <= len(board.take_output()) <= 50


def test_paced_line_overruns_a_firmware_that_does_not_read(elf: Path) -> None:
    overrun_is_noted_once(elf)


def test_other_baud_rate_arrives_damaged(elf: Path) -> None:
    other_baud_arrives_damaged(elf)


# ---------------------------------------------------------------- faults
@pytest.mark.parametrize(
    ("command", "kind", "address", "function", "line"),
    [
        (b"r", "BusFault on read", 0x2005_0000, "read_beyond", "return REG(address);"),
        (b"n", "BusFault on read", 0, "read_beyond", "return REG(address);"),
        (b"p", "no peripheral of this board model", 0x4001_1400, "read_beyond", "return REG(address);"),
        (b"k", "GPIOC while its clock is off", 0x4002_0800, "read_beyond", "return REG(address);"),
        (b"!", "undefined instruction", None, "main", '"udf #0"'),
    ],
)
def test_fault_names_function_and_line(
    board: Board, command: bytes, kind: str, address: int | None, function: str, line: str
) -> None:
    fault = fault_of(board, command)
    assert kind in str(fault)
    assert address is None or fault.address == address
    assert fault.function == function
    assert fault.line == line_of(line)
    assert f"in {function} ({fault.line})" in str(fault)


def test_stack_overflow_is_named(board: Board) -> None:
    fault = fault_of(board, b"s")
    assert "STACK OVERFLOW" in str(fault)
    assert fault.function == "deep"
    assert fault.address < 0x2000_0000


def test_unaligned_ldrd_faults_in_strict_mode_only(elf: Path, board: Board) -> None:
    assert "unaligned" in ask(board, b"u")
    fault = fault_of(booted(Board(elf, strict=True)), b"u")
    assert "unaligned access" in str(fault)
    assert fault.address == 0x2002_0002


def test_strict_mode_computes_the_same(elf: Path, board: Board) -> None:
    strict = booted(Board(elf, strict=True))
    for command in (b"a", b"x", b"d"):
        assert ask(strict, command) == ask(board, command)


@pytest.mark.parametrize("command", [b"r", b"s", b"!"])
def test_firmware_may_have_its_own_fault_handler(elf: Path, command: bytes) -> None:
    board = booted(Board(elf, guest_faults=True))
    board.feed(command)
    assert board.run(seconds=1, until=Until.LINE) is Stop.OUTPUT
    assert board.take_output().startswith(b"hard fault=")
    assert board.last_fault is not None


# ---------------------------------------------------------------- set-up and command line
def run_cli(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / "emulator"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
        check=False,
    )


def test_command_line_talks_on_standard_input(elf: Path) -> None:
    result = run_cli(str(elf), "--profile", "--sram", text="ad")
    assert result.returncode == 0
    assert "third=3eaaaaab" in result.stdout
    assert "deep" in result.stderr
    assert "canvas" not in result.stderr


def test_command_line_reports_a_fault_in_one_sentence(elf: Path) -> None:
    result = run_cli(str(elf), text="r")
    assert result.returncode == 1
    assert "BusFault on read at 0x20050000" in result.stderr
    assert "Traceback" not in result.stderr


def truncated(folder: Path, elf: Path) -> Path:
    short = folder / "short.elf"
    short.write_bytes(elf.read_bytes()[:5000])
    return short


@pytest.mark.parametrize(
    "make",
    [
        lambda folder, elf: folder / "none.elf",
        lambda folder, elf: folder,
        lambda folder, elf: Path(sys.executable),
        truncated,
    ],
)
def test_no_firmware_is_one_sentence(tmp_path: Path, elf: Path, make: Callable[[Path, Path], Path]) -> None:
    path = make(tmp_path, elf)
    result = run_cli(str(path))
    assert result.returncode == 1
    assert str(path) in result.stderr
    assert "Traceback" not in result.stderr


def test_cycle_estimate_is_between_half_and_twice_the_instructions(board: Board) -> None:
    if not any(map(shutil.which, cycles.VERSIONS)):
        pytest.skip("llvm-mca is not installed")
    ask(board, b"b")
    found = cycles.estimate(board)
    assert found.unknown == 0
    assert 0.5 < found.cycles / found.instructions < 2
    assert max(found.by_function, key=lambda name: found.by_function[name]) == "bench"


def test_blocks_that_nobody_can_tell_take_a_cycle_an_instruction(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with instructions of the FPU too, of which notes on blocks say more than a length."""
    if not any(map(shutil.which, cycles.VERSIONS)):
        pytest.skip("llvm-mca is not installed")
    monkeypatch.setattr(cycles, "_cycles_of", lambda mca, cpu, sources: [None] * len(sources))
    ask(board, b"a")
    found = cycles.estimate(board)
    assert found.unknown > 0
    assert found.issue == pytest.approx(found.instructions)


BLOCKS = (  # the second ends among conditional instructions, the others hold what some version does not know
    " add r0, r1\n b.w .Lblock\n",
    " ldr r0, [r1]\n it eq\n",
    " ldr r0, [r1]\n muls r2, r0, r2\n smlad r3, r0, r1, r3\n",
    " vcmpe.f32 s14, s15\n adds r0, #1\n",
    " vcmpe.f32 s0, #0.0\n",
    " mul.w r3, r3, r1\n adds r0, #1\n",
    " itt hi\n movhi r0, #1\n addhi r1, #1\n adds r2, #1\n",
    " vadd.f32 s0, s0, s1\n b.w .Lblock\n",
)


def test_blocks_take_together_what_they_take_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of llvm-mca for all of them: none of them changes what is said of another."""
    mca = next(filter(None, map(shutil.which, cycles.VERSIONS)), None)
    if mca is None:
        pytest.skip("llvm-mca is not installed")
    sources = [f".syntax unified\n.thumb\n{cycles.LABEL}:\n{block}" for block in BLOCKS]

    def taken(*some: str) -> list[float | None]:
        monkeypatch.setattr(cycles, "KNOWN", {})
        return cycles._cycles_of(mca, "cortex-m7", [*some])

    assert [cycles._open(source) for source in sources].index(True) == 1
    assert sum(map(cycles._open, sources)) == 1
    alone = [taken(source)[0] for source in sources]
    assert taken(*sources) == alone and taken(*reversed(sources)) == alone[::-1]
    assert {alone[0], alone[2], alone[7]} & {None} == set()


def test_no_llvm_mca_is_a_sentence(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "VERSIONS", ())
    assert cycles.report(board) == "no cycle estimate: llvm-mca is not on PATH (`apt install llvm`)."


def test_no_compiler_is_one_sentence(elf: Path, tmp_path: Path) -> None:
    result = run_cli(str(elf), PATH=str(tmp_path), CC="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.returncode == 1
    assert "no C compiler" in result.stderr
    assert "Traceback" not in result.stderr


def test_native_part_has_no_warnings(tmp_path: Path) -> None:
    for compiler in ("gcc", "clang"):
        flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wdouble-promotion", "-Werror"]
        for source in native.SOURCES:
            subprocess.run([compiler, *flags, "-c", str(source), "-o", str(tmp_path / "n.o")], check=True)


def test_planted_fault_in_the_masks_is_caught(elf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of masked stretches fails where the loop looks only at long intervals."""
    monkeypatch.setattr(Loop, "_watch_masks", lambda self: None)
    board = booted(Board(elf))
    board.feed(b"m")
    board.run(instructions=4 * 216_000)
    assert b"ok" not in board.take_output()
    assert board.register(Register.PC)
