"""A map seen as another one: its numbers stay where they are, only what a channel is differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import NUMBER, S8, Clamp, ErrorS8
from microtrain.convert.reference.kernels import Error, error_pass

from .aten.unflatten import ATEN, UNFLATTEN
from .bounds import no_integers
from .environment import Env
from .outputs import as_input
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
    in_place_of,
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

BACKWARD = f"{UNFLATTEN}_bwd_x"


def unflatten_bwd_x(ey: Error, shape: Shape, clamp: Any) -> Error:
    """The twin of unflatten_bwd_x_s8. shape: of ex, (h, w, c), whose c those of ey divide"""
    return error_pass(Error(ey.q.reshape(shape), np.tile(ey.scale, shape[2] // len(ey.scale))), 1.0, clamp)


def map_of(node: Node) -> Shape:
    """(h, w, c) of the map."""
    h, w, c = node.factors
    return int(h), int(w), int(c)


def node_of(name: str, x: str, y: str, shape: Shape) -> Node:
    """A map as another one of this shape."""
    return Node(UNFLATTEN, name, (x,), (y,), factors=tuple(float(n) for n in shape))


def _map_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (map_of(node),) * len(node.outputs)


def _shape_before(graph: Graph, node: Node) -> tuple[Shape, ...]:
    """That of the map which the layer of a backward node saw as another one."""
    return (graph.tensors[graph.forward_named(node.name, (UNFLATTEN,)).inputs[0]].shape,)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(BACKWARD, node.name, (error,), ()))


def _run(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = env.values[node.inputs[0]].reshape(map_of(node))


def _run_backward(env: Env, node: Node) -> None:
    error, clamp = env.values[node.inputs[0]], env.clamp(node.clamp)
    (shape,) = _shape_before(env.graph, node)
    if env.real:
        result = env.backend.error_pass(error.reshape(shape), 1.0, clamp)
    else:
        result = unflatten_bwd_x(error, shape, clamp)
    env.values[node.outputs[0]] = result


def _call(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    return f"{UNFLATTEN}_fwd_s8({x.elements}, {names.at(x.name)}, {names.at(node.outputs[0])});"


def _call_backward(names: Names, node: Node) -> str:
    y, ((h, w, c),) = names.graph.tensors[node.inputs[0]], _shape_before(names.graph, node)
    ends = f"{names.error(y.name)}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({h * w}, {c}, {y.channels}, {ends});"


def _values(graph: Graph, node: Node, env: Values) -> np.ndarray:
    x = env[node.inputs[0]]
    return x.reshape(*x.shape[:-3], *map_of(node))


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    h, w, c = run.network.tensors[step.output].shape
    runs, images = x.shape[0], x.shape[2]
    return x.permute(0, 2, 3, 4, 1).reshape(runs, images, h, w, c).permute(0, 4, 1, 2, 3)


OPS: tuple[Op, ...] = (
    ForwardOp(
        UNFLATTEN,
        shapes=_map_shape,
        run=_run,
        call=_call,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{UNFLATTEN}_fwd_s8": (None, (NUMBER, S8, S8))},
        header=UNFLATTEN,
        aten=ATEN,
        folds=Folds.RELU_PASSES,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=_values,
        int8_run=_values,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.NOTHING,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=no_structs,
        kernel=f"{UNFLATTEN}_fwd_s8",
        struct=UNFLATTEN,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=no_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=_shape_before,
        run=_run_backward,
        call=_call_backward,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{BACKWARD}_s8": (None, (NUMBER, NUMBER, NUMBER, ErrorS8, Clamp, ErrorS8))},
        header=UNFLATTEN,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
