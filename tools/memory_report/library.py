"""The deepest stack of each function of an exported library, proven from its machine code.

The library is compiled as its README.md says and linked with nothing but the compiler's own functions. It
calls its models through the members of structs: what may be in such a member is read from the models' tables
in the ELF (a function that a stream calls for its own stages is one of the models' `own_rows`). The caller's
storage functions are not in the library; they are named, and count nothing.

Trusted beside what stack.py trusts: a word that is loaded from the place of such a member and called is one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microtrain.base.elf import ANY_MACHINE, Elf, read_elf
from microtrain.base.errors import Error
from microtrain.base.objects import objects, run
from microtrain.base.reading import reading
from microtrain.convert.export.write import RECORD

from .chip import Chip, Region
from .firmware import Firmware, one_name_each
from .instructions import Code
from .stack import Analysis
from .stack import Path as Calls

ARM, RISCV = "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc"
HARD = "-mfloat-abi=hard"
CORES: dict[str, tuple[str, ...]] = {  # a compiler and its options
    "cortex-m3": (ARM, "-mthumb", "-mcpu=cortex-m3"),
    "cortex-m4f": (ARM, "-mthumb", "-mcpu=cortex-m4", HARD, "-mfpu=fpv4-sp-d16"),
    "cortex-m7": (ARM, "-mthumb", "-mcpu=cortex-m7", HARD, "-mfpu=fpv5-sp-d16", "-DFPU_V5=1"),
    "cortex-m33": (ARM, "-mthumb", "-mcpu=cortex-m33", HARD, "-mfpu=fpv5-sp-d16"),
    "rv32imc": (RISCV, "-march=rv32imc", "-mabi=ilp32"),
    "rv32imafc": (RISCV, "-march=rv32imafc", "-mabi=ilp32f"),
}
FLAGS, LINK = ("-std=c11", "-O2", "-ffp-contract=off"), ("-nostartfiles", "-Wl,-e,microtrain_offsets")
PICOLIBC = ("flash=0x10000", "flash_size=0x10000000", "ram=0x40000000", "ram_size=0x10000000")
HEADERS = ("microtrain.h", "microtrain_fleet.h")
PUBLIC = re.compile(r"\b(microtrain_\w+)\(([^;{]*)\);")
NO_CODE = re.compile(r"/\*.*?\*/", re.DOTALL)
STORAGE = ("read", "program", "erase", "sync")
MODEL: tuple[str, ...] = (
    "start",
    "row",
    "take_row",
    "logits",
    "step",
    "keep",
    "recall",
    "imprint_clear",
    "imprint_add",
    "imprint_solve",
)
MODEL += ("listen", "hear", "heard", "slide")
OWN_ROWS = "own_rows"
OUTSIDE = 0xFFFF0000  # no code lies there


@dataclass(frozen=True)
class Entry:
    """A function of the public headers.

    callbacks  functions of the caller's that it may call
    problems   what is not proven
    """

    name: str
    path: Calls
    callbacks: tuple[str, ...]
    problems: tuple[str, ...]


def proven(folder: Path, core: str, cc: str | None = None) -> list[Entry]:
    """Every function of the public headers in a library's folder, in their order. Error where it is none."""
    models = models_of(folder)
    with tempfile.TemporaryDirectory(prefix="microtrain-stack-") as work:
        elf = read_elf(linked(folder, core, cc, Path(work)), ANY_MACHINE).with_symbols()
        return entries(elf, models, functions(folder))


def models_of(folder: Path) -> list[str]:
    wrong = f"{folder} holds no library that `microtrain export-library` wrote"
    if not (folder / RECORD).is_file():
        raise Error(f"{wrong}: name the folder that it was told.")
    with reading(Error, lambda why: f"{wrong} ({why})."):
        models = json.loads((folder / RECORD).read_text(encoding="utf-8"))["models"]
    return [str(name) for name in models]


def functions(folder: Path) -> dict[str, str]:
    """Those of the public headers, with their parameters."""
    headers = [(folder / "src" / name).read_text(encoding="utf-8") for name in HEADERS]
    return dict(PUBLIC.findall(NO_CODE.sub("", "".join(headers))))


