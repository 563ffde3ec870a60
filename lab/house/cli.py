"""Command line: measure the house; build/house.json, and a table beside the numbers of before."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from lab import notes
from microtrain.base.paths import ROOT
from microtrain.base.terminal import console

from . import arrows, bench, sources, speed

RESULT = ROOT / "build/house.json"
COVERAGE = ROOT / "build/coverage.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Count lines, parameters, arrows and files per op; time every --help; compare the bench with before.

    Coverage is what the last `make coverage` found. All of it goes to build/house.json.
    """
    found = {**counted(), "help_seconds_max": round(max(speed.help_seconds().values()), 3)}
    coverage = notes.read(COVERAGE, {})
    found |= {"coverage_python": coverage.get("python"), "coverage_c": coverage.get("c")}
    notes.write(RESULT, {**found, "before": without_rows(bench.before()), "bench_changes": bench.compared()})
    show(found)


def counted() -> dict[str, Any]:
    """Everything that the sources alone say."""
    python, c = sources.files(sources.PYTHON), sources.files(sources.C)
    functions = [f for path in python for f in sources.python_functions(path)]
    functions += [f for path in c if path.suffix == ".c" for f in sources.c_functions(path)]
    return {
        "files_per_op": max(arrows.files_per_op().values()),
        "silent_failures": len(arrows.silent_failures()),
        "upward_arrows": len(arrows.upward()),
        "python_lines": sum(sources.lines(python).values()),
        "c_lines": sum(sources.lines(c).values()),
        "lines_by_folder": {"python": sources.lines(python), "c": sources.lines(c)},
        "longest_function": max(f.lines for f in functions),
        "most_parameters": max(f.parameters for f in functions),
    }


def without_rows(before: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in before.items() if key != "bench"}


def show(found: dict[str, Any]) -> None:
    """The numbers, those of before beside them."""
    known = bench.before()
    table = Table("", "before", "now", title="The house", header_style="bold")
    for key, value in found.items():
        if not isinstance(value, dict):
            table.add_row(key, str(known.get(key, "")), "not measured" if value is None else str(value))
    for memory, change in bench.compared().items():
        table.add_row(f"bench, {memory}", "", f"{change['least']:+.3%} to {change['most']:+.3%}")
    console().print(table)
