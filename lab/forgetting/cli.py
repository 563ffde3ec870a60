"""Command line: measure, then write pages/replay.json, the table of pages/replay.md and pages/replay.svg."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from lab import notes
from microtrain.base.errors import Error
from microtrain.base.files import unpacked
from microtrain.base.paths import ROOT
from microtrain.base.terminal import console

from . import picture, table
from .cases import CASES, MAIN, Case
from .run import WORK, best_rate, measure, plan_of, replay_of

PAGES = ROOT / "lab/pages"
IMAGES = "clothing10_144"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--data", type=click.Path(path_type=Path, exists=True), metavar="DIR",
    help="The images, unpacked. [sets/clothing10_144.tar in MICROTRAIN_DATA]",
)  # fmt: skip
@click.option(
    "--network", type=click.Path(path_type=Path, exists=True), metavar="FILE.pkl",
    help="[models/mcunet-5fps.pkl in MICROTRAIN_DATA]",
)  # fmt: skip
@click.option("--first", type=click.IntRange(1), default=len(CASES), help="Only the first N cases.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=PAGES, show_default="lab/pages",
    help="Folder of replay.json, replay.md and the picture.",
)  # fmt: skip
def main(data: Path | None, network: Path | None, first: int, output: Path) -> None:
    """Measure how much of joint training a replay buffer keeps when classes come one after the other.

    What was measured before and has not changed is not measured again (build/forgetting).
    """
    folder = Path(os.environ.get("MICROTRAIN_DATA", ""))
    network = network or folder / "models/mcunet-5fps.pkl"
    if not network.is_file():
        raise click.ClickException(f"no such network: {network}; set MICROTRAIN_DATA or pass --network.")
    try:
        images = data or unpacked(folder / f"sets/{IMAGES}.tar", ROOT / WORK / "data" / IMAGES)
        rows, rates = measure_all(CASES[:first], network.resolve(), images.resolve())
        document = {"format": 1, "rates": rates, "rows": rows}
        notes.write(output / "replay.json", document)
        table.insert(output / "replay.md", rows)
        picture.draw(output / "replay.svg", rows)
    except (Error, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"wrote replay.json, replay.md and replay.svg to {output}")


def measure_all(
    cases: tuple[Case, ...], network: Path, data: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows, and the rates they were measured with."""
    terminal = console(stderr=True)
    plans = {scheme: plan_of(scheme, network) for scheme in dict.fromkeys([MAIN, *(c.scheme for c in cases)])}
    rates: dict[str, Any] = {}
    rows = []
    for case in cases:
        kind = "replay" if case.records else "plain"
        if kind not in rates:
            rates[kind] = best_rate(case, replay_of(plans[MAIN]).records, data)
        rows.append(measure(case, plans[case.scheme], rates[kind], data))
        terminal.print(f"{case.name}: {rows[-1]['mean']:.1%}")
    return rows, rates
