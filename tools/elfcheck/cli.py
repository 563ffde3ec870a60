"""The command line of the ELF checker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from microtrain.base.elf import ANY_MACHINE, read_elf
from microtrain.base.errors import Error

from .rules import check, has_checkpoints

SHOWN = 20


@click.command()
@click.argument("elf", type=click.Path(path_type=Path), default=Path(".pio/build/disco_f746ng/firmware.elf"))
def main(elf: Path) -> None:
    """Prove that a firmware ELF holds nothing that would break bit-exactness or waste memory.

    No double-precision instruction or helper, no fused multiply-add, no malloc, no printf, nothing in the
    flash sectors of the checkpoints. ELFs are for Cortex-M or RV32; those of RV32 need not name the sectors
    (__checkpoint_a_start and so on). Exit status 1 where something was found.
    """
    try:
        findings = check(elf)
    except Error as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    for finding in findings[:SHOWN]:
        click.echo(f"{elf.name}: {finding}", err=True)
    if len(findings) > SHOWN:
        click.echo(f"... and {len(findings) - SHOWN} more", err=True)
    if findings:
        sys.exit(1)
    free = ", checkpoints free" if has_checkpoints(read_elf(elf, ANY_MACHINE)) else ""
    click.echo(f"{elf.name}: no double, no fused multiply-add, no heap, no printf{free}")
