"""Drivers by themselves: compiled for a chip and called on Unicorn, with plain memory for the registers.

Here is what no firmware of the suites asks for: the button, flash outside of a slot, rates that the protocol
refuses before, a clock that does not start.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import kernel_arm
import pytest
import unicorn
from conftest import ROOT
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

from microtrain.base.elf import read_elf
from microtrain.emulator.chips import CHIPS, Chip
from microtrain.emulator.peripherals.clock import RCC_BASE
from microtrain.emulator.peripherals.gpio import BSRR, GPIO_BASE, IDR, MODER
from microtrain.emulator.peripherals.usart import NEWER, OLDER

BOARDS = ROOT / "firmware/src/board"
CODE, PERIPHERALS, RAM, STACK, RETURN = 0x0800_0000, 0x4002_0000, 0x2000_0000, 0x2000_F000, 0x0800_FFF0
SLOW_PERIPHERALS, SYSTEM = 0x4000_0000, 0xE000_E000
AHB1ENR, STUBS = 0x4002_3830, 0x2000_8000
ERR_RANGE = -2
FLASH_PAGE, PAGE = 0x4002_3000, 0x1000
MOST = 100_000  # instructions of a call
PORT_BYTES, PINS = 0x400, 16
SLOT_A, SLOT_BYTES = 0x0802_0000, 0x1000
OTHERS = """#include <stdint.h>
void cache_forget(const uint8_t *start, uint32_t size) { (void)start, (void)size; }
uint32_t time_cycles(void) { return 0; }
void time_passed(uint32_t cycles) { (void)cycles; }
"""
OUTSIDE = (
    *((2, 4), (0, 2), (4, 6), (SLOT_BYTES + 4, 0), (SLOT_BYTES, 4), (0, SLOT_BYTES + 4), (8, 0xFFFF_FFFC)),
)  # offset and size
Call = Callable[..., int]


@pytest.fixture(scope="module", params=CHIPS.values(), ids=lambda chip: chip.board)
def chip(request: pytest.FixtureRequest) -> Chip:
    found: Chip = request.param
    return found


def driver(chip: Chip, sources: list[Path], folder: Path, *link: str) -> tuple[unicorn.Uc, Call]:
    """The core with a driver in its flash, and what calls a function of it with up to four words."""
    own = BOARDS / chip.name[:9].lower()
    include = [f"-I{path}" for path in (ROOT / "firmware/include", BOARDS / "stm32", own)]
    elf = folder / "driver.elf"
    flags = (*kernel_arm.CPUS[chip.cpu], *kernel_arm.FLAGS, "-O2", "-ffreestanding", *include)
    layout = ("-nostdlib", f"-Wl,-Ttext={CODE:#x}", f"-Wl,-Tdata={RAM:#x}", "-Wl,-e0", *link)
    subprocess.run([kernel_arm.CC, *flags, *layout, *sources, "-o", elf], check=True)
    uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
    uc.ctl_set_cpu_model(kernel_arm.MODELS[chip.cpu])
    for base, size in ((CODE, 0x10_0000), (PERIPHERALS, 0x4000), (RAM, 0x1_0000)):
        uc.mem_map(base, size)
    with elf.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            uc.mem_write(segment["p_vaddr"], segment.data())
    functions = read_elf(elf).names

    def call(name: str, *arguments: int) -> int:
        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2, arm.UC_ARM_REG_R3)
        for register, value in zip(registers, arguments, strict=False):
            uc.reg_write(register, value)
        uc.reg_write(arm.UC_ARM_REG_SP, STACK)
        uc.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        uc.emu_start(functions[name] | 1, RETURN, count=MOST)
        found: int = uc.reg_read(arm.UC_ARM_REG_R0)
        return found - (found >> 31 << 32)

    return uc, call


def put(uc: unicorn.Uc, address: int, value: int) -> None:
    uc.mem_write(address, value.to_bytes(4, "little"))


def word(uc: unicorn.Uc, address: int) -> int:
    return int.from_bytes(uc.mem_read(address, 4), "little")


# ---------------------------------------------------------------- pins
@pytest.fixture(scope="module")
def pins(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> tuple[unicorn.Uc, Call]:
    return driver(chip, [BOARDS / chip.name[:9].lower() / "pins.c"], tmp_path_factory.mktemp("pins"))


def port(chip: Chip, name: str) -> int:
    return GPIO_BASE + PORT_BYTES * chip.ports.index(name)


def test_the_button_is_its_own_pin_and_no_other(chip: Chip, pins: tuple[unicorn.Uc, Call]) -> None:
    uc, call = pins
    idle = 0 if chip.pressed else 0xFFFF
    for name in chip.ports:
        put(uc, port(chip, name) + IDR, idle)
    assert call("pins_button") == 0
    for name in chip.ports:
        for pin in range(PINS):
            put(uc, port(chip, name) + IDR, idle ^ 1 << pin)
            assert call("pins_button") == ((name, pin) == chip.button)
        put(uc, port(chip, name) + IDR, idle)


def test_the_led_is_set_and_reset_by_its_own_bit(chip: Chip, pins: tuple[unicorn.Uc, Call]) -> None:
    uc, call = pins
    name, pin = chip.led
    for on in (1, 0):
        call("pins_led", on)
        assert word(uc, port(chip, name) + BSRR) == 1 << (pin if on else pin + PINS)


def test_no_other_pin_is_touched(chip: Chip, pins: tuple[unicorn.Uc, Call]) -> None:
    """The LED is an output, the button an input, their ports have a clock."""
    uc, call = pins
    for name in chip.ports:
        put(uc, port(chip, name) + MODER, 0xFFFF_FFFF)
    call("pins_init")
    expected = dict.fromkeys(chip.ports, 0xFFFF_FFFF)
    for (name, pin), mode in ((chip.led, 1), (chip.button, 0)):
        expected[name] = expected[name] & ~(3 << 2 * pin) | mode << 2 * pin
    assert {name: word(uc, port(chip, name) + MODER) for name in chip.ports} == expected
    clocks = {chip.ports.index(name) for name, _ in (chip.led, chip.button)}
    assert word(uc, AHB1ENR) == sum(1 << index for index in clocks)


# ---------------------------------------------------------------- flash
@pytest.fixture(scope="module")
def flash(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> tuple[unicorn.Uc, Call]:
    return flash_of(chip, tmp_path_factory.mktemp("flash"), 0)


def flash_of(chip: Chip, folder: Path, status: int) -> tuple[unicorn.Uc, Call]:
    """The driver, and a controller that sees no error. status: what all its registers read"""
    others = folder / "others.c"
    others.write_text(OTHERS)
    ends = {"a_start": 0, "a_end": SLOT_BYTES, "b_start": SLOT_BYTES, "b_end": 2 * SLOT_BYTES}
    symbols = [f"-Wl,--defsym=__checkpoint_{name}={SLOT_A + at:#x}" for name, at in ends.items()]
    uc, call = driver(chip, [BOARDS / "stm32/flash.c", others], folder, *symbols)
    uc.mem_unmap(FLASH_PAGE, PAGE)
    uc.mmio_map(FLASH_PAGE, PAGE, lambda *_: status, None, lambda *_: None, None)
    return uc, call


def test_flash_is_not_written_outside_a_slot_nor_in_parts_of_a_word(
    flash: tuple[unicorn.Uc, Call],
) -> None:
    uc, call = flash
    before = bytes(uc.mem_read(SLOT_A, 3 * SLOT_BYTES))
    for offset, size in OUTSIDE:
        assert call("flash_write", 0, offset, RAM, size) == ERR_RANGE, (offset, size)
    assert bytes(uc.mem_read(SLOT_A, 3 * SLOT_BYTES)) == before


@pytest.mark.parametrize("slot", [0, 1])
def test_flash_is_written_up_to_the_end_of_a_slot(flash: tuple[unicorn.Uc, Call], slot: int) -> None:
    uc, call = flash
    words = bytes(range(8))
    uc.mem_write(RAM, words)
    assert call("flash_write", slot, SLOT_BYTES - 8, RAM, 8) == 0
    end = SLOT_A + (slot + 1) * SLOT_BYTES
    assert bytes(uc.mem_read(end - 12, 16)) == bytes(4) + words + bytes(4)


def test_flash_is_waited_for_while_it_is_busy(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As on a chip with two banks, or under a debugger: BSY is bit 16 (RM0385, 3.7.5; RM0390, 3.8.5)."""
    for busy, waits in ((1 << 16, True), (0, False)):
        uc, call = flash_of(chip, tmp_path_factory.mktemp("flash"), busy)
        call("flash_erase", 0)
        assert (uc.reg_read(arm.UC_ARM_REG_PC) != RETURN) == waits


