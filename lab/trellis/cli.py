"""Command line: learn the table and write it where conversion reads it."""

from __future__ import annotations

import json

import click
import numpy as np

from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.convert.ops.coded import PAIRS_FILE
from microtrain.convert.quantize.pair_codes import SPREAD

from .learn import ROUNDS, learned, signal, stored


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Learn the pairs that weights in four bits are codes for, from normal numbers. Two minutes of a core."""
    with Bars() as bars:
        bar = bars.add("table of pairs, rounds", ROUNDS)
        for done, table in enumerate(learned(), 1):
            found = stored(table)
            bar.set(done)
        bar.end()
    PAIRS_FILE.write_text(text(found), encoding="utf-8")
    say(f"wrote {PAIRS_FILE}: {signal(found / SPREAD):.2f} dB of normal numbers")


def text(pairs: np.ndarray) -> str:
    """A line for each code: its pairs by the state before it."""
    lines = ",\n".join(f"  {json.dumps(row.tolist())}" for row in pairs)
    return f"[\n{lines}\n]\n"
