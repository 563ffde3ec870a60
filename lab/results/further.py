"""The sessions of pages/search.json on clothing10 again, judged on images that nothing else looks at.

A seed or the choice of 360 test images moves a pair of schemes by one to three points. The set holds 921 more
(train_extra.txt), which no search, no choice of a rate and no training has seen: pages/search-further.json.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from microtrain.base.errors import Error
from microtrain.device.learning import evaluate
from microtrain.device.session import Silent
from microtrain.samples.source import Dataset, Sample, read_list
from microtrain.simulate.records import fill, show

from .cases import Cell, Job, Session
from .execute import WORK, settings_of, task_of, trained
from .searches import Place, gains
from .store import PAGES, Row, write_lines

TABLE = PAGES / "search-further.json"
DATASET, LIST = "clothing10", "train_extra.txt"


def images(classes: tuple[str, ...]) -> Dataset:
    """The further images, labelled as the set's own; they need not show every class."""
    found = read_list(WORK / "sets" / DATASET / LIST, None)
    labels = [classes.index(name) for name in found.classes]
    return Dataset(classes, tuple(Sample(s.path, labels[s.label]) for s in found.samples))


def wanted(searched: Sequence[Row], known: Iterable[Row]) -> list[Job]:
    """Sessions of pages/search.json that the table lacks, those of a scheme in a job.

    searched    pages/search.json; known: pages/search-further.json
    """
    done = {row["trained_sha256"] for row in known}
    cells: dict[Cell, set[Session]] = {}
    for row in searched:
        if row["judged_on"] == DATASET and row["trained_sha256"] not in done:
            cell = Cell(DATASET, row["network"], row["name"], row["fraction_bits"])
            cells.setdefault(cell, set()).add(Session(row["lr"], row["seed"]))
    return [Job(cell, tuple(sorted(own, key=lambda s: s.seed))) for cell, own in cells.items()]


def judge(job: Job, data: Path) -> list[Row]:
    """Sessions trained as for pages/results.json; a row each."""
    task = task_of(job.cell, False, data)
    further = images(task.training.classes)
    shown = replace(task, testing=replace(further, samples=task.testing.samples + further.samples))
    list(fill(shown, 1))
    rows = []
    for session, settings in zip(job.sessions, settings_of(job, task.epochs), strict=True):
        machine, log = trained(task, settings, shown)
        found = evaluate(machine, further, Silent(), len(log.steps), show=show(shown, machine))
        rows.append(
            {
                "network": job.cell.network,
                "scheme": job.cell.scheme,
                "seed": session.seed,
                "lr": session.lr,
                "test_images": len(task.testing.samples),
                "accuracy": round(log.evaluations[-1].accuracy, 6),
                "further_images": found.total,
                "further_accuracy": round(found.accuracy, 6),
                "trained_sha256": log.sha256,
            }
        )
    return rows


def keep(rows: Iterable[Row], known: Iterable[Row], searched: Sequence[Row]) -> list[Row]:
    """The table with more rows, without those of sessions that pages/search.json no longer has.

    Errors   Error where a session learned other bytes than it did for pages/search.json
    """
    current = {row["trained_sha256"] for row in searched}
    for row in rows:
        if row["trained_sha256"] not in current:
            raise Error(
                f"{row['scheme']}, seed {row['seed']}, learned other bytes than pages/search.json says: "
                "run `python lab/results search` first."
            )
    table = {row["trained_sha256"]: row for row in (*known, *rows) if row["trained_sha256"] in current}
    kept = sorted(table.values(), key=lambda row: (row["network"], row["scheme"], row["seed"]))
    write_lines(TABLE, kept)
    return kept


def pooled(row: Row) -> float:
    """Accuracy over the test images and the further ones."""
    right = row["test_images"] * row["accuracy"] + row["further_images"] * row["further_accuracy"]
    return float(right / (row["test_images"] + row["further_images"]))


def won(searched: Sequence[Row], table: Sequence[Row]) -> dict[Place, tuple[float, float]]:
    """Mean points that found schemes win over published ones: on the further images, and over all images."""
    by_session = {row["trained_sha256"]: row for row in table}
    here = [r for r in searched if r["judged_on"] == DATASET and r["trained_sha256"] in by_session]
    further, whole = (
        gains([row | {"accuracy": measure(by_session[row["trained_sha256"]])} for row in here])
        for measure in (lambda row: row["further_accuracy"], pooled)
    )
    return {place: (statistics.fmean(further[place]), statistics.fmean(whole[place])) for place in further}


def summary(searched: Sequence[Row], table: Sequence[Row]) -> list[str]:
    """One line per place, and the means of what was found on either set."""
    found = won(searched, table)
    lines = [
        f"{p.network}, {p.budget_bytes:,} B, found on {p.found_on}: {further:+.2f}, all images {whole:+.2f}"
        for p, (further, whole) in found.items()
    ]
    for source in dict.fromkeys(place.found_on for place in found):
        own = [gain for place, gain in found.items() if place.found_on == source]
        means = [statistics.fmean(values) for values in zip(*own, strict=True)]
        lines.append(f"found on {source}: mean {means[0]:+.2f}, all images {means[1]:+.2f}")
    return lines