# ---------------------------------------------------------------- serial line
@pytest.fixture
def line(chip: Chip, tmp_path: Path) -> tuple[unicorn.Uc, Call]:
    others = tmp_path / "others.c"
    hz = chip.apb_max_hz[chip.serial.apb - 1]
    others.write_text(f"#include <stdint.h>\nuint32_t clock_serial_hz(void) {{ return {hz}u; }}\n")
    uc, call = driver(chip, [BOARDS / "stm32/usart.c", others], tmp_path)
    uc.mem_map(SLOW_PERIPHERALS, 0x2_0000)
    uc.mem_map(SYSTEM, 0x1000)
    return uc, call


def test_the_line_takes_rates_from_9600_to_3_million(chip: Chip, line: tuple[unicorn.Uc, Call]) -> None:
    """And no more than a sixteenth of its clock."""
    uc, call = line
    at = OLDER if chip.serial.older else NEWER
    hz = chip.apb_max_hz[chip.serial.apb - 1]
    most = min(3_000_000, hz // 16)
    for baud in (0, 9599, most + 1, 3_000_001):
        assert call("usart_baud", baud) == ERR_RANGE, baud
    for baud in (9600, 115200, most):
        put(uc, chip.serial.base + at.cr1, 0)
        assert call("usart_baud", baud) == 0, baud
        assert word(uc, chip.serial.base + at.brr) == (hz + baud // 2) // baud


def test_the_line_leaves_the_clocks_of_others_on(chip: Chip, line: tuple[unicorn.Uc, Call]) -> None:
    uc, call = line
    offset, bit = chip.serial.clock
    enable = RCC_BASE + offset
    put(uc, enable, 0x8000_0000)
    put(uc, AHB1ENR, 0x8000_0000)
    assert call("usart_init", 115200) == 0
    assert word(uc, enable) == 0x8000_0000 | 1 << bit
    ports = {chip.ports.index(name) for name, _ in (chip.serial.send, chip.serial.receive)}
    assert word(uc, AHB1ENR) == 0x8000_0000 | sum(1 << index for index in ports)


# ---------------------------------------------------------------- the start
START = """
void fault_init(void) {}
void cache_enable(void) {}
void time_init(void) {}
void watchdog_init(void) {}
void pins_init(void) {}
int clock_init(void) { return *(volatile int *)0x20008000; }
int usart_init(unsigned baud) { return baud == 115200 ? *(volatile int *)0x20008004 : -9; }
"""


def test_what_fails_at_the_start_is_told(chip: Chip, tmp_path: Path) -> None:
    others = tmp_path / "others.c"
    others.write_text(START)
    only = ("-ffunction-sections", "-Wl,--gc-sections", "-Wl,-eboard_init")
    uc, call = driver(chip, [BOARDS / "stm32/board.c", others], tmp_path, *only)
    uc.mem_map(SYSTEM, 0x1000)
    for clock, serial, expected in ((0, 0, 0), (-1, 0, -1), (0, -2, -2), (-1, -2, -1)):
        uc.mem_write(STUBS, struct.pack("<ii", clock, serial))
        assert call("board_init") == expected


END = """
int usart_flush(void) { return *(volatile int *)0x20008000 = 1; }
_Noreturn void system_reset(void) { *(volatile int *)0x20008004 += *(volatile int *)0x20008000; for (;;) { } }
"""


def test_what_was_said_last_has_left_before_a_restart(chip: Chip, tmp_path: Path) -> None:
    """The board model's transmitter is never busy."""
    others = tmp_path / "others.c"
    others.write_text(END)
    only = ("-ffunction-sections", "-Wl,--gc-sections", "-Wl,-eboard_reset")
    uc, call = driver(chip, [BOARDS / "stm32/board.c", others], tmp_path, *only)
    call("board_reset")
    assert word(uc, STUBS + 4) == 1
