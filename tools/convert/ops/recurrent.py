"""Recurrent cells over time, GRU and LSTM: frozen, no gradient passes them (kernels/recurrent.h).

A node's factors are its units, then the real weights of x [units, gates, inputs], of the state
[units, gates, units] and the biases [units, 4], as the kernels have them; of an LSTM in whole numbers they
are those of integer_cell.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape, Window
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import NUMBER, S8, SCRATCH, Record, Signature
from microtrain.convert.reference.numeric import f32

from . import integer_cell
from .aten.recurrent import OF_CELLS
from .bounds import INT32_MAX, SMALLER, Accumulator, reach
from .conv_structs import Conv2d, conv2d_struct
from .ctext import Table, numbers, struct
from .environment import Env
from .outputs import by_range
from .recurrent_cell import (
    GATE_BITS,
    GATES,
    INTEGER_LSTM,
    ONE,
    ONE_BITS,
    SUM_BITS,
    Real,
    Recurrent,
    Stored,
    real_fwd,
    wide_fwd,
)
from .stage import LastStage, TimeStage
from .table import (
    NO_ATEN,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Values,
    gathers_channels,
    no_arrays,
    no_gradient,
    no_statistics,
    no_structs,
    not_in_place,
)
from .tokens import LAST
from .unit import OUTPUT, Unit
from .work import Terms, by_size, one_way

if TYPE_CHECKING:
    pass

HEADER = STRUCT = "recurrent"
NORMALISED = "normalise what the layer reads, or give it fewer units"


def cell_of(op: str) -> str:
    """The cell of an op that makes what each row leaves, or what the last row leaves."""
    return next(cell for cell, last in LAST.items() if op in (cell, last))


def keeps_last(node: Node) -> bool:
    return node.op in LAST.values()


# ---------------------------------------------------------------- constants


def node_of(op: str, name: str, x: str, y: str, real: Real) -> Node:
    factors = integer_cell.rounded(real).factors if cell_of(op) == INTEGER_LSTM else factors_of(real)
    return Node(op, name, (x,), (y,), window=Window(1, 1), factors=factors)


def factors_of(real: Real) -> tuple[float, ...]:
    return (float(len(real.b)), *(float(v) for part in (real.x, real.h, real.b) for v in part.ravel()))


@lru_cache(maxsize=8)
def _parts(factors: tuple[float, ...], gates: int) -> Real:
    units, values = int(factors[0]), np.array(factors[1:], np.float32)
    b, h = 4 * units, gates * units * units
    x = values[: len(values) - h - b].reshape(units, gates, -1)
    return Real(
        x,
        values[len(values) - h - b : len(values) - b].reshape(units, gates, units),
        values[-b:].reshape(units, 4),
    )


def is_whole(node: Node) -> bool:
    """Whether it counts in whole numbers, as a file of TensorFlow Lite says."""
    return cell_of(node.op) == INTEGER_LSTM


def real_of(node: Node) -> Real:
    if is_whole(node):
        return integer_cell.coded(node.factors).real
    return _parts(node.factors, GATES[cell_of(node.op)])


def stored_of(graph: Graph, node: Node) -> Stored:
    """Weights symmetric, one scale for each unit's gate; what sums are multiplied with, in 26 bits."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    if is_whole(node):
        return integer_cell.stored(integer_cell.coded(node.factors), x, y)
    real = real_of(node)
    parts, m = [], []
    for values, unit in ((real.x, x.scale), (real.h, 2.0**-ONE_BITS)):
        wide = values.astype(np.float64)
        peak = np.abs(wide).max(axis=-1, keepdims=True)
        scale = np.where(peak > 0, peak / 127.0, 1.0)
        parts.append(np.rint(wide / scale).astype(np.int8))
        m.append(np.where(peak > 0, scale, 0.0)[..., 0] * unit * 2.0 ** (GATE_BITS + SUM_BITS))
    b = np.rint(real.b.astype(np.float64) * 2.0**GATE_BITS)
    fits = (np.clip(v, -INT32_MAX, INT32_MAX).astype(np.int32) for v in (b, np.rint(np.stack(m, axis=1))))
    return Stored(*parts, *fits)


def recurrent_fwd(p: Recurrent, cell: str, w: Stored, x: np.ndarray) -> np.ndarray:
    """The twin of the kernels. x int8 [..., rows, inputs]; y [..., rows or 1, units]"""
    return integer_cell.fwd(p, w, x) if cell == INTEGER_LSTM else wide_fwd(p, cell, w, x)


