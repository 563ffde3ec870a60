"""The example as the suites need it beside the F746's own firmware: converted for a board, and built."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from microtrain.base.commands import logged, ours
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD, NATIVE, build

FOLDER = ROOT / "examples/digits"
FLASH_KB = 96  # budget that the weights do not fit, beside code and tables


@dataclass(frozen=True)
class Example:
    """What it is converted with, and for which environment of platformio.ini."""

    environment: str
    options: tuple[str, ...]


EXAMPLES = {
    "nucleo_f446re": Example("nucleo_f446re", ("--board", "nucleo_f446re")),
    "qspi": Example(BOARD, ("--external-flash", "qspi", "--budget-flash", str(FLASH_KB))),
}


def convert(generated: Path, *options: str) -> None:
    """Convert the example into a folder. Error with the end of the log, which lies beside it"""
    words = (FOLDER / "model.pt", "--scheme", FOLDER / "scheme.yaml", "--classes", "10")
    log = generated.with_name(f"{generated.name}.log")
    logged(ours("tools/convert", *words, *options, "-o", generated), log)


def firmware(name: str, folder: Path) -> tuple[Path, Path]:
    """Convert and build one of EXAMPLES; returns its ELF and the same firmware for this machine.

    Errors   Error with the end of the log
    """
    convert(folder / "generated", *EXAMPLES[name].options)
    elf, program = build(folder / "generated", folder / "pio", EXAMPLES[name].environment, NATIVE)
    return elf, program
