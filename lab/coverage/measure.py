"""Runs tests while Python and the host's C count what they execute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.base.paths import ROOT

FOLDER = ROOT / "build/coverage"
WRAPPER = Path(__file__).with_name("counting_gcc.sh")
COMPILERS = ("gcc", "cc")  # the names by which tests and tools call it
SETTINGS = f"--rcfile={ROOT / 'pyproject.toml'}"


class CoverageError(Error):
    """The tests cannot be run, or a report cannot be made."""


def forget(folder: Path = FOLDER) -> None:
    """Take away what was counted before."""
    shutil.rmtree(folder, ignore_errors=True)


def run_tests(arguments: list[str], folder: Path = FOLDER) -> int:
    """Run pytest with its arguments; counts go below the folder. Returns pytest's exit status."""
    pytest = ["-m", "pytest", "-p", "lab.coverage.patience", *arguments]
    command = [sys.executable, "-m", "coverage", "run", SETTINGS, *pytest]
    return subprocess.run(command, cwd=ROOT, env=counting(os.environ, folder), check=False).returncode


def counting(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment in which Python and gcc count.

    Errors   CoverageError where there is no gcc
    """
    gcc = environment.get("COUNTING_GCC") or shutil.which("gcc")  # not the wrapper, where a test counts
    if gcc is None:
        raise CoverageError("gcc is not installed, and its gcov counts the lines of C: run `make setup`.")
    programs, counts = folder / "bin", folder / "counts"
    for made in (programs, counts / "c", counts / "python"):
        made.mkdir(parents=True, exist_ok=True)
    for name in COMPILERS:
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(WRAPPER)
    outer = {name: value for name, value in environment.items() if not name.startswith("COVERAGE_")}
    return {
        **outer,
        "PATH": f"{programs}{os.pathsep}{environment.get('PATH', os.defpath)}",
        "COUNTING_GCC": gcc,
        "COUNTING_FOLDER": str(counts / "c"),
        "CCACHE_DISABLE": "1",  # what it remembers counts into another run's folder
        "COVERAGE_FILE": str(counts / "python/data"),
    }
