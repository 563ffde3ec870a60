"""Damaged and hostile files for every reader: none may run code, write, hang or end in a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import mutate
from .worker import NAMES

WORKER = Path(__file__).resolve().parent / "worker.py"
BATCH = 500
# Files of each kind in a hundred; what costs more to read comes less often.
SHARES = {
    "model": 30, "state": 12, "checkpoint": 10, "scheme": 10, "plan": 10, "image": 8, "numbers": 2,
    "targets": 2, "calibration": 4, "weights": 4, "network": 4, "board": 4, "line": 5,
    "fleet": 3, "firmware": 0.2, "sound": 2,
}  # fmt: skip


@dataclass
class Report:
    """What came of it.

    files      that were read
    confined   all of them in a process that the kernel kept from writing elsewhere
    megabytes  the most memory that a process took
    failures   which file, by the folder that it is kept in, and what it did
    executed   likewise, of files that ran or wrote something
    """

    files: int = 0
    confined: bool = True
    megabytes: int = 0
    failures: list[str] = field(default_factory=list)
    executed: list[str] = field(default_factory=list)


def attack_files(
    folder: Path, seeds: dict[str, list[Path]], count: int, seed: int, done: Callable[[int], None]
) -> Report:
    """Read about `count` damaged files, on all cores. folder: for seeds, and for the files that failed."""
    shutil.rmtree(folder / "seeds", ignore_errors=True)
    for kind, paths in seeds.items():
        (folder / "seeds" / kind).mkdir(parents=True)
        for path in paths:
            shutil.copyfile(path, folder / "seeds" / kind / path.name)
    report = Report()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for batch, lines in pool.map(lambda b: run(folder, b, seed), batches(seeds, count)):
            take(report, folder, batch, lines, seed)
            done(batch[2])
    return report


def batches(seeds: dict[str, list[Path]], count: int) -> list[tuple[str, int, int]]:
    """(kind, number of the first file, files) of every batch."""
    whole = sum(share for kind, share in SHARES.items() if kind in seeds)
    found = []
    for kind in seeds:
        files = max(1, int(count * SHARES[kind] / whole))
        found += [(kind, first, min(BATCH, files - first)) for first in range(0, files, BATCH)]
    return found


def run(
    folder: Path, batch: tuple[str, int, int], seed: int
) -> tuple[tuple[str, int, int], list[dict[str, Any]]]:
    """What the worker says of a batch; at its end how it ended, where that is not as it should."""
    kind, first, files = batch
    command = [sys.executable, str(WORKER), kind, str(folder), str(first), str(files), str(seed)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode:
        at = next((line["at"] for line in reversed(lines) if "at" in line), first)
        end = (ended.stderr.strip().splitlines() or [""])[-1][:200]
        lines.append(
            {"number": at, "problem": f"ends the process ({ended.returncode}): {end}", "source": "?"}
        )
    return batch, lines


def take(
    report: Report, folder: Path, batch: tuple[str, int, int], lines: list[dict[str, Any]], seed: int
) -> None:
    """Add what a batch says to the report, and keep the files that failed."""
    kind = batch[0]
    shutil.rmtree(folder / f"work-{kind}-{batch[1]}", ignore_errors=True)
    for line in lines:
        report.files += "at" in line
        report.confined &= line.get("sandbox", True)
        report.megabytes = max(report.megabytes, line.get("megabytes", 0))
        if "problem" in line:
            kept = keep(folder, kind, line["number"], seed)
            text = f"{kept.name}: {line['problem']}"
            (report.executed if line["problem"].startswith(("it ", "leaves ")) else report.failures).append(
                text
            )


def keep(folder: Path, kind: str, number: int, seed: int) -> Path:
    """The damaged file of a number, made again, in the folder of failures."""
    rng = random.Random(f"{seed}:{kind}:{number}")
    source = rng.choice(sorted((folder / "seeds" / kind).iterdir()))
    path = folder / "failures" / f"{kind}-{number}" / NAMES.get(kind, f"damaged{source.suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(mutate.mutated(rng, source.read_bytes()))
    return path.parent
