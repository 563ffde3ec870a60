"""The demo's command line: a real network learns from real data, on the ELF that would be flashed."""

from __future__ import annotations

import sys

import click

from microtrain.base.errors import Error


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--task",
    type=click.Choice(["pictures", "sound", "motion", "anomaly"]),
    default="pictures",
    show_default=True,
    help="What is learned: digits; words, of another voice; what a person does, by an accelerometer; what is "
    "normal of a fan. The signals of the last three are made up by a simulator.",
)
@click.option(
    "--epochs", type=click.IntRange(1), default=1, show_default=True, help="Passes over the samples."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the order and of the rounding.",
)
@click.option(
    "--eval-every", type=click.IntRange(0), default=0, metavar="N", help="Evaluate after every N steps."
)
def main(task: str, epochs: int, seed: int, eval_every: int) -> None:
    """Convert, build, measure and train an example: digits, or made-up signals.

    Results go to build/demo/ (build/demo-TASK/) in a checkout, and to ~/.cache/microtrain elsewhere.
    """
    from microtrain.device.session import COSINE, Settings

    from . import signals
    from .run import RATE, run

    try:
        if task in signals.TASKS:
            signals.run(task, Settings(epochs, seed))
            return
        run(Settings(epochs, seed, eval_every=eval_every, rate=RATE, schedule=COSINE))
    except Error as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)
