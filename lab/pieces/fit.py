"""Coefficients that bound what was measured from above, as closely as they can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from microtrain.base.errors import Error
from microtrain.convert.ir import Graph
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.work import in_one_go
from microtrain.convert.pieces import (
    BEGIN,
    KEEP,
    RECALL,
    STREAM,
    Bound,
    Model,
    Piece,
    Priced,
    begins,
    bound,
    keep,
    pieces,
    recall,
)

from .measure import PIECE, SLIDE, Longest

MARGIN = 1.4  # of what was measured: networks that were not were up to 27 % above
HELIUM_MARGIN = 1.8  # and up to 38 % where kernels take whole vectors, whose ends shapes decide
LEAST = 1500.0  # of what a piece takes, whatever its step does
NOT_ALWAYS = ("mask", "clamped")  # what not every step has, and costs what its elements do
SHORT = 2000.0  # instructions below which it does not matter how close a bound is
# What a stream takes beside its kernels: its loops, and windows that are moved byte by byte at worst.
AROUND = {
    "calls": 600.0,
    "moved": 5.0,
    "moved once": 5.0,
    "piece": 400.0,
    "stages": 300.0,
    "padding": 5.0,
    "expanded": 30.0,
    "kept": 5.0,
}
# What a step need not grow with as fast as it does: of no use where few shapes were measured.
PARTLY, SHAPES = ("channels", "pixels", "lanes", "tiles"), 40
RAISED = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
Row = tuple[Mapping[str, float], float]


def fitted(found: Iterable[Longest], helium: bool) -> Mapping[str, Priced]:
    """By op; and of what a begin, a record and a stream take beside their kernels."""
    rows: dict[str, list[Row]] = defaultdict(list)
    streams: list[Longest] = []
    for each in found:
        line = each.counted
        if line.kind == SLIDE or (line.kind == PIECE and each.graph.nodes[line.step].parts):
            streams.append(each)
        else:
            op, own = terms(each, helium)
            rows[op].append((own, line.instructions))
    margin = HELIUM_MARGIN if helium else MARGIN
    prices = {op: with_least(bounding(own, margin)) for op, own in sorted(rows.items())}
    return {**prices, STREAM: around(prices, streams, helium)}


def with_least(found: dict[str, float]) -> dict[str, float]:
    """Also of a step that is smaller than all that were measured."""
    name = "step" if not any(term.startswith("rate ") or term == "piece" for term in found) else "piece"
    return {**found, name: found.get(name, 0.0) + LEAST}


def terms(found: Longest, helium: bool) -> tuple[str, Mapping[str, float]]:
    """What was counted, if it is no stream: the op, or what it is beside these, and what it grows with."""
    graph, line = found.graph, found.counted
    if line.kind == BEGIN:
        return BEGIN, begins(graph)
    if line.kind == KEEP:
        return KEEP, keep(graph, line.records)
    if line.kind == RECALL:
        return RECALL, recall(graph, line.draws)
    node = graph.nodes[line.step]
    unit = TABLE[node.op].unit(graph, node, None)
    if unit is None:
        own = in_one_go(graph, node)
        return node.op, {name: each for name, each in own.items() if name not in NOT_ALWAYS}
    work = max(unit.largest(helium), min(line.work, unit.total))
    return node.op, {**unit.once, **{f"rate {name}": each * work for name, each in unit.rate.items()}}


def bounding(rows: Sequence[Row], margin: float = MARGIN) -> dict[str, float]:
    """The coefficients, none negative, whose sums pass all rows, and by least on the whole."""
    names = sorted({name for found, _ in rows for name, value in found.items() if value})
    if len({tuple(found.items()) for found, _ in rows}) < SHAPES:
        names = [name for name in names if not name.endswith(PARTLY)]
    matrix = np.array([[found.get(name, 0.0) for name in names] for found, _ in rows])
    wanted = margin * np.array([instructions for _, instructions in rows])
    scale = matrix.max(axis=0)
    weighted = matrix / scale / np.maximum(wanted, SHORT)[:, None]
    solved = linprog(weighted.sum(axis=0), -weighted, -wanted / np.maximum(wanted, SHORT), method="highs")
    if solved.x is None:
        raise Error(f"no coefficients pass all rows: {solved.message}")
    found = zip(names, solved.x / scale, strict=True)
    return {name: rounded(each) for name, each in found if each > 0}


def rounded(value: float) -> float:
    """To four digits, upwards."""
    digits = 3 - int(np.floor(np.log10(value)))
    return float(f"{np.ceil(value * 10.0**digits) / 10.0**digits:.6g}")


def around(prices: Mapping[str, Priced], streams: Sequence[Longest], helium: bool) -> dict[str, float]:
    """Of streams: as little as passes what was measured of them."""
    for factor in RAISED:
        found = {name: factor * each for name, each in AROUND.items()}
        over = passed(Model({**prices, STREAM: found}, helium), streams)
        if not over:
            return found
    raise Error(f"streams are longer than any bound: {over[:3]}")


def passed(model: Model, found: Iterable[Longest]) -> list[str]:
    """What is longer than its bound, but for the timer's step."""
    wrong, known = [], Bounds(model)
    for each in found:
        line, most = each.counted, known.of(each)
        if line.instructions - each.tick > most:
            wrong.append(
                f"{line.model}, {line.kind} {line.step}: {line.instructions:.0f} > {most} of {line.work}"
            )
    return wrong


class Bounds:
    """Of what was counted: that of its step, which is not above that of its model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._found: dict[int, tuple[Graph, Bound, list[Piece]]] = {}  # by the graph's identity

    def of(self, found: Longest) -> int:
        graph, line = found.graph, found.counted
        if id(graph) not in self._found:
            self._found[id(graph)] = graph, bound(graph, self._model), pieces(graph, self._model)
        _, whole, steps = self._found[id(graph)]
        if line.kind == SLIDE:
            return whole.slide
        if line.kind in (KEEP, RECALL):
            assert whole.records is not None
            return whole.records.at(line.records)
        own = steps[0 if line.kind == BEGIN else line.step + 1]
        return min(own.at(line.work), whole.at(line.work))
