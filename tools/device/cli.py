"""Command line: one device, one command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from microtrain.base.options import Number
from microtrain.base.plan import Plan, read_plan
from microtrain.base.terminal import Sentences, console, say
from microtrain.samples.source import load, scan

from . import monitor as terminal
from .client import REPLAY_MAX, Device
from .errors import DeviceError
from .link import DEFAULT_BAUD, EmulatorPort, Port, ProgramPort, SerialPort
from .plan import check_same_model
from .session import Evaluation, Log, Settings, evaluate, new_log, train
from .weights import load_npz, pack, save_npz, unpack

DEFAULT_PLAN = Path("firmware/generated/plan.json")
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)


@dataclass(frozen=True)
class Target:
    """Which device to talk to, and the plan of the model it should run."""

    port: str | None
    emulate: Path | None
    native: Path | None
    plan: Path | None
    baud: int

    def open_port(self) -> tuple[Port, str]:
        """The byte port and what to call it. DeviceError where not exactly one is named."""
        if sum(choice is not None for choice in (self.port, self.emulate, self.native)) != 1:
            raise DeviceError(
                "name one device: --port /dev/ttyACM0, or --emulate FILE.elf, or --native PROGRAM."
            )
        if self.emulate is not None:
            return EmulatorPort(self.emulate), str(self.emulate)
        if self.native is not None:
            return ProgramPort(self.native), str(self.native)
        assert self.port is not None
        return SerialPort(self.port), self.port

    def connect(self) -> Device:
        """The device, greeted; with --plan it must run that plan's model."""
        port, where = self.open_port()
        try:
            device = Device(port, where, self.baud)
            if self.plan is not None:
                check_same_model(read_plan(self.plan), device.info.model, device.info.model_id, where)
        except BaseException:
            port.close()
            raise
        return device

    def plan_of(self, device: Device) -> Plan:
        """The plan of the model that the device runs: --plan, or the one beside the firmware."""
        plan = read_plan(self.plan or DEFAULT_PLAN)
        check_same_model(plan, device.info.model, device.info.model_id, device.where)
        return plan


