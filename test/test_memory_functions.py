"""memcpy, memmove and memset of the firmware: what Python says, on every alignment and overlap."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from microtrain.base.paths import ROOT

pytest.importorskip("unicorn", reason="Unicorn is not installed")
if shutil.which("arm-none-eabi-gcc") is None:
    pytest.skip("arm-none-eabi-gcc is not installed", allow_module_level=True)

import unicorn
from unicorn import arm_const as arm

SOURCE = ROOT / "firmware" / "src" / "board" / "stm32" / "memory_armv7m.S"
CODE, RAM, SIZE = 0x08000000, 0x20000000, 0x1000
STACK, RETURN = RAM + 2 * SIZE, CODE + 0x800


class Memory:
    """The functions on an emulated core with SIZE bytes to work on."""

    def __init__(self, folder: Path) -> None:
        elf = folder / "memory.elf"
        link = ("-nostdlib", f"-Wl,-Ttext={CODE:#x}", "-Wl,-e0")
        subprocess.run(
            ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", *link, str(SOURCE), "-o", str(elf)],
            check=True,
        )
        self._uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        self._uc.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M7)
        self._uc.mem_map(CODE, 0x1000)
        self._uc.mem_map(RAM, 2 * SIZE)
        with elf.open("rb") as file:
            image: Any = ELFFile(file)
            self._uc.mem_write(CODE, image.get_section_by_name(".text").data())
            symbols = image.get_section_by_name(".symtab").iter_symbols()
            self._address = {s.name: s["st_value"] for s in symbols}

    def call(self, name: str, before: bytes, *words: int) -> bytes:
        """The memory after a call; the first argument, an offset into it, must come back."""
        uc = self._uc
        uc.mem_write(RAM, before)
        for register, word in zip(
            (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2), words, strict=True
        ):
            uc.reg_write(register, word & 0xFFFFFFFF)
        uc.reg_write(arm.UC_ARM_REG_SP, STACK)
        uc.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        uc.emu_start(self._address[name] | 1, RETURN)
        assert uc.reg_read(arm.UC_ARM_REG_R0) == words[0]
        assert uc.reg_read(arm.UC_ARM_REG_SP) == STACK
        return bytes(uc.mem_read(RAM, SIZE))


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return Memory(tmp_path_factory.mktemp("memory"))


def draw(rng: np.random.Generator, distance: int) -> tuple[bytes, int, int, int]:
    """Memory, and where n bytes go and come from, at most `distance` apart."""
    n = int(rng.integers(0, rng.choice([5, 40, 300])))
    source = int(rng.integers(distance, SIZE - distance - 300))
    target = source + int(rng.integers(-distance, distance + 1))
    return rng.bytes(SIZE), target, source, n


def copied(before: bytes, target: int, source: int, n: int) -> bytes:
    return before[:target] + before[source : source + n] + before[target + n :]


@pytest.mark.parametrize("distance", [3, 32, 400])
def test_memmove(memory: Memory, distance: int) -> None:
    rng = np.random.default_rng(distance)
    for _ in range(300):
        before, target, source, n = draw(rng, distance)
        after = memory.call("memmove", before, RAM + target, RAM + source, n)
        assert after == copied(before, target, source, n)


def test_memcpy(memory: Memory) -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        before, target, source, n = draw(rng, 400)
        if abs(target - source) >= n:
            after = memory.call("memcpy", before, RAM + target, RAM + source, n)
            assert after == copied(before, target, source, n)


def test_memset(memory: Memory) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        before, target, _, n = draw(rng, 32)
        value = int(rng.integers(-256, 256))
        after = memory.call("memset", before, RAM + target, value, n)
        assert after == before[:target] + bytes([value & 0xFF]) * n + before[target + n :]


def test_a_wrong_copy_is_noticed(memory: Memory) -> None:
    """memcpy upwards over what it still has to read: the comparison must see it."""
    before = bytes(range(64)) + bytes(SIZE - 64)
    assert memory.call("memcpy", before, RAM + 1, RAM, 40) != copied(before, 1, 0, 40)
