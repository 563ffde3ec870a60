"""Jobs on all cores, each in a process of its own; what is finished is kept at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from lab.bench import build
from lab.bench.measure import after_one_step, memory
from lab.bench.run import LABEL
from lab.golden.data import Data
from microtrain.base.pio import BOARD
from microtrain.base.plan import Plan, read_plan
from microtrain.demo.measure import ENTRIES
from microtrain.device.client import Device
from microtrain.emulator import Board, EmulatedPort

from .cases import Cell, Job
from .execute import WORK, Row, convert, execute

COMMAND = "python lab/results run"


def run(
    jobs: list[Job], data: Path, processes: int, function: Callable[[Job, Path], list[Row]] = execute
) -> Iterator[tuple[Job, list[Row]]]:
    """Finished jobs as they come. A library is loaded once per process: each job has a new one."""
    pool = ProcessPoolExecutor(processes, get_context("spawn"), max_tasks_per_child=1)
    with pool:
        running = {pool.submit(function, job, data): job for job in jobs}
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


def firmware(cell: Cell, data: Path) -> tuple[Path, Plan]:
    """The ELF with the cell's plan, and the plan."""
    folder = convert(cell, data).folder
    elf = build.build(folder, WORK / "firmware" / cell.plan, BOARD)
    return elf, read_plan(folder / "plan.json")


def sram(cell: Cell, data: Path) -> int:
    """All-in SRAM in bytes, from the ELF."""
    return memory(*firmware(cell, data)).sram_total


def step_instructions(cell: Cell, data: Path) -> int:
    """Of a training step on the emulated board, forward and backward."""
    elf, _ = firmware(cell, data)
    image = Data(data).train_step(cell.network)["images_u8"][0]
    trained, board = after_one_step(elf, image, LABEL), Board(elf)
    device = Device(EmulatedPort(board))
    device.push(trained)
    board.watch_calls(ENTRIES, only_inside=True)
    device.train(image, LABEL)
    return sum(call.instructions for call in board.calls().values())


def known_sram(cell: Cell, rows: list[Row], data: Path) -> int:
    """sram(), or what a row of the same plan says."""
    same = (r for r in rows if all(r[k] == getattr(cell, k) for k in ("network", "scheme", "fraction_bits")))
    known = next(same, None)
    return int(known["sram_all_in"]) if known else sram(cell, data)
