"""Which sessions are still to be run, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .cases import BAR, COLUMNS, Cell, Job, Session, family
from .store import RATES, RESULTS, best_rate, load, missing

STEPS_PER_SECOND = {"float": 150, "study": 150}  # of a core; the others:
STEPS_PER_SECOND_C = 320


def selection(cells: Iterable[Cell], grid: Iterable[float]) -> list[Job]:
    """Sessions on validation images that choose learning rates; sparse schemes share that of the core's, and
    those found on one data set that of the 99 KB class among them."""
    rows = load(RATES)
    wanted = [Session(lr, 0, validation=True) for lr in grid]
    return _jobs((cell, missing(rows, cell, wanted)) for cell in cells if _chooses(cell))


def _chooses(cell: Cell) -> bool:
    kind = family(cell.scheme)
    if kind.startswith("found"):
        return cell.scheme.startswith(BAR[cell.network])
    core = {(BAR[cell.network], bits) for _, bits in COLUMNS}
    return kind != "sparse" or (cell.scheme, cell.fraction_bits) in core


def final(cells: Iterable[Cell], seeds: Iterable[int]) -> list[Job]:
    """Sessions on the test images, at the best rate of each cell that has one."""
    rates, rows = load(RATES), load(RESULTS)
    return _jobs(
        (cell, missing(rows, cell, [Session(lr, seed) for seed in seeds]))
        for cell in cells
        if (lr := best_rate(rates, cell)) is not None
    )


def _jobs(pairs: Iterable[tuple[Cell, tuple[Session, ...]]]) -> list[Job]:
    return [Job(cell, sessions) for cell, sessions in pairs if sessions]


def hours(jobs: Iterable[Job]) -> float:
    """Estimate for one core."""
    seconds: Iterator[float] = (
        job.steps / STEPS_PER_SECOND.get(job.cell.arithmetic, STEPS_PER_SECOND_C) for job in jobs
    )
    return sum(seconds) / 3600
