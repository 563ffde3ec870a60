"""A map whose rows and columns are weighted sums of another's (ir.Axis).

Averages of windows of different sizes, lines between pixels, and pixels that are repeated around a map.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.axis import Axis
from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names
from microtrain.convert.reference import tflite
from microtrain.convert.reference.hostlib import S8, U16, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import f32, quantize_error, rint_s32

from .aten.resample import ATEN, MOST_SIDE, RESAMPLE
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, reach
from .ctext import Table, struct
from .environment import Env
from .outputs import as_input, float32
from .stage import NOT_A_STAGE
from .table import (
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
    no_scratch,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import whole
from .work import Terms, by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

BACKWARD = f"{RESAMPLE}_bwd_x"
BLOCK = 8  # channels of which the kernel reads terms once
SAME_SIZE = "use windows of one size, or a smaller map"


class Resample(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h_in", "w_in", "h_out", "w_out", "c")),
        ("zero", ctypes.c_int16),
        ("unit", ctypes.c_float),
        ("divisor", ctypes.c_int32),
    )
    _tflite_ = ("divisor",)


def mixed(rows: Axis, columns: Axis, x: np.ndarray) -> np.ndarray:
    """The sums of x [..., h, w, c], float64; they are exact where x is whole."""
    across = np.einsum("ow,...hwc->...hoc", columns.matrix.astype(np.float64), x.astype(np.float64))
    made: np.ndarray = np.einsum("oh,...hwc->...owc", rows.matrix.astype(np.float64), across)
    return made


def resample_fwd(p: Resample, rows: Axis, columns: Axis, x: np.ndarray) -> np.ndarray:
    """The twin of resample_fwd_s8. x int8 [..., h_in, w_in, c]"""
    sums = mixed(rows, columns, x.astype(np.int64) - p.zero)
    if p.divisor:
        return tflite.away(sums.astype(np.int64) + p.zero * p.divisor, p.divisor).astype(np.int8)
    made: np.ndarray = (rint_s32(sums.astype(f32) * f32(p.unit), 1024.0) + p.zero).astype(np.int8)
    return made


def resample_bwd_x(p: Resample, rows: Axis, columns: Axis, ey: Any, clamp: Any) -> Any:
    """The twin of resample_bwd_x_s8. rows, columns: those of the gradient"""
    sums = mixed(rows, columns, ey.q).astype(np.int64)
    return quantize_error(sums, ey.scale * f32(p.unit), clamp)


def words(axis: Axis) -> np.ndarray:
    """The terms as they lie in flash, uint16."""
    return np.array([n for terms in axis.terms for n in (len(terms), *np.ravel(terms))], np.uint16)


def unit_of(node: Node) -> float:
    rows, columns = node.axes
    return float32(1.0 / (rows.whole * columns.whole))


def forward_of(graph: Graph, node: Node) -> Node:
    return graph.forward_named(node.name, (RESAMPLE,))


def c_struct(graph: Graph, node: Node) -> Resample:
    """The kernels' parameters, of a forward or a backward node."""
    forward = forward_of(graph, node)
    (rows, columns), x = forward.axes, graph.tensors[forward.inputs[0]]
    sizes = {"h_in": rows.inputs, "w_in": columns.inputs, "h_out": rows.outputs, "w_out": columns.outputs}
    divisor = rows.whole * columns.whole if graph.requantize == TFLITE else 0
    return Resample(**sizes, c=x.channels, zero=x.zero, unit=unit_of(node), divisor=divisor)


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    rows, columns = node.axes
    return ((rows.outputs, columns.outputs, graph.tensors[node.inputs[0]].channels),)


def _macs(graph: Graph, node: Node) -> int:
    """Copies have none."""
    return 0 if unit_of(node) == 1.0 else _terms(graph, node)


def _terms(graph: Graph, node: Node) -> int:
    rows, columns = (sum(map(len, axis.terms)) for axis in node.axes)
    return rows * columns * graph.tensors[node.inputs[0]].channels


