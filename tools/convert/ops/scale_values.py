"""A map times a constant for each of its numbers: a window over time, a mask, the scale of a layer norm.

Its kernels are those of the product of two maps (scale.py), of which one is a table in flash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Graph, Node
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import tflite
from microtrain.convert.reference.numeric import f32, sat8
from microtrain.convert.reference.windows import centred, requantized

from . import multiply, scale
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, reach
from .ctext import Table, struct
from .environment import Env
from .outputs import float32
from .scale import MULTIPLY
from .stage import NOT_A_STAGE
from .table import NO_ATEN, Op, Values, in_place_of, no_macs

if TYPE_CHECKING:
    from .tape import Tape

VALUES = "scale_values"
BACKWARD = f"{VALUES}_bwd_x"
MOST = 127  # of a table's integers


def node_of(name: str, x: str, y: str, table: np.ndarray) -> Node:
    """table: real numbers [h, w, c]"""
    return Node(VALUES, name, (x,), (y,), factors=tuple(float(v) for v in table.ravel()))


def forward_of(graph: Graph, node: Node) -> Node:
    return graph.forward_named(node.name, (VALUES,))


def scale_of(node: Node) -> float:
    """Real value of a unit of the table."""
    most = max(max(node.factors), -min(node.factors))
    return float32(most / MOST) if most > 1e-30 else 1.0


def table_of(graph: Graph, node: Node) -> np.ndarray:
    """The table as it lies in flash, int8 [h, w, c]."""
    stored = np.rint(np.array(node.factors, f32) / f32(scale_of(node)))
    shape = graph.tensors[forward_of(graph, node).inputs[0]].shape
    result: np.ndarray = np.clip(stored, -MOST, MOST).astype(np.int8).reshape(shape)
    return result


def c_struct(graph: Graph, node: Node) -> scale.Scale:
    """The kernels' parameters, of either direction."""
    forward = forward_of(graph, node)
    x, y = (graph.tensors[t] for t in (forward.inputs[0], forward.outputs[0]))
    real = f32(x.scale) * f32(scale_of(forward)) / f32(y.scale)
    m, fine = np.array([real], f32), np.zeros(1, np.int32)
    if graph.requantize == TFLITE:
        m, fine = tflite.multipliers(m.astype(np.float64))
    return scale.Scale(x_zero=x.zero, s_zero=0, y_zero=y.zero, m=float(m[0]), fine=int(fine[0]))


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(BACKWARD, node.name, (error,), ()))


def _run(env: Env, node: Node) -> None:
    made = scale.scaled(c_struct(env.graph, node), env.values[node.inputs[0]], table_of(env.graph, node))
    env.values.update(zip(node.outputs, made, strict=False))


def _run_backward(env: Env, node: Node) -> None:
    table = table_of(env.graph, forward_of(env.graph, node))
    scale.run_to_map(env, node, c_struct(env.graph, node), table, 0)


def _table_name(node: Node) -> str:
    return f"value_table_{identifier(node.name)}"


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    y_of = names.graph.tensors[node.outputs[0]]
    sizes = f"{names.struct('scale', node)}, {y_of.pixels}, {y_of.channels}"
    return f"{MULTIPLY}_fwd_s8({sizes}, {x}, {_table_name(node)}, {y}, {names.mask_out(node)});"


def _call_backward(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    sizes = f"{names.struct('scale', node)}, {error.pixels}, {error.channels}"
    ends = f"0, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{multiply.BACKWARD}_s8({sizes}, {names.error(error.name)}, {_table_name(node)}, {ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("scale", "scale", node.name, c_struct(names.graph, node))


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    table = table_of(graph, node)
    yield Table(f"const int8_t {_table_name(node)}[{table.size}]", table, "tables")


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """A product is exact in float32."""
    x = graph.tensors[node.inputs[0]]
    yield Accumulator("a product of an input and a constant", reach(x) * MOST, 2**24, SMALLER)


def _error_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    yield Accumulator("an error times a constant", ERROR * MOST, INT32_MAX, SMALLER)


def _real_table(graph: Graph, node: Node) -> np.ndarray:
    return np.array(node.factors, f32).reshape(graph.tensors[node.inputs[0]].shape)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    made: np.ndarray = env[node.inputs[0]] * _real_table(graph, node)
    return made


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, table = c_struct(graph, node), table_of(graph, node)
    products = centred(env[node.inputs[0]], p.x_zero) * table.astype(f32)
    if p.fine:
        made = tflite.outputs(products, np.array([p.m], f32), np.array([p.fine], np.int32), p.y_zero)
        return sat8(made)
    return requantized(products * f32(p.m), p.y_zero)


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    """The table in units of the result by units of what it is multiplied with."""
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    table = table_of(graph, node).astype(np.float64) * (scale_of(node) * x.scale / y.scale)
    return {"table": table.tolist()}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    table = x.new_tensor(step.facts["table"]).permute(2, 0, 1)[None, :, None]
    return run.stored(step, x * table)


# ---------------------------------------------------------------- from a model file


def scaled(low: Lowering, call: Call, x: Act, table: np.ndarray) -> Act:
    """A map times a constant for each of its numbers, float32 [h, w, c]."""
    factors = node_of("", "", "", table).factors
    return low.emit(call, VALUES, (x,), low.shape(x), dims=x.dims, factors=factors)


_FORWARD, _BACKWARD = multiply.OPS

OPS: tuple[Op, ...] = (
    replace(
        scale.FORWARD,
        name=VALUES,
        run=_run,
        call=_call,
        accumulators=_bounds,
        macs=no_macs,
        in_place=in_place_of(0),
        kernels=_FORWARD.kernels,
        aten=NO_ATEN,  # the rules of products with constants make it
        float_run=_float_run,
        int8_run=_int8_run,
        gradient=_gradient,
        tables=_tables,
        layer_structs=_structs,
        kernel=f"{MULTIPLY}_fwd_s8",
        stage=NOT_A_STAGE,
        facts=_facts,
        parallel=_parallel,
    ),
    replace(
        scale.BACK_TO_MAP,
        name=BACKWARD,
        run=_run_backward,
        call=_call_backward,
        accumulators=_error_bounds,
        macs=no_macs,
        kernels=_BACKWARD.kernels,
    ),
)
