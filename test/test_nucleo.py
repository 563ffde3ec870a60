"""The second board, NUCLEO-F446RE: it learns what the others learn, and nothing in it is the F746's."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import kernel_arm
import numpy as np
import pytest
import unicorn
from conftest import ROOT, Built
from elftools.elf.elffile import ELFFile
from pio_build import NULL_MODEL, copy_project, pio
from unicorn import arm_const as arm

from microtrain.base.elf import read_elf
from microtrain.convert import boards
from microtrain.elfcheck.instructions import instructions
from microtrain.elfcheck.rules import check
from microtrain.emulator import Board, Fault, Stop, Until
from microtrain.emulator.native import DTCM_BYTES
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import dtcm_use

FLASH = 0x0800_0000
STEPS = 60
HEADER, STRIDE = 32, 128  # bytes of a slot's header and of a save of the null model


@pytest.fixture(params=boards.names())
def elf(request: pytest.FixtureRequest, example: Built, nucleo_elf: Path) -> Path:
    """The example's firmware for each board."""
    return nucleo_elf if request.param == "nucleo_f446re" else example.elf


# ---------------------------------------------------------------- the same numbers
def step(k: int) -> list[str]:
    return [f"pattern {k}", f"train {k % 10}", f"pattern {k + 1}", "infer"]


LESSON = [command for k in range(STEPS) for command in step(k)]


def answers(said: list[str]) -> list[str]:
    """Logits, losses and the hash, without what is the board's own."""
    return [line for line in said if line.startswith(("logits", "ok train", "ok sha"))]


def emulated(elf: Path) -> list[str]:
    board = Board(elf)
    lines(board, ("ready",))
    return answers([line for command in [*LESSON, "sha"] for line in ask(board, command)])


def test_both_boards_and_the_host_learn_the_same_bits(example: Built, nucleo_elf: Path) -> None:
    """Every logit and loss on the way, and the SHA-256 of all that was trained."""
    typed = "\n".join([*LESSON, "sha", ""])
    program = [str(example.program)]
    host = subprocess.run(program, input=typed, text=True, capture_output=True, timeout=60, check=True)
    small = emulated(nucleo_elf)
    assert Board(nucleo_elf).chip.cpu == "cortex-m4"
    assert len(small) == 2 * STEPS + 1
    assert small == emulated(example.elf) == answers(host.stdout.splitlines())


