"""The cores, and how a program is built for and run on each."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.base.objects import objects
from microtrain.base.paths import FIRMWARE
from microtrain.memory_report.library import ARM, HARD, RISCV
from microtrain.memory_report.library import CORES as COMPILERS

PROGRAM, PAINTED, FLEET = (Path(__file__).with_name(f"{name}.c") for name in ("program", "painted", "fleet"))
FLAGS = ("-std=c11", "-O2", "-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra", "-Werror")
SEMIHOSTING = ("--specs=picolibc.specs", "--oslib=semihost", "--crt0=hosted")
QEMU: tuple[str, ...] = ("-nographic", "-monitor", "none", "-serial", "none", "-icount", "shift=0")
QEMU += ("-semihosting-config", "enable=on,target=native")
WORK = 30_000  # that microtrain_step is given for a piece
FLASH_BYTES, RAM_BYTES = 0x200000, 0x80000
TIMEOUT_S = 240


@dataclass(frozen=True)
class Core:
    """A core and where its program runs.

    cc       compiler; size: the tool that counts its bytes, "" on this machine
    flags    of the core
    flash    addresses of code and of data on the machine
    vectors  where the machine looks for them, if not at the code's begin
    qemu     the machine's command, none on this machine
    tick_ns  of the timer that program.c reads, an instruction being a nanosecond
    ram_bytes  of data and stack, which the machine may have more of
    """

    name: str
    cc: str
    flags: tuple[str, ...]
    flash: str = ""
    ram: str = ""
    vectors: str = ""
    qemu: tuple[str, ...] = ()
    tick_ns: float = 0.0
    ram_bytes: int = RAM_BYTES

    @property
    def missing(self) -> str:
        """The first program that is not on this machine; "" where all are."""
        return next((p for p in (self.cc, *self.qemu[:1]) if shutil.which(p) is None), "")


def _arm(name: str, machine: str, tick_ns: float, *flags: str) -> Core:
    qemu = ("qemu-system-arm", "-M", machine)
    return Core(name, ARM, flags or COMPILERS[name][1:], "0x0", "0x20000000", "", qemu, tick_ns)


def _riscv(name: str) -> Core:
    qemu = ("qemu-system-riscv32", "-M", "virt", "-bios", "none")
    return Core(name, RISCV, COMPILERS[name][1:], "0x80000000", "0x80400000", "", qemu, 1.0)


CORES = (
    Core("host-gcc", "gcc", ()),
    Core("host-clang", "clang", ()),
    _arm("cortex-m3", "mps2-an385", 40.0),
    _arm("cortex-m4f", "mps2-an386", 40.0),
    _arm("cortex-m7", "mps2-an500", 40.0),
    replace(_arm("cortex-m33", "mps2-an505", 50.0), flash="0x10000000", ram="0x38000000"),
    replace(
        _arm("cortex-m55", "mps3-an547", 31.25, "-mthumb", "-mcpu=cortex-m55", HARD),
        flash="0x01000000",
        vectors="0x0",
    ),
    _riscv("rv32imc"),
    _riscv("rv32imafc"),
)


@dataclass(frozen=True)
class Session:
    """A program: library: what export-library wrote; model: its name; steps: that are trained."""

    library: Path
    model: str
    steps: int

    def defines(self) -> list[str]:
        """What program.c asks for, from the sizes in the model's header."""
        header = (self.library / f"src/{self.model}.h").read_text(encoding="utf-8")
        big = self.model.upper()
        sizes = dict(re.findall(rf"^#define {big}_(\w+) (.+)$", header, re.MULTILINE))
        wanted = ("ARENA_BYTES", "TRAINABLE_BYTES", "HELD_BYTES", "ROW_BYTES", "HEIGHT", "CLASSES")
        missing = [name for name in wanted if name not in sizes]
        if missing:
            raise Error(f"{self.model}.h lacks {', '.join(missing)}: export it again.")
        given = [f"-DPROGRAM_{name}={big}_{name}" for name in wanted]
        header_name = f'-DPROGRAM_HEADER="{self.model}.h"'
        return [
            *given,
            header_name,
            f"-DPROGRAM_MODEL={self.model}",
            f"-DPROGRAM_SHARED={self.model}_shared",
            f"-DPROGRAM_STEPS={self.steps}",
            f"-DPROGRAM_WORK={WORK}",
        ]

    def objects(
        self, cc: str, flags: Sequence[str], program: Path, more: Sequence[Path], folder: Path
    ) -> list[Path]:
        """A program, further sources and the library, compiled. Error where they do not compile."""
        include = ("-Isrc", f"-I{FIRMWARE / 'include'}")
        asked = (*flags, *include, *self.defines())
        rest = (*more, *self.sources("arm" in cc))
        return [
            *objects(cc, asked, (program,), self.library, folder / "program"),
            *objects(cc, (*flags, *include), rest, self.library, folder),
        ]

    def sources(self, arm: bool) -> list[Path]:
        src = self.library / "src"
        found = [*src.glob("*.c"), *(src / "microtrain").glob("*.c")]
        return sorted([*found, *((src / "microtrain").glob("*.S") if arm else ())])


def built(core: Core, session: Session, folder: Path, program: Path = PROGRAM) -> Path:
    """A program for a core. Error where it does not compile."""
    made = folder / f"{session.model}-{core.name}-{program.stem}"
    flags, specs = (*FLAGS, *core.flags), SEMIHOSTING[:1] if core.qemu else ()
    more = (FIRMWARE / "src/base/sha256.c",)
    parts = session.objects(core.cc, (*flags, *specs), program, more, folder / f"{made.name}-objects")
    link = [core.cc, *flags, *linked(core), *map(str, parts), "-Wl,--gc-sections"]
    _run([*link, "-o", str(made)], f"{core.name}: ")
    return made


def linked(core: Core) -> Sequence[str]:
    """Where a program lies on the core's machine, and how it prints there."""
    if not core.qemu:
        return []
    places = {
        "__flash": core.flash,
        "__flash_size": FLASH_BYTES,
        "__ram": core.ram,
        "__ram_size": core.ram_bytes,
    }
    symbols = [f"-Wl,--defsym={name}={value}" for name, value in (places | {"__stack_size": "16K"}).items()]
    return [*SEMIHOSTING, *symbols]


def ran(core: Core, program: Path) -> str:
    """What a program prints."""
    boot = _boot(core, program) if core.vectors else []
    command = [*core.qemu, *QEMU, *boot, "-kernel", str(program)] if core.qemu else [str(program)]
    return _run(command, f"{core.name}: ")


def _boot(core: Core, program: Path) -> list[str]:
    """The first two vectors: the end of the data, and where the program begins (ELF header, e_entry)."""
    words = (int(core.ram, 16) + core.ram_bytes, int.from_bytes(program.read_bytes()[24:28], "little"))
    vectors = program.with_suffix(".vectors")
    vectors.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
    return ["-device", f"loader,file={vectors},addr={core.vectors}"]


def sizes(core: Core, program: Path) -> tuple[int, int]:
    """Bytes of code and constants, and of data, of a whole program."""
    tool = re.sub("gcc$", "size", core.cc) if core.qemu else "size"
    text, data, bss = (int(n) for n in _run([tool, str(program)], "").splitlines()[1].split()[:3])
    return text + data, data + bss


def _run(command: list[str], who: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Error(f"{who}{command[0]} did not end within {TIMEOUT_S} s.") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [
            done.stderr.strip()
        ]
        raise Error(f"{who}{command[0]} failed: {lines[0][:300]}")
    return done.stdout + (done.stderr if "-semihosting-config" in command else "")  # QEMU prints there
