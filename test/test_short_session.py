"""Each board for a short while: a session as this machine's build has it, bytes that get lost, caches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE, Built

from microtrain.base.pio import BOARD
from microtrain.convert.execute.executor import Executor
from microtrain.convert.loading import load, quantized_with_report
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.quantize.ptq import Choices
from microtrain.convert.reference.numeric import Sgd
from microtrain.convert.scheme import find
from microtrain.device.client import Device
from microtrain.device.link import Port, ProgramPort
from microtrain.emulator import Board, EmulatedPort
from microtrain.emulator.peripherals import usart
from microtrain.samples.stored import stored
from microtrain.simulate.machine import SEED

CCR = 0xE000_ED14  # of the core's system control block
# Cache maintenance, from 0xE000E000 on (ARMv7-M ARM, B3.2.24): by the whole, by address, by set and way.
ICIALLU, DCIMVAC, DCISW = 0xF50, 0xF5C, 0xF60
SETS, WAYS, LINE_BYTES = 32, 4, 32  # of the data cache
BOOT_S = 0.5  # virtual seconds: a firmware that hangs costs no more


@pytest.fixture(params=[BOARD, "nucleo_f446re"])
def board(request: pytest.FixtureRequest, example: Built) -> Board:
    elf: Path = example.elf if request.param == BOARD else request.getfixturevalue("nucleo_elf")
    return Board(elf)


def images() -> np.ndarray:
    """Two to learn, and one to look at."""
    return np.random.default_rng(0).integers(0, 256, (3, 32, 32, 1), np.uint8)


def session(port: Port) -> tuple[str, bytes, bytes]:
    """SHA-256 and bytes of the trainables, and logits, after two steps, a pull and a push."""
    *shown, last = images()
    with Device(port) as device:
        for label, image in enumerate(shown):
            device.train(image, label)
        pulled = device.pull()
        device.push(pulled)
        return device.sha(), pulled, device.infer(last).logits.tobytes()


def test_a_session_is_what_numpy_computes(example: Built) -> None:
    """The example, compiled here once more and run layer by layer: nothing of the generated C takes part."""
    graph = quantized_with_report(load(EXAMPLE / "model.pt", False, None), Choices(), False, None)[0]
    scheme = find(EXAMPLE / "scheme.yaml")
    compiled = compile_graph(graph, scheme, 10)
    *shown, last = stored(images(), graph.input)
    executor = Executor(compiled.graph)
    for step, image in enumerate(shown):
        executor.forward(image)
        executor.backward(step, Sgd(*scheme.rates, SEED, step))
    _, trained, logits = session(ProgramPort(example.program))
    assert trained == executor.trainables()
    assert logits == executor.forward(last).tobytes()


def test_a_short_session(board: Board, example: Built) -> None:
    board.run(seconds=BOOT_S)
    banner = board.take_output().decode("ascii").splitlines()
    assert banner[0].startswith(f"microtrain {board.chip.board} digits ")
    assert banner[1:] == ["start power", "checkpoint none", "ready"]
    assert session(EmulatedPort(board)) == session(ProgramPort(example.program))
    with Device(EmulatedPort(board)) as device:
        assert device.save() == 1
        before = device.sha()
        device.reboot()
        assert device.sha() == before
        stats = device.stats()
    assert (stats["steps"], stats["saves"], stats["bytes_lost"], stats["frames_bad"]) == ("2", "1", "0", "0")


def test_a_session_under_sanitizers(example: Built, sanitized_program: Path) -> None:
    """The generated code and the kernels stay within every table."""
    assert session(ProgramPort(sanitized_program)) == session(ProgramPort(example.program))


def said(board: Board, line: str, seconds: float = 2.0) -> list[str]:
    """What the firmware answers to a line."""
    board.feed(line.encode() + b"\n")
    board.run(seconds=seconds, stop_on_sleep=True)
    return board.take_output().decode("latin1").splitlines()


def lost(board: Board) -> int:
    """Bytes that the firmware counts as lost."""
    return int(next(line.split()[1] for line in said(board, "stats") if line.startswith("bytes_lost")))


def test_bytes_of_another_rate_are_lost_and_counted(board: Board) -> None:
    board.run(seconds=BOOT_S)
    board.usart.host_baud = 9600
    board.feed(b"U" * 40)
    board.run(seconds=0.1)
    board.take_output()
    board.usart.host_baud = 115200
    assert lost(board) == 40
    assert said(board, "ping") == ["ok pong"]


def test_the_ring_holds_1024_bytes_while_the_core_computes(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.run(seconds=BOOT_S)
    monkeypatch.setattr(usart, "BURST", 2000)
    for bytes_behind in (1000, 1100):
        said(board, "pattern 1")
        answers = said(board, "train 0\n" + "ping\n" * (bytes_behind // 5 - 1) + "ping")
        if bytes_behind == 1000:
            assert answers[1:] == ["ok pong"] * 200 and lost(board) == 0
        else:
            said(board, "")  # the last line has lost its end
            assert 0 < lost(board) <= 100


def test_an_overrun_is_counted_and_the_line_goes_on(board: Board) -> None:
    """The core stands still while it erases, the line does not."""
    board.run(seconds=BOOT_S)
    board.take_output()
    board.usart.paced = True
    board.feed(b"forget\n" + b"?" * 100)
    board.run(seconds=5)
    board.usart.paced = False
    assert "ok forget" in board.take_output().decode("latin1")
    board.feed(b"\n")
    board.run(seconds=0.1)
    board.take_output()
    assert lost(board) > 0
    assert said(board, "ping") == ["ok pong"]


def test_the_caches_are_on(board: Board) -> None:
    """Of the Cortex-M7: data and instructions. The F446 has the flash's own: hardware.robot."""
    board.run(seconds=BOOT_S)
    assert board.debug_read(CCR, 4) >> 16 & 3 == (3 if board.chip.has_caches else 0)


