"""How long `--help` of each command takes: torch, OR-tools and matplotlib have no business in it."""

from __future__ import annotations

import sys
import time

from microtrain.base.commands import run
from microtrain.cli import TOOLS

TURNS = 5
HEAVY = ("torch", "ortools", "matplotlib", "sklearn", "scipy", "pandas")
LISTED = "import sys; from microtrain.cli import main; main(['{}', '--help'], standalone_mode=False); "


def help_seconds() -> dict[str, float]:
    """The shortest of some turns, by command; "" is `microtrain --help`."""
    return {name: min(_timed(name) for _ in range(TURNS)) for name in ("", *TOOLS)}


def _timed(name: str) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "microtrain", *([name] if name else []), "--help"]
    run(command).check_returncode()
    return time.perf_counter() - start


def heavy_modules(name: str) -> list[str]:
    """What `microtrain NAME --help` imports of HEAVY."""
    code = LISTED.format(name) + f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    command = [sys.executable, "-c", code]
    done = run(command)
    done.check_returncode()
    return done.stdout.splitlines()[-1].split()
