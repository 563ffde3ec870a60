"""`python renode/run.py [SUITE ...]`: suites on the board model and, where it is installed, on Renode.

Without SUITE all that lie beside this file, but for the camera demo's, which has another firmware. The one of
the example (training.robot) needs the host simulator of the same model; the one of the flash controller
(flash.robot) has its own firmware, which is built here.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT)]

from emulator.robotrun import run_everywhere  # noqa: E402

BUILD = Path(".pio/build")
CAMERA = HERE / "camera.robot"
EXERCISER = ROOT / "test" / "fixtures" / "emulator"
EXERCISER_FLAGS = (
    *("-std=c11", "-O2", "-g", "-ffreestanding", "-nostdlib", "-DWAIT_STATES=7"),
    *("-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard", "-Wl,--no-warn-rwx-segments"),
)
NEEDS_GOLDEN, NEEDS_EXERCISER = "training.robot", "flash.robot"


def build_exerciser(folder: Path) -> Path:
    """The firmware that drives the flash controller for flash.robot."""
    elf = folder / "exerciser.elf"
    sources = [str(EXERCISER / name) for name in ("board.c", "main.c")]
    command = [
        "arm-none-eabi-gcc",
        *EXERCISER_FLAGS,
        "-T",
        str(EXERCISER / "link.ld"),
        *sources,
        "-o",
        str(elf),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"the firmware of {NEEDS_EXERCISER} was not built: {done.stderr}")
    return elf


def prepare(suites: list[Path], program: Path, folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The suites that can run, and the variables that they need beside ${ELF}."""
    folder.mkdir(parents=True, exist_ok=True)
    names, variables = {suite.name for suite in suites}, {}
    if NEEDS_EXERCISER in names:
        variables["EXERCISER"] = str(build_exerciser(folder).resolve())
    if NEEDS_GOLDEN in names:
        path = (folder / "golden.json").resolve()
        if not program.is_file():
            raise click.ClickException(
                f"no such program: {program}. Build it with `pio run -e native`, or name it with --program."
            )
        from renode.golden_session import OtherModelError, write_golden  # scikit-learn takes its time

        try:
            write_golden(program, path)
            variables["GOLDEN"] = str(path)
        except OtherModelError as error:
            click.echo(f"{NEEDS_GOLDEN}: left out, {error}")
            suites = [suite for suite in suites if suite.name != NEEDS_GOLDEN]
    return suites, variables


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--elf",
    type=click.Path(path_type=Path),
    default=BUILD / "disco_f746ng" / "firmware.elf",
    show_default=True,
    help="Firmware to run.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    default=BUILD / "native" / "program",
    show_default=True,
    help="The same firmware built for this machine.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("build/renode"),
    show_default=True,
    help="Folder for the logs.",
)
def main(suites: tuple[Path, ...], elf: Path, program: Path, results: Path) -> None:
    paths = list(suites) or sorted(set(HERE.glob("*.robot")) - {CAMERA})
    if not elf.is_file():
        raise click.ClickException(
            f"no such firmware: {elf}. Build it with `pio run`, or name it with --elf."
        )
    paths, variables = prepare(paths, program, results)
    if not paths:
        raise click.ClickException("no suite is left that fits this firmware.")
    if not run_everywhere(paths, {"ELF": str(elf.resolve()), **variables}, results):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