def _work(graph: Graph, node: Node) -> Terms:
    """Terms are read once for a block of channels, and what is no copy is rounded."""
    channels, (rows, columns) = graph.tensors[node.inputs[0]].channels, node.axes
    macs, places = _macs(graph, node), rows.outputs * columns.outputs
    walks = {"blocks": macs // channels * -(-channels // BLOCK), "places": places}
    return by_size(graph, node) | walks | {"rounded": places * channels if macs else 0}


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        axes = tuple(axis.turned for axis in node.axes)
        tape.send(node.inputs[0], Node(BACKWARD, node.name, (error,), (), axes=axes))


def _run(env: Env, node: Node) -> None:
    x = env.values[node.inputs[0]]
    rows, columns = node.axes
    env.values[node.outputs[0]] = resample_fwd(c_struct(env.graph, node), rows, columns, x)


def _run_backward(env: Env, node: Node) -> None:
    (rows, columns), error, clamp = node.axes, env.values[node.inputs[0]], env.clamp(node.clamp)
    if env.real:
        result = env.backend.clamped(mixed(rows, columns, error) * float(f32(unit_of(node))), clamp)
    else:
        result = resample_bwd_x(c_struct(env.graph, node), rows, columns, error, clamp)
    env.values[node.outputs[0]] = result


def _table(axis: Axis) -> str:
    """Name of the table of an axis: by what it holds, so that nodes share it."""
    return f"terms_{hashlib.sha256(words(axis).tobytes()).hexdigest()[:12]}"


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    """Of the node, and of the gradient that comes back through it."""
    back = [n for n in graph.backward_nodes if n.op == BACKWARD and n.name == node.name]
    for axis in (axis for each in (node, *back) for axis in each.axes):
        terms = words(axis)
        yield Table(f"const uint16_t {_table(axis)}[{terms.size}]", terms, "tables")


def _call(names: Names, node: Node) -> str:
    rows, columns = map(_table, node.axes)
    ends = f"{names.at(node.inputs[0])}, {names.at(node.outputs[0])}"
    return f"{RESAMPLE}_fwd_s8({names.struct(RESAMPLE, node)}, {rows}, {columns}, {ends});"


def _call_backward(names: Names, node: Node) -> str:
    rows, columns = map(_table, node.axes)
    ends = f"{names.error(node.inputs[0])}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({names.struct(RESAMPLE, node)}, {rows}, {columns}, {ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct(RESAMPLE, RESAMPLE, node.name, c_struct(names.graph, node))


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Terms are numbered and weighted in uint16; those of a place weigh no more than the whole."""
    axes = node.axes
    sizes = max(n for axis in axes for n in (axis.inputs, axis.outputs))
    yield Accumulator("a height or a width", sizes, MOST_SIDE, SMALLER)
    yield Accumulator("a weight of a mean", max(axis.whole for axis in axes), MOST_SIDE, SAME_SIZE)
    most = reach(graph.tensors[node.inputs[0]]) * axes[0].whole * axes[1].whole
    yield Accumulator("a sum of weighted pixels", most, INT32_MAX, SAME_SIZE)


def _backward_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    rows, columns = (int(axis.matrix.sum(axis=1).max()) for axis in node.axes)
    yield Accumulator("a sum of weighted errors", rows * columns * ERROR, INT32_MAX, SAME_SIZE)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    rows, columns = node.axes
    made: np.ndarray = mixed(rows, columns, env[node.inputs[0]]) / (rows.whole * columns.whole)
    return made


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    rows, columns = node.axes
    return resample_fwd(c_struct(graph, node), rows, columns, env[node.inputs[0]])


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    return {"axes": [(axis.inputs, axis.terms) for axis in node.axes], "unit": unit_of(node)}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    rows, columns = (x.new_tensor(Axis(*axis).matrix) for axis in step.facts["axes"])
    return run.rounded(rows @ (x @ columns.T) * step.facts["unit"])


OPS: tuple[Op, ...] = (
    ForwardOp(
        RESAMPLE,
        shapes=_shape,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=_macs,
        way=one_way,
        work=_work,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{RESAMPLE}_fwd_s8": (None, (Resample, U16, U16, S8, S8))},
        header=RESAMPLE,
        aten=ATEN,
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.NOTHING,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{RESAMPLE}_fwd_s8",
        struct=RESAMPLE,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=_shape,
        run=_run_backward,
        call=_call_backward,
        accumulators=_backward_bounds,
        scratch=no_scratch,
        macs=_terms,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{BACKWARD}_s8": (None, (Resample, U16, U16, ErrorS8, Clamp, ErrorS8))},
        header=RESAMPLE,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
