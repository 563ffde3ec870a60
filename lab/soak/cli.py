"""Command line of the soak."""

from __future__ import annotations

import sys

import click
import numpy as np

from lab.notes import note, tell
from microtrain.base.commands import logged, ours
from microtrain.base.paths import ROOT
from microtrain.base.progress import bar
from microtrain.base.terminal import Sentences
from microtrain.samples.source import load, scan

from . import fuzz_device, fuzz_host, power, week
from .firmware import CLASSES, EXAMPLE, example, smallest

FOLDER = ROOT / "build/soak"
RESULT = ROOT / "build/soak.json"
CUTS, HOST_FRAMES, DEVICE_FRAMES, STEPS = 2_000, 1_000_000, 20_000, 10_000
SEED = click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Of all that is random."
)


@click.group(
    cls=Sentences, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Try to break a device: power cuts, a fuzzed line, a week of troubles. Without a command, all three.

    Results go to build/soak.json; the exit status is 1 where anything failed.
    """
    if ctx.invoked_subcommand is None:
        good = [cut(CUTS, 1), fuzz(HOST_FRAMES, DEVICE_FRAMES, 1), live(STEPS, 1)]
        sys.exit(0 if all(good) else 1)


@main.command("power")
@click.option("--cuts", type=click.IntRange(1), default=CUTS, show_default=True, help="Power cuts.")
@SEED
def power_command(cuts: int, seed: int) -> None:
    """Cut the power at random instructions of a training session with saves, on the emulated board."""
    sys.exit(0 if cut(cuts, seed) else 1)


@main.command("fuzz")
@click.option(
    "--host", type=click.IntRange(0), default=HOST_FRAMES, show_default=True, help="Frames for libFuzzer."
)
@click.option(
    "--device",
    type=click.IntRange(0),
    default=DEVICE_FRAMES,
    show_default=True,
    help="Frames for the emulated board.",
)
@SEED
def fuzz_command(host: int, device: int, seed: int) -> None:
    """Send damaged frames and lines: to the firmware built for this machine, and to the emulated board."""
    sys.exit(0 if fuzz(host, device, seed) else 1)


@main.command("week")
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="Steps to train.")
@SEED
def week_command(steps: int, seed: int) -> None:
    """Train the emulated board through power cuts, resets and line noise; compare with a calm session."""
    sys.exit(0 if live(steps, seed) else 1)


def cut(cuts: int, seed: int) -> bool:
    """The power cuts. Returns whether nothing was lost."""
    firmware = example(FOLDER)
    assert firmware.elf is not None
    with bar("power cuts", cuts) as advance:
        report = power.cut_power(power.Plan(firmware.elf, CLASSES), cuts, seed, lambda: advance(1))
    note(RESULT, power_cuts=report.cuts, power_cut_losses=len(report.losses))
    click.echo(
        f"power cuts: {report.cuts}, {report.in_saves} of them in saves, {report.contents} contents of "
        f"the flash, {report.erases} erases in the session; {len(report.losses)} losses"
    )
    return tell(report.losses)


def fuzz(host: int, device: int, seed: int) -> bool:
    """Both fuzzers. Returns whether nothing failed."""
    elf = smallest(FOLDER).elf
    assert elf is not None
    program = fuzz_host.build(FOLDER)
    with bar("frames, host", host) as advance:
        on_host = fuzz_host.fuzz(FOLDER, program, host, seed, advance)
    with bar("frames, board", device) as advance:
        on_board = fuzz_device.fuzz(elf, device, seed, advance)
    failures = on_host.failures + on_board.failures
    counts = {"fuzz_frames_host": on_host.frames, "fuzz_frames_device": on_board.frames}
    note(RESULT, **counts, fuzz_failures=len(failures))
    click.echo(
        f"fuzzing: {on_host.frames} frames and {on_host.lines} lines on this machine, {on_board.frames} "
        f"frames and lines on the board; {len(failures)} failures"
    )
    return tell(failures)


def live(steps: int, seed: int) -> bool:
    """The week. Returns whether it ends as it should."""
    firmware = example(FOLDER)
    assert firmware.elf is not None
    with bar("steps of the week", steps) as advance:
        report = week.live(firmware.elf, firmware.program, lesson(), steps, seed, advance)
    note(RESULT, week_steps=report.steps, week_equal=report.equal)
    troubles = report.troubles
    click.echo(
        f"week: {report.steps} steps on the emulated board through {troubles.power_cuts} power cuts, "
        f"{troubles.resets} resets and {troubles.damaged} disturbances of the line, {report.again} steps "
        "learned again; "
        f"{'equal to' if report.equal else 'DIFFERENT FROM'} an undisturbed session on this machine"
    )
    return report.equal


def lesson() -> week.Lesson:
    """The example's training images, shuffled."""
    images = FOLDER / "images"
    if not (images / "test").is_dir():
        logged(ours(str(EXAMPLE / "export_images.py"), images), FOLDER / "export.log")
    samples = scan(images / "train", CLASSES).samples
    order = np.random.default_rng(0).permutation(len(samples))
    pixels = np.stack([load(samples[n].path, (32, 32, 1)) for n in order])
    return week.Lesson(pixels, np.array([samples[n].label for n in order]))
