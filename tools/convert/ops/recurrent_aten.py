"""Front-end rules of recurrent layers: nn.GRU and nn.LSTM over the rows of a map, in one direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Window
from microtrain.convert.lowering import Act, Call, Lowering, Param

from .table import Aten
from .tokens import LAST, places, sequence, view_of, whole

ONE_WAY = "the nearest that is: one that goes forward, and begins each window with zeros"


@dataclass(frozen=True)
class Cell:
    """Weights of a layer in PyTorch's order of gates: x [gates * units, inputs], h [gates * units, units]."""

    x: np.ndarray
    h: np.ndarray
    bias_x: np.ndarray
    bias_h: np.ndarray


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


def layers(low: Lowering, call: Call, x: Act, cells: Sequence[Cell], first: bool) -> tuple[Act, Act]:
    """What layers one behind the other make of x, and what the last row leaves, [layers, batch, units].

    first  whether the batch is the first dimension of x, else time is
    Of the layers but the last one, what the last row leaves is not kept: reading it is refused.
    """
    gates = 4 if call.op == "lstm" else 3
    act, columns = _rows(low, call, x, first)
    made = act
    for i, cell in enumerate(cells):
        rows, units = low.shape(made)[0], cell.h.shape[1]
        if cell.x.shape[1] != columns.size:
            raise call.error(f"{call.op} wants {cell.x.shape[1]} features and gets {columns.size}")
        inner, factors = call if len(cells) == 1 else _of_layer(call, i), factors_of(gates, cell, columns)
        made = low.emit(
            inner, call.op, (whole(low, made),), (rows, 1, units), window=Window(1, 1), factors=factors
        )
        columns = np.arange(units)
    rows, _, units = low.shape(made)
    at = np.arange(rows * units).reshape((1, rows, units) if first else (rows, 1, units))
    last = np.full((len(cells), 1, units), -1)
    last[-1] = at.reshape(rows, units)[-1]
    return view_of(low, made.tensor, at), view_of(low, made.tensor, last)


def _of_layer(call: Call, number: int) -> Call:
    return Call(
        call.op, f"{call.module}.l{number}" if call.module else f"{call.op}.l{number}", True, call.args
    )


def _rows(low: Lowering, call: Call, value: Any, first: bool) -> tuple[Act, np.ndarray]:
    """The map whose rows are steps in time, and which feature stands at each place of a row."""
    x = sequence(low, call, value)
    at, (h, w, c) = places(low, x), low.shape(x)
    if at.ndim != 3 or at.shape[0 if first else 1] != 1:
        raise call.error(
            f"{call.op} of a tensor of shape {list(x.dims)} is not supported; the nearest that is: of one "
            "[1, time, features]"
        )
    lines = at.reshape(max(at.shape[:2]), -1)
    order = lines[0]
    straight = len(lines) == h and np.array_equal(np.sort(order), np.arange(w * c))
    if not straight or not np.array_equal(lines, order + np.arange(h)[:, None] * w * c):
        raise call.error(
            f"{call.op} of {list(x.dims)} reads a map of {h}x{w} with {c} channels otherwise than row by "
            "row; the nearest that is supported: rows of the map, its height, as time"
        )
    columns = np.empty(w * c, np.intp)
    columns[order] = np.arange(w * c)
    return x, columns


def is_alone(graph: Graph, node: Node) -> bool:
    """Whether a node is a layer over time, and no other node makes what its last row leaves in its place."""
    alike = (n for n in graph.nodes if n.op == LAST.get(node.op))
    return node.op in LAST and not any((n.inputs, n.factors) == (node.inputs, node.factors) for n in alike)


# ---------------------------------------------------------------- from PyTorch


def gru(low: Lowering, call: Call) -> Any:
    return _torch(low, call, [call.args.get("hx")])


def lstm(low: Lowering, call: Call) -> Any:
    return (*_torch(low, call, call.args.get("hx")), None)


def _torch(low: Lowering, call: Call, states: Any) -> tuple[Act, Act]:
    params = call.args.get("params")
    if not isinstance(params, Sequence) or not isinstance(call.args.get("num_layers"), int):
        raise call.error(f"{call.op} of packed sequences is not supported; {ONE_WAY}, of one length")
    if call.get("train", False) and call.get("dropout", 0.0):
        raise call.error(f"{call.op} is in training mode; call model.eval() before the model is saved")
    check_start(call, states)
    if call.get("bidirectional", False):
        raise call.error(f"a {call.op} that also goes backward is not supported; {ONE_WAY}")
    count, biased = call.args["num_layers"], bool(call.get("has_biases", True))
    each, gates = 4 if biased else 2, 4 if call.op == "lstm" else 3
    if len(params) != count * each:
        raise call.error(f"a {call.op} with a projection of its state is not supported; {ONE_WAY}")
    values = [low.constant(call, p, "weight").value.astype(np.float32) for p in params]
    return layers(
        low,
        call,
        call.x,
        [_cell(call, values[i : i + each], gates) for i in range(0, len(values), each)],
        bool(call.get("batch_first", False)),
    )


def _cell(call: Call, values: Sequence[np.ndarray], gates: int) -> Cell:
    """Of weights, and biases where there are any."""
    rows = gates * values[1].shape[-1]
    biases = values[2:] or [np.zeros(rows, np.float32)] * 2
    if (
        [v.shape[0] for v in (*values[:2], *biases)] != [rows] * 4
        or values[0].ndim != 2
        or values[1].ndim != 2
    ):
        shapes = ", ".join(str(list(v.shape)) for v in values)
        raise call.error(f"weights of shapes {shapes} do not make a {call.op}")
    return Cell(values[0], values[1], biases[0], biases[1])


def check_start(call: Call, states: Any) -> None:
    """ConvertError unless a layer begins with zeros."""
    given = [s for s in (states if isinstance(states, Sequence) else [states]) if s is not None]
    if not all(isinstance(s, Param) and not np.any(s.value) for s in given):
        raise call.error(f"a {call.op} that begins with another state than zeros is not supported; {ONE_WAY}")


_ARGUMENTS = "input hx params has_biases num_layers dropout train bidirectional batch_first"
ATEN = {"gru": Aten(_ARGUMENTS, gru), "lstm": Aten(_ARGUMENTS, lstm)}