class Bars:
    """Progress bars for a session."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False), console=console(stderr=True),
        )  # fmt: skip
        self._progress.start()
        self._running: list[TaskID] = []

    def begin(self, what: str, total: int) -> None:
        self._running.append(self._progress.add_task(what, total=total, text=""))

    def advance(self, text: str) -> None:
        self._progress.update(self._running[-1], advance=1, text=text)

    def end(self) -> None:
        task = self._running.pop()
        self._progress.update(task, visible=not self._running)  # one within another goes when it is done
        self._progress.stop_task(task)

    def close(self) -> None:
        self._progress.stop()


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", metavar="PORT", help="Serial port (/dev/ttyACM0, COM3) or socket://HOST:PORT.")
@click.option("--emulate", type=FILE, metavar="FILE.elf", help="Run this firmware on the emulated board.")
@click.option("--native", type=FILE, metavar="PROGRAM", help="Run the firmware built for this machine.")
@click.option(
    "--plan", type=FILE, metavar="FILE", help=f"plan.json of the model. [pull, push: {DEFAULT_PLAN}]"
)
@click.option(
    "--baud",
    default=DEFAULT_BAUD,
    show_default=True,
    type=click.IntRange(9600, 3000000),
    help="Baud rate to agree on.",
)
@click.pass_context
def main(
    ctx: click.Context,
    port: str | None,
    emulate: Path | None,
    native: Path | None,
    plan: Path | None,
    baud: int,
) -> None:
    """Talk to a device that runs microtrain: show it images, teach it, fetch what it learned.

    \b
    microtrain device --port /dev/ttyACM0 info
    microtrain device --port /dev/ttyACM0 --baud 921600 train photos/train --eval photos/test
    microtrain device --emulate .pio/build/disco_f746ng/firmware.elf infer digit.png
    """
    ctx.obj = Target(port, emulate, native, plan, baud)


@main.command()
@click.pass_obj
def info(target: Target) -> None:
    """Show board, model, input size and memory."""
    with target.connect() as device:
        about = device.info
        h, w, c = about.shape
        rows = {
            "board": about.board,
            "model": f"{about.model} {about.model_id}",
            "input": f"{h} x {w} x {c}",
            "classes": about.classes,
            "arena": f"{about.arena_bytes} bytes",
            "replay": f"{about.records} records" if about.records else "no buffer",
            "trainables": f"{about.trainable_bytes} bytes, sha256 {device.sha()}",
        }
    for key, value in rows.items():
        say(f"{key:11}{value}")


@main.command()
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.pass_obj
def infer(target: Target, images: tuple[Path, ...]) -> None:
    """Print the class and its probability for each image file."""
    with target.connect() as device:
        for path in images:
            result = device.infer(load(path, device.info.shape))
            say(f"{path}: class {result.label} ({softmax(result.logits)[result.label]:.1%})")


@main.command("train")
@click.argument("folder", type=FOLDER)
@click.option(
    "--epochs", default=1, show_default=True, type=click.IntRange(1), help="Passes over the images."
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0, 2**32 - 1),
    help="Seed of the order and of the rounding.",
)
@click.option("--eval", "test_folder", type=FOLDER, help="Held-out images: accuracy before and after.")
@click.option(
    "--eval-every", default=0, type=click.IntRange(0), metavar="N", help="Also after every N steps."
)
@click.option("--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N images per epoch.")
@click.option(
    "--rate",
    default=1.0,
    show_default=True,
    type=Number(0, 1000),
    help="Factor on the learning rates.",
)
@click.option(
    "--schedule",
    type=click.Choice(["constant", "cosine"]),
    default="constant",
    show_default=True,
    help="Of the learning rates: cosine falls to 0 over the session and takes a higher --rate.",
)
@click.option(
    "--order",
    type=click.Choice(["shuffled", "classes"]),
    default="shuffled",
    show_default=True,
    help="Order of the images: classes come one after the other, each for all of its epochs.",
)
@click.option(
    "--replay",
    type=click.IntRange(0, REPLAY_MAX),
    metavar="K",
    help="Steps on old images after each new one, where there is a replay buffer. [as the device is set]",
)
@click.option(
    "--rehearse",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="At the end, N steps on old images alone.",
)
@click.option(
    "--autosave", type=click.IntRange(0), metavar="N",
    help="Checkpoint to flash after every N steps, 0: never. [as the device is set]",
)  # fmt: skip
@click.option("--curve", type=FILE, help="Save the learning curve, as .svg and .png.")
@click.option("--log", "log_path", type=FILE, help="Save every step as JSON.")
@click.pass_obj
def train_command(
    target: Target,
    /,
    folder: Path,
    test_folder: Path | None,
    autosave: int | None,
    curve: Path | None,
    log_path: Path | None,
    **settings: Any,
) -> None:
    """Train on a folder of images, one folder per class (sorted names are classes 0, 1, 2, ...)."""
    with target.connect() as device:
        training = scan(folder, device.info.classes)
        testing = scan(test_folder, device.info.classes) if test_folder is not None else None
        if testing is not None and testing.classes != training.classes:
            raise DeviceError(f"{folder} and {test_folder} have different class folders: name them alike.")
        if autosave is not None:
            device.autosave(autosave)
        log = new_log(device, training.classes, Settings(**settings))
        bars = Bars()
        try:
            train(device, training, testing, log, bars)
        finally:
            bars.close()
            save(log, curve, log_path)
    say(f"{len(log.steps)} steps, sha256 {log.sha256}")
    if log.diverged:
        say(f"diverged at step {log.diverged}: the device is back at its last checkpoint; use a lower --rate")
    for result in log.evaluations:
        say(f"after {result.step:5} steps: {result.accuracy:.1%} of {result.total} held-out images")


@main.command("eval")
@click.argument("folder", type=FOLDER)
@click.option("--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N images.")
@click.pass_obj
def eval_command(target: Target, folder: Path, limit: int) -> None:
    """Measure the accuracy on a folder of images, one folder per class."""
    with target.connect() as device:
        dataset = scan(folder, device.info.classes)
        bars = Bars()
        try:
            result = evaluate(device, dataset, bars, limit=limit)
        finally:
            bars.close()
    show_evaluation(result, dataset.classes)


@main.command()
@click.option(
    "-o", "--output", default=Path("trained.npz"), show_default=True, type=FILE, help="Named arrays."
)
@click.option("--state-dict", type=FILE, metavar="OUT.pt", help="Also a PyTorch state dict; needs --model.")
@click.option("--model", type=FILE, metavar="MODEL.pt", help="The model that was converted.")
@click.pass_obj
def pull(target: Target, output: Path, state_dict: Path | None, model: Path | None) -> None:
    """Fetch the trained weights."""
    if state_dict is not None and model is None:
        raise DeviceError("--state-dict needs --model MODEL.pt, the model that was converted.")
    with target.connect() as device:
        plan = target.plan_of(device)
        arrays = unpack(plan, device.pull())
    notes: list[str] = []
    if state_dict is not None and model is not None:
        from .model_file import load_state, save_state
        from .state_dict import merge

        merged, notes = merge(plan, arrays, load_state(model))
        save_state(state_dict, merged)
        notes.insert(0, f"{state_dict}: {len(merged)} tensors")
    save_npz(output, plan, arrays)
    say("\n".join([f"{output}: {len(arrays)} tensors, {plan.trainables.bytes} bytes", *notes]))


@main.command()
@click.argument("file", type=FILE)
@click.pass_obj
def push(target: Target, file: Path) -> None:
    """Replace the trained weights by those in an .npz that `pull` wrote."""
    with target.connect() as device:
        plan = target.plan_of(device)
        device.push(pack(plan, load_npz(file, plan)))
        say(f"{file}: {plan.trainables.bytes} bytes, sha256 {device.sha()}")


@main.command()
@click.pass_obj
def stats(target: Target) -> None:
    """Show the device's counters."""
    with target.connect() as device:
        for key, value in device.stats().items():
            say(f"{key:15} {value}")


