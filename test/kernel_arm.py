"""The kernels as a chip runs them: built by the cross compiler, called one by one on Unicorn's Cortex-M.

`ArmLib` has the methods of `convert.reference.hostlib.HostLib`, so a `Twin` works on it unchanged. Arrays are
copied into the emulated memory, bytes at odd addresses, with canaries between them, and back after the call.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import unicorn
from elftools.elf.elffile import ELFFile
from planting import KERNELS
from unicorn import arm_const as arm

from microtrain.base.objects import objects
from microtrain.base.paths import ROOT
from microtrain.convert.ops.host import kernels
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import Record

CC = "arm-none-eabi-gcc"
CPUS = {
    "cortex-m7": ("-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", "-DFPU_V5=1"),
    "cortex-m4": ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-DFPU_V5=0"),
    "cortex-m55": ("-mcpu=cortex-m55",),
}
MODELS = {"cortex-m7": arm.UC_CPU_ARM_CORTEX_M7, "cortex-m4": arm.UC_CPU_ARM_CORTEX_M4}
RINT = ROOT / "firmware" / "src" / "board" / "stm32f446" / "rint.c"  # where the FPU has no VRINTX
FLAGS = (
    "-mthumb",
    "-mfloat-abi=hard",
    "-std=c11",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wdouble-promotion",
    "-Werror",
)
STUB = ROOT / "test/fixtures/kernel_m55.S"  # of the Cortex-M55, which Unicorn does not have (kernel_m55.py)
CODE_M55 = 0x01000000
CODE, RAM, SIZE, STACK = 0x08000000, 0x20000000, 0x400000, 0x4000
CANARY = 0xA5
DEFAULT_NAN = 1 << 25  # of FPSCR, as board_init() sets it
RETURN = CODE + 0xFFFF0

MEMORY_C = """
#include <stddef.h>
void *memcpy(void *d, const void *s, size_t n)
{ unsigned char *a = d; const unsigned char *b = s; while (n--) *a++ = *b++; return d; }
void *memset(void *d, int v, size_t n)
{ unsigned char *a = d; while (n--) *a++ = (unsigned char)v; return d; }
void *memmove(void *d, const void *s, size_t n)
{ unsigned char *a = d; const unsigned char *b = s;
  if (a < b) while (n--) *a++ = *b++; else while (n--) a[n] = b[n];
  return d; }
"""


def build(folder: Path, level: str = "-O2", cpu: str = "cortex-m7", kernels: Path = KERNELS) -> Path:
    """ELF of all kernels, linked at the start of flash, for calls by symbol. kernels: their sources."""
    memory = folder / "memory.c"
    memory.write_text(MEMORY_C)
    sources = sorted(kernels.glob("*.[cS]"))
    sources += [RINT] if cpu == "cortex-m4" else [STUB] if cpu == "cortex-m55" else []
    include = f"-I{ROOT / 'firmware' / 'include'}"
    flags = (*CPUS[cpu], *FLAGS, *level.split(), include)
    machine = (*CPUS[cpu], *FLAGS[:2])
    plain = ("-fno-builtin-memcpy", "-fno-tree-loop-distribute-patterns")
    made = [
        *objects(CC, flags, sources, kernels, folder / "objects"),
        *objects(CC, (*machine, "-O2", *plain), [memory], folder, folder),
    ]
    elf = folder / "kernels.elf"
    link = ("-nostdlib", f"-Wl,-Ttext={CODE_M55 if cpu == 'cortex-m55' else CODE:#x}", "-Wl,-e0")
    command = [CC, *flags, *map(str, made), *link, "-o", str(elf)]
    subprocess.run(command, check=True)
    return elf


@functools.cache
def _arm_layout(record: type[Record]) -> type[ctypes.LittleEndianStructure]:
    """The struct with pointers of 4 bytes."""
    fields = [(n, ctypes.c_uint32 if t is ctypes.c_void_p else t) for n, t in record._fields_]  # type: ignore[misc]
    return type(record.__name__, (ctypes.LittleEndianStructure,), {"_fields_": fields})


class Memory:
    """Emulated RAM of one call: arrays laid out with canaries between."""

    def __init__(self, emulator: Any) -> None:
        self._emulator = emulator
        self._next = RAM + STACK + 32
        self._arrays: dict[int, tuple[int, np.ndarray]] = {}
        self._used = bytearray()

    def _place(self, size: int, align: int) -> int:
        at = (self._next + 31) & ~31
        at += 1 + 2 * (len(self._arrays) % 2) if align == 1 else 0
        self._emulator.mem_write(self._next, bytes([CANARY]) * (at + size + 32 - self._next))
        self._next = at + size
        return at

    def array(self, values: np.ndarray | None, align: int = 0) -> int:
        """Address of the array's copy; one array is copied once."""
        if values is None:
            return 0
        key = int(values.ctypes.data)
        if key not in self._arrays:
            at = self._place(values.nbytes, align or values.itemsize)
            self._arrays[key] = (at, values)
            if values.nbytes:
                self._emulator.mem_write(at, values.tobytes())
        return self._arrays[key][0]

    def record(self, record: Record) -> int:
        layout = _arm_layout(type(record))()
        for name, _ in layout._fields_:  # type: ignore[misc]
            pointer = name in record._arrays_
            setattr(layout, name, self.array(record._alive.get(name)) if pointer else getattr(record, name))
        return self.array(np.frombuffer(bytearray(layout), np.uint8), 4)

    def fetch(self) -> None:
        """Copies every array back and looks at the canaries."""
        ends = sorted((at, at + values.nbytes) for at, values in self._arrays.values())
        for (_, end), (start, _) in zip(ends, [*ends[1:], (ends[-1][1] + 32, 0)], strict=True):
            between = bytes(self._emulator.mem_read(end, start - end))
            assert between == bytes([CANARY]) * len(between), "a kernel wrote outside its arrays"
        for at, values in self._arrays.values():
            if values.nbytes and values.flags.writeable:
                flat = np.frombuffer(bytes(self._emulator.mem_read(at, values.nbytes)), values.dtype)
                values[...] = flat.reshape(values.shape)