def c_struct(graph: Graph, node: Node) -> Recurrent:
    """The kernels' parameters, without the tables."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    return Recurrent(
        rows=x.shape[0],
        inputs=x.shape[1] * x.channels,
        units=y.channels,
        x_zero=x.zero,
        y_zero=integer_cell.state_of(integer_cell.coded(node.factors), y)[1] if is_whole(node) else y.zero,
        last=int(keeps_last(node)),
        y_unit=float(f32(2.0**-ONE_BITS / y.scale)),
    )


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    name, stored = identifier(node.name), stored_of(graph, node)
    kinds = {"w_x": "weights", "w_h": "weights", "b": "biases", "m": "tables"}
    for (part, kind), values in zip(kinds.items(), vars(stored).values(), strict=True):
        c_type = "int8_t" if values.dtype == np.int8 else "int32_t"
        yield Table(f"const {c_type} recurrent_{part}_{name}[{values.size}]", values, kind)


def _structs(names: Names, node: Node) -> Iterator[str]:
    cid = identifier(node.name)
    tables = {part: f"recurrent_{part}_{cid}" for part in ("w_x", "w_h", "b", "m")}
    yield struct(STRUCT, STRUCT, node.name, {**numbers(c_struct(names.graph, node)), **tables})


# ---------------------------------------------------------------- in graphs


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    rows = graph.tensors[node.inputs[0]].shape[0]
    return ((1 if keeps_last(node) else rows, 1, int(node.factors[0])),)


def _macs(graph: Graph, node: Node) -> int:
    p = c_struct(graph, node)
    return int(p.rows) * GATES[cell_of(node.op)] * int(p.units) * int(p.inputs + p.units)


def _run(env: Env, node: Node) -> None:
    p, x = c_struct(env.graph, node), env.values[node.inputs[0]]
    made = recurrent_fwd(p, cell_of(node.op), stored_of(env.graph, node), x.reshape(p.rows, p.inputs))
    env.values[node.outputs[0]] = made.reshape(_shape(env.graph, node)[0])


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, x = c_struct(graph, node), env[node.inputs[0]]
    made = recurrent_fwd(p, cell_of(node.op), stored_of(graph, node), x.reshape(-1, p.rows, p.inputs))
    return made.reshape(-1, *_shape(graph, node)[0])


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    x, shape = env[node.inputs[0]], _shape(graph, node)[0]
    made = real_fwd(cell_of(node.op), real_of(node), x.reshape(len(x), -1, real_of(node).x.shape[-1]))
    return made[:, -shape[0] :].reshape(-1, *shape)


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    p, w, gates = c_struct(graph, node), stored_of(graph, node), GATES[cell_of(node.op)]
    if is_whole(node):
        x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
        yield from integer_cell.bounds(integer_cell.coded(node.factors), x, y)
        return
    most = [np.abs(v.astype(np.int64)).sum(axis=-1) for v in (w.x, w.h)]
    sums = most[0] * reach(graph.tensors[node.inputs[0]]), most[1] * ONE
    parts = [(s * np.abs(w.m[:, i].astype(np.int64)) >> SUM_BITS) + 1 for i, s in enumerate(sums)]
    gate = parts[0] + parts[1]
    gate[:, :gates] += np.abs(w.b[:, :gates].astype(np.int64))
    yield Accumulator("a sum of inputs of a gate", int(sums[0].max()), INT32_MAX, SMALLER)
    yield Accumulator("a sum of the state of a gate", int(sums[1].max()), INT32_MAX, SMALLER)
    yield Accumulator(
        "a multiplier of a gate", int(np.abs(w.m.astype(np.int64)).max()) + 1, INT32_MAX, NORMALISED
    )
    yield Accumulator(
        "a gate", int(gate.max() + np.abs(w.b[:, 3].astype(np.int64)).max()), INT32_MAX, NORMALISED
    )
    yield Accumulator("a cell", int(p.rows) << ONE_BITS, INT32_MAX, "give the layer fewer steps in time")


def _unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    """A unit of a row."""
    p = c_struct(graph, node)
    rows = int(p.rows if strip is None else strip.h_out)
    work = GATES[cell_of(node.op)] * int(p.inputs + p.units) + 4 * OUTPUT
    rate = {"work": 1.0, "values": 1 / work, "rows": (int(p.inputs) + int(p.units)) / work}
    return Unit(work, rows * int(p.units) * work, rate, {"piece": 1.0})


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"{cell_of(node.op)}_fwd_s8({names.struct(STRUCT, node)}, {x}, {y}, {names.scratch()});"


def _scratch(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes(f"{cell_of(node.op)}_fwd", c_struct(graph, node))


# ---------------------------------------------------------------- as a stage of a stream


def _geometry(graph: Graph, node: Node) -> Record:
    """A row in, a row out, whoever reads what the rows before the last leave."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    return conv2d_struct(x.shape, (x.shape[0], 1, y.channels), Window(1, 1), x.zero, y.zero, 0)


