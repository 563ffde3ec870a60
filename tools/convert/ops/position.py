"""Tokens and a constant for each: learned positions, and tokens that stand before the others."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names, identifier, number
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import FACTOR, S8, U8, Clamp, ErrorS8, Record
from microtrain.convert.reference.kernels import Error
from microtrain.convert.reference.windows import centred, requantized

from . import add
from .bounds import INT16_MAX, SMALLER, Accumulator, no_integers, reach
from .ctext import Table, numbers, struct
from .environment import Env
from .outputs import by_range, float32
from .stage import NOT_A_STAGE
from .table import (
    NO_ATEN,
    NOT_ALIGNED,
    BackwardOp,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Updates,
    Values,
    gathers_channels,
    no_arrays,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

POSITION = "position"
BACKWARD = f"{POSITION}_bwd_x"
EIGHT = 8  # bits of a byte of a mask


class Position(Record):
    _fields_ = (("lead", ctypes.c_uint32), ("table", ctypes.c_void_p), ("add", add.Add))
    _arrays_: ClassVar = {"table": S8}


def position_fwd(p: reference.Add, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of position_fwd_s8: y and its mask. x int8 [pixels, c]; table int8 [lead + pixels, c]"""
    before = np.full((len(table) - len(x), x.shape[1]), p.a_zero, np.int8)
    return reference.add_fwd(p, np.concatenate([before, x]), table)


def position_bwd_x(ey: Error, lead: int, factor: float, clamp: Any) -> Error:
    """The twin of position_bwd_x_s8. ey.q int8 [lead + pixels, 1, c]"""
    return reference.error_pass(Error(ey.q[lead:], ey.scale), factor, clamp)


def node_of(name: str, x: str, y: str, lead: int, table: np.ndarray) -> Node:
    """table: real numbers, of every token of y"""
    return Node(POSITION, name, (x,), (y,), factors=(float(lead), *(float(v) for v in table.ravel())))


def forward_of(graph: Graph, node: Node) -> Node:
    return graph.forward_named(node.name, (POSITION,))


def lead_of(node: Node) -> int:
    return int(node.factors[0])


def real_table(graph: Graph, node: Node) -> np.ndarray:
    """Real numbers [lead + pixels, c]."""
    return np.array(node.factors[1:], np.float32).reshape(-1, graph.tensors[node.inputs[0]].channels)


def scale_of(node: Node) -> float:
    """Real value of a unit of the table."""
    most = max(max(node.factors[1:]), -min(node.factors[1:]))
    return float32(most / 127.0) if most > 1e-30 else 1.0


def table_of(graph: Graph, node: Node) -> np.ndarray:
    """The table as it lies in flash."""
    stored = np.rint(real_table(graph, node) / np.float32(scale_of(node)))
    return np.clip(stored, -127, 127).astype(np.int8)


def params(graph: Graph, node: Node) -> reference.Add:
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    return reference.Add(x.zero, 0, y.zero, x.scale, scale_of(node), y.scale)


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    """Tokens that come before others leave no rows and columns."""
    x, lead = graph.tensors[node.inputs[0]], lead_of(node)
    shape = (x.pixels + lead, 1, x.channels) if lead else x.shape
    return (shape,) * len(node.outputs)


def _error_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _in_place(graph: Graph, node: Node) -> Mapping[int, int]:
    return {} if lead_of(node) else {0: 0}


def _run(env: Env, node: Node) -> None:
    x, shape = env.values[node.inputs[0]], _shape(env.graph, node)[0]
    made = position_fwd(params(env.graph, node), x.reshape(-1, shape[2]), table_of(env.graph, node))
    env.values.update(zip(node.outputs, (v.reshape(shape) for v in made), strict=False))


