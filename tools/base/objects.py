"""Objects of C sources, each compiled for itself: ccache knows those that another build has compiled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .errors import Error

TIMEOUT_S = 300


def objects(cc: str, flags: Sequence[str], sources: Sequence[Path], root: Path, folder: Path) -> list[Path]:
    """Compile sources, with ccache where it is installed.

    flags    of the compiler; folders of headers below `root` relative to it
    root     where the compiler runs. What lies below it is named relative to it: ccache takes two sources for
             the same only where the names of all headers are, so a library may lie anywhere
    folder   where the objects go, one for each source
    Errors   Error with what the compiler says
    """
    folder.mkdir(parents=True, exist_ok=True)
    ccache = shutil.which("ccache")
    made = [(folder / f"{number}-{source.stem}.o").resolve() for number, source in enumerate(sources)]

    def compile_one(source: Path, target: Path) -> None:
        name = source.relative_to(root) if source.is_relative_to(root) else source
        command = [*([ccache] if ccache else []), cc, *flags, "-c", str(name), "-o", str(target)]
        run(command, root, f"{cc} does not compile {source}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, made))
    return made


def run(command: Sequence[str], root: Path, failed: str) -> None:
    """Run a compiler or linker in a folder. Error where it fails: `failed`, and its first error."""
    environment = {**os.environ, "CCACHE_NOHASHDIR": "1"}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Error(f"{failed}: it did not end within {TIMEOUT_S} s.") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [done.stderr]
        raise Error(f"{failed}: {lines[0][:1000]}")
