"""What was counted, by rooms: the folders that people know the code by."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from microtrain.base.paths import ROOT

from .measure import FOLDER, SETTINGS, CoverageError

C_FILES = ("firmware/src/", "firmware/include/", "examples/camera/")
NOT_COUNTED = "is not compiled for this machine: the tests run it on the board model"
EXTRAS = {"tools/fleet": ("flwr", "microtrain[fleet]")}  # whose tests are skipped without a package


@dataclass(frozen=True)
class Counts:
    """Lines and branches, those that were run and all."""

    lines: int = 0
    all_lines: int = 0
    branches: int = 0
    all_branches: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def percent(self) -> dict[str, float]:
        """Of lines and of branches, to a tenth, rounded down; 100 where there are none."""
        pairs = {"lines": (self.lines, self.all_lines), "branches": (self.branches, self.all_branches)}
        return {name: run * 1000 // all_ / 10 if all_ else 100.0 for name, (run, all_) in pairs.items()}


Rooms = dict[str, Counts]


def total(rooms: Rooms) -> Counts:
    return sum(rooms.values(), Counts())


def python_rooms(folder: Path = FOLDER) -> Rooms:
    """Combine what the processes counted, write the HTML pages and read the numbers."""
    data = f"--data-file={folder / 'counts/python/data'}"
    if any((folder / "counts/python").glob("data.*")):
        _report("coverage", "combine", "--append", SETTINGS, data, "--quiet")
    _report("coverage", "html", SETTINGS, data, "--quiet", "-d", str(folder / "python"))
    _report("coverage", "json", SETTINGS, data, "--quiet", "-o", str(folder / "python.json"))
    files = json.loads((folder / "python.json").read_text(encoding="utf-8"))["files"]
    return by_room((name, _python_counts(entry["summary"])) for name, entry in files.items())


def _python_counts(entry: dict[str, Any]) -> Counts:
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return Counts(*(entry[name] for name in names))


def without_their_extra(rooms: Rooms) -> dict[str, str]:
    """Rooms whose tests were skipped, as a package is not installed, and what installs it."""
    found = {room: extra for room, (package, extra) in EXTRAS.items() if find_spec(package) is None}
    return {room: extra for room, extra in found.items() if room in rooms}


def c_rooms(folder: Path = FOLDER) -> Rooms:
    """Have gcov read the counts of every compilation, write the HTML pages and read the numbers."""
    (folder / "c").mkdir(exist_ok=True)
    filters = [part for name in C_FILES for part in ("--filter", str(ROOT / name))]
    reports = ["--html-nested", str(folder / "c/index.html"), "--json-summary", str(folder / "c.json")]
    # Files of a test's own are gone by now, a function may be compiled in several ways, and a fuzzer runs
    # some lines more often than gcovr believes.
    lenient = ["--gcov-ignore-errors=no_working_dir_found", "--merge-mode-functions=merge-use-line-0"]
    lenient += ["--gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file"]
    counts = str(folder / "counts/c")
    _report("gcovr", "--root", str(ROOT), *filters, *lenient, "-j", "2", *reports, counts)
    files = json.loads((folder / "c.json").read_text(encoding="utf-8"))["files"]
    return by_room((entry["filename"], _c_counts(entry)) for entry in files)


def _c_counts(entry: dict[str, Any]) -> Counts:
    names = ("line_covered", "line_total", "branch_covered", "branch_total")
    return Counts(*(entry[name] for name in names))


def by_room(files: Iterable[tuple[str, Counts]]) -> Rooms:
    """Sum what is in one folder, a room; what is below a package of tools/ belongs to it."""
    rooms: Rooms = {}
    for name, counts in sorted(files):
        room = room_of(Path(name))
        rooms[room] = rooms.get(room, Counts()) + counts
    return rooms


def room_of(file: Path) -> str:
    """`tools/device` for tools/device/cli.py; the compiler and the firmware have rooms within them."""
    folder = file.parent
    if folder.parts[0] == "tools" and folder.parts[1:2] != ("convert",):
        return "/".join(folder.parts[:2])
    return folder.as_posix()


def uncounted(rooms: Rooms) -> list[str]:
    """Folders of C of which the host compiles nothing."""
    files = [file for name in C_FILES for file in sorted((ROOT / name).rglob("*.c"))]
    return sorted({room_of(file.relative_to(ROOT)) for file in files} - set(rooms))


def _report(module: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CoverageError(f"{module} {arguments[0]} failed: {lines[-1] if lines else 'no message'}")
