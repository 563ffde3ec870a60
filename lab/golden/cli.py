"""Command line: check the golden data, write build/golden.json and build/golden.svg."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from lab import notes
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT

from . import board
from .check import Gradient, check_blocks, check_gradients, check_logits, dead_channels
from .data import NETWORKS, Data, find
from .host import check_host
from .picture import draw, spread

LEAST_FP32, LEAST_INT8 = 0.9999, 0.98
OUTPUT = ROOT / "build"


@click.command()
@click.option(
    "--images", type=click.IntRange(1, 1000), default=1000, show_default=True, help="Images of each network."
)
@click.option(
    "--board-images",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Those of them that the emulated board runs too.",
)
def main(images: int, board_images: int) -> None:
    """Compare the published networks with an independent simulator: logits, block outputs, gradients.

    Three implementations run: the NumPy reference, the generated C on this machine, and the ELF on the
    emulated board.
    """
    report: dict[str, dict[str, Any]] = {}
    gradients: dict[str, list[Gradient]] = {}
    try:
        data = find()
        with Progress(transient=True) as progress:
            for network in NETWORKS:
                gradients[network] = check_gradients(data, network, "int8")
                report[network] = check(data, network, images, min(images, board_images), progress)
                report[network] |= gradient_row(data, network, gradients[network])
    except Error as error:
        click.echo(f"golden: {error}", err=True)
        sys.exit(1)
    save(report, gradients)
    wrong = [f"{key} of {network}" for network, row in report.items() for key in faults(row)]
    if wrong:
        click.echo(f"golden: not as it must be: {', '.join(wrong)}", err=True)
        sys.exit(1)


def faults(row: Mapping[str, Any]) -> list[str]:
    """The keys of a row of golden.json whose values are not what they must be."""
    ones = [key for key, value in row.items() if key.endswith("logits_equal") and value != 1.0]
    differences = [key for key, value in row.items() if key.endswith(("_max_diff", "_different")) and value]
    steps = ["elf_steps_equal"] if row["elf_steps_equal"] != row["elf_steps"] else []
    real = ["min_cosine_fp32"] if row["min_cosine_fp32"] < LEAST_FP32 else []
    rounded = ["min_cosine_int8"] if row["min_cosine_int8"] < LEAST_INT8 else []
    return [*ones, *differences, *steps, *real, *rounded]


def check(data: Data, network: str, images: int, board_images: int, progress: Progress) -> dict[str, Any]:
    """The part of a row of golden.json that runs images; pages/golden.md explains the keys."""

    def bar(title: str, total: int | None) -> Any:
        task = progress.add_task(f"{network}: {title}", total=total)
        return lambda: progress.advance(task)

    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        numpy = check_logits(data, network, images, bar("NumPy", images))
        host = check_host(data, network, images, folder / "host", bar("host C", images))
        elf = board.check_logits(
            data, network, board_images, folder / "elf", bar("emulated board, parts of the classifier", None)
        )
        steps = board.check_training(data, network, folder / "step", bar("training steps on the board", 4))
    return {
        "images": images,
        "logits_equal": numpy.equal,
        "logits_max_diff": numpy.max_diff,
        "top1": numpy.top1,
        "blocks_max_diff": max(check_blocks(data, network).values()),
        "c_logits_equal": host.logits.equal,
        "c_logits_max_diff": host.logits.max_diff,
        "c_blocks_max_diff": max(host.blocks.values()),
        "c_step_tensors": host.tensors,
        "c_step_tensors_different": len(host.different),
        "elf_images": board_images,
        "elf_logits_equal": elf.logits.equal,
        "elf_logits_max_diff": elf.logits.max_diff,
        "elf_blocks_max_diff": max(elf.blocks.values()),
        "elf_scheme": board.SCHEMES[network],
        "elf_steps": len(steps),
        "elf_steps_equal": sum(steps),
    }


def gradient_row(data: Data, network: str, rounded: list[Gradient]) -> dict[str, Any]:
    """The part of a row of golden.json on gradients. rounded: those with int8 errors."""
    real = check_gradients(data, network, "fp32")
    return {
        "dead_channels": dead_channels(data, network),
        "gradients": len(rounded),
        "min_cosine_fp32": min(g.cosine for g in real),
        "min_cosine_int8": min(g.cosine for g in rounded),
        "cosine_int8": spread(rounded),
    }


def save(report: dict[str, dict[str, Any]], gradients: dict[str, list[Gradient]]) -> None:
    """Write golden.json and golden.svg, and print what is not by layer."""
    OUTPUT.mkdir(exist_ok=True)
    notes.write(OUTPUT / "golden.json", report)
    draw(gradients, OUTPUT / "golden.svg")
    for network, row in report.items():
        click.echo(network)
        for key, value in row.items():
            if not isinstance(value, dict):
                click.echo(f"  {key:<24} {value:.7g}" if isinstance(value, float) else f"  {key:<24} {value}")
    click.echo(f"wrote {OUTPUT / 'golden.json'} and golden.svg")
