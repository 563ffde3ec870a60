"""Front-end rules of recurrent layers over the rows of a map: nn.GRU, nn.LSTM and nn.RNN.

A direction backward reads the rows turned round, and what it makes is turned back. A plain cell,
a tangent of W x + U h + b, is a GRU whose gates stay where they are: it never resets and never keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from microtrain.convert.aten_call import Act, Call, Param
from microtrain.convert.ir import Graph, Node, Shape, Window
from microtrain.convert.lowering import Lowering

from ..integer_cell import Coded
from ..recurrent_cell import GRU, INTEGER_LSTM, LSTM
from ..table import Aten
from ..tokens import LAST, places, sequence, view_of, whole
from .channels import CONCAT
from .pool import AVERAGE, DOWN
from .resample import chosen, sampled
from .unflatten import of_vector

FROM_ZEROS = "the nearest that is: one that begins each window with zeros"
SHUT = 32.0  # of a gate's bias: the logistic function is 0 or 1 there, to the last bit
MOST_ROWS = 64  # of a map whose columns are read
PLAIN = ("rnn_tanh", "rnn")  # cells without gates


@dataclass(frozen=True)
class Cell:
    """Weights of a layer in PyTorch's order of gates: x [gates * units, inputs], h [gates * units, units].

    backward  it reads the rows from the last one on
    coded     the integers of a file, where it counts in whole numbers
    """

    x: np.ndarray
    h: np.ndarray
    bias_x: np.ndarray
    bias_h: np.ndarray
    backward: bool = False
    coded: Coded | None = None


def factors_of(gates: int, cell: Cell, columns: np.ndarray) -> tuple[float, ...]:
    """As nodes have them (ops/recurrent.py). columns: which feature stands at each place of a row"""
    units = cell.h.shape[1]
    x, h = (w.reshape(gates, units, -1).transpose(1, 0, 2) for w in (cell.x[:, columns], cell.h))
    ours, theirs = (b.reshape(gates, units).T for b in (cell.bias_x, cell.bias_h))
    if gates == 4:
        b = ours + theirs
    else:
        b = np.concatenate([ours[:, :2] + theirs[:, :2], ours[:, 2:], theirs[:, 2:]], axis=1)
    return (float(units), *(float(v) for part in (x, h, b) for v in part.ravel()))


def layers(
    low: Lowering, call: Call, x: Act, cells: Sequence[Sequence[Cell]], first: bool
) -> tuple[Act, Act]:
    """What layers one behind the other make of x, and what the last row leaves.

    cells  of each layer: one of each direction
    first  whether the batch is the first dimension of x, else time is
    Returns [batch, time, directions * units], or time first, and [layers * directions, batch, units]. Of the
    layers but the last one, what the last row leaves is not kept: reading it is refused.
    """
    made, columns = _rows(low, call, x, first)
    for i, directions in enumerate(cells):
        inner = call if len(cells) == 1 else _of_layer(call, i)
        made = _layer(low, inner, whole(low, made), directions, columns)
        columns = np.arange(low.shape(made)[2])
    rows, _, features = low.shape(made)
    count, units = len(cells[-1]), features // len(cells[-1])
    at = np.arange(rows * features).reshape((1, rows, features) if first else (rows, 1, features))
    last = np.full((len(cells), count, 1, units), -1)
    for way, cell in enumerate(cells[-1]):
        row = 0 if cell.backward else rows - 1
        last[-1, way, 0] = row * features + way * units + np.arange(units)
    return view_of(low, made.tensor, at), view_of(low, made.tensor, last.reshape(-1, 1, units))


def _layer(low: Lowering, call: Call, x: Act, directions: Sequence[Cell], columns: np.ndarray) -> Act:
    """One layer over a map [rows, w, c]: what its directions make, side by side."""
    made = [_one_way(low, call, x, cell, columns) for cell in directions]
    if len(made) == 1:
        return made[0]
    rows, _, units = low.shape(made[0])
    beside = replace(call, op="cat", builtin=False)
    return low.emit(beside, CONCAT, tuple(made), (rows, 1, len(made) * units))


def _one_way(low: Lowering, call: Call, x: Act, cell: Cell, columns: np.ndarray) -> Act:
    """What a cell makes of the rows in its direction, in the order of the rows."""
    if cell.x.shape[1] != columns.size:
        raise call.error(f"{call.op} wants {cell.x.shape[1]} features and gets {columns.size}")
    shape = (low.shape(x)[0], 1, cell.h.shape[1])
    op, factors = _node_of(call, cell, columns)
    about: dict[str, Any] = {"window": Window(1, 1), "factors": factors}
    if not cell.backward:
        return low.emit(call, op, (x,), shape, **about)
    call = replace(call, module=f"{call.node_name(call.op)}.reverse", builtin=True)
    made = low.emit(call, op, (_turned_round(low, call, x),), shape, **about)
    return _turned_round(low, call, made)


def _node_of(call: Call, cell: Cell, columns: np.ndarray) -> tuple[str, tuple[float, ...]]:
    """Op and factors of a cell."""
    if cell.coded is not None:
        return INTEGER_LSTM, cell.coded.reading(columns).factors
    op, gates = (LSTM, 4) if call.op == LSTM else (GRU, 3)
    return op, factors_of(gates, cell, columns)


def _turned_round(low: Lowering, call: Call, x: Act) -> Act:
    """The rows of a map, the last one first."""
    h, w, _ = low.shape(x)
    apart = replace(call, op="flip", builtin=False)
    return sampled(low, apart, x, chosen(range(h - 1, -1, -1), h), chosen(range(w), w))


def without_gates(cell: Cell) -> Cell:
    """A plain cell as a GRU's: reset gates open, update gates shut."""
    units = len(cell.h)

    def with_gates(own: np.ndarray, gates: np.ndarray) -> np.ndarray:
        return np.concatenate([gates.astype(np.float32), own])

    shut = SHUT * np.repeat([1.0, -1.0], units)
    closed = [np.zeros((2 * units, w.shape[1])) for w in (cell.x, cell.h)]
    return replace(
        cell,
        x=with_gates(cell.x, closed[0]),
        h=with_gates(cell.h, closed[1]),
        bias_x=with_gates(cell.bias_x, shut),
        bias_h=with_gates(cell.bias_h, np.zeros(2 * units)),
    )


