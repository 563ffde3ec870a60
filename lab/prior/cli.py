"""Command line: measure what layers gain, and write the tables of lab/pages/search.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from lab import marks, notes
from lab.golden.data import NETWORKS
from lab.recipe import sets
from lab.recipe.cases import SCHEMES as PUBLISHED
from lab.recipe.cases import SEARCHED_ON
from lab.recipe.run import WORK as RECIPE
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.convert.default_scheme import FRACTION_BITS, largest, last
from microtrain.convert.ir import Graph
from microtrain.convert.pipeline import ALL_PASSES, Room
from microtrain.convert.scheme import Scheme
from microtrain.convert.scheme import find as find_scheme
from microtrain.search.engine import Engine

from . import fit
from .measure import KINDS, Gain, gains, graph_of

SETS = ("clothing10",)
PAGES = ROOT / "lab/pages"
RECORD, PAGE, COMMAND = PAGES / "prior.json", PAGES / "search.md", "python lab/prior"
CLASSES = 10


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--page", is_flag=True, help="Only write the tables, from lab/pages/prior.json.")
def main(page: bool) -> None:
    """Measure what biases and weights gain, layer by layer, in the three published networks.

    What is measured is kept in build/prior, and a run that was stopped goes on where it was. Needs the test
    data, a folder that MICROTRAIN_DATA names. A quarter of an hour of a core.
    """
    try:
        if not page:
            folders = sets.test_sets(RECIPE / "sets")
            found = [gain for name in SETS for gain in measured(name, folders[name])]
            notes.write(RECORD, [gain.row() for gain in found])
        known = [Gain(**row) for row in notes.read(RECORD, [])]
        marks.insert(PAGE, COMMAND, {"gains": by_kind(known), "worth": by_scheme(known)})
    except (Error, OSError, marks.MarksError) as error:
        raise click.ClickException(str(error)) from error
    say(f"wrote {RECORD} and {PAGE}")


def measured(dataset: str, data: Path) -> list[Gain]:
    """Of every network on a set of images, one session at a time."""
    every: list[Gain] = []
    with Bars() as bars:
        for network in NETWORKS:
            bar = bars.add(f"{network}, {dataset}, percent", 100)
            for state in gains(network, dataset, data, Engine(1)):
                if isinstance(state, list):
                    every += state
                else:
                    bar.set(100 * state[0] // state[1])
            bar.end()
    return every


def by_kind(known: Sequence[Gain]) -> str:
    """What a whole layer gains, by its kind, and how well two networks tell of the third."""

    def of(network: str) -> list[Gain]:
        return [gain for gain in known if gain.network == network]

    lines = ["| thousandths of a nat | " + " | ".join(NETWORKS) + " |", "|---|" + "---|" * len(NETWORKS)]
    for depth in (0.2, 0.4, 0.6):
        lines.append(line(f"biases of the last {depth:.0%}", [fit.biases(of(n), depth) for n in NETWORKS]))
    for kind in KINDS[1:]:
        found = [fit.by_kind(of(name)).get(kind) for name in NETWORKS]
        if any(value is not None for value in found):
            lines.append(line(f"weights: {kind}", found))
    slopes = [fit.with_depth(of(name))[1] for name in NETWORKS]
    lines.append(line("expand: front less end", slopes))
    ranks = [f"{fit.left_out(known, name):.2f}" for name in NETWORKS]
    return "\n".join([*lines, "| ranks by the other two networks | " + " | ".join(ranks) + " |"])


def line(name: str, values: Sequence[float | None]) -> str:
    shown = ["" if value is None else f"{1000 * value:.0f}" for value in values]
    return f"| {name} | {' | '.join(shown)} |"


def by_scheme(known: Sequence[Gain]) -> str:
    """What schemes of the published one's bytes are worth by the gains of their own network."""
    heads = ["| thousandths of a nat, biases + weights | " + " | ".join(NETWORKS) + " |"]
    rows: dict[str, list[str]] = {}
    for network in NETWORKS:
        graph = graph_of(network)
        own = [gain for gain in known if gain.network == network]
        for name, scheme in rivals(network, graph).items():
            value = fit.worth(own, graph, scheme)
            rows.setdefault(name, []).append(" + ".join(f"{1000 * part:.0f}" for part in value))
    return "\n".join(
        [*heads, "|---|" + "---|" * len(NETWORKS), *(f"| {n} | {' | '.join(r)} |" for n, r in rows.items())]
    )


def rivals(network: str, graph: Graph) -> dict[str, Scheme]:
    """Schemes at the bytes of the published one."""
    published = find_scheme(Path(PUBLISHED[network]))
    room = Room(graph, CLASSES, 0)
    room = replace(room, sram=int(room.needed(published, ALL_PASSES)))
    return {
        "published": published,
        "found on clothing10": find_scheme(Path(PUBLISHED[network] + SEARCHED_ON)),
        "largest, with no records": largest(room, ALL_PASSES),
        "the last layers, beside records": replace(last(room, ALL_PASSES), fraction_bits=FRACTION_BITS),
    }
