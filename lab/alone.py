"""Two runs of a tool that share a folder spoil each other's builds and numbers: the second one refuses."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

import click

from microtrain.base.paths import ROOT

held: dict[Path, IO[str]] = {}  # open, and so locked, until the process ends


def hold(folder: Path) -> None:
    """Keep a folder to this process until it ends.

    Errors   click.ClickException where another process has it
    """
    if folder in held:
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        name = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
        raise click.ClickException(f"{name} is in use by another run: wait until that one ends.") from error
    held[folder] = lock
