"""How long `--help` of each command takes: torch, OR-tools and matplotlib have no business in it."""

from __future__ import annotations

import os
import resource
import sys

from microtrain.base.commands import run
from microtrain.cli import TOOLS

TURNS = 5
MOST = 0.5  # seconds of a processor that a help may take
HEAVY = ("torch", "ortools", "matplotlib", "sklearn", "scipy", "pandas")
LISTED = "import sys; from microtrain.cli import main; main(['{}', '--help'], standalone_mode=False); "


def help_seconds() -> dict[str, float]:
    """Seconds of a processor, the least of some turns, by command; "" is `microtrain --help`."""
    return {name: min(_timed(name) for _ in range(TURNS)) for name in ("", *TOOLS)}


def is_quick(name: str, most: float = MOST) -> bool:
    """Whether the help of a command takes no more than that, in one of some turns at least."""
    return any(_timed(name) <= most for _ in range(TURNS))


def _timed(name: str) -> float:
    """Of a program of its own, in which `make coverage` counts no lines."""
    before = _spent()
    command = [sys.executable, "-m", "microtrain", *([name] if name else []), "--help"]
    counting = (name for name in os.environ if name.startswith("COVERAGE_"))
    run(command, dict.fromkeys(counting)).check_returncode()
    return _spent() - before


def _spent() -> float:
    """Seconds of a processor that all programs run from here have taken: whatever else runs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def heavy_modules(name: str) -> list[str]:
    """What `microtrain NAME --help` imports of HEAVY."""
    code = LISTED.format(name) + f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    command = [sys.executable, "-c", code]
    done = run(command)
    done.check_returncode()
    return done.stdout.splitlines()[-1].split()
