"""Schemes found by the search against the published ones, as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .searches import gains, place_of
from .store import Row
from .tables import interval, table

TEXT = """`tools/search` ran on one data set. Its schemes are judged on the test images of the other,
which it has never seen, and on those of the same one, at no more all-in SRAM than the published scheme
takes, paired by seed and order, at one learning rate
(`python lab/results search`; [search.json](search.json), [search.md](search.md)).
![Found and published schemes](search.svg)
"""


def section(rows: Sequence[Row], runs: Sequence[Row]) -> str:
    """rows: pages/search.json; runs: pages/search-runs.json"""
    both = [
        f"Judged on {images}:\n\n{comparison(rows, crossed)}"
        for crossed, images in ((True, "the other images"), (False, "images of the same kind"))
    ]
    return "\n".join([TEXT, *both, searched(runs)])


def comparison(rows: Sequence[Row], crossed: bool) -> str:
    """One line per place: bytes and accuracies of both, and what the found scheme wins."""
    body, means = [], []
    for place, won in gains(rows).items():
        if place.crossed != crossed:
            continue
        own = [row for row in rows if place_of(row) == place]
        found, published = ([r for r in own if r["scheme"] == kind] for kind in ("found", "published"))
        sizes = f"{found[0]['sram_all_in']:,} / {place.budget_bytes:,}"
        accuracies = accuracy(found), accuracy(published)
        body.append([found[0]["name"], place.judged_on, sizes, *accuracies, interval(won)])
        means.append(statistics.fmean(won))
    if not body:
        return ""
    body.append(["mean", "", "", "", "", interval(means)])
    return table(
        ("scheme", "judged on", "SRAM, B: found / published", "found", "published", "difference"), body
    )


def accuracy(rows: Sequence[Row]) -> str:
    values = [100 * row["accuracy"] for row in rows]
    return f"{statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def searched(runs: Sequence[Row]) -> str:
    """One line per search: the winner, how good evolution was, and whether its costs were right."""
    body = []
    for run in runs:
        winner, compared = run["winner"], run["comparison"]
        shares = compared["median_of_exact"] if compared else {}
        weights = len(winner["weights"])
        proxies = run["proxies"]["spearman"]["weights"]
        body.append(
            [
                run["name"],
                f"{winner['biases']} biases, {weights} weights, {winner['fraction_bits']} bits",
                f"{shares['evolutionary']:.1%} / {shares['random']:.1%}" if shares else "-",
                f"{winner['searched_sram']:,} / {winner['sram']:,}",
                f"{winner['step_instructions'] / 1e6:.2f} / {run['counted_instructions'] / 1e6:.2f}",
                " / ".join(f"{proxies[name]:.2f}" for name in ("norm", "fisher")),
            ]
        )
    titles = (
        "search",
        "winner",
        "evolution / random, of optimum",
        "SRAM, B: searched / converted",
        "million instructions per step: estimated / counted",
        "proxies' rank correlation: norm / Fisher",
    )
    return "For each search, the medians of five seeds, with 10,000 evaluations each.\n\n" + table(
        titles, body
    )