def _state(graph: Graph, node: Node) -> int:
    return -(-hostlib.ask(f"{cell_of(node.op)}_state", c_struct(graph, node)) // 8) * 8


def _operands(names: Names, node: Node, offset: int) -> tuple[str, str, str]:
    return names.struct("rows", node), "NULL", names.scratch(offset)


def _before(names: Names, node: Node, offset: int) -> list[str]:
    return [f"recurrent_begin({names.scratch(offset)}, {_state(names.graph, node)});"]


def _stage_structs(names: Names, node: Node) -> str:
    return struct("conv2d", "rows", node.name, numbers(_geometry(names.graph, node)))


def _rows(names: Names, node: Node) -> str:
    state = "(void *)stage->b"
    return f"{cell_of(node.op)}_rows_s8({names.struct(STRUCT, node)}, p->h_out, x, y, {state}, scratch);"


def _rows_scratch(graph: Graph, node: Node) -> int:
    return hostlib.ask("recurrent_rows_scratch", c_struct(graph, node))


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    p, stored = c_struct(graph, node), stored_of(graph, node)
    return {
        "numbers": numbers(p),
        "tables": {name: [values.shape, values.ravel().tolist()] for name, values in vars(stored).items()},
    }


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]. By the twin: nothing learns behind which this is."""
    import torch

    stored = Stored(*(np.array(v).reshape(shape) for shape, v in step.facts["tables"].values()))
    p = Recurrent(**{**step.facts["numbers"], "x_zero": 0})
    ty, (runs, _, images) = run.network.tensors[step.output], x.shape[:3]
    rows = x.detach().cpu().numpy().transpose(0, 2, 3, 4, 1).reshape(runs, images, p.rows, p.inputs)
    made = recurrent_fwd(p, cell_of(step.op), stored, rows).astype(np.float32) - p.y_zero
    found = torch.tensor(made.reshape(runs, images, *ty.shape), device=x.device)
    return found.permute(0, 4, 1, 2, 3)


_KERNELS: dict[str, dict[str, Signature]] = {
    cell: {
        f"{cell}_fwd_s8": (None, (Recurrent, S8, S8, SCRATCH)),
        f"{cell}_fwd_scratch": (ctypes.c_uint32, (Recurrent,)),
        f"{cell}_rows_s8": (None, (Recurrent, NUMBER, S8, S8, SCRATCH, SCRATCH)),
        f"{cell}_state": (ctypes.c_uint32, (Recurrent,)),
        "recurrent_rows_scratch": (ctypes.c_uint32, (Recurrent,)),
        "recurrent_begin": (None, (SCRATCH, NUMBER)),
    }
    for cell in GATES
}


def _work(graph: Graph, node: Node) -> Terms:
    rows, units = graph.tensors[node.inputs[0]].shape[0], graph.tensors[node.outputs[0]].channels
    return by_size(graph, node) | {"rows": rows, "states": rows * units}


def _op(cell: str, last: bool) -> ForwardOp:
    kind = LastStage if last else TimeStage
    return ForwardOp(
        LAST[cell] if last else cell,
        shapes=_shape,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=_scratch,
        macs=_macs,
        way=one_way,
        work=_work,
        unit=_unit,
        in_place=not_in_place,
        kernels=_KERNELS[cell],
        header=HEADER,
        aten=NO_ATEN if last else OF_CELLS.get(cell, NO_ATEN),
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=no_gradient,
        leaves=Leaves.NOTHING,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{cell}_fwd_s8",
        struct=STRUCT,
        stage=kind(
            kind=None,
            mixes=True,
            geometry=_geometry,
            operands=_operands,
            structs=_stage_structs,
            biases=_state,
            before=_before,
            rows=_rows,
            scratch=_rows_scratch,
        ),
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    )


OPS: tuple[Op, ...] = tuple(_op(cell, last) for cell in GATES for last in (False, True))
