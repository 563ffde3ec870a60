"""From a case to a firmware, with the very commands that a user has; and a digest of what went into it."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from subprocess import CompletedProcess

from microtrain.base import pio
from microtrain.base.commands import last_line, ours, run
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD

from .cases import Case

SOURCES = ("firmware/include", "firmware/src", "firmware/ld", "platform", "scripts", "platformio.ini")
MEASURING = (
    "lab/bench/measure.py",
    "tools/demo/measure.py",
    "tools/device",
    "tools/emulator",
    "tools/memory_report",
    "tools/base/elf.py",
    "tools/base/plan.py",
    "tools/base/trained.py",
)
COMPILER = "arm-none-eabi-gcc"


def compiler_version() -> str:
    """`arm-none-eabi-gcc 12.2.1 20221205`. Error where there is none."""
    if shutil.which(COMPILER) is None:
        raise Error(f"{COMPILER} is not on PATH: run `make setup`.")
    first = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\S.*)", first.splitlines()[0])
    return f"{COMPILER} {found[1] if found else first.splitlines()[0]}"


def convert(case: Case, model: Path, folder: Path, board: str = BOARD, photos: Path | None = None) -> Path:
    """Run tools/convert; returns the folder it wrote. Error with what it says where it refuses.

    photos  what weights in fewer bits are chosen on
    """
    generated = folder / "generated"
    done = _convert(case, model, generated, board, photos)
    if done.returncode:
        raise Error(_sentence(done))
    return generated


def refusal(case: Case, model: Path, folder: Path) -> str:
    """What tools/convert says instead of converting for the board. Error where it does not refuse."""
    done = _convert(case, model, folder / "refused", BOARD)
    if done.returncode != 1 or "Traceback" in done.stderr:
        raise Error(f"{case.name} should be refused in one sentence, and was not.")
    return _sentence(done)


def _convert(
    case: Case, model: Path, output: Path, board: str, photos: Path | None = None
) -> CompletedProcess[str]:
    return run(ours("tools/convert", model, *case.options(photos), "--board", board, "-o", output))


def _sentence(done: CompletedProcess[str]) -> str:
    return last_line(done).removeprefix("convert: ")


def build(generated: Path, folder: Path, environment: str) -> Path:
    """Build in a workspace of its own; returns the ELF or the program. Error where it fails."""
    (made,) = pio.build(generated, folder / "pio", environment)
    return made


def digest(generated: Iterable[Path], compiler: str, image: bytes) -> str:
    """SHA-256 of everything that a case's numbers depend on."""
    total = hashlib.sha256(f"{compiler} {shutil.which('llvm-mca')}".encode() + image)
    for path in sorted(_files([*generated, *(ROOT / name for name in (*SOURCES, *MEASURING))])):
        total.update(str(path).encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _files(places: Iterable[Path]) -> Iterable[Path]:
    for place in places:
        found = place.rglob("*") if place.is_dir() else [place]
        yield from (p for p in found if p.is_file() and p.suffix not in (".pyc", ".new"))
