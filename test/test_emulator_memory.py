"""The emulated board's memory: flash behind its controller, power cuts, and the SRAM a firmware takes."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from emulator_firmware import ask, ask_booted, booted, build, fault_of, line_of

from microtrain.emulator import Board, EmulatorError, Fault, Stop, Until, measure_sram
from microtrain.emulator.registers import Register

SECTOR_4 = 0x0802_0000


@pytest.fixture(scope="module")
def elf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), "-DWAIT_STATES=7")


@pytest.fixture
def board(elf: Path) -> Board:
    return booted(Board(elf))


# ---------------------------------------------------------------- flash
def test_flash_is_programmed_through_its_controller(board: Board) -> None:
    before = board.seconds
    found = ask(board, b"f")
    assert found["erased"] == 0xFFFF_FFFF
    assert found["and"] == 0x0FF0_FF00 & 0xFF0F_0FF0
    assert found["next"] == 0xCAFE_F00D
    assert found["status"] == 1 << 6
    assert found["refused"] == 0xFFFF_FFFF
    assert found["pair"] == 0x3333_3333
    assert found["locked"] == 1 << 31
    assert board.flash.wear == [0, 0, 0, 0, 1, 0, 0, 0]
    assert board.seconds - before > 0.5


def test_flash_survives_power_and_sram_does_not(board: Board) -> None:
    ask(board, b"f")
    ask(board, b"h")
    board.power_on()
    assert board.read_memory(SECTOR_4 + 4, 4) == 0xCAFE_F00D.to_bytes(4, "little")
    assert board.read_memory(0x2002_0000, 16) == b"\xa5" * 16
    booted(board)


def test_store_to_locked_flash_faults_with_its_line(board: Board) -> None:
    fault = fault_of(board, b"w")
    assert "store to flash that is not being programmed at 0x08040000" in str(fault)
    assert (fault.function, fault.line) == (
        "store_to_flash",
        line_of("REG(0x08040000u) = 1;"),
    )
    assert board.read_memory(0x0804_0000, 4) == b"\xff" * 4


def test_power_is_cut_in_any_flash_operation(board: Board) -> None:
    contents = []
    for operation in (1, 2, 3, 4):
        board.power_on()
        board.write_memory(SECTOR_4, bytes(16))
        booted(board)
        board.power_cut_at(flash_operation=operation)
        board.feed(b"f")
        assert board.run(seconds=5) is Stop.POWER_CUT
        with pytest.raises(EmulatorError, match=r"power_on\(\)"):
            board.run()
        contents.append(board.read_memory(SECTOR_4, 8).hex())
    ones, word, both, second = "ff" * 8, "00fff00fffffffff", "000f000fffffffff", "000f000f0df0feca"
    assert contents == [ones, word, both, second]


def test_power_is_cut_between_two_words_of_one_instruction(board: Board) -> None:
    board.power_cut_at(flash_operation=5)
    board.feed(b"f")
    assert board.run(seconds=5) is Stop.POWER_CUT
    assert board.read_memory(SECTOR_4 + 16, 8).hex() == "11111111ffffffff"


def test_torn_operation_leaves_some_bits(board: Board) -> None:
    board.power_cut_at(flash_operation=4, torn=lambda size: bytes([0xF0]) * size)
    board.feed(b"f")
    assert board.run(seconds=5) is Stop.POWER_CUT
    expected = bytes(byte | 0xF0 for byte in 0xCAFE_F00D.to_bytes(4, "little"))
    assert board.read_memory(SECTOR_4 + 4, 4) == expected


def test_power_is_cut_at_an_instruction(board: Board) -> None:
    ask(board, b"h")
    board.power_on()
    board.power_cut_at(instruction=1234)
    assert board.run(seconds=1) is Stop.POWER_CUT
    assert board.instructions == 1234


# ---------------------------------------------------------------- memory and pins
def test_sram_use_is_exact(elf: Path) -> None:
    def scenario(board: Board) -> None:
        booted(board)
        ask(board, b"h")

    board = Board(elf)
    use = measure_sram(board, scenario)
    assert use.by_symbol["canvas"] == 1000  # every byte, though some are written with the colour of the paint
    assert board.sram_touched().by_symbol["canvas"] < 1000
    assert use.by_symbol["ring"] == 1024
    assert use.by_section[".canvas"] == 1000
    assert sum(use.by_symbol.values()) == use.touched
    assert 40 <= use.by_symbol["(stack)"] <= use.stack_depth < 512
    assert use.total == use.touched - use.by_symbol["(stack)"] + use.stack_depth


def test_stack_depth_follows_recursion(elf: Path) -> None:
    depths = []
    for command in (b"h", b"d"):
        scenario = functools.partial(ask_booted, command=command)
        depths.append(measure_sram(Board(elf), scenario).stack_depth)
    assert depths[1] - depths[0] > 5 * 128


def test_led_and_button(board: Board) -> None:
    assert not board.led
    assert ask(board, b"g")["button"] == 0
    assert board.led
    board.button(True)
    assert ask(board, b"g")["button"] == 1


def test_reset_by_the_firmware_starts_over(board: Board) -> None:
    board.feed(b"z")
    assert board.run(seconds=1, until=Until.LINE) is Stop.OUTPUT
    assert board.take_output() == b"boot\r\n"
    assert board.read_memory(0x2002_0000, 4) == b"\xa5" * 4


# ---------------------------------------------------------------- code in SRAM, and alignment
def test_code_in_sram_that_is_written_over_runs_as_it_is_now(board: Board) -> None:
    assert ask(board, b"c") == {"first": 1, "second": 2, "third": 3}


def strict_fault(elf: Path, code: str, base: int) -> Fault | None:
    """What one instruction does in strict mode; r0 holds the base."""
    board = booted(Board(elf, strict=True))
    board.write_memory(SECTOR_4, bytes.fromhex(code) + b"\xfe\xe7")  # b .
    board.engine.set(Register.R0, base)
    board.loop.pc = SECTOR_4 | 1
    try:
        board.run(instructions=2)
    except Fault as fault:
        return fault
    return None


@pytest.mark.parametrize(
    ("code", "offset"),
    [
        ("06c8", 0),  # ldmia r0!, {r1, r2}
        ("20e90e00", -12),  # stmdb r0!, {r1, r2, r3}
        ("d0e90212", 8),  # ldrd r1, r2, [r0, #8]
        ("40e90212", -8),  # strd r1, r2, [r0, #-8]
        ("f0e80212", 0),  # ldrd r1, r2, [r0], #8
        ("50e8011f", 4),  # ldrex r1, [r0, #4]
        ("10ed030a", -12),  # vldr s0, [r0, #-12]
        ("20ed020a", -8),  # vstmdb r0!, {s0-s1}
        ("b0ec040a", 0),  # vldmia r0!, {s0-s3}
    ],
)
def test_strict_mode_names_the_first_unaligned_word(elf: Path, code: str, offset: int) -> None:
    fault = strict_fault(elf, code, 0x2002_0042)
    assert fault is not None
    assert "unaligned access" in str(fault)
    assert (fault.address, fault.pc) == (0x2002_0042 + offset, SECTOR_4)
    assert strict_fault(elf, code, 0x2002_0044) is None


@pytest.mark.parametrize(
    "code", ["d0f80010", "0180", "d0e84f1f", "52ec101a"]
)  # ldr.w, strh, ldrexb, vmov of two
def test_strict_mode_lets_pass_what_the_chip_does(elf: Path, code: str) -> None:
    assert strict_fault(elf, code, 0x2002_0042) is None
