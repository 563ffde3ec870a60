"""One instruction, run by Unicorn and as translated code, from the same state."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

from microtrain.emulator.translate import build
from microtrain.emulator.translate.blocks import Span, Translator
from microtrain.emulator.translate.source import source

FLASH, SRAM, SIZE, PAGE = 0x0800_0000, 0x2000_0000, 0x4000, 4096
BACK = FLASH + 0x3F00  # where the functions return to
DEFAULT_NAN = 1 << 25
LEFT_WITHIN = 2  # as in translation.h
JUMPS = 4  # by registers and tables in one function, at most
FLAGS = ("-mthumb", "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard")
CORE = [*(getattr(arm, f"UC_ARM_REG_R{n}") for n in range(13)), arm.UC_ARM_REG_SP, arm.UC_ARM_REG_LR]
SINGLE = [getattr(arm, f"UC_ARM_REG_S{n}") for n in range(32)]
STATE = 0xF800_0000  # N, Z, C, V and Q


class Guest(ctypes.Structure):
    """struct guest of translation.h."""

    _fields_ = [
        ("r", ctypes.c_uint32 * 15),
        *((name, ctypes.c_uint32) for name in ("pc", "it", "nf", "zf", "cf", "vf", "qf")),
        ("s", ctypes.c_uint32 * 32),
        *((name, ctypes.c_uint32) for name in ("fpflags", "block", "out", "watching")),
        ("left", ctypes.c_int64),
        ("end", ctypes.c_uint64),
        ("counting", ctypes.c_uint64),
        ("runs", ctypes.c_void_p),
        ("readable", ctypes.c_void_p),
        ("writable", ctypes.c_void_p),
    ]


class TranslatedFunction(ctypes.Structure):
    _fields_ = [
        ("start", ctypes.c_uint32),
        ("end", ctypes.c_uint32),
        ("run", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Guest))),
    ]


@dataclass(frozen=True)
class State:
    """Registers, flags (N, Z, C, V and Q in bits 31 to 27), those of FPSCR, single registers, and SRAM.

    left   where it was left to Unicorn, and of which block; or None
    """

    core: tuple[int, ...]
    flags: int
    fpflags: int
    single: tuple[int, ...]
    memory: bytes
    left: tuple[int, int] | None = None


class Both:
    """Functions of a few instructions each, for both."""

    def __init__(self, folder: Path, texts: Sequence[str]) -> None:
        self.code, self.starts, sizes, labels = assembled(folder, texts)
        read = lambda address, size: self.code[address - FLASH : address - FLASH + size]  # noqa: E731
        spans = [Span(start, size) for start, size in zip(self.starts, sizes, strict=True)]
        library = folder / "translated.so"
        build.build(
            source(Translator(read, dict.fromkeys(labels, 0)).functions(spans, spans)), False, library
        )
        self._library = ctypes.CDLL(str(library))
        self._runs = (ctypes.c_uint64 * ctypes.c_uint32.in_dll(self._library, "translation_blocks").value)()
        table = ctypes.cast(
            ctypes.c_void_p.in_dll(self._library, "translation"), ctypes.POINTER(TranslatedFunction)
        )
        self._functions = {table[n].start: table[n].run for n in range(len(texts))}
        self._memory = ctypes.create_string_buffer(SIZE)
        self._flash = ctypes.create_string_buffer(self.code.ljust(SIZE, b"\0"), SIZE)
        self._readable, self._writable = ((ctypes.c_void_p * (1 << 20))() for _ in "rw")
        for page in range(SIZE // PAGE):
            at = ctypes.addressof(self._memory) + page * PAGE
            self._readable[SRAM // PAGE + page] = self._writable[SRAM // PAGE + page] = at
            self._readable[FLASH // PAGE + page] = ctypes.addressof(self._flash) + page * PAGE
        self._uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        self._uc.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M7)
        self._uc.mem_map(FLASH, SIZE)
        self._uc.mem_write(FLASH, self.code)
        self._uc.mem_map(SRAM, SIZE)
        self._uc.reg_write(arm.UC_ARM_REG_C1_C0_2, 0xF << 20)
        self._uc.reg_write(arm.UC_ARM_REG_FPEXC, 1 << 30)
        self._uc.reg_write(arm.UC_ARM_REG_CONTROL, 4)  # FPCA: the FPU's registers are in use

    def translated(self, number: int, state: State) -> State:
        guest = Guest(pc=self.starts[number], left=10_000, readable=ctypes.addressof(self._readable))
        guest.runs = ctypes.addressof(self._runs)
        guest.writable = ctypes.addressof(self._writable)
        guest.r[:], guest.s[:], guest.fpflags = state.core, state.single, state.fpflags
        flags = state.flags
        guest.nf, guest.zf, guest.cf = flags, ~flags & 1 << 30, flags >> 29 & 1
        guest.vf, guest.qf = flags << 3 & 0xFFFF_FFFF, flags >> 27 & 1
        self._memory.raw = state.memory
        for _ in range(JUMPS):
            if not guest.out and guest.pc != BACK:
                self._functions[self.starts[number]](None, ctypes.byref(guest))
        after = guest.nf & 1 << 31 | (guest.zf == 0) << 30 | guest.cf << 29 | guest.vf >> 31 << 28
        left = (guest.pc, guest.block) if guest.out == LEFT_WITHIN else None
        return State(
            tuple(guest.r), after | guest.qf << 27, guest.fpflags, tuple(guest.s), self._memory.raw, left
        )

    def emulated(self, number: int, state: State) -> State:
        uc = self._uc
        for name, value in zip([*CORE, *SINGLE], [*state.core, *state.single], strict=True):
            uc.reg_write(name, value)
        uc.reg_write(arm.UC_ARM_REG_XPSR_NZCVQG, state.flags)
        uc.reg_write(arm.UC_ARM_REG_FPSCR, state.fpflags | DEFAULT_NAN)
        uc.mem_write(SRAM, state.memory)
        uc.emu_start(self.starts[number] | 1, BACK)
        core = tuple(uc.reg_read(name) for name in CORE)
        single = tuple(uc.reg_read(name) for name in SINGLE)
        flags = uc.reg_read(arm.UC_ARM_REG_XPSR) & STATE
        fpflags = uc.reg_read(arm.UC_ARM_REG_FPSCR) & 0xF000_0000
        return State(core, flags, fpflags, single, bytes(uc.mem_read(SRAM, SIZE)))


def assembled(folder: Path, texts: Sequence[str]) -> tuple[bytes, list[int], list[int], list[int]]:
    """Code of functions that end with `bx lr`, where each begins, how long it is, and the labels `to_...`."""
    lines = [".syntax unified", ".thumb"]
    for n, text in enumerate(texts):
        lines += [
            f".type f{n}, %function",
            f"f{n}: {text}",
            "bx lr",
            f".size f{n}, . - f{n}",
            f".global f{n}",
        ]
    path = folder / "code.s"
    path.write_text("\n".join([*lines, ""]))
    elf = folder / "code.elf"
    link = ("-nostdlib", f"-Wl,-Ttext={FLASH:#x}", "-Wl,-e0")
    subprocess.run(["arm-none-eabi-gcc", *FLAGS, *link, str(path), "-o", str(elf)], check=True)
    with elf.open("rb") as file:
        read = ELFFile(file)
        code = read.get_section_by_name(".text").data()
        names = {s.name: s for s in read.get_section_by_name(".symtab").iter_symbols()}
        found = [names[f"f{n}"] for n in range(len(texts))]
    labels = [s["st_value"] & ~1 for name, s in names.items() if name.startswith("to_")]
    return code, [s["st_value"] & ~1 for s in found], [s["st_size"] for s in found], labels


def drawn(rng: np.random.Generator, base: int) -> State:
    """A random state. Half of the numbers are ones at which something turns; r1 points into SRAM."""
    turns = [
        0,
        1,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFFFF_FFFF,
        0x8000,
        0x7FFF,
        0x8000_8000,
        0xFF,
        0x100,
        31,
        32,
        33,
    ]
    reals = np.array(
        [0, 1, -1, 0.5, -2.5, 1e-40, 3e38, -3e38, 2**31, -(2**31), 2**32, 8388609, np.inf], np.float32
    )
    odd = [0x7FC0_0000, 0x7F80_0001, 0xFFC1_2345, 0x8000_0000, 0xFF80_0000, *map(int, reals.view(np.uint32))]
    core = [int(rng.choice(turns) if rng.random() < 0.5 else rng.integers(1 << 32)) for _ in range(15)]
    core[1], core[2], core[13], core[14] = base, int(rng.integers(64)), SRAM + 0x3000, BACK | 1
    single = [
        int(
            rng.choice(odd)
            if rng.random() < 0.5
            else np.float32(rng.normal() * 10.0 ** rng.integers(-9, 12)).view(np.uint32)
        )
        for _ in range(32)
    ]
    flags = int(rng.integers(32)) << 27
    return State(tuple(core), flags, int(rng.integers(16)) << 28, tuple(single), rng.bytes(SIZE))
