"""Command line: `make pieces`."""

from __future__ import annotations

import json
import shutil

import click

from lab.cores.machines import CORES, Core
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.convert import pieces

from . import networks
from .fit import fitted
from .measure import Longest, measured

FOLDER = ROOT / "build/pieces"
WORKS = (1, 5000, 20_000, 60_000)
FLAGS = ("-O2", "-Os")
NAMES = [core.name for core in CORES if core.qemu and core.name in pieces.CORES]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--core", "chosen", multiple=True, type=click.Choice(NAMES), help="Only these cores.")
def main(chosen: tuple[str, ...]) -> None:
    """Measure the longest pieces of many networks, and fit a bound to them: tools/convert/pieces.json.

    The programs are built with -O2 and with -Os, and run in QEMU. Cores that are not measured keep what
    they had.
    """
    found = dict(pieces.coefficients())
    for core in CORES:
        if core.name not in (chosen or NAMES):
            continue
        try:
            found[core.name] = fitted(counted(core))
        except Error as error:
            raise click.ClickException(str(error)) from error
        text = json.dumps(found, indent=1, sort_keys=True) + "\n"
        pieces.COEFFICIENTS.write_text(text, encoding="utf-8")


def counted(core: Core) -> list[Longest]:
    """Of all networks."""
    folder, found = FOLDER / core.name, []
    shutil.rmtree(folder, ignore_errors=True)
    for batch in networks.batches(FOLDER / "networks"):
        for flag in FLAGS:
            click.echo(f"{core.name} {flag}: {', '.join(batch)}")
            found += measured(core, batch, folder, WORKS, flag)
    return found
