"""The board model of each chip: the ELF chooses it, and what the chips have of their own differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulator_firmware import (
    ask,
    booted,
    build,
    fault_of,
    other_baud_arrives_damaged,
    overrun_is_noted_once,
)

from microtrain.emulator import Board, EmulatedPort, EmulatorError, Fault
from microtrain.emulator.chips import CHIPS, STM32F446, STM32F746, Chip
from microtrain.emulator.peripherals.gpio import GPIO_BASE

KB = 1024
SLOTS = {"disco_f746ng": (4, 7), "nucleo_f446re": (6, 7)}  # sectors


@pytest.fixture(scope="module", params=CHIPS.values(), ids=lambda chip: chip.board)
def chip(request: pytest.FixtureRequest) -> Chip:
    found: Chip = request.param
    return found


@pytest.fixture(scope="module")
def elf(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("firmware"), board=chip.board)


@pytest.fixture(scope="module")
def nucleo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nucleo"), board="nucleo_f446re")


def test_the_elf_chooses_the_chip(elf: Path, chip: Chip) -> None:
    board = booted(Board(elf))
    assert board.chip is chip
    assert (len(board.memory.flash), len(board.memory.sram)) == (chip.flash_size, chip.sram_size)
    assert board.rcc.core_hz == chip.max_hz
    assert board.usart.baud == pytest.approx(115200, rel=0.01)
    assert board.debug_read(0xE004_2000, 4) & 0xFFF == chip.device_id


def test_sizes_and_sectors_are_the_manuals() -> None:
    assert (STM32F746.flash_size, STM32F746.sram_size) == (1024 * KB, 320 * KB)
    assert (STM32F446.flash_size, STM32F446.sram_size) == (512 * KB, 128 * KB)
    assert STM32F746.places[4] == (0x20000, 128 * KB) and STM32F746.places[7] == (0xC0000, 256 * KB)
    assert STM32F446.places[4] == (0x10000, 64 * KB) and STM32F446.places[6] == (0x40000, 128 * KB)
    assert set(STM32F446.sectors) == set(STM32F446.erase_s) and set(STM32F746.sectors) == set(
        STM32F746.erase_s
    )


def test_memory_ends_where_the_chips_does(elf: Path, chip: Chip) -> None:
    board = booted(Board(elf))
    board.read_memory(0x2000_0000 + chip.sram_size - 4, 4)
    with pytest.raises(ValueError, match="neither in flash nor in SRAM"):
        board.read_memory(0x2000_0000 + chip.sram_size, 4)
    with pytest.raises(ValueError, match="neither in flash nor in SRAM"):
        board.read_memory(0x0800_0000 + chip.flash_size, 4)
    assert fault_of(board, b"r").address == 0x2005_0000
    assert "BusFault on read" in str(fault_of(booted(Board(elf)), b"n"))  # a null pointer


def test_both_compute_and_program_alike(elf: Path, chip: Chip) -> None:
    board = booted(Board(elf))
    assert ask(board, b"a")["third"] == 0x3EAAAAAB
    assert ask(board, b"x")["pendsvs"] == 9
    found = ask(board, b"f")
    assert (found["erased"], found["and"], found["next"]) == (0xFFFF_FFFF, 0x0F00_0F00, 0xCAFE_F00D)
    assert [i for i, erases in enumerate(board.flash.wear) if erases] == [SLOTS[chip.board][0]]


def test_led_and_button_have_the_boards_levels(elf: Path, chip: Chip) -> None:
    board = booted(Board(elf))
    assert not board.led
    assert ask(board, b"g")["button"] == int(not chip.pressed)
    assert board.led
    board.button(True)
    assert ask(board, b"g")["button"] == int(chip.pressed)


def test_a_divider_of_half_the_size_is_garbage_both_ways(elf: Path, chip: Chip) -> None:
    port = EmulatedPort(booted(Board(elf)))
    port.write(b"a")
    assert b"third" in port.read(1000, 0.1)
    divider = chip.serial.base + port.board.usart.layout.brr
    port.board.debug_write(divider, 4, port.board.debug_read(divider, 4) // 2)
    port.write(b"a")
    assert b"third" not in port.read(1000, 0.1)
    said: list[bytes] = []
    port.board.usart.listeners.append(said.append)
    port.board.usart.host_baud = None
    port.write(b"a")
    port.read(1000, 0.1)
    assert b"third" in b"".join(said)


@pytest.mark.parametrize("way", ["send", "receive"])
def test_a_pin_that_is_not_the_usarts_carries_nothing(elf: Path, chip: Chip, way: str) -> None:
    port = EmulatedPort(booted(Board(elf)))
    letter, pin = getattr(chip.serial, way)
    modes = GPIO_BASE + 0x400 * chip.ports.index(letter)
    port.board.debug_write(modes, 4, port.board.debug_read(modes, 4) & ~(3 << 2 * pin))
    port.write(b"a")
    assert port.read(1000, 0.1) == b""


def test_the_older_usart_forgets_errors_where_its_data_are_read(nucleo: Path) -> None:
    board = overrun_is_noted_once(nucleo)
    assert board.usart_status() & 0b1010 == 0
    other_baud_arrives_damaged(nucleo)


def test_a_cortex_m4_has_no_fpv5(nucleo: Path, tmp_path: Path) -> None:
    assert "undefined instruction" in str(fault_of(booted(Board(nucleo)), b"v"))
    assert ask(booted(Board(build(tmp_path))), b"v") == {}


def test_a_bus_over_its_limit_is_a_fault(tmp_path: Path) -> None:
    """The F746's clock tree on the F446: the flash is too slow for it first, then the core."""
    board = Board(build(tmp_path, "-DWAIT_STATES=4", board="nucleo_f446re"))
    with pytest.raises(Fault, match="180000000 Hz needs 5 flash wait states"):
        board.run(seconds=1)
    board = booted(Board(build(tmp_path, board="nucleo_f446re")))
    for apb1 in (4 << 10, 0):  # divided by two, or not at all
        board.debug_write(0x4002_3808, 4, 2 | apb1 | 4 << 13)
        with pytest.raises(Fault, match="above the 45000000 of the chip's APB1"):
            board.run(seconds=1)


def test_what_the_board_does_not_have_is_a_sentence(nucleo: Path, tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="nucleo_f446re has no camera"):
        Board(nucleo).connect_camera()
    with pytest.raises(EmulatorError, match="no caches to model"):
        Board(nucleo, caches=True)
    elf = build(tmp_path, "-Wl,--defsym=__device_id=0x123")
    with pytest.raises(EmulatorError, match=r"device id 0x123, of which there is no model.*STM32F446RE"):
        Board(elf)
