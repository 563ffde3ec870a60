"""What the library promises to a firmware of others on every core, and what it costs our own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import Built
from library import STRICT, written
from test_library import LIBC, NETWORKS

from lab.cores import page
from lab.cores.machines import CORES, Core, Session
from microtrain.base.objects import objects
from microtrain.base.paths import FIRMWARE
from microtrain.demo.measure import step_instructions
from microtrain.device.client import Device
from microtrain.emulator import EmulatedPort
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import make_report

# ---------------------------------------------------------------- on every core

WRITABLE = "bBdDcCsS"
QUICK = ("cortex-m4f", "rv32imc")
OTHERS = [
    pytest.param(core, id=core.name, marks=[] if core.name in QUICK else [pytest.mark.slow])
    for core in CORES
    if core.qemu
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models: residual layers with records of features; attention."""
    root = tmp_path_factory.mktemp("promises")
    for name in ("residual", "attending"):
        written(NETWORKS[name](), name, root / "library", root / name)
    return root / "library"


def tool(core: Core, name: str) -> str:
    return core.cc.removesuffix("gcc") + name


def names(core: Core, *files: object) -> set[tuple[str, str]]:
    """Kind and name of each symbol."""
    command = [tool(core, "nm"), *map(str, files)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    words = [line.split() for line in done.stdout.splitlines()]
    return {(found[-2], found[-1]) for found in words if len(found) > 1}


def of_the_compiler(core: Core) -> set[str]:
    """Arithmetic that the compiler brings along, as of floats without an FPU."""
    command = [core.cc, *core.flags, "-print-libgcc-file-name"]
    archive = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {name for kind, name in names(core, archive) if kind.isupper() and kind != "U"}


def needs(core: Core, folder: Path, made: Path) -> tuple[set[str], set[str]]:
    """What the library lacks on a core, and what of it is writable. A warning is an error."""
    flags = (*STRICT, *core.flags, "-O2", "--specs=picolibc.specs", "-Isrc")
    parts = objects(core.cc, flags, Session(folder, "", 0).sources("arm" in core.cc), folder, made)
    whole = made / "library.o"
    subprocess.run([core.cc, *core.flags, "-r", "-nostdlib", *map(str, parts), "-o", str(whole)], check=True)
    found = names(core, whole)
    lacks = {name for kind, name in found if kind == "U"}
    return lacks - LIBC - of_the_compiler(core), {name for kind, name in found if kind in WRITABLE}


@pytest.mark.parametrize("core", OTHERS)
def test_it_is_whole_on_a_core_without_warnings_and_writes_no_global(
    core: Core, library: Path, tmp_path: Path
) -> None:
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    assert needs(core, library, tmp_path) == (set(), set())


def test_a_source_that_is_missing_and_a_global_are_noticed_on_a_core(library: Path, tmp_path: Path) -> None:
    (core,) = (core for core in CORES if core.name == "cortex-m4f")
    if core.missing:
        pytest.skip(f"{core.missing} is not installed")
    copy = tmp_path / "library"
    shutil.copytree(library, copy)
    (copy / "src/microtrain/update_armv7em.S").unlink()
    crc = copy / "src/microtrain/crc.c"
    crc.write_text(crc.read_text() + "int own_count;\n")
    lacks, writable = needs(core, copy, tmp_path / "made")
    assert lacks and all(name.startswith("microtrain_") for name in lacks) and writable == {"own_count"}


# ---------------------------------------------------------------- the record of `make cores`


def test_pieces_of_mcunet_are_short_and_helium_pays() -> None:
    """A control loop waits 100,000 instructions at most. Helium takes less than a third of a Cortex-M33's."""
    rows = {
        row["core"]: row for row in json.loads(page.RECORD.read_text("utf-8")) if row["model"] == "mcunet"
    }
    assert max(rows[core]["slice_instructions"] for core in ("cortex-m4f", "cortex-m7")) <= 100_000
    for what in ("inference", "step"):
        m33, m55 = (rows[core][f"{what}_instructions"] for core in ("cortex-m33", "cortex-m55"))
        assert m33 >= 3.0 * m55, what


# ---------------------------------------------------------------- what is said of each function

HEADERS = ("microtrain.h", "microtrain_fleet.h")
FUNCTION = re.compile(r"^[a-z][\w *]*?\b(microtrain_\w+)\([^;{]*\);", re.MULTILINE)


def untimed(header: str) -> list[str]:
    """Functions whose comment, or that of the functions they stand with, does not say how long they take."""
    found = []
    for block in header.split("\n\n"):
        comment = " ".join(re.findall(r"/\*(.*?)\*/", block, re.DOTALL))
        found += [name for name in FUNCTION.findall(block) if "Time:" not in comment]
    return found


@pytest.mark.parametrize("name", HEADERS)
def test_every_function_says_how_long_it_takes(name: str) -> None:
    header = (FIRMWARE / "include" / name).read_text(encoding="utf-8")
    assert len(FUNCTION.findall(header)) >= 5 and untimed(header) == []
    first = FUNCTION.findall(header)[0]
    assert untimed(header.replace("Time:", "It takes", 1)) in ([first], [])
    assert untimed(header.replace("Time:", "It takes")) == FUNCTION.findall(header)


# ---------------------------------------------------------------- our own firmware is a user

MOST = 0.01  # of its flash and instructions
PUBLIC = "microtrain_"


def share_of_flash(elf: Path, prefix: str) -> float:
    """Of code and constants: the functions whose names begin so."""
    firmware = load_firmware(elf)
    found = {(s.name, s.size) for s in firmware.symbols if s.function and s.name.startswith(prefix)}
    report = make_report(firmware, None, analyse(firmware), None, None)
    return sum(size for _, size in found) / report.flash_total


def share_of_instructions(elf: Path, prefix: str) -> float:
    """Of a training step: the functions whose names begin so, without what they call and the serial line."""
    port = EmulatedPort(elf)
    device = Device(port)
    port.board.clear_profile()
    device.train(np.full((32, 32, 1), 77, np.uint8), 3)
    costs = port.board.profile()
    in_all = step_instructions(elf, np.full((32, 32, 1), 77, np.uint8), 3)["step"]
    return sum(cost.instructions for name, cost in costs.items() if name.startswith(prefix)) / in_all


def test_the_public_functions_cost_our_firmware_less_than_a_hundredth(example: Built) -> None:
    """All of them, as if without them nothing had to be done: a protocol would call the session itself. In
    SRAM they take nothing, which words.h asserts: a learner is a session and its checkpoints."""
    assert 0 < share_of_flash(example.elf, PUBLIC) < MOST < share_of_flash(example.elf, "model_")
    assert 0 < share_of_instructions(example.elf, PUBLIC) < MOST
    assert share_of_instructions(example.elf, "dw") > MOST
    words = (FIRMWARE / "src/runtime/words.h").read_text(encoding="utf-8")
    assert "_Static_assert(sizeof(struct instance) == sizeof(struct microtrain)," in words
    held = "struct instance {\n    struct session session;\n    struct checkpoint checkpoint;\n};"
    assert held in words
