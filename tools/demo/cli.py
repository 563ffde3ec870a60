"""The demo: a real network learns from real data, batch size 1, on the ELF that would be flashed."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from device.client import Device
from device.curve import save_curve
from device.errors import DeviceError
from device.images import Dataset, load_image, scan
from device.link import EmulatorPort, Port, ProgramPort
from device.session import Log, Settings, new_log, train
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from .build import ROOT, Firmware, StepError, build, command, convert
from .measure import all_in_sram, step_instructions

EXAMPLE = ROOT / "examples/digits"
OUTPUT = ROOT / "build/demo"
SCHEMES = ("scheme", "head", "bias")
TITLES = {"scheme": "sparse update", "head": "head only", "bias": "head and biases"}
CLASSES = 10
EPOCHS = 2
EVAL_EVERY = 400
SRAM_IMAGES = 3

console = Console()


@dataclass(frozen=True)
class Result:
    """Accuracy before and after a session, in 0..1, and what it left behind."""

    before: float
    after: float
    log: Log


class Bar:
    """One progress bar for everything a session does."""

    def __init__(self, title: str, progress: Progress) -> None:
        self.title, self.progress = title, progress
        self.task = progress.add_task(title, total=None, text="")

    def begin(self, what: str, total: int) -> None:
        self.progress.reset(self.task, total=total, description=f"{self.title}: {what}")

    def advance(self, text: str) -> None:
        self.progress.advance(self.task)
        self.progress.update(self.task, text=text)

    def end(self) -> None:
        pass


@click.command()
@click.option(
    "--epochs", type=click.IntRange(1), default=EPOCHS, show_default=True, help="Passes over the images."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
def main(epochs: int, seed: int) -> None:
    """Convert, build, measure and train the digits example; results go to build/demo/."""
    try:
        run(Settings(epochs=epochs, seed=seed, eval_every=EVAL_EVERY))
    except (StepError, DeviceError) as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)


def run(settings: Settings) -> None:
    """The whole demo, in the order in which a user would do it."""
    images = export_images()
    console.print("converting and building: the sparse scheme, head only, head and biases")
    built = {name: make(name, board=name == "scheme") for name in SCHEMES}
    memory = memory_report(built["scheme"])
    training, testing = scan(images / "train", CLASSES), scan(images / "test", CLASSES)
    elf = built["scheme"].elf
    assert elf is not None
    console.print(f"training on the emulated board: {elf.relative_to(ROOT)}")
    device = session("emulated STM32F746", EmulatorPort(elf), training, testing, settings)
    console.print("the same steps on this machine, and the two simpler schemes beside them")
    host = {
        n: session(f"host, {TITLES[n]}", ProgramPort(built[n].program), training, testing, settings)
        for n in SCHEMES
    }
    report = summary(device, host, memory, elf, training)
    save(report, device)
    tell(report, device, host)


def export_images() -> Path:
    """The device's world as folders of PNG files."""
    folder = OUTPUT / "images"
    if not (folder / "test").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        command([sys.executable, str(EXAMPLE / "export_images.py"), str(folder)], OUTPUT / "export.log")
    return folder


def make(name: str, board: bool) -> Firmware:
    """Convert the example with a scheme and build it."""
    table = convert(EXAMPLE / "model.pt", EXAMPLE / f"{name}.yaml", CLASSES, OUTPUT / name)
    if board:
        console.print(table, highlight=False, markup=False, soft_wrap=True)
    return build(OUTPUT / name, OUTPUT / f"pio-{name}", board)


def memory_report(firmware: Firmware) -> dict[str, int]:
    """Print the report, save it and the picture of the arena; all-in SRAM and flash in bytes."""
    arguments = [
        "--elf",
        str(firmware.elf),
        "--plan",
        str(firmware.plan),
        "--json",
        str(OUTPUT / "memory.json"),
    ]
    arguments += ["--picture", str(OUTPUT / "arena.svg")]
    text = command([sys.executable, "tools/memory_report", *arguments], OUTPUT / "memory.log")
    console.print(text, highlight=False, markup=False, soft_wrap=True)
    document = json.loads((OUTPUT / "memory.json").read_text(encoding="utf-8"))
    return {"sram": document["sram"]["total"], "flash": document["flash"]["total"]}


def session(title: str, port: Port, training: Dataset, testing: Dataset, settings: Settings) -> Result:
    """One whole session on one device."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress, Device(port, title) as device:
        log = new_log(device, training.classes, settings)
        train(device, training, testing, log, Bar(title, progress))
    before, after = log.evaluations[0].accuracy, log.evaluations[-1].accuracy
    console.print(f"  {title}: {before:.1%} -> {after:.1%}, trainables {log.sha256[:16]}", highlight=False)
    return Result(before, after, log)


def summary(
    device: Result, host: dict[str, Result], memory: dict[str, int], elf: Path, training: Dataset
) -> dict[str, object]:
    """What build/demo/report.json holds."""
    shape = tuple(device.log.device["shape"])
    samples = training.samples[:: len(training.samples) // SRAM_IMAGES][:SRAM_IMAGES]
    images = np.stack([load_image(s.path, shape) for s in samples])
    labels = np.array([s.label for s in samples])
    instructions = step_instructions(elf, images[0], int(labels[0]))
    return {
        "accuracy_before": device.before,
        "accuracy_after": device.after,
        "accuracy_head_only": host["head"].after,
        "accuracy_bias_only": host["bias"].after,
        "test_images": device.log.evaluations[0].total,
        "train_steps": len(device.log.steps),
        "sha256_host": host["scheme"].log.sha256,
        "sha256_device": device.log.sha256,
        "sram_reported": memory["sram"],
        "sram_measured": all_in_sram(elf, images, labels),
        "flash_bytes": memory["flash"],
        "inference_instructions": instructions["inference"],
        "step_instructions": instructions["step"],
    }


def save(report: dict[str, object], device: Result) -> None:
    """report.json, the log and the learning curve."""
    (OUTPUT / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    device.log.save(OUTPUT / "session.json")
    save_curve(OUTPUT / "curve", device.log)


def tell(report: dict[str, object], device: Result, host: dict[str, Result]) -> None:
    """The result in a few lines; exit 1 where the host and the device disagree."""
    console.print(
        f"\naccuracy on {report['test_images']} unseen images of the device's world", highlight=False
    )
    for name in SCHEMES:
        console.print(
            f"  {TITLES[name]:<16} {host[name].before:6.1%} -> {host[name].after:6.1%}", highlight=False
        )
    console.print(
        f"SRAM {report['sram_reported']:,} B reported, {report['sram_measured']:,} B measured; flash "
        f"{report['flash_bytes']:,} B; a training step {report['step_instructions']:,} instructions",
        highlight=False,
    )
    same = report["sha256_host"] == report["sha256_device"]
    console.print(f"trainables after {report['train_steps']} steps, SHA-256", highlight=False)
    console.print(f"  board {report['sha256_device']}\n  host  {report['sha256_host']}", highlight=False)
    where = OUTPUT.relative_to(ROOT)
    console.print(
        f"{where}/curve.svg  {where}/arena.svg  {where}/report.json  {where}/session.json", highlight=False
    )
    if not same:
        raise StepError("the board's weights differ from the host's: this is a bug, please report it")
