"""Coefficients that bound what was measured from above, as closely as they can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from microtrain.base.errors import Error
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.work import in_one_go
from microtrain.convert.pieces import BEGIN, STREAM, Model, begins, of_stream

from .measure import Longest

MARGIN = 1.4  # of what was measured: networks that were not were up to 27 % above
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
}
# What a step need not grow with as fast as it does: of no use where few shapes were measured.
PARTLY, SHAPES = ("channels", "pixels", "lanes", "tiles"), 40
RAISED = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0)
Row = tuple[Mapping[str, float], float]


def fitted(found: Iterable[Longest]) -> Model:
    """By op; and of what a begin and a stream take beside their kernels."""
    rows: dict[str, list[Row]] = defaultdict(list)
    streams: list[Longest] = []
    for piece in found:
        if piece.step is None:
            rows[BEGIN].append((begins(piece.graph), piece.instructions))
            continue
        node = piece.graph.nodes[piece.step]
        if node.parts:
            streams.append(piece)
        else:
            rows[node.op].append((terms(piece), piece.instructions))
    model = {op: with_least(bounding(own)) for op, own in sorted(rows.items())}
    return {**model, STREAM: around(model, streams)}


def with_least(found: dict[str, float]) -> dict[str, float]:
    """Also of a step that is smaller than all that were measured."""
    name = "step" if not any(term.startswith("rate ") or term == "piece" for term in found) else "piece"
    return {**found, name: found.get(name, 0.0) + LEAST}


def terms(piece: Longest) -> Mapping[str, float]:
    """What a piece of a step that is no stream grows with."""
    assert piece.step is not None
    node = piece.graph.nodes[piece.step]
    unit = TABLE[node.op].unit(piece.graph, node, None)
    if unit is None:
        found = in_one_go(piece.graph, node)
        return {name: each for name, each in found.items() if name not in NOT_ALWAYS}
    work = max(unit.work, min(piece.work, unit.total))
    return {**unit.once, **{f"rate {name}": each * work for name, each in unit.rate.items()}}


def bounding(rows: Sequence[Row]) -> dict[str, float]:
    """The coefficients, none negative, whose sums pass all rows, and by least on the whole."""
    names = sorted({name for found, _ in rows for name, value in found.items() if value})
    if len({tuple(found.items()) for found, _ in rows}) < SHAPES:
        names = [name for name in names if not name.endswith(PARTLY)]
    matrix = np.array([[found.get(name, 0.0) for name in names] for found, _ in rows])
    wanted = MARGIN * np.array([instructions for _, instructions in rows])
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


def around(model: Model, streams: Sequence[Longest]) -> dict[str, float]:
    """Of streams: as little as passes what was measured of them."""
    for factor in RAISED:
        found = {name: factor * each for name, each in AROUND.items()}
        if not passed({**model, STREAM: found}, streams):
            return found
    raise Error(f"streams are longer than any bound: {passed({**model, STREAM: found}, streams)[:3]}")


def passed(model: Model, streams: Iterable[Longest]) -> list[str]:
    """Streams with pieces that are longer than their bound."""
    found = []
    for piece in streams:
        assert piece.step is not None
        most = of_stream(piece.graph, piece.step, model).at(piece.work)
        if most < piece.instructions:
            found.append(f"{piece.model}, step {piece.step}: {piece.instructions:.0f} > {most}")
    return found
