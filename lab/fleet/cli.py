"""Command line: all that build/fleet.json says of fleets, or one part of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import click

from microtrain.base.commands import logged, ours
from microtrain.base.errors import Error
from microtrain.base.extras import require
from microtrain.base.options import Number, collected
from microtrain.base.paths import ROOT
from microtrain.base.terminal import Sentences, say

from .cases import ARMS, Arms, Case, Speakers
from .records import OUTPUT, add, checked, keeper, read, row

WORK = ROOT / "build/fleet"
SEEDS = (0, 1, 2)  # of speakers
DIVISIONS = ((10, 0.3), (10, 0.1), (100, 1.0), (100, 0.1))  # of CIFAR-10, beside the first: boards, alpha
WITHOUT_POOLED = tuple(name for name in ARMS if name != "pooled")  # it is about the same for all of them
CROWDS = (10, 100)  # simulated boards
COMPRESSED = 0.04  # of the example's bytes


@click.group(
    cls=Sentences, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Measure fleets, hours: build/fleet.json. MICROTRAIN_DATA names the folder with CIFAR-10 and voices.

    What a part finds joins the file, so that parts may be run one by one.
    """
    if ctx.invoked_subcommand is not None:
        return
    for part in (demo, leakage, defended, troubles, cifar):
        ctx.invoke(part)
    checked(read())
    ctx.invoke(troubles, compress=COMPRESSED)
    for seed in SEEDS:
        ctx.invoke(speakers, seed=seed)
    for boards, alpha in DIVISIONS:
        ctx.invoke(cifar, boards=boards, alpha=alpha, only=WITHOUT_POOLED)
    for crowd in CROWDS if find_spec("ray") else ():
        logged(ours("lab/fleet", "simulation", "--boards", crowd), WORK / f"simulation-{crowd}.log")
    ctx.invoke(draw)


@main.command()
def demo() -> None:
    """The demo: four emulated boards, the same on the host library, and in float."""
    from .digits import scene
    from .study import in_float

    logged(ours("tools/fleet", "demo"), WORK / "demo.log")
    report = json.loads((WORK / "report.json").read_text(encoding="utf-8"))
    taken = ("boards", "rounds", "accuracy_global", "accuracy_local", "sha256_boards", "sha256_host")
    found = in_float(scene(report["boards"], report["rounds"]), say)
    add({key: report[key] for key in taken} | {"accuracy_float": found[-1]})


@main.command()
@click.option(
    "--image", type=click.IntRange(0, 399), default=3, show_default=True, help="Of the test images."
)
@click.option("--iterations", type=(int, int), default=(20, 1000), show_default=True, help="dlg, inverting.")
def leakage(image: int, iterations: tuple[int, int]) -> None:
    """What two attacks see in an update: build/fleet/leakage.png, and the SSIM of each defence."""
    import torch

    from microtrain.demo.run import CLASSES, export_images
    from microtrain.samples.source import Dataset, scan

    from .leakage import Victim, picture, rows

    torch.set_num_threads(1)
    images = export_images()
    training, testing = scan(images / "train", CLASSES), scan(images / "test", CLASSES)
    folders = attacked()
    victims = {name: Victim(folder, WORK / "library", training) for name, folder in folders.items()}
    one = Dataset(testing.classes, (testing.samples[image],))
    found = rows(victims, one, iterations, say)
    picture(found, victims["full"].stored(one) / 127.5, WORK / "leakage.png")
    add({key: {row["defence"]: row[key] for row in found} for key in ("ssim", "psnr")})


@main.command()
def defended() -> None:
    """What a fleet learns whose boards send what the attacks see: accuracy of each defence."""
    from microtrain.demo.run import export_images

    from .digits import defended

    found = defended(attacked(), export_images(), say)
    add({"defended": found})


def attacked() -> dict[str, Path]:
    """The example by scheme, as it is attacked."""
    from microtrain.demo.run import EXAMPLE

    schemes = {"full": "full", "sparse": EXAMPLE / "scheme.yaml", "bias": EXAMPLE / "bias.yaml"}
    return {
        name: converted(EXAMPLE / "model.pt", scheme, WORK / f"leakage-{name}")
        for name, scheme in schemes.items()
    }