class ArmLib:
    """The kernels of an ELF as methods, by the headers' names. count: count each call's instructions."""

    def __init__(self, elf: Path, count: bool = False, cpu: str = "cortex-m7") -> None:
        self.instructions = 0
        self._uc: Any = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB)
        self._uc.ctl_set_cpu_model(MODELS[cpu])
        self._uc.mem_map(CODE, 0x100000)
        self._uc.mem_map(RAM, SIZE)
        with elf.open("rb") as file:
            image = ELFFile(file)
            for segment in image.iter_segments("PT_LOAD"):
                if segment["p_filesz"]:
                    self._uc.mem_write(segment["p_vaddr"], segment.data())
            table: Any = image.get_section_by_name(".symtab")
            self._symbols = {s.name: s["st_value"] for s in table.iter_symbols()}
        if count:
            self._uc.hook_add(unicorn.UC_HOOK_CODE, self._count)

    def _count(self, *_: Any) -> None:
        self.instructions += 1

    def __getattr__(self, name: str) -> Any:
        if name not in kernels():
            raise AttributeError(name)
        return functools.partial(self._call, name)

    def _call(self, name: str, *values: Any) -> Any:
        result, specs = kernels()[name]
        memory, words, floats = Memory(self._uc), [], []
        for spec, value in zip(specs, values, strict=True):
            if spec is hostlib.FACTOR:
                floats.append(np.float32(value))
            elif spec is hostlib.NUMBER:
                words.append(int(value))
            elif isinstance(spec, type):
                words.append(memory.record(value))
            else:
                words.append(memory.array(value, 4 if spec is hostlib.SCRATCH else 0))
        self._run(name, words, floats)
        if memory._arrays:
            memory.fetch()
        if result is ctypes.c_float:
            raw = self._result(arm.UC_ARM_REG_S0)
            return float(np.array([raw & 0xFFFFFFFF], np.uint32).view(np.float32)[0])
        return None if result is None else self._result(arm.UC_ARM_REG_R0)

    def _result(self, register: int) -> int:
        found: int = self._uc.reg_read(register)
        return found

    def _run(self, name: str, words: list[int], floats: list[Any]) -> None:
        """One call by the hard-float procedure call standard."""
        uc, stack = self._uc, RAM + STACK - 64
        for register, word in zip(range(arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R0 + 4), words, strict=False):
            uc.reg_write(register, word)
        for i, word in enumerate(words[4:]):
            uc.mem_write(stack + 4 * i, word.to_bytes(4, "little"))
        for register, value in zip(range(arm.UC_ARM_REG_S0, arm.UC_ARM_REG_S0 + 4), floats, strict=False):
            uc.reg_write(register, int(np.asarray(value).view(np.uint32)))
        uc.reg_write(arm.UC_ARM_REG_FPSCR, DEFAULT_NAN)
        uc.reg_write(arm.UC_ARM_REG_SP, stack)
        uc.reg_write(arm.UC_ARM_REG_LR, RETURN | 1)
        self.instructions = 0
        uc.emu_start(self._symbols[name] | 1, RETURN, count=0)
        assert uc.reg_read(arm.UC_ARM_REG_PC) & ~1 == RETURN, f"{name} did not return"