def linked(folder: Path, core: str, cc: str | None, work: Path) -> Path:
    """The library as an ELF. cc: instead of the core's. Error where it does not compile."""
    src, made, probe = folder / "src", work / "library.elf", work / "offsets.c"
    probe.write_text(probe_text(), encoding="utf-8")
    usual, *flags = CORES[core]
    cc = cc or usual
    if shutil.which(cc) is None:
        raise Error(f"{cc} is not installed: name a compiler for a {core} with --cc.")
    cc = str(Path(cc).absolute()) if "/" in cc else cc  # it runs in the library's folder
    assembly = (src / "microtrain").glob("*.S") if usual == ARM else ()
    sources = sorted([probe, *src.glob("*.c"), *(src / "microtrain").glob("*.c"), *assembly])
    asked = (*FLAGS, *flags, *small_library(cc))
    kept = [f"-Wl,-u,{name}" for name in (*functions(folder), *models_of(folder))]
    parts = objects(cc, (*asked, "-Isrc", "-Isrc/microtrain"), sources, folder, work / "objects")
    link = [cc, *asked, *LINK, *kept, *map(str, parts), "-o", str(made)]
    run(link, folder, f"{folder} does not link for a {core}")
    return made


def small_library(cc: str) -> list[str]:
    """Options for picolibc, where a compiler has no other C library (Debian's for RISC-V)."""
    found = {}
    for name in ("libc.a", "picolibc.specs"):
        command = [cc, f"-print-file-name={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found[name] = Path(done.stdout.strip()).is_absolute()
    if found["libc.a"] or not found["picolibc.specs"]:
        return []
    return ["--specs=picolibc.specs", *(f"-Wl,--defsym=__{name}" for name in PICOLIBC)]


def probe_text() -> str:
    """A table of where the structs' members are, for the entry point's name."""
    members = [("struct microtrain_storage", name) for name in STORAGE]
    members += [("struct microtrain_model", name) for name in MODEL] + [("struct stream", "own")]
    places = ",\n".join(f"    offsetof({struct}, {name})" for struct, name in members)
    headers = '#include "microtrain/model_table.h"\n#include "microtrain/stream.h"\n'
    table = f"const uint32_t microtrain_offsets[] = {{\n{places},\n}};\n"
    return f"#include <stddef.h>\n\n{headers}\n{table}"


def entries(elf: Elf, models: list[str], prototypes: dict[str, str]) -> list[Entry]:
    """A function that is given no storage calls none; what it finds at such a place is a model's."""
    symbols = one_name_each(elf.symbols)
    firmware = Firmware(elf, symbols, Chip(Region("flash", 0, 1 << 31), Region("SRAM", 1 << 31, 0), ()))
    storage = {OUTSIDE + 4 * n: f"storage.{name}" for n, name in enumerate(STORAGE)}
    found = []
    analyses = {
        given: Analysis(Code(firmware, fields(firmware, models, outside), outside))
        for given, outside in ((False, {}), (True, storage))
    }
    for name, arguments in prototypes.items():
        symbol = firmware.symbol(name)
        if symbol is None:
            raise Error(f"the library has no {name}, which microtrain.h declares: export it again.")
        analysis = analyses["struct microtrain_storage" in arguments]
        reached = {routine.name for routine in analysis.reached([symbol.address])}
        callbacks = tuple(callback for callback in analysis.code.outside.values() if callback in reached)
        problems = tuple(analysis.problems([symbol.address]))
        found.append(Entry(name, analysis.path(symbol.address), callbacks, problems))
    return found


def fields(firmware: Firmware, models: list[str], storage: dict[int, str]) -> dict[int, frozenset[int]]:
    """What may be called through a member: by its offset, the functions of all structs that have one there.

    A member that is NULL in every model is never called and come back from.
    """
    elf = firmware.elf
    base = elf.value("microtrain_offsets")
    places = [elf.word(base + 4 * n) for n in range(len(STORAGE) + len(MODEL) + 1)]
    found: dict[int, set[int]] = {place: set() for place in places[len(STORAGE) :]}
    for place, address in zip(places, storage, strict=False):
        found.setdefault(place, set()).add(address)
    for place in places[len(STORAGE) : -1]:
        found[place] |= {elf.word(elf.value(model) + place) for model in models} - {0}
    own = {s.address for s in firmware.symbols if s.function and s.name.split(".")[0] == OWN_ROWS}
    found[places[-1]] |= own
    return {place: frozenset(targets) for place, targets in found.items()}


def as_json(found: list[Entry], core: str) -> dict[str, Any]:
    """What --json writes."""
    rows = [
        {
            "function": entry.name,
            "bytes": entry.path.bytes,
            "path": [[frame.name, frame.bytes] for frame in entry.path.frames],
            "callbacks": list(entry.callbacks),
            "problems": list(entry.problems),
        }
        for entry in found
    ]
    return {"format": 1, "core": core, "functions": rows}
