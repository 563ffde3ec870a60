"""Command line: measures MCUNet's 49 KB scheme layer by layer and writes lab/pages/floor.md."""

from __future__ import annotations

import click

from lab.alone import hold
from lab.bench.build import build, convert
from lab.bench.cases import Case
from lab.bench.run import LABEL
from lab.golden.data import find
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD
from microtrain.base.plan import read_plan
from microtrain.base.terminal import say

from .measure import measured
from .page import sums, tile_words, write
from .rows import rows

CASE = Case("mcunet-5fps", "mcunet-49kb")
WORK = ROOT / "build/floor"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--page", is_flag=True, help="Write lab/pages/floor.md, .json and .svg too.")
def main(page: bool) -> None:
    """Say what an inference and a step need at least, and what they take; needs the test data."""
    hold(WORK)
    try:
        data = find()
        generated = convert(CASE, data.checkpoint(CASE.network), WORK / CASE.folder)
        elf, plan = build(generated, WORK / CASE.folder, BOARD), read_plan(generated / "plan.json")
        image = data.train_step(CASE.network)["images_u8"][0]
        counts = measured(elf, plan, image, LABEL)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    found = {phase: (each, rows(plan, each, phase)) for phase, each in counts.items()}
    if page:
        write(found)
    say(sums(found))
    say(tile_words())