def converted(model: Path, scheme: object, folder: Path) -> Path:
    """A folder that convert writes, for this machine."""
    options = ("--scheme", scheme, "--classes", 10, "--imprint", "off", "--board", "native")
    logged(ours("tools/convert", model, *options, "-o", folder), folder.with_suffix(".log"))
    return folder


@main.command()
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="How many.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the troubles.")
@click.option(
    "--compress", type=Number(0, 1), default=0.0, metavar="PART",
    help="The boards make updates of up to this part of the bytes themselves.",
)  # fmt: skip
def troubles(rounds: int, seed: int, compress: float) -> None:
    """Rounds with power cuts, resets, noise, boards that are away and updates that get lost."""
    from microtrain.base.plan import read_plan
    from microtrain.fleet.demo import prepare
    from microtrain.fleet.dgc import MILLION
    from microtrain.samples.source import Dataset

    from .troubles import survive

    scene = prepare(2, compress)
    parts = [Dataset(part.classes, part.samples[:10]) for part in scene.parts]
    plan = read_plan(scene.host.plan.path)
    share = round(compress * MILLION)
    found = survive(plan, scene.elf, WORK / "library", parts, rounds, seed, every(10), share)
    keeper("troubles", {"rounds": rounds, "seed": seed, "compress": compress})(asdict(found))
    if not compress:
        add({"dropouts_survived": found.dropouts, "stuck_rounds": found.stuck})
    say(", ".join(f"{name} {value}" for name, value in asdict(found).items()))


def every(count: int) -> Callable[[int], None]:
    return lambda number: say(f"round {number}") if number % count == 0 else None


def given(archive: str) -> Path:
    """The folder of data. Error where it has no such archive, or nothing compiles C here."""
    data = os.environ.get("MICROTRAIN_DATA")
    if not data or not (Path(data) / archive).is_file():
        raise Error(f"MICROTRAIN_DATA names no folder with {archive}.")
    if shutil.which("gcc") is None:
        raise Error("gcc is not on PATH: run `make setup`.")
    return Path(data)


@main.command()
@collected(Case, into="case")
@collected(Arms, into="arms")
def cifar(case: Case, arms: Arms) -> None:
    """CIFAR-10 divided over boards, against other ways to learn it. The table has a row a case."""
    data = given("sets/cifar10.tar")
    from .cifar import scene
    from .study import study

    study(scene(case, data), arms.names, keeper("cifar10", case.as_json()), say)
    found = row(read(), "cifar10", Case().as_json())
    if {"full", "dgc", "sizes"} <= set(found):
        most = {name: round(max(found[name]["bytes"])) for name in ("full", "dgc")}
        add({"bytes_per_round": most | found["sizes"]})


@main.command()
def draw() -> None:
    """CIFAR-10 as a picture, accuracy by round and by bytes: build/fleet/cifar.svg."""
    from .picture import draw

    rows = read().get("cifar10", [])
    if not rows:
        raise Error(f"{OUTPUT.name} has no rows of CIFAR-10: run `python lab/fleet cifar` first.")
    draw(rows, WORK / "cifar.svg")


@main.command()
@collected(Speakers, into="case")
@collected(Arms, into="arms")
def speakers(case: Speakers, arms: Arms) -> None:
    """Spoken digits, a board for each of four speakers, from a network that has heard none of them."""
    data = given("sets/fsdd4.tar")
    from .speakers import scene
    from .study import study

    study(scene(case, data, WORK / "speakers"), arms.names, keeper("speakers", case.as_json()), say)


@main.command()
@click.option("--boards", type=click.IntRange(2, 10_000), default=100, show_default=True, help="How many.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How many.")
def simulation(boards: int, rounds: int) -> None:
    """Many boards in Flower's simulation, which runs on Ray: seconds of a round, and memory."""
    require("simulation", "python lab/fleet simulation", "ray")
    from microtrain.demo.run import EXAMPLE, export_images

    from .simulation import Crowd, measured

    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    work = WORK / f"simulation-{boards}"
    shutil.rmtree(work / "state", ignore_errors=True)
    folder = converted(EXAMPLE / "model.pt", EXAMPLE / "scheme.yaml", WORK / "simulated")
    result = measured(Crowd(folder, export_images() / "train", work, boards), rounds)
    keeper("simulation", {"boards": boards})(result)
    say(", ".join(f"{name} {value}" for name, value in result.items()))