def test_frames_of_exceptions_are_aligned_and_a_division_by_zero_traps(board: Board) -> None:
    """CCR.STKALIGN, which is set after a reset, and DIV_0_TRP."""
    board.run(seconds=BOOT_S)
    assert board.debug_read(CCR, 4) & 0x3FF == 0x210


@pytest.fixture
def maintained(board: Board, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the firmware writes to the registers of the caches, as (register, value), and to CCR."""
    seen: list[tuple[int, int]] = []
    write = board.core.write

    def also(offset: int, value: int) -> None:
        if offset in (CCR & 0xFFF, ICIALLU, DCIMVAC, DCISW):
            seen.append((offset, value))
        write(offset, value)

    monkeypatch.setattr(board.core, "write", also)
    board.engine.state.caches_seen = 1
    return seen


def test_the_caches_are_emptied_before_they_are_on(board: Board, maintained: list[tuple[int, int]]) -> None:
    """Their content is unknown after a reset, which Unicorn, without caches, does not show."""
    board.run(seconds=BOOT_S)
    if not board.chip.has_caches:
        assert [register for register, _ in maintained if register != CCR & 0xFFF] == []
        return
    on = next(i for i, (register, value) in enumerate(maintained) if register == CCR & 0xFFF and value >> 16)
    assert (ICIALLU, 0) in maintained[:on]
    lines = [way << 30 | line << 5 for line in range(SETS) for way in range(WAYS)]
    assert sorted(value for register, value in maintained[:on] if register == DCISW) == sorted(lines)


def test_the_data_cache_forgets_what_the_flash_no_longer_holds(
    board: Board, maintained: list[tuple[int, int]]
) -> None:
    """All of a sector that was erased, and every line of what was programmed into it."""
    board.run(seconds=BOOT_S)
    maintained.clear()
    assert said(board, "save", 5)[-1] == "ok save 1"
    sector, _ = min(board.chip.places[i] for i, times in enumerate(board.flash.wear) if times)
    size = dict(board.chip.places)[sector]
    start = 0x0800_0000 + sector
    found = [value for register, value in maintained if register == DCIMVAC]
    erased = list(range(start, start + size, LINE_BYTES)) if board.chip.has_caches else []
    assert found[: len(erased)] == erased
    written = {address // LINE_BYTES for address in found[len(erased) :]}
    content = board.read_memory(start, size)
    if board.chip.has_caches:
        assert {(start + i) // LINE_BYTES for i, byte in enumerate(content) if byte != 0xFF} <= written


POWER, BROWN_OUT, PIN, SOFTWARE, WATCHDOG = (1 << bit for bit in (27, 25, 26, 28, 29))  # of RCC_CSR


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        (POWER | BROWN_OUT | PIN, "power"),
        (BROWN_OUT | PIN, "pin"),
        (SOFTWARE | PIN, "software"),
        (WATCHDOG | PIN, "watchdog"),
    ],
)
def test_each_cause_of_a_start_is_told(board: Board, causes: int, told: str) -> None:
    board.rcc.causes = causes
    board.run(seconds=BOOT_S)
    assert f"start {told}" in board.take_output().decode("ascii").splitlines()


def test_an_erase_takes_its_time(board: Board) -> None:
    """By the cycle counter: no tick is taken while the flash is erased."""
    board.run(seconds=BOOT_S)
    start = uptime(board)
    said(board, "save", 5)
    assert uptime(board) - start >= 1000 * min(board.chip.erase_s.values())


def uptime(board: Board) -> int:
    """Milliseconds."""
    return int(next(line.split()[1] for line in said(board, "stats") if line.startswith("uptime_ms")))


def test_the_regulator_is_at_scale_1_whatever_it_was_before(board: Board) -> None:
    """Full speed needs it; a reset of the core alone leaves it as it is."""
    board.pwr.registers[0] = 0x4000  # PWR_CR1: scale 3
    board.run(seconds=BOOT_S)
    assert board.pwr.registers[0] >> 14 & 3 == 3
