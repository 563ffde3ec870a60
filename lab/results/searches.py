"""Schemes found by tools/search against the published ones at the same bytes: pages/search.json.

Found on one data set, judged on the test images of both: of the other, which the search has never seen, and
of its own, which is what a user gets.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench.cases import SCHEMES
from microtrain.base.errors import Error
from microtrain.base.paths import ROOT
from microtrain.convert.scheme import PUBLISHED, load

from .cases import BAR, EPOCHS, Cell
from .execute import WORK
from .run import sram, step_instructions
from .store import PAGES, RATES, RESULTS, Row, drop, of_cell, write_lines
from .store import load as load_rows

TABLE = PAGES / "search.json"
RUNS = PAGES / "search-runs.json"
BITS = 4  # of the published schemes as they ship
COMPARED = 5  # seeds of evolution and random search, against the proven optimum
KB = 1024


@dataclass(frozen=True)
class Effort:
    """What a search on one data set takes.

    lr             sparse schemes with fraction bits train at
    limit          images per epoch of a contribution; 0: all
    measured       share of the layers whose contributions are measured
    rounds         of finalists
    final_epochs   finalists train: about as long as schemes are judged after
    """

    lr: float
    limit: int
    measured: float
    rounds: int
    final_epochs: int


EFFORTS = {
    "cifar10": Effort(0.002, limit=800, measured=0.5, rounds=3, final_epochs=2),
    "clothing10": Effort(0.001, limit=0, measured=1.0, rounds=5, final_epochs=4),
}


@dataclass(frozen=True)
class Search:
    """For a scheme that takes no more SRAM than a published one, on one data set."""

    network: str
    published: str
    found_on: str

    @property
    def name(self) -> str:
        """Of the scheme that is found."""
        return f"{self.published}-{self.found_on}"

    @property
    def scheme(self) -> Path:
        """The scheme file, which ships with the converter."""
        return PUBLISHED / f"{self.name}.yaml"

    def rival(self, judged_on: str) -> Cell:
        """The sessions of the published scheme."""
        return Cell(judged_on, self.network, self.published, BITS)

    def found(self, judged_on: str) -> Cell:
        """The sessions of the scheme that was found."""
        return Cell(judged_on, self.network, self.name, load(self.scheme).fraction_bits)

    def cells(self) -> list[Cell]:
        """All sessions."""
        return [cell for dataset in EPOCHS for cell in (self.rival(dataset), self.found(dataset))]


def searches() -> list[Search]:
    """Every network, at its 49 and 99 KB-class schemes, on every data set."""
    small = [(network, schemes[0]) for network, schemes in SCHEMES.items()]
    pairs = [pair for network, least in small for pair in ((network, least), (network, BAR[network]))]
    return [Search(network, published, dataset) for dataset in EPOCHS for network, published in pairs]


def arguments(search: Search, budget: int, data: Path, output: Path) -> list[str]:
    """What runs tools/search, as a user would."""
    effort = EFFORTS[search.found_on]
    return [
        "tools/search",
        str(data / "models" / f"{search.network}.pkl"),
        *("--data", str(WORK / "sets" / search.found_on)),
        *("--budget-sram", repr(budget / KB)),
        *("--fraction-bits", str(BITS)),
        *("--lr", f"{effort.lr:g}"),
        *("--limit", str(effort.limit)),
        *("--measured", f"{effort.measured:g}"),
        *("--rounds", str(effort.rounds)),
        *("--final-epochs", str(effort.final_epochs)),
        *("--compare", str(COMPARED)),
        *("--cache", str(WORK / "search" / f"{search.network}-{search.found_on}")),
        *("-o", str(output)),
    ]


def find(search: Search, data: Path) -> None:
    """Search, with its progress shown; the scheme goes beside the published ones.

    Errors   Error where the search ends with an error
    """
    output = WORK / "search" / f"{search.name}.yaml"
    budget = sram(search.rival(search.found_on), data)
    done = subprocess.run([sys.executable, *arguments(search, budget, data, output)], cwd=ROOT, check=False)
    if done.returncode:
        raise Error(f"the search for {search.name} failed: see above.")
    shutil.copy(output, search.scheme)
    keep(search, json.loads(output.with_suffix(".json").read_text(encoding="utf-8")))
    for dataset in EPOCHS:
        stale = search.found(dataset)
        shutil.rmtree(WORK / "plans" / stale.plan, ignore_errors=True)
        for table in (RATES, RESULTS):
            drop(table, stale)


def keep(search: Search, document: Row) -> None:
    """Keep what the search said of itself in pages/search-runs.json."""
    known = {row["name"]: row for row in load_rows(RUNS)}
    kept = ("budget", "winner", "finalists", "proxies", "evaluations", "comparison")
    known[search.name] = {"name": search.name} | {key: document[key] for key in kept}
    write_lines(RUNS, [known[s.name] for s in searches() if s.name in known])


def count_instructions(search: Search, data: Path) -> tuple[Search, int]:
    """Of a training step with the found scheme, on the emulated board."""
    return search, step_instructions(search.found(search.found_on), data)


def uncounted(chosen: Sequence[Search]) -> list[Search]:
    """Searches whose winner's instructions nobody has counted yet."""
    known = {row["name"] for row in load_rows(RUNS) if "counted_instructions" in row}
    return [search for search in chosen if search.name not in known]


