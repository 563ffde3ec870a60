"""Starts a command: what each folder's `__main__.py` does once tools/ is on the path."""

from __future__ import annotations

import importlib
import sys


def launch(name: str) -> None:
    """Run NAME.cli.main. Ctrl-C ends it without a traceback, also while modules are being imported."""
    try:
        importlib.import_module(f"{name}.cli").main(prog_name=f"python tools/{name}")
    except KeyboardInterrupt:
        print(f"{name}: stopped", file=sys.stderr)
        sys.exit(130)  # 128 + SIGINT, as shells say it
