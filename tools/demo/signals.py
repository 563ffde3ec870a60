"""The demo of signals: a network meets a person, a voice or a fan that it does not know, on the board.

The signals are made up (made_up.py, voices.py), and the demo says so.
"""

from __future__ import annotations

import shutil
import wave
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from microtrain.base.build import Firmware, build
from microtrain.base.commands import logged, ours
from microtrain.base.errors import Error
from microtrain.base.files import write_json
from microtrain.base.paths import ROOT, cache
from microtrain.base.progress import Bars
from microtrain.device.client import Device
from microtrain.device.learning import RATE_EVERY
from microtrain.device.link import EmulatorPort, Port, ProgramPort
from microtrain.device.session import COSINE, Settings, Silent, Watcher
from microtrain.device.shown import Shown

from . import made_up, voices
from .measure import step_instructions
from .run import memory_report, shown

MODELS = ROOT / "examples/signals"
MEAN, STD = 0.50196, 0.12549  # of a byte / 255: the networks see (int8) / 32
ROWS_MEAN, ROWS_STD = 0.35, 0.25  # the same of a front end's rows
NORMAL, SCORE = 0, 1  # class of an anomaly task, and logit
WARNING = "made-up signals by a seeded simulator: nobody measured them, and no number here is of a sensor"


@dataclass(frozen=True)
class Samples:
    """Bytes of samples, uint8 [samples][h][w][c], or sounds, int16 [samples][n], and their classes; of an
    anomaly task 1: odd."""

    values: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Task:
    """One of the demos.

    options  of convert
    typical  what the network was pretrained on, to calibrate with
    seen     how the network takes a byte / 255: mean and deviation
    """

    name: str
    story: str
    options: tuple[str, ...]
    typical: np.ndarray
    training: Samples
    testing: Samples
    rate: float
    metric: str
    seen: tuple[float, float] = field(default=(MEAN, STD))


@dataclass(frozen=True)
class Result:
    before: float
    after: float
    sha256: str


def as_bytes(stored: list[np.ndarray]) -> np.ndarray:
    """uint8 [samples][h][w][c], int8 plus 128: a series by moments, a spectrum in one row."""
    values = (np.stack(stored).astype(np.int16) + 128).astype(np.uint8)
    return values[:, :, None, :] if values.ndim == 3 else values[:, None, :, None]


def motion(seed: int) -> Task:
    rng, wearer = np.random.default_rng((1, seed)), made_up.somebody_else(np.random.default_rng(0))
    kinds = made_up.ACTIVITIES

    def worn(count: int) -> Samples:
        labels = rng.permutation(np.arange(count) % len(kinds))
        return Samples(as_bytes([made_up.motion(rng, wearer, kinds[k]) for k in labels]), labels)

    typical = [made_up.motion(rng, made_up.anybody(rng), kinds[k % len(kinds)]) for k in range(60)]
    story = f"an accelerometer tells {', '.join(kinds)} apart; somebody else wears it, on its side"
    rows = ("--head-rows", f"0-{len(kinds) - 1}")
    return Task("motion", story, rows, as_bytes(typical), worn(100), worn(200), 1.0, "accuracy")


def sound(seed: int) -> Task:
    rng = np.random.default_rng((3, seed))

    def said(count: int) -> Samples:
        labels = rng.permutation(np.arange(count) % len(voices.WORDS))
        return Samples(np.stack([voices.word(rng, voices.CHILD, voices.WORDS[k]) for k in labels]), labels)

    typical = np.stack(
        [voices.word(rng, voices.anybody(rng), voices.WORDS[k % len(voices.WORDS)]) for k in range(60)]
    )
    story = f"a microphone tells {', '.join(voices.WORDS)} apart, which grown-ups said; now a child says them"
    options = ("--head-rows", f"0-{len(voices.WORDS) - 1}", "--frontend", voices.FRONT)
    seen = (ROWS_MEAN, ROWS_STD)
    return Task("sound", story, options, typical, said(120), said(180), 2.0, "accuracy", seen)


def anomaly(seed: int) -> Task:
    rng = np.random.default_rng((2, seed))
    other = made_up.OTHER
    odd = [made_up.spectrum(rng, other, made_up.FAULTS[k % len(made_up.FAULTS)]) for k in range(90)]
    normal = [made_up.spectrum(rng, other) for _ in range(90)]
    learned = as_bytes([made_up.spectrum(rng, other) for _ in range(300)])
    typical = as_bytes([made_up.spectrum(rng, made_up.KNOWN) for _ in range(60)])
    faults = ", ".join(made_up.FAULTS)
    story = f"an autoencoder hears what is normal of a fan; it meets another one, and {faults}"
    testing = Samples(as_bytes([*normal, *odd]), np.repeat([0, 1], 90))
    training = Samples(learned, np.zeros(len(learned), int))
    return Task("anomaly", story, ("--task", "anomaly"), typical, training, testing, 1.0, "AUC")


TASKS = {"sound": sound, "motion": motion, "anomaly": anomaly}


def auc(scores: np.ndarray, odd: np.ndarray) -> float:
    """Share of the pairs of a normal and an odd sample of which the odd one scores higher."""
    pairs = scores[odd == 1][:, None] - scores[odd == 0][None]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