def keep_count(search: Search, instructions: int) -> None:
    rows = load_rows(RUNS)
    for row in rows:
        if row["name"] == search.name:
            row["counted_instructions"] = instructions
    write_lines(RUNS, rows)


def rows_of(search: Search, rows: Sequence[Row]) -> list[Row]:
    """Rows of pages/search.json: the sessions of both schemes, the published one's named by the same search.

    rows    pages/results.json
    """
    return [row for dataset in EPOCHS for row in judged(search, dataset, rows)]


def judged(search: Search, dataset: str, rows: Sequence[Row]) -> list[Row]:
    """Its rows of one data set; none where the scheme has not been judged there."""
    published, found = (
        sorted(of_cell(rows, c), key=seed_of) for c in (search.rival(dataset), search.found(dataset))
    )
    if not found:
        return []
    budget = published[0]["sram_all_in"] if published else 0
    about = {
        "network": search.network,
        "budget_bytes": budget,
        "found_on": search.found_on,
        "judged_on": dataset,
    }
    kept = ("seed", "accuracy", "sram_all_in", "fraction_bits", "lr", "command", "trained_sha256")
    return [
        about | {"scheme": kind, "name": row["scheme"]} | {key: row[key] for key in kept}
        for kind, own in (("found", found), ("published", published))
        for row in own
    ]


def seed_of(row: Row) -> int:
    return int(row["seed"])


def write(chosen: Sequence[Search], rows: Sequence[Row]) -> list[Row]:
    """pages/search.json; returns its rows."""
    table = [row for search in chosen if search.scheme.is_file() for row in rows_of(search, rows)]
    write_lines(TABLE, table)
    return table


@dataclass(frozen=True)
class Place:
    """Where two schemes are compared."""

    network: str
    budget_bytes: int
    found_on: str
    judged_on: str

    @property
    def crossed(self) -> bool:
        """Judged on images that the search has not seen the like of."""
        return self.found_on != self.judged_on


def place_of(row: Row) -> Place:
    return Place(row["network"], row["budget_bytes"], row["found_on"], row["judged_on"])


def gains(table: Sequence[Row]) -> dict[Place, list[float]]:
    """Points that found schemes win over published ones, by seed."""
    published = {
        (place_of(row), row["seed"]): row["accuracy"] for row in table if row["scheme"] == "published"
    }
    found: dict[Place, list[float]] = {}
    for row in table:
        place, seed = place_of(row), row["seed"]
        if row["scheme"] == "found" and (place, seed) in published:
            found.setdefault(place, []).append(100.0 * (row["accuracy"] - published[place, seed]))
    return found


def summary(table: Sequence[Row]) -> list[str]:
    """One line per place, and one on all of each kind."""
    means = {place: statistics.fmean(values) for place, values in gains(table).items()}
    lines = [
        f"{p.network}, {p.budget_bytes:,} B, found on {p.found_on}, judged on {p.judged_on}: {mean:+.2f}"
        for p, mean in means.items()
    ]
    for crossed, images in ((True, "the other images"), (False, "images of the same kind")):
        own = [mean for place, mean in means.items() if place.crossed == crossed]
        if own:
            lines.append(f"judged on {images}: mean {statistics.fmean(own):+.2f}, worst {min(own):+.2f}")
    return lines
