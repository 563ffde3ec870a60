"""A compiled model as files that can be built, and what the firmware of it takes of flash and SRAM."""

from __future__ import annotations

import re
from pathlib import Path

from microtrain.base.plan import Origin, text
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.pipeline import Compiled
from microtrain.memory_report.firmware import load_firmware
from microtrain.memory_report.interrupts import analyse
from microtrain.memory_report.usage import flash_kinds, make_report

CHOICE = re.compile(r"^#define MODEL_WINDOWS .*\n", re.MULTILINE)


def written(compiled: Compiled, folder: Path, all_windows: bool = False) -> Path:
    """The generated files in a folder. all_windows: the kernels have them, whatever the model uses"""
    folder.mkdir(parents=True, exist_ok=True)
    output = generate(compiled, "sizes")
    plan = document(compiled, output, Origin("", "", ""), None)
    for name, content in {**output.files, "plan.json": text(plan)}.items():
        (folder / name).write_text(CHOICE.sub("", content) if all_windows else content, encoding="utf-8")
    return folder


def flash_bytes(elf: Path) -> int:
    """Flash of a linked firmware, as memory_report counts it."""
    return sum(flash_kinds(load_firmware(elf)).values())


def sram_bytes(elf: Path) -> int:
    """All-in SRAM of a linked firmware, its proven stack included."""
    firmware = load_firmware(elf)
    return make_report(firmware, None, analyse(firmware), None, None).sram_total