def _of_layer(call: Call, number: int) -> Call:
    return Call(
        call.op, f"{call.module}.l{number}" if call.module else f"{call.op}.l{number}", True, call.args
    )


def _rows(low: Lowering, call: Call, value: Any, first: bool) -> tuple[Act, np.ndarray]:
    """The map whose rows are steps in time, and which feature stands at each place of a row."""
    x = _as_rows(low, call, value)
    at, (h, w, c) = places(low, x), low.shape(x)
    if at.ndim != 3 or at.shape[0 if first else 1] != 1:
        kinds = (
            "[batch, time, features]" if first else "[time, batch, features], as batch_first=False has it,"
        )
        raise call.error(
            f"{call.op} of a tensor of shape {list(x.dims)} {kinds} is not supported; the nearest that "
            "is: one of a batch of 1"
        )
    lines = at.reshape(max(at.shape[:2]), -1)
    if lines[0, 0] > lines[-1, 0]:
        x = _first_one_first(low, call, x, lines)
        lines = places(low, x).reshape(lines.shape)
    order = lines[0]
    if len(lines) == w > 1 and h <= MOST_ROWS and _are_columns(lines, (h, w, c)):
        return _lying(low, call, x), _places_of(order // c // w * c + order % c)
    straight = len(lines) == h and np.array_equal(np.sort(order), np.arange(w * c))
    if not straight or not np.array_equal(lines, order + np.arange(h)[:, None] * w * c):
        raise call.error(
            f"{call.op} of {list(x.dims)} reads a map of {h}x{w} with {c} channels otherwise than row by "
            f"row, or column by column of up to {MOST_ROWS} rows; the nearest that is supported: rows of the "
            "map, its height, as time"
        )
    return x, _places_of(order)


def turned_round(low: Lowering, call: Call, value: Any, axis: int) -> Act:
    """A view whose numbers stand in the other order along an axis: of a map's lines, a map of these."""
    x = _as_rows(low, call, value)
    at, (h, w, _) = np.flip(places(low, x), axis), low.shape(x)
    lines = np.moveaxis(at, axis, 0).reshape(at.shape[axis], -1)
    if len(lines) < 2 or len(lines) not in (h, w) or lines[0, 0] < lines[-1, 0]:
        return view_of(low, x.tensor, at)
    return _first_one_first(low, call, view_of(low, x.tensor, at), lines)


def _first_one_first(low: Lowering, call: Call, x: Act, lines: np.ndarray) -> Act:
    """A view of a map's rows or columns from the last one on, as one of the map turned round.

    lines  places of each
    """
    (h, w, c), at = low.shape(x), places(low, x)
    columns = lines[0, 0] - lines[1, 0] == c < w * c
    row, column = at // (w * c), at // c % w
    row, column = (row, w - 1 - column) if columns else (h - 1 - row, column)
    apart = replace(call, op="flip", module=f"{call.node_name(call.op)}.turned", builtin=False)
    ways = (range(h), range(w)[::-1]) if columns else (range(h)[::-1], range(w))
    made = sampled(low, apart, whole(low, x), chosen(ways[0], h), chosen(ways[1], w))
    return view_of(low, made.tensor, (row * w + column) * c + at % c)


def _as_rows(low: Lowering, call: Call, value: Any) -> Act:
    """A view of a whole map: a vector that is read number by number is one of rows."""
    x = sequence(low, call, value)
    shape, count = low.shape(x), low.shape(x)[2]
    if shape != (1, 1, count) or count < 2 or count not in x.dims[:2]:
        return x
    if low.is_input(x) and low.redeclare((count, 1, 1)):
        return x
    made = of_vector(low, replace(call, builtin=False), whole(low, x), (count, 1, 1))
    return view_of(low, made.tensor, places(low, x))


def _places_of(order: np.ndarray) -> np.ndarray:
    """Which number of an order stands at each place."""
    found = np.empty(order.size, np.intp)
    found[order] = np.arange(order.size)
    return found


def _are_columns(lines: np.ndarray, shape: Shape) -> bool:
    """Whether lines of places are the columns of a map (h, w, c), each in one order."""
    h, w, c = shape
    away = np.arange(w)[:, None] * c
    first = (np.arange(h)[:, None] * w * c + np.arange(c)).ravel()
    return np.array_equal(lines, lines[0] + away) and np.array_equal(np.sort(lines[0]), first)


def _lying(low: Lowering, call: Call, x: Act) -> Act:
    """A map (h, w, c) as (w, 1, h * c), its columns as rows: each row lies down, side by side with others."""
    h, w, c = low.shape(x)
    apart, rows = replace(call, op="permute", builtin=False), []
    for i in range(h):
        row = sampled(low, apart, whole(low, x), chosen([i], h), chosen(range(w), w))
        rows.append(low.emit(apart, AVERAGE, (row,), (w, 1, c), window=Window(1, 1), factors=DOWN))
    return rows[0] if h == 1 else low.emit(apart, CONCAT, tuple(rows), (w, 1, h * c))


def is_alone(graph: Graph, node: Node) -> bool:
    """Whether a node is a layer over time, and no other node makes what its last row leaves in its place."""
    alike = (n for n in graph.nodes if n.op == LAST.get(node.op))
    return node.op in LAST and not any((n.inputs, n.factors) == (node.inputs, node.factors) for n in alike)


# ---------------------------------------------------------------- from PyTorch


def gru(low: Lowering, call: Call) -> Any:
    """A GRU, or a plain cell."""
    return _torch(low, call, [call.args.get("hx")])


def lstm(low: Lowering, call: Call) -> Any:
    return (*_torch(low, call, call.args.get("hx")), None)


def _torch(low: Lowering, call: Call, states: Any) -> tuple[Act, Act]:
    params = call.args.get("params")
    if not isinstance(params, Sequence) or not isinstance(call.args.get("num_layers"), int):
        raise call.error(f"{call.op} of packed sequences is not supported; {FROM_ZEROS}, of one length")
    if call.get("train", False) and call.get("dropout", 0.0):
        raise call.error(f"{call.op} is in training mode; call model.eval() before the model is saved")
    check_start(call, states)
    ways = 2 if call.get("bidirectional", False) else 1
    each = 4 if call.get("has_biases", True) else 2
    if len(params) != call.args["num_layers"] * ways * each:
        raise call.error(f"a {call.op} with a projection of its state is not supported; {FROM_ZEROS}")
    values = [low.constant(call, p, "weight").value.astype(np.float32) for p in params]
    cells = [_cell(call, values[i : i + each]) for i in range(0, len(values), each)]
    directions = [
        [replace(cell, backward=way == 1) for way, cell in enumerate(cells[i : i + ways])]
        for i in range(0, len(cells), ways)
    ]
    return layers(low, call, call.x, directions, bool(call.get("batch_first", False)))


def _cell(call: Call, values: Sequence[np.ndarray]) -> Cell:
    """Of weights, and biases where there are any."""
    gates = {"lstm": 4, "gru": 3}.get(call.op, 1)
    rows = gates * values[1].shape[-1]
    biases = values[2:] or [np.zeros(rows, np.float32)] * 2
    if (
        [v.shape[0] for v in (*values[:2], *biases)] != [rows] * 4
        or values[0].ndim != 2
        or values[1].ndim != 2
    ):
        shapes = ", ".join(str(list(v.shape)) for v in values)
        raise call.error(f"weights of shapes {shapes} do not make a {call.op}")
    cell = Cell(values[0], values[1], biases[0], biases[1])
    return without_gates(cell) if call.op in PLAIN else cell


def check_start(call: Call, states: Any) -> None:
    """ConvertError unless a layer begins with zeros."""
    given = [s for s in (states if isinstance(states, Sequence) else [states]) if s is not None]
    if not all(isinstance(s, Param) and not np.any(s.value) for s in given):
        raise call.error(
            f"a {call.op} that begins with another state than zeros is not supported; {FROM_ZEROS}"
        )


_ARGUMENTS = "input hx params has_biases num_layers dropout train bidirectional batch_first"
OF_CELLS = {
    GRU: dict.fromkeys(("gru", "rnn_tanh"), Aten(_ARGUMENTS, gru)),
    LSTM: {"lstm": Aten(_ARGUMENTS, lstm)},
}
ATEN = {name: rule for rules in OF_CELLS.values() for name, rule in rules.items()}