def test_rintf_is_what_the_other_fpu_has_an_instruction_for(tmp_path: Path) -> None:
    """VRINTX of the Cortex-M7 and the function of ours, bit for bit, on bit patterns of every kind."""
    whole = np.arange(-40, 40, dtype=np.float32) / 4
    big = [2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, -(2**31), 3e38, np.inf, -np.inf]
    edges = np.array([0.0, -0.0, 0.5, -0.5, 1e-45, *big], np.float32)
    drawn = np.random.default_rng(3).integers(0, 1 << 32, 40_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([whole, edges, np.nextafter(whole, 9e9, dtype=np.float32), drawn])
    results = [rounded(tmp_path, cpu, values) for cpu in ("cortex-m7", "cortex-m4")]
    number = ~np.isnan(values)
    np.testing.assert_array_equal(results[0][number].view(np.uint32), results[1][number].view(np.uint32))
    np.testing.assert_array_equal(results[1][number].view(np.uint32), np.rint(values[number]).view(np.uint32))
    assert np.isnan(results[1][~number]).all()


def rounded(folder: Path, cpu: str, values: np.ndarray) -> np.ndarray:
    """rintf of each value, as compiled for a core and run on it."""
    source, elf = folder / "all.c", folder / f"{cpu}.elf"
    source.write_text("#include <math.h>\nvoid all(float *x, int n) { for (; n--; x++) *x = rintf(*x); }\n")
    sources = [source, *([kernel_arm.RINT] if cpu == "cortex-m4" else [])]
    link = ("-nostdlib", f"-Wl,-Ttext={FLASH:#x}", "-Wl,-e0")
    flags = (*kernel_arm.CPUS[cpu], *kernel_arm.FLAGS, "-O2", *link)
    subprocess.run([kernel_arm.CC, *flags, *sources, "-o", elf], check=True)
    uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
    uc.ctl_set_cpu_model(kernel_arm.MODELS[cpu])
    uc.mem_map(FLASH, 0x10000)
    uc.mem_map(0x2000_0000, 0x100000)
    with elf.open("rb") as file:
        image = ELFFile(file)
        uc.mem_write(FLASH, image.get_section_by_name(".text").data())
        symbols = {s.name: s["st_value"] for s in image.get_section_by_name(".symtab").iter_symbols()}
    uc.mem_write(0x2000_0000, values.tobytes())
    for register, value in ((arm.UC_ARM_REG_R0, 0x2000_0000), (arm.UC_ARM_REG_R1, len(values))):
        uc.reg_write(register, value)
    uc.reg_write(arm.UC_ARM_REG_SP, 0x2010_0000)
    uc.reg_write(arm.UC_ARM_REG_LR, FLASH + 0xF001)
    uc.emu_start(symbols["all"] | 1, FLASH + 0xF000)
    return np.frombuffer(bytes(uc.mem_read(0x2000_0000, values.nbytes)), np.float32)


# ---------------------------------------------------------------- the chip's own places
def test_the_stack_is_bounded_with_one_handler_at_a_time(elf: Path) -> None:
    """Every jump of the kernels is followed, and no priority is written."""
    stack = analyse(load_firmware(elf))
    assert stack.problems == () and stack.nested == ()
    assert [frame.name for frame in stack.handler.frames] == ["Serial_IRQHandler"]


def test_regions_are_whole_sectors_and_the_driver_erases_the_slots(elf: Path) -> None:
    """Linker script, the driver's table, the board file and the emulator's chip say the same."""
    board, firmware = Board(elf), load_firmware(elf)
    borders = {FLASH + offset for offset, _ in board.chip.places} | {FLASH + board.chip.flash_size}
    assert {edge for region in firmware.chip.regions for edge in (region.start, region.end)} <= borders
    table = board.image.symbols["slots"]
    for i, name in enumerate(("checkpoint A", "checkpoint B")):
        start, end, sector = struct.unpack("<3I", board.read_memory(table + 12 * i, 12))
        region = next(region for region in firmware.chip.regions if region.name == name)
        assert (start, end - start) == (region.start, region.size)
        assert (start - FLASH, end - start) == board.chip.places[sector]
    sizes = {region.name: region.size for region in firmware.chip.regions}
    known = boards.find(board.chip.board)
    assert (known.sram, known.flash) == (board.chip.sram_size, board.chip.flash_size)
    assert (known.sram, known.flash) == (firmware.chip.sram.size, firmware.chip.flash.size)
    assert known.weights == sizes["weights"]
    assert known.slot == min(sizes["checkpoint A"], sizes["checkpoint B"])
    upload = json.loads((ROOT / f"platform/boards/{known.name}.json").read_text())["upload"]
    starts = {region.name: region.start for region in firmware.chip.regions}
    assert int(upload["code_address"], 16) == starts["code"]
    assert int(upload["weights_address"], 16) == starts["weights"]


def test_the_report_says_what_never_waits(example: Built, nucleo_elf: Path) -> None:
    """The stack and the arena first, then what room is left for; the Cortex-M4 has no such memory."""
    firmware = load_firmware(example.elf)
    dtcm = firmware.chip.dtcm
    assert dtcm is not None and dtcm.size == DTCM_BYTES
    found = dtcm_use(firmware)
    assert next(iter(found)) == "stack, reserved" and all(inside == size for inside, size in found.values())
    start, size = next((s.address, s.size) for s in firmware.symbols if s.name == "model_arena")
    assert found["arena"] == (size, size)
    shorter = replace(dtcm, size=start + size // 2 - dtcm.start)
    cut = dtcm_use(replace(firmware, chip=replace(firmware.chip, dtcm=shorter)))
    assert cut["arena"] == (size // 2, size) and cut["trainables"][0] == 0 < cut["trainables"][1]
    assert dtcm_use(load_firmware(nucleo_elf)) == {}


def test_the_board_runs_at_its_limits(nucleo_elf: Path) -> None:
    board = Board(nucleo_elf)
    board.run(seconds=0.1)
    assert b"microtrain nucleo_f446re digits" in board.take_output()
    buses = (board.rcc.apb_hz(1), board.rcc.apb_hz(2))
    assert (board.rcc.core_hz, *buses) == (180_000_000, 45_000_000, 90_000_000)
    assert board.flash.registers[0] == 5 | 7 << 8  # wait states; prefetch and both of the flash's caches
    assert board.rcc.registers[0] >> 16 & 5 == 5  # HSE on, and bypassed
    assert board.usart.baud == pytest.approx(115200, rel=0.005)
    assert {"board nucleo_f446re", "arena 10024", "trainable 10504"} <= set(ask(board, "info"))
    assert "saves_left 240000" in ask(board, "stats")  # as docs/hardware.md says


def test_the_numeric_contract_holds(nucleo_elf: Path) -> None:
    assert check(nucleo_elf) == []


def test_no_handler_is_so_short_that_a_division_loses_its_result(nucleo_elf: Path) -> None:
    """Arm erratum 776924 of the Cortex-M4: VDIV under a handler of one or two instructions."""
    functions = [instruction.function for instruction in instructions(read_elf(nucleo_elf))]
    assert "vdiv.f32" in {instruction.mnemonic for instruction in instructions(read_elf(nucleo_elf))}
    assert all(functions.count(name) >= 4 for name in ("SysTick_Handler", "Serial_IRQHandler"))


BARRIERS = {  # of data and of instructions at least, by function
    "Reset_Handler": (1, 1),
    "board_wait": (1, 1),
    "cache_forget": (2, 0),
    "fault_report": (1, 0),
    "flash_erase": (2, 0),
    "flash_write": (2, 0),
    "system_reset": (2, 0),
}


def test_barriers_that_only_the_chip_needs_are_there(elf: Path) -> None:
    """Unicorn does all in order, and has no caches: no board model misses one (ARMv7-M ARM, A3.7.3)."""
    found = [(each.function, each.mnemonic) for each in instructions(read_elf(elf))]
    expected = BARRIERS | ({"cache_enable": (5, 3)} if Board(elf).chip.has_caches else {})
    for function, (data, instruction) in expected.items():
        assert found.count((function, "dsb")) >= data, function
        assert found.count((function, "isb")) >= instruction, function


def test_an_upload_is_for_this_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an OpenOCD that only says what it was asked, and fails as it does without a board."""
    program = tmp_path / "openocd"
    program.write_text('#!/bin/sh\necho asked: "$@"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    result = pio(tmp_path / "pio", "run", "-e", "nucleo_f446re", "-t", "upload")
    assert result.returncode != 0
    assert re.search(r"asked: -f board/st_nucleo_f4.cfg -c program {\S+firmware.elf} verify", result.stdout)
    assert "upload failed. Is the board's ST-LINK port (CN1 on the NUCLEO-F446RE)" in result.stderr


# ---------------------------------------------------------------- checkpoints, and the other chip's numbers
def learned(board: Board) -> str:
    return ask(board, "sha")[-1]


def ask(board: Board, command: str) -> list[str]:
    board.feed(command.encode() + b"\n")
    return lines(board, ("ok", "err"))


def lines(board: Board, last: tuple[str, ...]) -> list[str]:
    """What the board says, up to a line that begins with one of `last`."""
    said: list[str] = []
    while not said or not said[-1].startswith(last):
        assert board.run(seconds=10.0, until=Until.LINE) is Stop.OUTPUT, said
        said += board.take_output().decode("ascii").splitlines()
    return said


def keeps_what_it_learns(elf: Path) -> None:
    """Through restarts, in one slot after the other, which hold something else at first; the rest stays."""
    board = Board(elf)
    regions = {region.name: region for region in load_firmware(elf).chip.regions}
    for region in regions.values():
        content = board.read_memory(region.start, region.size)
        used = len(content.rstrip(b"\xff"))
        board.write_memory(region.start + used, bytes(region.size - used))
    before = board.flash_content()
    lines(board, ("ready",))
    for save in (1, 2):
        ask(board, "pattern 1")
        assert ask(board, f"train {save}")[-1].startswith("ok train")
        assert ask(board, "save")[-1] == f"ok save {save}"
        erased = [FLASH + board.chip.places[i][0] for i, times in enumerate(board.flash.wear) if times]
        assert erased == [regions[f"checkpoint {name}"].start for name in "AB"[:save]]
        now = learned(board)
        board.power_on()
        assert f"checkpoint {save} of step {save}" in lines(board, ("ready",))
        assert learned(board) == now
        if save == 1:  # fill the rest of the slot: the next save takes the other one
            slot, used = regions["checkpoint A"], HEADER + STRIDE
            board.write_memory(slot.start + used, bytes(slot.size - used))
    after = board.flash_content()
    for name in ("code", "weights"):
        part = slice(regions[name].start - FLASH, regions[name].end - FLASH)
        assert before[part] == after[part], name
    last = regions["checkpoint B"]
    assert after[last.start - FLASH :][:4] != b"\xff" * 4


FAULTS = {
    "sectors": {"SLOT_A_SECTOR = 6": "SLOT_A_SECTOR = 4"},  # the F746's checkpoint A
    "swapped": {"SLOT_A_SECTOR = 6, SLOT_B_SECTOR = 7": "SLOT_A_SECTOR = 7, SLOT_B_SECTOR = 6"},
    "wait states": {"FLASH_WAIT_STATES 5u": "FLASH_WAIT_STATES 4u"},
    "crystal": {"PLLM(4u)": "PLLM(25u)"},  # the F746's 25 MHz
    "bus": {"PLL_SERIAL_HZ = PLL_HZ / 4": "PLL_SERIAL_HZ = PLL_HZ / 2"},  # USART1's
    "enable": {"SERIAL_CR1_UE BIT(13)": "SERIAL_CR1_UE BIT(0)"},  # the newer kind's
}


def test_what_is_learned_is_kept(tmp_path: Path) -> None:
    keeps_what_it_learns(built_with({}, tmp_path))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_number_of_the_other_chip_is_noticed(fault: str, tmp_path: Path) -> None:
    elf = built_with(FAULTS[fault], tmp_path)
    with pytest.raises((AssertionError, Fault)):
        keeps_what_it_learns(elf)
        assert Board(elf).run(seconds=0.1) and abs(booted_baud(elf) / 115200 - 1) < 0.01


def booted_baud(elf: Path) -> float:
    board = Board(elf)
    board.run(seconds=0.1)
    return board.usart.baud


def built_with(changes: dict[str, str], folder: Path) -> Path:
    """The firmware with the null model, built from a copy whose hardware.h was changed."""
    project = copy_project(folder)
    header = project / "firmware/src/board/stm32f446/hardware.h"
    text = header.read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    header.write_text(text)
    result = pio(folder / "pio", "run", "-s", "-e", "nucleo_f446re", model=NULL_MODEL, project=project)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder / "pio/build/nucleo_f446re/firmware.elf"
