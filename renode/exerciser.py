"""The firmware that exercises a board model (test/fixtures/emulator): how it is built for each board."""

from __future__ import annotations

import shutil
from pathlib import Path

from microtrain.base.hostcc import Parts, compiled

FOLDER = Path(__file__).resolve().parent.parent / "test" / "fixtures" / "emulator"
SCRIPT = FOLDER / "link.ld"
FLAGS = (
    *("-std=c11", "-O2", "-g", "-ffreestanding", "-nostdlib", "-ffp-contract=off"),
    *("-mthumb", "-mfloat-abi=hard", "-Wl,--no-warn-rwx-segments", "-T", str(SCRIPT)),
)
SECTOR = {"disco_f746ng": 4, "nucleo_f446re": 6}  # that it erases and programs
CANVAS = {"disco_f746ng": 0x2002_0000, "nucleo_f446re": 0x2001_0000}  # SRAM that it writes on command only
BOARDS = {
    "disco_f746ng": ("-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16"),
    "nucleo_f446re": (
        *("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-DSTM32F446", "-Wl,--defsym=__device_id=0x421"),
        *("-Wl,--defsym=RAM_SIZE=128K", f"-Wl,--defsym=CANVAS={CANVAS['nucleo_f446re']:#x}"),
    ),
}


def build(elf: Path, board: str, *more: str) -> Path:
    """Compile and link it; `more` flags come last. Error where there is no compiler for Arm."""
    parts = Parts(
        what="the exerciser",
        name="exerciser",
        sources=tuple(FOLDER / name for name in ("board.c", "main.c")),
        flags=(*FLAGS, *BOARDS[board], *more),
        include=(FOLDER,),
        others=(SCRIPT,),
    )
    return Path(shutil.copy(compiled(parts, cc="arm-none-eabi-gcc", suffix=".elf"), elf))
