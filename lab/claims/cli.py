"""Command line: write what README and pages/demo.md claim, after measuring it again if asked to."""

from __future__ import annotations

import click

from lab.bench import records
from lab.marks import MarksError, insert
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT

from . import record, text

README = ROOT / "README.md"
DEMO_PAGE = record.PAGES / "demo.md"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--measure", is_flag=True, help="Run the demo first, and its schemes with three seeds: 3 minutes."
)
def main(measure: bool) -> None:
    """Write the numbers of README.md and lab/pages/demo.md from the records in lab/pages."""
    try:
        if measure:
            click.echo("running the demo, then its three schemes with three seeds each")
            record.save(record.measure())
        write()
    except (Error, MarksError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("wrote the marked parts of README.md and lab/pages/demo.md")


def write() -> None:
    """Both pages anew."""
    known = record.load()
    insert(README, text.COMMAND, text.readme(known, benchmark()))
    insert(DEMO_PAGE, text.COMMAND, text.demo_page(known))


def benchmark() -> list[records.Row]:
    """The checked-in rows of the compiler that the benchmark knows; of several the last by name."""
    tables = records.load(record.PAGES / "bench.json")
    return tables[max(tables)]
