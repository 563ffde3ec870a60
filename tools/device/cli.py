"""Command line: one device, one command."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import click

from microtrain.base.options import Number, collected
from microtrain.base.progress import Bars
from microtrain.base.terminal import Sentences, say
from microtrain.samples.kind import UNKNOWN
from microtrain.samples.source import load, scan

from . import monitor as terminal
from . import teaching
from .answers import Info
from .client import Device
from .errors import DeviceError
from .labels import imprint_first, named, save, scanned, show_evaluation, softmax
from .learning import evaluate, imprint, train
from .options import Training, imprints, in_words, warn_of_variants
from .session import Settings, ended, new_log, pixels, setback, varied
from .session_page import save_page
from .shown import Shown, moments
from .target import DEFAULT_PLAN, Target
from .votes import NeedOf, Votes
from .watch import watch
from .weights import load_npz, pack, save_npz, unpack

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(path_type=Path)


@click.group(cls=Sentences, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", metavar="PORT", help="Serial port (/dev/ttyACM0, COM3) or socket://HOST:PORT.")
@click.option(
    "--emulate",
    type=FILE,
    metavar="FILE.elf",
    help="Run this firmware on an emulated board, which stays on from command to command.",
)
@click.option("--fresh", is_flag=True, help="With --emulate: a new board, whatever the last one has learned.")
@click.option("--native", type=FILE, metavar="PROGRAM", help="Run the firmware built for this machine.")
@click.option(
    "--plan", type=FILE, metavar="FILE", help=f"plan.json of the model. [pull, push: {DEFAULT_PLAN}]"
)
@click.option(
    "--baud",
    type=click.IntRange(9600, 3000000),
    help="Baud rate to keep to. [the fastest that a short test finds, to train, eval, pull and push]",
)
@click.pass_context
def main(
    ctx: click.Context,
    port: str | None,
    emulate: Path | None,
    fresh: bool,
    native: Path | None,
    plan: Path | None,
    baud: int | None,
) -> None:
    """Talk to a device that runs microtrain: show it samples, teach it, fetch what it learned.

    \b
    microtrain device --port /dev/ttyACM0 info
    microtrain device --port /dev/ttyACM0 train samples/train --eval samples/test
    microtrain device --emulate .pio/build/disco_f746ng/firmware.elf infer digit.png
    """
    ctx.obj = Target(port, emulate, native, plan, baud, fresh)


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
            "outputs" if about.task else "classes": f"{about.known} and {UNKNOWN}"
            if about.known
            else about.classes,
            **({"task": about.task} if about.task else {}),
            "arena": f"{about.arena_bytes} bytes",
            "replay": f"{about.records} records" if about.records else "no buffer",
            "imprint": looked(about),
            "trainables": f"{about.trainable_bytes} bytes, sha256 {device.sha()}",
        }
    for key, value in rows.items():
        say(f"{key:11}{value}")


def looked(about: Info) -> str:
    """What one look at a sample tells the device."""
    if about.known:
        return "means of embeddings"
    return f"groups of {about.imprint} features" if about.imprint else "no statistics"


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--votes", type=NeedOf(), help="Of files that are windows in turn: the class of 3 of the last 5, say."
)
@click.pass_obj
def infer(target: Target, files: tuple[Path, ...], votes: Votes | None) -> None:
    """Print the class and its probability for each of FILES.

    Where the model learns from targets: its outputs, or the probability of each label.
    """
    with target.connect() as device:
        if device.info.task:
            for line in teaching.inferred(device, files):
                say(line)
            return
        for path in files:
            result = device.infer(load(path, device.info.shape))
            winner = votes.count(result.label) if votes else None
            known = device.info.known > 0
            wins = (
                "" if votes is None else "; none wins" if winner is None else f"; {named(winner, known)} wins"
            )
            share = softmax(result.logits)[result.label]
            say(f"{path}: {named(result.label, known)} ({share:.1%}){wins}")


@main.command("train")
@click.argument("folder", type=FOLDER)
@click.option("--eval", "test_folder", type=FOLDER, help="Held-out samples: accuracy before and after.")
@collected(Training, into="wanted")
@click.option(
    "--autosave", type=click.IntRange(0), metavar="N",
    help="Checkpoint to flash after every N steps, 0: never. [as the device is set]",
)  # fmt: skip
@click.option("--curve", type=FILE, help="Save the learning curve, as .svg and .png.")
@click.option("--page", type=FILE, help="Save a page: curve, confusion matrix, the samples that went worst.")
@click.option("--log", "log_path", type=FILE, help="Save every step as JSON.")
@click.pass_obj
def train_command(
    target: Target,
    /,
    folder: Path,
    test_folder: Path | None,
    autosave: int | None,
    curve: Path | None,
    page: Path | None,
    log_path: Path | None,
    wanted: Training,
) -> None:
    """Train on the samples in FOLDER.

    FOLDER holds a folder for each class; their sorted names are classes 0, 1, 2, ... Where the model was
    converted with --task regression or multilabel it holds targets.csv: file,NAME,... and a line a sample.
    """
    with target.connect() as device:
        if device.info.task:
            files = teaching.Files(curve, page, log_path)
            teach(target, device, (folder, test_folder), wanted, autosave, files)
            return
        training, testing = scanned(device, folder, test_folder)
        rates = target.rates_of(device)
        asked = wanted.factor(rates)
        if autosave is not None:
            device.autosave(autosave)
        target.hurry(device)
        imprint = imprint_first(device, wanted.imprint)
        about = device.info
        found = wanted.situation(about.shape, training, about.records, imprint, about.known > 0)
        factor = wanted.factor_in(found) if asked is None else asked
        wanted = wanted.resolved(found)
        say(in_words(wanted, (factor,), rates, imprint, training.files))
        warn_of_variants(wanted, training)
        every = wanted.eval_every
        settings = wanted.settings(
            factor, wanted.seed, every, wanted.replay, imprint, backs_off=asked is None
        )
        log = new_log(device, training, settings)
        try:
            with Bars() as bars:
                train(device, training, testing, log, Shown(bars), varied(device, wanted.augmentation))
        finally:
            save(log, curve, log_path)
            if page is not None:
                save_page(page, log, device.info.shape, [training, *([testing] if testing else [])])
    recalled = f" and {settings.rehearse} on records" if settings.rehearse and not log.diverged else ""
    say(f"{len(log.steps)} steps{recalled}{ended(log)}, sha256 {log.sha256}")
    if said := setback(log, "the device is back at its last checkpoint"):
        say(said)
    for result, when in zip(log.evaluations, moments(log), strict=True):
        say(f"{when}: {result.accuracy:.1%} of {result.total} held-out {log.noun}s")


def teach(
    target: Target,
    device: Device,
    folders: tuple[Path, Path | None],
    wanted: Training,
    autosave: int | None,
    files: teaching.Files,
) -> None:
    """A session that learns from targets."""
    sets, rates = teaching.tables(device, *folders), target.rates_of(device)
    course, asked = teaching.course_of(wanted, device.info.task), wanted.factor(rates)
    if autosave is not None:
        device.autosave(autosave)
    target.hurry(device)
    factor = 1.0 if asked is None else asked
    settings = course.settings(factor, wanted.seed, wanted.eval_every, None)
    teaching.teach(device, course, sets, settings, rates, files)


@main.command("imprint")
@click.argument("folder", type=FOLDER)
@click.option("--eval", "test_folder", type=FOLDER, help="Held-out samples: accuracy before and after.")
@click.pass_obj
def imprint_command(target: Target, folder: Path, test_folder: Path | None) -> None:
    """Look once at each sample in FOLDER and make the head of that, without training.

    FOLDER is as for train. What the head knew before is replaced; prototypes of an open set go on from
    what they are.
    """
    with target.connect() as device:
        training, testing = scanned(device, folder, test_folder)
        imprints(True, device.info.looks, fresh=True)
        target.hurry(device)
        results = []
        with Bars() as bars:
            shown = Shown(bars)
            if testing is not None:
                results.append(("before", evaluate(device, testing, shown)))
            classes = imprint(device, training, Settings(), shown, pixels(device))
            if testing is not None:
                results.append(("after", evaluate(device, testing, shown)))
        seen = f"{len(training.samples)} {training.noun}s"
        what = "prototypes are of" if device.info.known else "the head knows"
        say(f"{what} {classes} classes from {seen}, sha256 {device.sha()}")
    for when, result in results:
        say(f"{when}: {result.accuracy:.1%} of {result.total} held-out {training.noun}s")


@main.command("eval")
@click.argument("folder", type=FOLDER)
@click.option("--limit", default=0, type=click.IntRange(0), metavar="N", help="At most N samples.")
@click.pass_obj
def eval_command(target: Target, folder: Path, limit: int) -> None:
    """Measure the accuracy on the samples in FOLDER, which is as for train."""
    with target.connect() as device:
        if device.info.task:
            target.hurry(device)
            teaching.evaluate(device, folder, limit)
            return
        dataset = scan(folder, device.info.classes, known=device.info.known)
        target.hurry(device)
        with Bars() as bars:
            result = evaluate(device, dataset, Shown(bars), limit=limit)
    show_evaluation(result, dataset)


@main.command()
@click.option(
    "-o", "--output", default=Path("trained.npz"), show_default=True, type=FILE, help="Named arrays."
)
@click.option("--state-dict", type=FILE, metavar="OUT.pt", help="Also a PyTorch state dict; needs --model.")
@click.option(
    "--onnx", type=FILE, metavar="OUT.onnx", help="Also a copy of the ONNX file that --model names."
)
@click.option(
    "--tflite", type=FILE, metavar="OUT.tflite", help="Also a copy of the TFLite file that --model names."
)
@click.option("--model", type=FILE, metavar="MODEL", help="The model that was converted.")
@click.pass_obj
def pull(target: Target, /, output: Path, model: Path | None, **copies: Path | None) -> None:
    """Fetch the trained weights."""
    wanted = {kind: path for kind, path in copies.items() if path is not None}
    for kind in wanted if model is None else ():
        raise DeviceError(f"--{kind.replace('_', '-')} needs --model, the file that was converted.")
    with target.connect() as device:
        plan = target.plan_of(device)
        target.hurry(device)
        arrays = unpack(plan, device.pull())
    save_npz(output, plan, arrays)
    say(f"{output}: {len(arrays)} tensors, {plan.trainables.bytes} bytes")
    for kind, path in wanted.items():
        assert model is not None
        from .model_copy import save_model

        say("\n".join(save_model(kind, plan, arrays, model, path)))


@main.command()
@click.argument("file", type=FILE)
@click.pass_obj
def push(target: Target, file: Path) -> None:
    """Replace the trained weights by those in FILE, an .npz that `pull` wrote."""
    with target.connect() as device:
        plan = target.plan_of(device)
        target.hurry(device)
        device.push(pack(plan, load_npz(file, plan)))
        say(f"{file}: {plan.trainables.bytes} bytes, sha256 {device.sha()}")


@main.command()
@click.pass_obj
def stats(target: Target) -> None:
    """Show the device's counters."""
    with target.connect() as device:
        for key, value in device.stats().items():
            say(f"{key:15} {value}")


@main.command("watch")
@click.option(
    "--every",
    default=2.0,
    show_default=True,
    type=Number(1, 3600),
    metavar="S",
    help="Seconds between looks.",
)
@click.option("--lines", type=click.IntRange(1), metavar="N", help="End after N lines. [until Ctrl-C]")
@click.pass_obj
def watch_command(target: Target, every: float, lines: int | None) -> None:
    """Watch a device that learns by itself: a line each time something has changed."""
    with target.connect() as device:
        try:
            for line in islice(watch(device, every), lines):
                say(line)
        except KeyboardInterrupt:
            pass


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
