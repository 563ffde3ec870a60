"""Convert a model and build its firmware, as a user would from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import Error
from .paths import ROOT


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


def convert(model: Path, scheme: Path, classes: int, output: Path) -> str:
    """Run tools/convert; returns the table it prints."""
    arguments = [str(model), "--scheme", str(scheme), "--classes", str(classes), "-o", str(output)]
    return command([sys.executable, "tools/convert", *arguments], output.with_suffix(".convert.log"))


def build(generated: Path, folder: Path, board: bool) -> Firmware:
    """Run `pio run` for the host and, if asked, for the board, in a build folder of their own."""
    environments = ["native", *(["disco_f746ng"] if board else [])]
    selection = [part for name in environments for part in ("-e", name)]
    extra = {"MICROTRAIN_MODEL": str(generated), "PLATFORMIO_BUILD_DIR": str(folder)}
    pio = str(Path(sys.executable).with_name("pio"))
    command([pio, "run", "-s", *selection], folder.with_suffix(".pio.log"), extra)
    elf = folder / "disco_f746ng/firmware.elf" if board else None
    return Firmware(generated, folder / "native/program", elf)


def command(arguments: list[str], log: Path, extra: dict[str, str] | None = None) -> str:
    """Run a command in the project's root, its output into `log`; returns its standard output.

    Errors   Error with the end of the log
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        arguments, cwd=ROOT, env={**os.environ, **(extra or {})}, capture_output=True, text=True, check=False
    )
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Error(f"{' '.join(arguments)} failed ({log} has all of it):\n{tail}")
    return done.stdout
