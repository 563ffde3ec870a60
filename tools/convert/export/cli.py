"""Command line of export-library."""

from __future__ import annotations

from pathlib import Path

import click

from microtrain.base import paths
from microtrain.base.errors import Error
from microtrain.base.terminal import say


def generated() -> Path:
    """Where convert wrote the model: in the project that is being worked in."""
    project = paths.project()
    if project is None:
        raise click.UsageError("there is no PlatformIO project here: say with --model what convert wrote.")
    return project / "firmware/generated"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--model",
    type=click.Path(path_type=Path, file_okay=False),
    default=generated,
    show_default="firmware/generated of the project",
    help="Folder that `microtrain convert` wrote.",
)
@click.option("--name", help="What the model is called in C; what it was converted from, if not given.")
def main(folder: Path, model: Path, name: str | None) -> None:
    """Write a model and the engine into DIR: C for a firmware of your own.

    A second model joins the first in the same folder, under another name. How many instructions a piece of
    microtrain_step takes at most is printed, and in the model's header. docs/embed.md goes on from there.

    \b
    Examples:
      microtrain export-library lib/garden
      microtrain export-library lib/garden --model firmware/generated --name garden
    """
    from .write import export, said

    try:
        chosen = export(folder, model, name)
        pieces = said(model, chosen)
    except Error as error:
        raise click.ClickException(str(error)) from error
    say(f"wrote the library with the model {chosen} to {folder}: include {chosen}.h, see docs/embed.md")
    if pieces:
        say(pieces)
