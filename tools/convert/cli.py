"""Command line of tools/convert. `command.py` does what it is asked for, and is imported when asked."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.options import collected
from microtrain.base.terminal import say

from .options import Wanted


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@collected(Wanted, into="wanted")
def main(model: Path, wanted: Wanted) -> None:
    """Turn MODEL and a sparse update scheme into C for the microcontroller.

    MODEL is a torch.export archive (.pt2), TorchScript, or a module saved whole. Written are model.c,
    model.h, model_weights.c, model_library.inc, plan.json, model.npz, and report.html, a page about it all.

    \b
    Examples:
      microtrain convert examples/digits/model.pt
      microtrain convert --check model.pt2 --classes 5
      microtrain convert model.pt2 --calibration samples/ --classes 5 --scheme my.yaml --budget-sram 160
    """
    from .command import run
    from .loading import show_warning

    warnings.showwarning = show_warning
    if wanted.fraction_bits and not wanted.scheme:
        raise click.UsageError("--fraction-bits changes a scheme: name one with --scheme.")
    try:
        fits = run(model, wanted)
    except Error as error:
        say(f"convert: {error}", err=True)
        sys.exit(1)
    sys.exit(0 if fits else 1)
