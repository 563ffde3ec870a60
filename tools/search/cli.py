"""Command line: a model, a folder of images, a budget; out comes a scheme. `command.py` finds it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from microtrain.base.errors import Error
from microtrain.base.extras import require
from microtrain.base.options import LearningRate, Number, collected, option
from microtrain.convert.defaults import RATE
from microtrain.convert.mean_std import both, mean_option, std_option
from microtrain.convert.options import Shape

from . import BACKENDS

if TYPE_CHECKING:
    from microtrain.convert.normalisation import MeanAndStd

WORK = Path("build/search")
FOLDER = click.Path(path_type=Path)


class Bits(click.ParamType):  # type: ignore[type-arg]
    """Numbers of fraction bits to choose from, separated by commas."""

    name = "bits"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if not isinstance(value, str):
            return value
        if set(value.split(",")) - {"0", "4", "8"}:
            self.fail(f"{value}: choose from 0, 4 and 8, as in 0,4.", param, ctx)
        return tuple(sorted({int(bits) for bits in value.split(",")}))


@dataclass(frozen=True)
class Wanted:
    """What a search is asked for."""

    data: Path = option(
        "--data", type=FOLDER, required=True, metavar="DIR", help="Samples to train on, see above."
    )
    budget_sram: float = option(
        "--budget-sram", type=Number(1), required=True, metavar="KB", help="For everything."
    )
    budget_flash: float = option(
        "--budget-flash",
        type=Number(1),
        default=1024,
        show_default=True,
        metavar="KB",
        help="Flash for the model, the trainables' start and the firmware.",
    )
    budget_step_minstr: float | None = option(
        "--budget-step-minstr",
        type=Number(0.001),
        metavar="M",
        help="Million instructions per training step, forward and backward.",
    )
    path: Path = option(
        "-o",
        "--output",
        type=FOLDER,
        default=Path("scheme.yaml"),
        show_default=True,
        help="Scheme file that is written; the report and the picture of the search lie beside it.",
    )
    bits: tuple[int, ...] = option(
        "--fraction-bits",
        type=Bits(),
        default="0,4",
        show_default=True,
        help="Numbers of fraction bits to choose from.",
    )
    lite: bool = option("--lite-residuals", is_flag=True, help="Lite residual modules to choose from, too.")
    lr: float = option(
        "--lr",
        default=RATE,
        show_default=True,
        type=LearningRate(0, min_open=True),
        help="Learning rate of every session, from which a cosine falls to 0.",
    )
    epochs: int = option(
        "--epochs",
        default=1,
        show_default=True,
        type=click.IntRange(1),
        help="Passes over the samples to measure a contribution with.",
    )
    limit: int = option(
        "--limit",
        default=0,
        type=click.IntRange(0),
        metavar="N",
        help="At most N samples per epoch to measure a contribution with. [all]",
    )
    final_epochs: int = option(
        "--final-epochs",
        default=4,
        show_default=True,
        type=click.IntRange(1),
        help="Passes over all samples to train finalists.",
    )
    finalists: int = option(
        "--finalists",
        default=6,
        show_default=True,
        type=click.IntRange(1),
        help="Candidates that are trained for real in each round.",
    )
    rounds: int = option(
        "--rounds",
        default=5,
        show_default=True,
        type=click.IntRange(1),
        help="Rounds of finalists; each learns from those before.",
    )
    final_seeds: int = option(
        "--final-seeds",
        default=3,
        show_default=True,
        type=click.IntRange(1),
        help="Seeds to train the last three with.",
    )
    measured: float = option(
        "--measured",
        default=1.0,
        show_default=True,
        type=Number(0, 1, min_open=True),
        metavar="SHARE",
        help="Share of the layers, best by Fisher information, whose contributions are measured.",
    )
    evaluations: int = option(
        "--evaluations",
        default=10000,
        show_default=True,
        type=click.IntRange(1),
        help="Candidates to look at.",
    )
    compare: int = option(
        "--compare",
        default=0,
        type=click.IntRange(0),
        metavar="SEEDS",
        help="Compare evolution and random search with the proven optimum, with so many seeds each.",
    )
    seed: int = option(
        "--seed",
        default=0,
        show_default=True,
        type=click.IntRange(0, 2**32 - 1),
        help="Seed of the evolution and of the training sessions.",
    )
    calibration: Path | None = option(
        "--calibration", type=FOLDER, metavar="DIR", help="As in microtrain convert."
    )
    mean: tuple[float, ...] | None = mean_option()
    std: tuple[float, ...] | None = std_option()
    trust: bool = option("--trust", is_flag=True, help="As in microtrain convert.")
    input_shape: tuple[int, ...] | None = option("--input", type=Shape(), help="As in microtrain convert.")
    logits: str | None = option("--logits", metavar="N|NAME", help="As in microtrain convert.")
    cache: Path | None = option(
        "--cache", type=FOLDER, metavar="DIR", help=f"Where measurements are kept. [{WORK}/...]"
    )
    jobs: int = option(
        "--jobs", default=0, type=click.IntRange(0), metavar="N", help="Processes. [all cores]"
    )
    backend: str = option(
        "--engine",
        type=click.Choice(BACKENDS),
        default=BACKENDS[0],
        show_default=True,
        help="This machine, or all of a Ray cluster (`pip install ray`).",
    )

    @property
    def normalisation(self) -> MeanAndStd | None:
        """What --mean and --std say; None where they are not given."""
        return both(self.mean, self.std)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", type=FOLDER)
@collected(Wanted, into="wanted")
def main(model: Path, wanted: Wanted) -> None:
    """Find which biases and weights of MODEL to train within a budget, by what training them gains on DIR.

    MODEL is what `microtrain convert` takes. DIR holds train.txt and val.txt (one line CLASS/FILE per
    sample), or folders train and val (or test) of class folders, or class folders. One training sample in
    five is held out to judge by; those to test with are not looked at.

    What is measured is kept: a search that was stopped goes on where it was, and one with another budget
    measures only what is new.

    \b
    microtrain search model.pt2 --calibration samples --data samples --budget-sram 128 -o scheme.yaml
    """
    try:
        require("search", "the search", "sklearn", "scipy", "torch")
        from microtrain.convert.loading import show_warning

        from . import output
        from .command import run

        warnings.showwarning = show_warning
        result, files = run(model, wanted)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    output.show(result, files)
