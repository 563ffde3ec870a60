"""The command line of the emulator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from microtrain.base.errors import Error
from microtrain.base.options import Number, collected, option

from . import bridge, cycles
from .board import Board
from .elf import Image
from .peripherals import display
from .report import profile_table, sram_table


@dataclass(frozen=True)
class Wanted:
    """How a firmware is run, and what is reported of it."""

    use_pty: bool = option(
        "--pty", is_flag=True, help="Serial line on a pseudo-terminal; its name is printed."
    )
    tcp: int | None = option(
        "--tcp",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serial line on 127.0.0.1:PORT, 0 picks one; printed.",
    )
    seconds: float | None = option(
        "--seconds", type=Number(0), metavar="S", help="Stop after S virtual seconds."
    )
    strict: bool = option(
        "--strict", is_flag=True, help="Fault on unaligned LDM, LDRD, VLDR ... as the chip does; slower."
    )
    guest_faults: bool = option(
        "--guest-faults", is_flag=True, help="Leave faults to the firmware's own handlers."
    )
    paced: bool = option(
        "--paced", is_flag=True, help="Bytes arrive at the baud rate, whether they are read or not."
    )
    camera: Path | None = option(
        "--camera",
        type=click.Path(exists=True, path_type=Path),
        metavar="DIR",
        help="Connect an ArduCAM that sees the pictures of a folder one after the other "
        "(`pio run -e camera`).",
    )
    screen: Path | None = option(
        "--screen",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.png",
        help="At the end: save what the LCD shows.",
    )
    profile: bool = option("--profile", is_flag=True, help="At the end: instructions by function.")
    with_cycles: bool = option(
        "--cycles",
        is_flag=True,
        help="At the end: estimated cycles by function (llvm-mca, a model of the Cortex-M7's caches); "
        "slower.",
    )
    sram: bool = option(
        "--sram", is_flag=True, help="At the end: SRAM that was written, by variable, and the stack's depth."
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("elf", type=click.Path(path_type=Path))
@collected(Wanted, into="wanted")
def main(elf: Path, wanted: Wanted) -> None:
    """Run the firmware ELF on an emulated board: the one that it was built for.

    Without --pty or --tcp the serial line is standard input and output: `echo info | python tools/emulator
    .pio/build/disco_f746ng/firmware.elf` asks the device one question and ends. What the emulator itself
    has to say goes to standard error. Ctrl-C ends it, and then come the reports.
    """
    if wanted.use_pty and wanted.tcp is not None:
        raise click.UsageError("--pty and --tcp exclude each other: the board has one serial line.")
    try:
        caches = wanted.with_cycles and Image(elf).chip.has_caches
        board = Board(
            elf, strict=wanted.strict, guest_faults=wanted.guest_faults, paced=wanted.paced, caches=caches
        )
        if wanted.camera is not None:
            board.connect_camera().show_file(wanted.camera)
    except Error as error:
        raise click.ClickException(str(error)) from error
    failure = _serve(board, wanted.use_pty, wanted.tcp, wanted.seconds)
    _say(f"{board.instructions:,} instructions in {board.seconds:.3f} virtual seconds")
    if wanted.profile:
        _say(profile_table(board.profile()))
    if wanted.sram:
        _say(sram_table(board.sram_touched()))
    if wanted.with_cycles:
        _say(cycles.report(board))
    if wanted.screen is not None:
        _save_screen(board, wanted.screen)
    if failure is not None:
        raise click.ClickException(failure)


def _serve(board: Board, use_pty: bool, tcp: int | None, seconds: float | None) -> str | None:
    """Run until something ends it. Returns what went wrong, or None."""
    try:
        if use_pty:
            reason = bridge.serve_pty(board, seconds, _announce)
        elif tcp is not None:
            reason = bridge.serve_tcp(board, tcp, seconds, _announce)
        else:
            reason = bridge.serve(board, sys.stdin.fileno(), sys.stdout.fileno(), seconds)
    except KeyboardInterrupt:
        reason = "stopped"
    except Error as error:
        return str(error)
    _say(reason)
    return None


def _save_screen(board: Board, path: Path) -> None:
    try:
        picture = display.picture(board)
        if picture is None:
            _say(f"the LCD is dark: {path} is not written")
        else:
            picture.save(path)
    except (Error, OSError, ValueError) as error:
        raise click.ClickException(f"--screen: {error}") from error


def _announce(name: str) -> None:
    click.echo(name)
    sys.stdout.flush()


def _say(text: str) -> None:
    click.echo(text, err=True)
