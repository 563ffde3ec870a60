"""Command line: runs firmwares on the emulated board and writes the order of their code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from lab.alone import hold
from lab.bench.build import build, convert
from lab.bench.cases import FIXED, TIGHT_KB, Case
from lab.bench.run import LABEL
from lab.golden.data import Data, find
from microtrain.base.paths import ROOT
from microtrain.base.pio import BOARD

from .search import Misses, search
from .trace import Trace, record

FILE = ROOT / "firmware/ld/code_order.ld"
WORK = ROOT / "build/order"
CASES = (
    Case("mcunet-5fps", "mcunet-49kb"),
    Case("mcunet-5fps", "mcunet-49kb", requantize=FIXED),
    Case("mcunet-5fps", "mcunet-49kb", budget_kb=TIGHT_KB["mcunet-49kb", 0]),
    Case("mcunet-5fps", "mcunet-99kb"),
    Case("proxyless-w0.3", "proxyless-49kb"),
    Case("mbv2-w0.35", "mbv2-99kb"),
)
TRIES = 20_000
HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Written by `python lab/order`: the order of code in flash. What one layer needs lies together, so that the
 * Cortex-M7's instruction cache (4 KB, two ways) keeps it. The linker passes over what a firmware lacks.
 */
"""


def traced(case: Case, data: Data) -> Trace:
    """A step of a case on the board."""
    folder = WORK / case.folder
    elf = build(convert(case, data.checkpoint(case.network), folder), folder, BOARD)
    return record(elf, data.train_step(case.network)["images_u8"][0], LABEL)


def written(order: Iterable[str]) -> str:
    """The linker's input; copies that gcc makes of a function lie beside it."""
    return HEAD + "".join(f"*({name} {name}.*)\n" for name in order)


def merged(traces: Sequence[Trace]) -> list[str]:
    """All names, as they first ran."""
    return list(dict.fromkeys(name for trace in traces for name in trace.used))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--tries", default=TRIES, show_default=True, type=click.IntRange(1), help="Moves of the search."
)
@click.option(
    "-o", "--output", default=FILE, type=click.Path(dir_okay=False, path_type=Path), help="File to write."
)
def main(tries: int, output: Path) -> None:
    """Search for the order of code in flash that the instruction cache likes best; needs the test data.

    Run it after kernels have changed, and `make bench` after it.
    """
    hold(WORK)
    data = find()
    write([(case.name, traced(case, data)) for case in CASES], tries, output)


def write(traces: Sequence[tuple[str, Trace]], tries: int, output: Path) -> None:
    """Search, write the file, and say what each case misses before and after."""
    every = [trace for _, trace in traces]
    order = search(Misses([trace.sampled() for trace in every]), merged(every), tries)[0]
    output.write_text(written(order), encoding="utf-8")
    count = Misses(every)
    for name, trace in traces:
        click.echo(
            f"{name}: {count.of(trace, []):,} lines missed, {count.of(trace, order):,} in the new order"
        )
