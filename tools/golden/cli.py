"""Command line: check the golden data, write build/golden.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.progress import Progress

from .check import check_blocks, check_gradients, check_logits
from .data import NETWORKS, Data, DataError, find

OUTPUT = Path(__file__).resolve().parents[2] / "build/golden.json"


@click.command()
@click.option(
    "--images", type=click.IntRange(1, 1000), default=1000, show_default=True, help="Images of each network."
)
def main(images: int) -> None:
    """Compare the published networks with an independent simulator: logits, block outputs, gradients."""
    try:
        data = find()
    except DataError as error:
        click.echo(f"golden: {error}", err=True)
        sys.exit(1)
    report = {network: check(data, network, images) for network in NETWORKS}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for network, row in report.items():
        click.echo(f"{network:<16} " + "  ".join(f"{key} {value:.6g}" for key, value in row.items()))
    click.echo(f"wrote {OUTPUT}")


def check(data: Data, network: str, images: int) -> dict[str, float]:
    """One network: a row of golden.json."""
    with Progress(transient=True) as progress:
        task = progress.add_task(network, total=images)
        logits = check_logits(data, network, images, lambda: progress.advance(task))
    return {
        "logits_equal": logits.equal,
        "logits_max_diff": logits.max_diff,
        "top1": logits.top1,
        "blocks_max_diff": max(check_blocks(data, network).values()),
        "min_cosine_fp32": min(check_gradients(data, network, "fp32").values()),
        "min_cosine_int8": min(check_gradients(data, network, "int8").values()),
    }
