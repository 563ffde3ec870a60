"""How far bounds are above what was counted of networks that they were not fitted with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from microtrain.convert.pieces import CORES, Model, bound

from .fit import SHORT, Bounds
from .measure import PIECE, Longest


class Margins(NamedTuple):
    """Of a core.

    networks  that were not fitted with
    counted   lines of them
    passed    lines above their bound
    least     smallest bound of a step / its longest piece, of those that are not short
    middle    the same of a model: median
    most      and largest
    """

    networks: int
    counted: int
    passed: int
    least: float
    middle: float
    most: float


def margins(found: Sequence[Longest], model: Model) -> Margins:
    known, own = Bounds(model), []
    longest: dict[tuple[int, int], float] = defaultdict(float)
    graphs = {id(each.graph): each.graph for each in found}
    for each in found:
        line = each.counted
        took = line.instructions - each.tick
        own.append((known.of(each) / max(took, 1.0), line.instructions))
        if line.kind == PIECE:
            place = id(each.graph), line.work
            longest[place] = max(longest[place], took)
    whole = [bound(graphs[graph], model).at(work) / took for (graph, work), took in longest.items()]
    return Margins(
        len(graphs),
        len(found),
        sum(ratio < 1.0 for ratio, _ in own),
        min(ratio for ratio, took in own if took > SHORT),
        median(whole),
        max(whole),
    )


def markdown(rows: Mapping[str, Margins]) -> str:
    """A row for each core."""
    head = (
        "| core | networks | counted | above its bound | smallest bound of a step / its longest piece | "
        "bound of a model / its longest piece, median | largest |\n|---|---|---|---|---|---|---|\n"
    )
    lines = (
        f"| {CORES[core][0]} | {row.networks} | {row.counted:,} | {row.passed} | {row.least:.2f} | "
        f"{row.middle:.1f} | {row.most:.1f} |"
        for core, row in rows.items()
    )
    return head + "\n".join(lines)
