"""The demo: a real network learns from real data, batch size 1, on the ELF that would be flashed."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import click
import numpy as np

from microtrain.base.build import Firmware, build, convert
from microtrain.base.commands import logged, ours
from microtrain.base.errors import Error
from microtrain.base.extras import require
from microtrain.base.files import write_json
from microtrain.base.paths import CHECKOUT, ROOT, cache
from microtrain.base.progress import Bars
from microtrain.device.curve import save_curve
from microtrain.device.link import EmulatorPort
from microtrain.device.session import Settings
from microtrain.device.shown import Shown
from microtrain.samples.source import Dataset, load, scan

from .measure import all_in_sram, step_instructions
from .sessions import Result, session, start_host_sessions

EXAMPLE = ROOT / "examples/digits"
OUTPUT = cache() / "demo"
TITLES = {"scheme": "sparse update", "head": "head only", "bias": "head and biases"}
CLASSES = 10
RATE = 3.0  # peak of the cosine schedule, times the schemes' rates; chosen on a part of the training images
SRAM_IMAGES = 3


def run(settings: Settings) -> None:
    """The whole demo, in the order in which a user would do it."""
    images = export_images()
    click.echo("converting and building the example with three schemes")
    built = make_all()
    elf = built["scheme"].elf
    assert elf is not None
    memory = memory_report(built["scheme"], OUTPUT)
    training, testing = scan(images / "train", CLASSES), scan(images / "test", CLASSES)
    click.echo(f"training {shown(elf)} on the emulated board, and the same on this machine beside it")
    with ProcessPoolExecutor(1) as pool:
        programs = {name: firmware.program for name, firmware in built.items()}
        running = start_host_sessions(pool, programs, training, testing, settings)
        with Bars(transient=True) as bars:
            watcher = Shown(bars, "  emulated STM32F746")
            device = session(EmulatorPort(elf), "the emulated board", training, testing, settings, watcher)
        host = {name: future.result() for name, future in running.items()}
    report = summary(device, host, memory, elf, training)
    save(report, device)
    tell(report, host)


def shown(path: Path) -> Path:
    """As the user of a checkout would write it."""
    return path.relative_to(ROOT) if CHECKOUT else path


def export_images() -> Path:
    """The device's world as folders of PNG files."""
    require("demo", "the demo, whose images are scikit-learn's digits,", "sklearn", "scipy")
    folder = OUTPUT / "images"
    if not (folder / "test").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        logged(ours(str(EXAMPLE / "export_images.py"), folder), OUTPUT / "export.log")
    return folder


def make_all() -> dict[str, Firmware]:
    """Convert the example with each scheme and build it: the sparse one for the board too."""
    with ThreadPoolExecutor(2) as pool:
        schemes = {name: EXAMPLE / f"{name}.yaml" for name in TITLES}
        jobs = {
            n: pool.submit(convert, EXAMPLE / "model.pt", s, CLASSES, OUTPUT / n) for n, s in schemes.items()
        }
        tables = {name: job.result() for name, job in jobs.items()}
    click.echo(tables["scheme"])
    return {name: build(OUTPUT / name, OUTPUT / f"pio-{name}", board=name == "scheme") for name in TITLES}


def memory_report(firmware: Firmware, folder: Path) -> dict[str, int]:
    """Print the report, save it and the picture of the arena; all-in SRAM and flash in bytes."""
    arguments = [
        "--elf",
        str(firmware.elf),
        "--plan",
        str(firmware.plan),
        "--json",
        str(folder / "memory.json"),
    ]
    arguments += ["--picture", str(folder / "arena.svg")]
    click.echo(logged(ours("tools/memory_report", *arguments), folder / "memory.log"))
    document = json.loads((folder / "memory.json").read_text(encoding="utf-8"))
    return {"sram": document["sram"]["total"], "flash": document["flash"]["total"]}


def summary(
    device: Result, host: dict[str, Result], memory: dict[str, int], elf: Path, training: Dataset
) -> dict[str, object]:
    """What build/demo/report.json holds."""
    shape = tuple(device.log.device["shape"])
    samples = training.samples[:: len(training.samples) // SRAM_IMAGES][:SRAM_IMAGES]
    images = np.stack([load(s.path, shape) for s in samples])
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
    write_json(OUTPUT / "report.json", report)
    device.log.save(OUTPUT / "session.json")
    save_curve(OUTPUT / "curve", device.log)


def tell(report: dict[str, object], host: dict[str, Result]) -> None:
    """The result in a few lines. Error where the host and the device disagree."""
    where = shown(OUTPUT)
    lines = [f"accuracy on {report['test_images']} unseen images of the device's world"]
    lines += [f"  {title:<16} {host[n].before:6.1%} -> {host[n].after:6.1%}" for n, title in TITLES.items()]
    lines += [
        f"all-in SRAM {report['sram_reported']:,} B reported, {report['sram_measured']:,} B measured",
        f"flash {report['flash_bytes']:,} B; instructions: inference {report['inference_instructions']:,}, "
        f"training step {report['step_instructions']:,}",
        f"SHA-256 of the trainables after {report['train_steps']} steps",
        f"  board {report['sha256_device']}",
        f"  host  {report['sha256_host']}",
        f"learning curve {where}/curve.svg, arena {where}/arena.svg, numbers {where}/report.json",
    ]
    click.echo("\n".join(lines))
    if report["sha256_host"] != report["sha256_device"]:
        raise Error("the board's weights differ from the host's: this is a bug, please report it")
