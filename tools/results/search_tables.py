"""Schemes found by the search against the published ones, as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .searches import gains
from .store import Row
from .tables import interval, table

TEXT = """`tools/search` on one data set, judged on the other's test images at no more all-in SRAM than the
published scheme takes, paired by seed and order, at one learning rate (`python tools/results search`;
docs/search.json, [docs/search.md](search.md)). ![Found and published schemes](search.svg)
"""


def section(rows: Sequence[Row], runs: Sequence[Row]) -> str:
    """rows: docs/search.json; runs: docs/search-runs.json"""
    return "\n".join([TEXT, comparison(rows), searched(runs)])


def comparison(rows: Sequence[Row]) -> str:
    """A line a cell: bytes and accuracies of both, and what the found scheme wins."""
    body, means = [], []
    for (network, budget, dataset), won in gains(rows).items():
        own = [
            r for r in rows if (r["network"], r["budget_bytes"], r["judged_on"]) == (network, budget, dataset)
        ]
        found, published = ([r for r in own if r["scheme"] == kind] for kind in ("found", "published"))
        sizes = f"{found[0]['sram_all_in']:,} / {budget:,}"
        body.append([found[0]["name"], dataset, sizes, accuracy(found), accuracy(published), interval(won)])
        means.append(statistics.fmean(won))
    if not body:
        return ""
    body.append(["mean over cells", "", "", "", "", interval(means)])
    return table(
        ("scheme", "judged on", "SRAM, B: found / published", "found", "published", "difference"), body
    )


def accuracy(rows: Sequence[Row]) -> str:
    values = [100 * row["accuracy"] for row in rows]
    return f"{statistics.fmean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def searched(runs: Sequence[Row]) -> str:
    """A line a search: the winner, how good evolution was, and whether its costs were right."""
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
        "million instructions a step: estimated / counted",
        "proxies' rank correlation: norm / Fisher",
    )
    return "Each search: medians of five seeds, with 10,000 evaluations each.\n\n" + table(titles, body)
