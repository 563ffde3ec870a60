"""`python renode/run.py [SUITE ...]`: suites on the board model and, where it is installed, on Renode.

Without SUITE all that lie beside this file, but for the camera demo's, which has another firmware. The one of
the example (training.robot) needs the host simulator of the same model; the one of the flash controller
(flash.robot) has its own firmware, which is built here. The one of weights beside the chip (external.robot)
is left out where the firmware has none.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from microtrain.base.errors import Error  # noqa: E402
from microtrain.emulator.elf import Image  # noqa: E402
from microtrain.emulator.robotrun import run_everywhere  # noqa: E402
from renode import boards, examples, exerciser  # noqa: E402

BUILD = Path(".pio/build")
CAMERA = HERE / "camera.robot"
NEEDS_GOLDEN, NEEDS_EXERCISER, NEEDS_OUTSIDE = "training.robot", "flash.robot", "external.robot"


def build_exerciser(folder: Path, board: str) -> Path:
    """The firmware that drives the flash controller for flash.robot."""
    try:
        return exerciser.build(folder / "exerciser.elf", board)
    except Error as error:
        raise click.ClickException(f"no firmware for {NEEDS_EXERCISER}: {error}") from error


def prepare(suites: list[Path], program: Path, folder: Path, board: str) -> tuple[list[Path], dict[str, str]]:
    """The suites that can run, and the variables that they need beside ${ELF} and the board's."""
    folder.mkdir(parents=True, exist_ok=True)
    names, variables = {suite.name for suite in suites}, {}
    if NEEDS_EXERCISER in names:
        variables["EXERCISER"] = str(build_exerciser(folder, board).resolve())
    if NEEDS_GOLDEN in names:
        path = (folder / "golden.json").resolve()
        if not program.is_file():
            raise click.ClickException(
                f"no such program: {program}. Build it with `pio run -e native`, or name it with --program."
            )
        from renode.golden_session import OtherModelError, write_golden  # scikit-learn takes its time

        try:
            write_golden(program.resolve(), path)  # a name alone would be looked for on PATH
            variables["GOLDEN"] = str(path)
        except Error as error:
            raise click.ClickException(f"no answers for {NEEDS_GOLDEN}: {error}") from error
        except OtherModelError as error:
            click.echo(f"{NEEDS_GOLDEN}: left out, {error}")
            suites = [suite for suite in suites if suite.name != NEEDS_GOLDEN]
    return suites, variables


def fitting(suites: list[Path], image: Image) -> list[Path]:
    """The suites that find in the firmware what they are about."""
    external = image.chip.external
    outside = external is not None and any(address >= external.base for address, _ in image.elf.segments)
    if not outside and any(suite.name == NEEDS_OUTSIDE for suite in suites):
        click.echo(f"{NEEDS_OUTSIDE}: left out, this firmware has no weights beside the chip")
        return [suite for suite in suites if suite.name != NEEDS_OUTSIDE]
    return suites


def programs(elf: Path | None, program: Path | None, example: str | None, folder: Path) -> tuple[Path, Path]:
    """The firmware that is to run, and the same for this machine."""
    if example is None:
        return elf or BUILD / "disco_f746ng" / "firmware.elf", program or BUILD / "native" / "program"
    if elf or program:
        raise click.ClickException("--example builds both: leave out --elf and --program.")
    try:
        return examples.firmware(example, folder)
    except Error as error:
        raise click.ClickException(f"the example was not built: {error}") from error


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suites", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--elf",
    type=click.Path(path_type=Path),
    show_default=str(BUILD / "disco_f746ng/firmware.elf"),
    help="Firmware to run; it says which board it is for.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    show_default=str(BUILD / "native/program"),
    help="The same firmware built for this machine.",
)
@click.option(
    "--example",
    type=click.Choice(list(examples.EXAMPLES)),
    help="Convert and build the example first, for the smaller board or with weights beside the chip.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("build/renode"),
    show_default=True,
    help="Folder for the logs.",
)
def main(
    suites: tuple[Path, ...], elf: Path | None, program: Path | None, example: str | None, results: Path
) -> None:
    paths = list(suites) or sorted(set(HERE.glob("*.robot")) - {CAMERA})
    elf, program = programs(elf, program, example, results / "example")
    if not elf.is_file():
        raise click.ClickException(
            f"no such firmware: {elf}. Build it with `pio run`, or name it with --elf."
        )
    try:
        image = Image(elf)
    except Error as error:
        raise click.ClickException(str(error)) from error
    chip = image.chip
    paths, needed = prepare(fitting(paths, image), program, results, chip.board)
    if not paths:
        raise click.ClickException("no suite is left that fits this firmware.")
    variables = {"ELF": str(elf.resolve()), **boards.variables(chip), **needed}
    unknown = None if chip.board in boards.ON_RENODE else f"renode/ has no description of {chip.board}"
    if not run_everywhere(paths, variables, results, unknown):
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    main()
