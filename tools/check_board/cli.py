"""Command line: a board, and what it is compared with."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.progress import Bars
from microtrain.base.terminal import say
from microtrain.device.client import Device
from microtrain.device.errors import DeviceError
from microtrain.device.link import EmulatorPort, Port, SerialPort

from .line import clean_rates
from .probe import Found, must_be_new, probe
from .report import Check, load, save

BUILT = Path(".pio/build")
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", metavar="PORT", help="Serial port (/dev/ttyACM0, COM3) or socket://HOST:PORT.")
@click.option("--emulate", type=FILE, metavar="FILE.elf", help="Check a new emulated board instead.")
@click.option(
    "--against",
    type=FILE,
    metavar="FILE",
    help="The firmware's .elf, for an emulated board, or the .json of another check.  "
    "[.pio/build/BOARD/firmware.elf]",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=Path("check-board"),
    show_default=True,
    metavar="NAME",
    help="Writes NAME.md, to be pasted into an issue, and NAME.json.",
)
def main(port: str | None, emulate: Path | None, against: Path | None, output: Path) -> None:
    """Prove that a board computes what the emulated board does, and measure it.

    Self-test, inference, training, records and statistics where the model has them, save and restart: every
    answer must be the same to the bit. Cycles, the clock and the rates of the serial line are measured. The
    board must have learned nothing, and is as new afterwards; its flash is erased twice at most.

    \b
    microtrain check-board --port /dev/ttyACM0
    """
    try:
        check = run(port, emulate, against)
        pages = save(check, output)
    except Error as error:
        raise click.ClickException(str(error)) from error
    say(check.verdict)
    for each in check.differences[:5]:
        say(f"  {each}")
    say("written: " + ", ".join(str(page) for page in pages))
    sys.exit(0 if check.passed else 1)


def run(port: str | None, emulate: Path | None, against: Path | None) -> Check:
    """Check the board that is named. Errors: Error where it does not answer, has learned, or nothing is known
    that it could be compared with"""
    if (port is None) == (emulate is None):
        raise DeviceError("name one board: --port /dev/ttyACM0, or --emulate FILE.elf.")
    line: Port = EmulatorPort(emulate) if emulate is not None else SerialPort(str(port))
    with Device(line, str(emulate or port)) as device, Bars() as bars:
        must_be_new(device)
        reference = against or _built(device)
        if not reference.is_file():
            raise DeviceError(f"no such file: {reference}. --against names the firmware's ELF.")
        found = probe(device, clock_of(line), bars, device.info.board)
        rates = {} if found.ended else clean_rates(device)
        if reference.suffix == ".json":
            expected = load(reference)
            return Check(found, expected, f"the {expected.board} of {reference}", rates)
        expected = _emulated(reference, bars)
    return Check(found, expected, "the emulated board", rates, {reference.name: _digest(reference)})


def _built(device: Device) -> Path:
    """The firmware that was built for this board. Errors: DeviceError where there is none here"""
    path = BUILT / device.info.board / "firmware.elf"
    if not path.is_file():
        raise DeviceError(
            f"{path} is not here: run this where the firmware was built, or name its ELF with --against."
        )
    return path


def _emulated(elf: Path, bars: Bars) -> Found:
    """What a new emulated board answers. Errors: DeviceError where even that stops"""
    port = EmulatorPort(elf)
    with Device(port, str(elf)) as device:
        expected = probe(device, clock_of(port), bars, f"emulated {device.info.board}")
    if expected.ended:
        raise DeviceError(f"the emulated board is not sound itself: {expected.ended}")
    return expected


def clock_of(port: Port) -> Callable[[], float]:
    """The time that should pass on the board too: the host's, or that of an emulated board."""
    return (lambda: port.seconds) if isinstance(port, EmulatorPort) else time.monotonic


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