def _run_backward(env: Env, node: Node) -> None:
    error, clamp = env.values[node.inputs[0]], env.clamp(node.clamp)
    lead, factor = (int(node.factors[1]), node.factors[0])
    shape = _error_shape(env.graph, node)[0]
    if env.real:
        result = env.backend.error_pass(error[lead:].reshape(shape), factor, clamp)
    else:
        mask = None if clamp.mask is None else clamp.mask.reshape(-1, 1, shape[2])
        made = position_bwd_x(error, lead, factor, reference.Clamp(mask, clamp.m))
        result = Error(made.q.reshape(shape), made.scale)
    env.values[node.outputs[0]] = result


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is None:
        return
    x, y = (tape.graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    factor, lead = x.scale / y.scale, lead_of(node)
    if lead:
        tape.send(x.name, Node(BACKWARD, node.name, (error,), (), factors=(factor, float(lead))))
    else:
        tape.send_copy(x.name, error, factor, node.name)


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"{POSITION}_fwd_s8({names.struct(POSITION, node)}, {x}, {y}, {names.mask_out(node)});"


def _call_backward(names: Names, node: Node) -> str:
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    ends = f"{number(node.factors[0])}, {names.clamp()}, {out}"
    return f"{BACKWARD}_s8({names.struct(POSITION, node)}, {error}, {ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    x, y = (names.graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    inner = numbers(add.params(params(names.graph, node), x.pixels, y.channels))
    text = ", ".join(f".{key} = {value}" for key, value in inner.items())
    fields = {"lead": lead_of(node), "table": f"position_table_{identifier(node.name)}", "add": f"{{{text}}}"}
    yield struct(POSITION, POSITION, node.name, fields)


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    table = table_of(graph, node)
    yield Table(f"const int8_t position_table_{identifier(node.name)}[{table.size}]", table, "tables")


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    most = max(reach(graph.tensors[node.inputs[0]]), 127)
    yield Accumulator("an input less its zero point", most, INT16_MAX, SMALLER)


def _joined(x: np.ndarray, lead: int) -> np.ndarray:
    """[n, h, w, c] as [n, lead + tokens, 1, c], with zeros in front."""
    n, _, _, c = x.shape
    return np.concatenate([np.zeros((n, lead, 1, c), x.dtype), x.reshape(n, -1, 1, c)], axis=1)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    shape = _shape(graph, node)[0]
    x = _joined(env[node.inputs[0]], lead_of(node)).reshape(-1, *shape)
    made: np.ndarray = x + real_table(graph, node).reshape(shape)
    return made


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, shape = params(graph, node), _shape(graph, node)[0]
    x = _joined(centred(env[node.inputs[0]], p.a_zero) * np.float32(p.a_scale), lead_of(node))
    table = table_of(graph, node).astype(np.float32) * np.float32(p.b_scale)
    sums = x.reshape(-1, *shape) + table.reshape(shape)
    return requantized(sums / np.float32(p.y_scale), p.y_zero)


def _passing(graph: Graph, node: Node) -> dict[str, float]:
    """Of errors behind a mask: of whole eights of channels they pass at once, of the rest one by one."""
    about = graph.tensors[node.outputs[0]]
    return by_size(graph, node) | {"out rest": about.pixels * (about.channels % EIGHT)}


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    table = table_of(graph, node).astype(np.float64) * scale_of(node)
    return {"lead": lead_of(node), "table": (table / graph.tensors[node.outputs[0]].scale).tolist()}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    import torch

    tx, ty = (run.network.tensors[t] for t in (step.inputs[0], step.output))
    runs, c, images = x.shape[:3]
    tokens = x.reshape(runs, c, images, -1) * (tx.scale / ty.scale)
    before = tokens.new_zeros((runs, c, images, step.facts["lead"]))
    table = tokens.new_tensor(step.facts["table"]).T[None, :, None]
    made = torch.cat([before, tokens], dim=3) + table
    return run.stored(step, made.reshape(runs, c, images, *ty.shape[:2]))


# ---------------------------------------------------------------- from a model file


def added(low: Lowering, call: Call, x: Act, name: str, table: np.ndarray) -> Act:
    """A map and a constant for each of its numbers, float32 [h * w * c] as they lie in memory."""
    return _emit(low, call, x, name, low.shape(x), 0, table)


def preceded(low: Lowering, call: Call, x: Act, name: str, tokens: np.ndarray) -> Act:
    """Constant tokens [lead, c] in front of those of a map."""
    h, w, c = low.shape(x)
    table = np.concatenate([tokens, np.zeros((h * w, c))])
    return _emit(low, call, x, name, (h * w + len(tokens), 1, c), len(tokens), table)


def joined(graph: Graph, first: Node, second: Node) -> Node:
    """Both constants in one table, where a node adds its own to what another one has made."""
    known = real_table(graph, first) + real_table(graph, second)
    return node_of(first.name, first.inputs[0], second.outputs[0], lead_of(first), known)


def _emit(low: Lowering, call: Call, x: Act, name: str, shape: Shape, lead: int, table: np.ndarray) -> Act:
    factors = node_of(name, "", "", lead, table).factors
    return low.emit(call, POSITION, (x,), shape, factors=factors)


OPS: tuple[Op, ...] = (
    ForwardOp(
        POSITION,
        shapes=_shape,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=_in_place,
        kernels={f"{POSITION}_fwd_s8": (None, (Position, S8, S8, U8))},
        header=POSITION,
        aten=NO_ATEN,
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{POSITION}_fwd_s8",
        struct=POSITION,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=_error_shape,
        run=_run_backward,
        call=_call_backward,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=_passing,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{BACKWARD}_s8": (None, (Position, ErrorS8, FACTOR, Clamp, ErrorS8))},
        header=POSITION,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
