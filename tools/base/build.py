"""Convert a model and build its firmware, as a user would from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import pio
from .commands import logged, ours


@dataclass(frozen=True)
class Firmware:
    """What one model and scheme became.

    generated  folder of model.c, plan.json, ...
    program    the firmware built for this machine
    elf        the firmware for the board; None where only the host's was asked for
    """

    generated: Path
    program: Path
    elf: Path | None

    @property
    def plan(self) -> Path:
        return self.generated / "plan.json"


def convert(model: Path, scheme: Path, classes: int, output: Path, fleet: float = 0.0) -> str:
    """Run tools/convert without --imprint; returns the table it prints. Error where it fails."""
    options: tuple[object, ...] = ("--scheme", scheme, "--classes", classes, "--imprint", "off")
    options += ("--fleet", fleet) if fleet else ()
    words = ours("tools/convert", model, *options, "-o", output)
    return logged(words, output.with_suffix(".convert.log"))


def build(generated: Path, folder: Path, board: bool) -> Firmware:
    """Build for the host and, if asked, for the board, in a workspace of their own. Error where it fails."""
    program, *elf = pio.build(generated, folder, pio.NATIVE, *([pio.BOARD] if board else []))
    return Firmware(generated, program, elf[0] if elf else None)