@main.command()
@click.pass_obj
def reset(target: Target) -> None:
    """Forget everything learned: trainables and counters as after conversion."""
    with target.connect() as device:
        device.reset()
        say(f"reset, sha256 {device.sha()}")


@main.command()
@click.pass_obj
def selftest(target: Target) -> None:
    """Test the device: its kernels, the model in its flash, its memory. Nothing learned changes."""
    with target.connect() as device:
        say("\n".join(device.selftest()))


@main.command("save")
@click.pass_obj
def save_command(target: Target) -> None:
    """Checkpoint to flash: what was learned is there after a restart."""
    with target.connect() as device:
        number = device.save()
        say(f"checkpoint {number}, {device.stats()['saves_left']} saves left")


@main.command()
@click.pass_obj
def forget(target: Target) -> None:
    """Erase all checkpoints; what was learned stays until the device restarts."""
    with target.connect() as device:
        device.forget()
        say("no checkpoint left")


@main.command()
@click.pass_obj
def monitor(target: Target) -> None:
    """Type protocol lines and see the answers (`help` lists them; Ctrl-C ends)."""
    port, _ = target.open_port()
    try:
        terminal.monitor(port, sys.stdin, sys.stdout)
    finally:
        port.close()


def save(log: Log, curve: Path | None, log_path: Path | None) -> None:
    """Write what is asked for; an interrupted session keeps what it has."""
    if log_path is not None:
        log.save(log_path)
    if curve is not None and log.steps:
        from .curve import save_curve

        say("learning curve: " + ", ".join(str(path) for path in save_curve(curve, log)))


def show_evaluation(result: Evaluation, classes: tuple[str, ...]) -> None:
    width = max(len(name) for name in classes)
    for name, (correct, total) in zip(classes, result.by_class, strict=True):
        if total:
            say(f"{name:{width}}  {correct:5} of {total:5}  {correct / total:6.1%}")
    say(f"accuracy {result.accuracy:.1%} of {result.total} images")


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())
