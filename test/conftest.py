"""What several test modules build once: the example, converted and compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/digits"


@dataclass(frozen=True)
class Built:
    """The digits example with its sparse scheme.

    folder   plan.json, model.c, ...
    elf      firmware for the board, built by `pio run`
    program  firmware for this machine, built by `pio run -e native`
    output   what `pio run` printed
    """

    folder: Path
    elf: Path
    program: Path
    output: str

    @property
    def plan(self) -> dict[str, object]:
        return json.loads((self.folder / "plan.json").read_text())


def run(arguments: list[str], **extra: str) -> str:
    """Run a command ("python" is this one) in the project root; the test fails with its output."""
    program = sys.executable if arguments[0] == "python" else arguments[0]
    done = subprocess.run(
        [program, *arguments[1:]],
        cwd=ROOT,
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build_example(scheme: Path, folder: Path, board: bool = True, *options: str) -> Built:
    """Convert the example with a scheme and build it for this machine and, if asked, for the board."""
    generated, pio = folder / "generated", folder / "pio"
    arguments = [str(EXAMPLE / "model.pt"), "--scheme", str(scheme), "--classes", "10", "-o", str(generated)]
    run(["python", "tools/convert", *arguments, *options])
    program = str(Path(sys.executable).with_name("pio"))
    environments = ["-e", "native", *(["-e", "disco_f746ng"] if board else [])]
    output = run(
        [program, "run", *environments], MICROTRAIN_MODEL=str(generated), PLATFORMIO_BUILD_DIR=str(pio)
    )
    return Built(generated, pio / "disco_f746ng/firmware.elf", pio / "native/program", output)


@pytest.fixture(scope="session")
def nucleo_elf(example: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The very files that were converted for `example`, built for the smaller board."""
    folder, program = tmp_path_factory.mktemp("nucleo"), str(Path(sys.executable).with_name("pio"))
    extra = {"MICROTRAIN_MODEL": str(example.folder), "PLATFORMIO_BUILD_DIR": str(folder)}
    run([program, "run", "-e", "nucleo_f446re"], **extra)
    return folder / "nucleo_f446re/firmware.elf"


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The example with its sparse scheme."""
    return build_example(EXAMPLE / "scheme.yaml", tmp_path_factory.mktemp("example"))
