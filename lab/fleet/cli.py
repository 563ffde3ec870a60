"""Command line: all that build/fleet.json says of fleets, or one part of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from microtrain.base.commands import logged, ours
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.base.terminal import Sentences, say

WORK = ROOT / "build/fleet"
OUTPUT = ROOT / "build/fleet.json"
Report = dict[str, Any]


@click.group(
    cls=Sentences, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Measure fleets, an hour or more: build/fleet.json. MICROTRAIN_DATA names the folder with CIFAR-10.

    What a part finds joins the file, so that parts may be run one by one.
    """
    if ctx.invoked_subcommand is None:
        for part in (demo, leakage, troubles, cifar):
            ctx.invoke(part)


def add(found: Report) -> None:
    """Put into build/fleet.json, beside what is there."""
    before = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.is_file() else {}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(before | found, indent=1) + "\n", encoding="utf-8")
    say(f"{OUTPUT.relative_to(ROOT)}: {', '.join(found)}")


@main.command()
def demo() -> None:
    """The demo: four emulated boards, and the same on the host library."""
    logged(ours("tools/fleet", "demo"), WORK / "demo.log")
    report = json.loads((WORK / "report.json").read_text(encoding="utf-8"))
    taken = ("boards", "rounds", "accuracy_global", "accuracy_local", "sha256_boards", "sha256_host")
    add({key: report[key] for key in taken})


@main.command()
@click.option(
    "--image", type=click.IntRange(0, 399), default=3, show_default=True, help="Of the test images."
)
@click.option("--iterations", type=(int, int), default=(20, 1000), show_default=True, help="dlg, inverting.")
def leakage(image: int, iterations: tuple[int, int]) -> None:
    """What two attacks see in an update: build/fleet/leakage.png, and the SSIM of each defence."""
    import torch

    from microtrain.demo.run import CLASSES, EXAMPLE, export_images
    from microtrain.samples.source import Dataset, scan

    from .leakage import DEFENCES, Victim, picture, rows

    torch.set_num_threads(1)
    images = export_images()
    training, testing = scan(images / "train", CLASSES), scan(images / "test", CLASSES)
    schemes = {"full": "full", "sparse": EXAMPLE / "scheme.yaml", "bias": EXAMPLE / "bias.yaml"}
    victims = {
        name: Victim(
            converted(EXAMPLE / "model.pt", schemes[name], WORK / f"leakage-{name}"),
            WORK / "library",
            training,
        )
        for name in sorted({defence.scheme for defence in DEFENCES})
    }
    one = Dataset(testing.classes, (testing.samples[image],))
    found = rows(victims, one, iterations, say)
    picture(found, victims["full"].stored(one) / 127.5, WORK / "leakage.png")
    add(
        {
            "ssim": {row["defence"]: row["ssim"] for row in found},
            "psnr": {r["defence"]: r["psnr"] for r in found},
        }
    )


def converted(model: Path, scheme: object, folder: Path) -> Path:
    """A folder that convert writes, for this machine."""
    options = ("--scheme", scheme, "--classes", 10, "--imprint", "off", "--board", "native")
    logged(ours("tools/convert", model, *options, "-o", folder), folder.with_suffix(".log"))
    return folder


@main.command()
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="How many.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the troubles.")
def troubles(rounds: int, seed: int) -> None:
    """Rounds with power cuts, resets, noise, boards that are away and updates that get lost."""
    from microtrain.base.plan import read_plan
    from microtrain.fleet.demo import prepare
    from microtrain.samples.source import Dataset

    from .troubles import survive

    scene = prepare(2)
    parts = [Dataset(part.classes, part.samples[:10]) for part in scene.parts]
    plan = read_plan(scene.host.plan.path)
    found = survive(plan, scene.elf, WORK / "library", parts, rounds, seed, every(10))
    cuts = {"power_cuts": found.power_cuts, "resets": found.resets, "damaged": found.damaged}
    add(
        {"dropouts_survived": found.dropouts, "stuck_rounds": found.stuck, "begun_again": found.again, **cuts}
    )


def every(count: int) -> Callable[[int], None]:
    return lambda number: say(f"round {number}") if number % count == 0 else None


@main.command()
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@click.option("--boards", type=click.IntRange(2), default=10, show_default=True, help="How many.")
@click.option(
    "--alpha",
    type=click.FloatRange(0.01),
    default=1.0,
    show_default=True,
    help="Of the Dirichlet distribution that divides the images: the smaller, the less alike boards are.",
)
def cifar(rounds: int, boards: int, alpha: float) -> None:
    """CIFAR-10 divided over boards, against other ways to learn it."""
    from .cifar import Case, study

    data = os.environ.get("MICROTRAIN_DATA")
    if not data or not (Path(data) / "sets/cifar10.tar").is_file():
        raise Error("MICROTRAIN_DATA names no folder with sets/cifar10.tar.")
    if shutil.which("gcc") is None:
        raise Error("gcc is not on PATH: run `make setup`.")
    found = study(Case(boards=boards, alpha=alpha, rounds=rounds), Path(data), say)
    add(
        {
            "cifar10": found,
            "accuracy_float": found["float"][-1],
            "bytes_per_round": {
                "full": round(max(found["full"]["bytes"])), "dgc": round(max(found["dgc"]["bytes"])),
                **found["sizes"],
            },
        }
    )  # fmt: skip
