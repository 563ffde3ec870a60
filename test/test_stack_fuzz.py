"""Random programs: none needs more stack, as Unicorn runs it, than the analysis proves."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from stack_programs import BITS, Program
from test_memory_report import CC, CPU, LINKER_SCRIPT

from microtrain.memory_report import values
from microtrain.memory_report.firmware import Firmware, load_firmware
from microtrain.memory_report.instructions import Code
from microtrain.memory_report.routine import Walk
from microtrain.memory_report.stack import Analysis

pytest.importorskip("unicorn", reason="Unicorn is not installed")
if shutil.which(CC) is None:
    pytest.skip(f"{CC} is not installed", allow_module_level=True)

import unicorn
from unicorn import arm_const as arm

COUNT, INPUTS = 400, 10
FLASH, RAM, SIZE = 0x08000000, 0x20000000, 0x50000
TOP, RETURN = RAM + SIZE - 0x1000, FLASH + 0xFFF00
SECONDS = 5
VISIT = Walk.visit


class Core:
    """Runs a function and says how deep its stack got."""

    def __init__(self, firmware: Firmware) -> None:
        self.uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        self.uc.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M7)
        self.uc.mem_map(FLASH, 0x100000)
        self.uc.mem_map(RAM, SIZE)
        self.uc.mem_map(0xE0000000, 0x100000)
        for address, data in firmware.elf.contents:
            self.uc.mem_write(address, data)
        self.uc.reg_write(arm.UC_ARM_REG_FPEXC, 1 << 30)
        self.lowest = TOP
        self.uc.hook_add(unicorn.UC_HOOK_CODE, self.look)

    def look(self, uc: Any, *_: Any) -> None:
        self.lowest = min(self.lowest, uc.reg_read(arm.UC_ARM_REG_SP))

    def depth(self, entry: int, word: int) -> int:
        self.lowest = TOP
        self.uc.reg_write(arm.UC_ARM_REG_SP, TOP)
        self.uc.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        self.uc.reg_write(arm.UC_ARM_REG_R10, word)
        self.uc.emu_start(entry | 1, RETURN, timeout=SECONDS * 1_000_000)
        assert self.uc.reg_read(arm.UC_ARM_REG_PC) & ~1 == RETURN, "the program did not come back"
        assert self.uc.reg_read(arm.UC_ARM_REG_SP) == TOP
        return TOP - self.lowest


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return [Program(f"p{n}", n, wild=n % 2 == 1) for n in range(COUNT)]


@pytest.fixture(scope="module")
def firmware(programs: list[Program], tmp_path_factory: pytest.TempPathFactory) -> Firmware:
    folder = tmp_path_factory.mktemp("programs")
    source = ".syntax unified\n.thumb\n.text\n" + "".join(program.text for program in programs)
    (folder / "programs.s").write_text(source)
    script = LINKER_SCRIPT.replace("LENGTH = 128K\n         CKPT ", "LENGTH = 512K\n         CKPT ")
    script = script.replace("0x08020000", "0x08080000").replace("0x08040000", "0x080a0000")
    (folder / "link.ld").write_text(
        script.replace("LENGTH = 512K\n         CKPT2", "LENGTH = 128K\n         CKPT2")
    )
    link = ["-nostdlib", "-Wl,--no-warn-rwx-segments", "-T", "link.ld", "-Wl,-ep0_main"]
    subprocess.run([CC, *CPU, *link, "programs.s", "-o", "programs.elf"], cwd=folder, check=True)
    return load_firmware(folder / "programs.elf")


@pytest.fixture(scope="module")
def measured(programs: list[Program], firmware: Firmware) -> dict[str, int]:
    core = Core(firmware)
    rng = random.Random(1)
    words = [0, (1 << BITS) - 1, *(rng.randrange(1 << BITS) for _ in range(INPUTS - 2))]
    return {
        p.name: max(core.depth(firmware.elf.names[f"{p.name}_main"] & ~1, word) for word in words)
        for p in programs
    }


def reports(programs: list[Program], firmware: Firmware) -> Iterator[tuple[Program, int, list[str]]]:
    """Each program with its reported depth and the problems."""
    analysis = Analysis(Code(firmware))
    for program in programs:
        entry = firmware.elf.names[f"{program.name}_main"]
        yield program, analysis.path(entry).bytes, analysis.problems([entry])


def too_low(programs: list[Program], firmware: Firmware, measured: dict[str, int]) -> Iterator[str]:
    """Programs that need more than was proven for them."""
    for program, reported, problems in reports(programs, firmware):
        if not problems and measured[program.name] > reported:
            yield f"{program.name}: {reported} reported, {measured[program.name]} needed"


def test_no_program_needs_more_than_is_proven(
    programs: list[Program], firmware: Firmware, measured: dict[str, int]
) -> None:
    assert list(too_low(programs, firmware, measured)) == []


def test_what_a_compiler_would_write_is_proven_and_close(
    programs: list[Program], firmware: Firmware, measured: dict[str, int]
) -> None:
    """Else a tool that always complains, or always says a megabyte, would pass."""
    tame = [row for row in reports(programs, firmware) if not row[0].wild]
    assert [(program.name, problems) for program, _, problems in tame if problems] == []
    exact = [program for program, reported, _ in tame if reported == measured[program.name]]
    assert len(exact) > 0.8 * len(tame)


def first_wins(a: Any, b: Any, counts: bool = False) -> Any:
    return a


def any_jump_is_a_return(self: Walk, i: Any, state: Any, target: Any) -> None:
    self.back(state)


def never_skipped(self: Walk, address: int, state: Any) -> None:
    """A condition that always holds."""
    state.held = getattr(self.code.at(address), "cc", None)
    VISIT(self, address, state)


@pytest.mark.parametrize(
    ("where", "name", "fault"),
    [
        (values, "meet", first_wins),
        (Walk, "leave", any_jump_is_a_return),
        (Walk, "visit", never_skipped),
    ],
)
def test_a_fault_of_the_analysis_is_noticed(
    where: Any,
    name: str,
    fault: Any,
    programs: list[Program],
    firmware: Firmware,
    measured: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, name, fault)
    assert next(too_low(programs, firmware, measured), None) is not None
