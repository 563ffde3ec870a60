"""Command line: a model, a folder of images, a budget; out comes a scheme."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from microtrain.base.errors import Error
from microtrain.base.options import Number, collected, option
from microtrain.base.terminal import console
from microtrain.convert.ir import Graph
from microtrain.convert.loading import load, quantized_with_report, show_warning
from microtrain.convert.quantize.ptq import Choices
from microtrain.convert.scheme import RATE
from microtrain.native.model import kernels
from microtrain.samples.source import Dataset, class_folders, hold_out, read_list, scan, split

from . import output
from .contribution import Plan
from .cost import Budget
from .engine import BACKENDS, engine
from .lab import Lab
from .pipeline import Request, Result, search
from .space import space_of

WORK = Path("build/search")
FOLDER = click.Path(path_type=Path)
KB, MILLION = 1024, 1e6
Item = TypeVar("Item")


class Bits(click.ParamType):
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
        "--data", type=FOLDER, required=True, metavar="DIR", help="Images to train on, see above."
    )
    budget_sram: float = option(
        "--budget-sram", type=Number(1), required=True, metavar="KB", help="For everything."
    )
    budget_flash: float = option(
        "--budget-flash", type=Number(1), default=1024, show_default=True, metavar="KB"
    )
    budget_step_minstr: float | None = option(
        "--budget-step-minstr",
        type=Number(0.001),
        metavar="M",
        help="Million instructions per training step, forward and backward.",
    )
    path: Path = option("-o", "--output", type=FOLDER, default=Path("scheme.yaml"), show_default=True)
    bits: tuple[int, ...] = option(
        "--fraction-bits",
        type=Bits(),
        default="0,4",
        show_default=True,
        help="Numbers of fraction bits to choose from.",
    )
    lr: float = option("--lr", default=RATE, show_default=True, type=Number(0, min_open=True))
    epochs: int = option(
        "--epochs",
        default=1,
        show_default=True,
        type=click.IntRange(1),
        help="Passes over the images to measure a contribution with.",
    )
    limit: int = option(
        "--limit",
        default=0,
        type=click.IntRange(0),
        metavar="N",
        help="At most N images per epoch to measure a contribution with. [all]",
    )
    final_epochs: int = option(
        "--final-epochs",
        default=4,
        show_default=True,
        type=click.IntRange(1),
        help="Passes over all images to train finalists.",
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
    seed: int = option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
    calibration: Path | None = option(
        "--calibration", type=FOLDER, metavar="DIR", help="As in tools/convert."
    )
    trust: bool = option("--trust", is_flag=True, help="As in tools/convert.")
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


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model", type=FOLDER)
@collected(Wanted, into="wanted")
def main(model: Path, wanted: Wanted) -> None:
    """Find which biases and weights of MODEL to train within a budget, by what training them gains on DIR.

    MODEL is what tools/convert takes. DIR holds train.txt and val.txt (one line CLASS/FILE per image), or
    folders train and val (or test) of class folders, or class folders. One training image in five is held out
    to judge by; test images are not looked at.

    What is measured is kept: a search that was stopped goes on where it was, and one with another budget
    measures only what is new.

    \b
    python tools/search model.pt --data photos --budget-sram 128 -o scheme.yaml
    """
    warnings.showwarning = show_warning
    try:
        result, files = run(model, wanted)
    except (Error, OSError) as error:
        raise click.ClickException(str(error)) from error
    output.show(result, files)


def run(model: Path, wanted: Wanted) -> tuple[Result, list[Path]]:
    """Search, and write what was found."""
    training, validation = hold_out(images(wanted.data))
    graph = quantized(model, wanted.calibration, wanted.trust)
    identity = {
        "model": digest_graph(graph),
        "images": digest_files([s.path for d in (training, validation) for s in d.samples]),
        "kernels": digest_files(kernels()),
    }
    folder = checked(wanted.cache, identity, graph.name)
    lab = Lab(graph, len(training.classes), training, validation, folder)
    space = space_of(graph, wanted.bits, wanted.lr)
    chosen = engine(wanted.jobs or os.cpu_count() or 1, wanted.backend)
    request = request_of(wanted)
    result = search(lab, space, request, chosen, progress)
    return result, output.write(wanted.path, lab, request, result, str(wanted.data))


def request_of(wanted: Wanted) -> Request:
    """What the search itself is told of the options."""
    step = wanted.budget_step_minstr * MILLION if wanted.budget_step_minstr else float("inf")
    seeds = tuple(range(wanted.seed, wanted.seed + wanted.final_seeds))
    return Request(
        budget=Budget(int(wanted.budget_sram * KB), wanted.budget_flash * KB, step),
        contributions=Plan(wanted.epochs, wanted.limit, (wanted.seed,)),
        final=Plan(wanted.final_epochs, 0, seeds),
        evaluations=wanted.evaluations,
        finalists=wanted.finalists,
        rounds=wanted.rounds,
        measured=wanted.measured,
        seed=wanted.seed,
        compared=wanted.compare,
    )


def images(data: Path) -> Dataset:
    """The images to learn from and judge by; those that `data` sets apart for tests are left alone."""
    listed = data / "train.txt"
    if listed.is_file():
        return split(data, len(read_list(listed, None).classes))[0]
    folder = data / "train" if (data / "train").is_dir() else data
    names = class_folders(folder)
    if len(names) < 2:
        raise Error(f"{folder} holds {len(names)} class folders: a search needs two or more.")
    return scan(folder, len(names))


def quantized(model: Path, calibration: Path | None, trust: bool) -> Graph:
    """The int8 forward graph, as tools/convert makes it."""
    return quantized_with_report(load(model, trust, None), Choices(calibration), False, None)[0]


def digest_graph(graph: Graph) -> str:
    """SHA-256 of everything that a forward graph computes with."""
    state = hashlib.sha256(repr((graph.input, graph.nodes, sorted(graph.tensors.items()))).encode())
    for name, layer in sorted(graph.layers.items()):
        state.update(name.encode())
        for array in (layer.weight, layer.bias, layer.weight_scale, layer.dead):
            state.update(b"" if array is None else array.tobytes())
    return state.hexdigest()


def digest_files(paths: Iterable[Path]) -> str:
    """SHA-256 of some files' names, without their folders, and bytes."""
    state = hashlib.sha256()
    for path in paths:
        state.update(f"{path.parent.name}/{path.name}".encode())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def checked(cache: Path | None, identity: dict[str, str], name: str) -> Path:
    """The folder for what is measured; one that was named must be new or of the same model and images."""
    every = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
    folder = cache or WORK / f"{name}-{every}"
    about = folder / "about.json"
    if about.is_file():
        known = json.loads(about.read_text(encoding="utf-8"))
        other = [what for what, digest in identity.items() if known.get(what) != digest]
        if other:
            raise Error(
                f"{folder} holds what was measured with other {' and '.join(other)}: "
                "name another folder with --cache, or leave the option out."
            )
    folder.mkdir(parents=True, exist_ok=True)
    about.write_text(json.dumps(identity, indent=1) + "\n", encoding="utf-8")
    return folder


def progress(name: str, total: int, items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a bar on stderr."""
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console(stderr=True)) as bars:
        bar = bars.add_task(name, total=total)
        for item in items:
            bars.advance(bar)
            yield item
        bars.update(bar, completed=total)
