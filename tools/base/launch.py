"""Starts a command from its folder: what each `__main__.py` does once the package is on the path."""

from __future__ import annotations

import importlib
import sys


def launch(room: str, name: str) -> None:
    """Run ROOM.cli.main. Ctrl-C ends it without a traceback, also while modules are being imported.

    A package that this Python lacks is a sentence: who typed the command may be outside the environment.

    name  of the command, as it was typed
    """
    try:
        importlib.import_module(f"{room}.cli").main(prog_name=name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "microtrain", "lab"):
            raise
        print(
            f"{room.rpartition('.')[2]}: {sys.executable} has no package {missing}: use .venv/bin/python, "
            "into which `make setup` installs all that is needed, or `pip install` the folder of microtrain.",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        print(f"{room.rpartition('.')[2]}: stopped", file=sys.stderr)
        sys.exit(130)  # 128 + SIGINT, as shells say it
