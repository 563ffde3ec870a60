"""Command line: writes a project, or brings one up to date."""

from __future__ import annotations

from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.terminal import say
from microtrain.convert import boards


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--board",
    type=click.Choice(boards.names()),
    default=boards.DEFAULT,
    show_default=True,
    help="The board that the project builds for.",
)
@click.option("--update", is_flag=True, help="Bring the files of a project to those of this version.")
def main(folder: Path, board: str, update: bool) -> None:
    """Write a PlatformIO project with the firmware into FOLDER.

    It builds as it is, with the digits example as its model; `microtrain convert` puts your own in its place.
    --update replaces what this version of microtrain changes, and nothing that you changed.
    """
    from . import project

    try:
        if update:
            changed = project.update(folder)
            say(f"{folder} is up to date; files that changed: {len(changed)}")
            return
        project.create(folder, board)
    except Error as error:
        raise click.ClickException(str(error)) from error
    say(
        f"{folder} is a PlatformIO project for {board}. Next:\n"
        f"  cd {folder}\n"
        f"  microtrain convert MODEL.pt2 --board {board}    your model; without it, the digits example\n"
        "  pio run -t upload"
    )