def tested(task: Task, device: Device, watcher: Watcher) -> float:
    """The metric on the samples that are not learned."""
    logits = []
    watcher.begin("evaluating", len(task.testing.labels))
    for sample in task.testing.values:
        logits.append(device.infer(sample).logits)
        watcher.advance("")
    watcher.end()
    scores = np.array(logits)
    if task.name == "anomaly":
        return auc(scores[:, SCORE], task.testing.labels)
    return float((scores.argmax(axis=1) == task.testing.labels).mean())


def session(task: Task, port: Port, where: str, settings: Settings, watcher: Watcher) -> Result:
    """Test, learn from each sample once an epoch, test again."""
    with Device(port, where) as device:
        device.seed(settings.seed)
        before = tested(task, device, watcher)
        steps = settings.epochs * len(task.training.labels)
        watcher.begin("training", steps)
        for step in range(steps):
            if step % RATE_EVERY == 0:
                device.rate(settings.rate_at(step, steps))
            k = step % len(task.training.labels)
            result = device.train(task.training.values[k], int(task.training.labels[k]))
            watcher.advance(f"loss {result.loss:.3f}")
        watcher.end()
        return Result(before, tested(task, device, watcher), device.sha())


def host_session(task: str, program: Path, settings: Settings) -> Result:
    """The same on this machine, in a process of its own."""
    return session(TASKS[task](settings.seed), ProgramPort(program), str(program), settings, Silent())


def conversion(task: Task, folder: Path) -> tuple[str | Path, ...]:
    """What convert is told, with typical samples in a folder of their own."""
    typical = folder / "typical"
    shutil.rmtree(typical, ignore_errors=True)
    typical.mkdir(parents=True)
    for number, sample in enumerate(task.typical):
        write_sample(typical / f"{number:02d}", sample)
    mean, std = map(str, task.seen)
    seen = ("--calibration", typical, "--mean", mean, "--std", std)
    return (MODELS / f"{task.name}.pt2", *task.options, *seen, "-o", folder / "generated")


def write_sample(path: Path, sample: np.ndarray) -> None:
    """As files of samples are: sounds .wav, others .npy."""
    if sample.dtype != np.int16:
        np.save(path.with_suffix(".npy"), sample)
        return
    with wave.open(str(path.with_suffix(".wav")), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(voices.RATE)
        file.writeframes(sample.astype("<i2").tobytes())


def built(task: Task, folder: Path) -> Firmware:
    """Convert and build for this machine and the board."""
    click.echo(logged(ours("tools/convert", *conversion(task, folder)), folder / "convert.log"))
    return build(folder / "generated", folder / "pio", board=True)


def run(name: str, settings: Settings) -> None:
    """The whole demo, in the order in which a user would do it."""
    task, folder = TASKS[name](settings.seed), cache() / f"demo-{name}"
    settings = Settings(settings.epochs, settings.seed, rate=task.rate, schedule=COSINE)
    click.echo(f"{task.story}\n{WARNING}\nconverting and building {name}")
    firmware = built(task, folder)
    memory, elf = memory_report(firmware, folder), firmware.elf
    assert elf is not None
    click.echo(f"training {shown(elf)} on the emulated board, and the same on this machine beside it")
    with ProcessPoolExecutor(1) as pool:
        running = pool.submit(host_session, name, firmware.program, settings)
        with Bars(transient=True) as bars:
            watcher = Shown(bars, "  emulated STM32F746")
            device = session(task, EmulatorPort(elf), "the emulated board", settings, watcher)
        host = running.result()
    report = summary(task, device, host, memory, elf)
    write_json(folder / "report.json", report)
    tell(task, report, folder)


def summary(task: Task, device: Result, host: Result, memory: dict[str, int], elf: Path) -> dict[str, Any]:
    """What report.json holds."""
    counts = step_instructions(elf, task.training.values[0], int(task.training.labels[0]))
    return {
        "task": task.name,
        "signals": WARNING,
        "metric": task.metric,
        "before": device.before,
        "after": device.after,
        "test_samples": len(task.testing.labels),
        "train_samples": len(task.training.labels),
        "sha256_host": host.sha256,
        "sha256_device": device.sha256,
        "sram_reported": memory["sram"],
        "flash_bytes": memory["flash"],
        "inference_instructions": counts["inference"],
        "step_instructions": counts["step"],
    }


def tell(task: Task, report: dict[str, Any], folder: Path) -> None:
    """The result in a few lines. Error where the host and the device disagree."""
    before, after = (
        f"{report[when]:.1%}" if task.metric == "accuracy" else f"{report[when]:.3f}"
        for when in ("before", "after")
    )
    click.echo(
        f"{task.metric} on {report['test_samples']} samples that were not learned: "
        f"{before} -> {after}, after {report['train_samples']} samples\n"
        f"all-in SRAM {report['sram_reported']:,} B, flash {report['flash_bytes']:,} B; instructions: "
        f"inference {report['inference_instructions']:,}, training step {report['step_instructions']:,}\n"
        f"SHA-256 of the trainables\n  board {report['sha256_device']}\n  host  {report['sha256_host']}\n"
        f"numbers {shown(folder)}/report.json; {WARNING}"
    )
    if report["sha256_host"] != report["sha256_device"]:
        raise Error("the board's weights differ from the host's: this is a bug, please report it")
