"""Jobs on all cores, each in a process of its own; what is finished is kept at once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from bench import build
from bench.measure import memory

from .cases import Cell, Job
from .execute import WORK, Row, convert, execute

COMMAND = "python tools/results run"


def run(jobs: list[Job], data: Path, processes: int) -> Iterator[tuple[Job, list[Row]]]:
    """Finished jobs as they come. A library is loaded once a process: each job has a new one."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), max_tasks_per_child=1)
    with pool:
        running = {pool.submit(execute, job, data): job for job in jobs}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def command(row: Row) -> str:
    """What runs the session of a row again."""
    names = ("dataset", "network", "scheme", "fraction_bits", "arithmetic", "lr", "seed")
    return COMMAND + "".join(f" --{name.replace('_', '-')} {shlex.quote(str(row[name]))}" for name in names)


def sram(cell: Cell, data: Path) -> int:
    """All-in SRAM in bytes of the firmware with the cell's plan, from its ELF."""
    plan = convert(cell, data)
    elf = build.build(plan.folder, WORK / "firmware" / cell.plan, build.BOARD)
    return memory(elf, plan.folder / "plan.json").sram_total


def known_sram(cell: Cell, rows: list[Row], data: Path) -> int:
    """sram(), or what a row of the same plan says."""
    same = (r for r in rows if all(r[k] == getattr(cell, k) for k in ("network", "scheme", "fraction_bits")))
    known = next(same, None)
    return int(known["sram_all_in"]) if known else sram(cell, data)
