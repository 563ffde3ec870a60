"""The product of two maps, value by value: a gate, as in gated linear units.

Its kernels stand beside those of a map times one factor per channel (scale.py), whose parameters it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node
from microtrain.convert.lowering import Call, Lowering
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import NUMBER, S8, U8, Clamp, ErrorS8
from microtrain.convert.reference.numeric import f32, quantize_error
from microtrain.convert.reference.windows import centred, requantized

from .activations import SIGMOID
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, reach
from .ctext import struct
from .environment import Env
from .outputs import by_range
from .scale import MULTIPLY, Scale, product, scaled
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
    in_place_of,
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_structs,
    no_tables,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

BACKWARD = f"{MULTIPLY}_bwd_x"


def multiply_maps_bwd_x(p: Scale, ey: Any, other: np.ndarray, second: bool, clamp: Any) -> Any:
    """The twin of multiply_maps_bwd_x_s8."""
    sums = ey.q.astype(np.int64) * (other.astype(np.int64) - (p.x_zero if second else p.s_zero))
    return quantize_error(sums, ey.scale * f32(p.m), clamp)


def forward_of(graph: Graph, node: Node) -> Node:
    """The product that a node belongs to; no two have one name."""
    return next(n for n in graph.forward_layers if n.name == node.name and n.op == MULTIPLY)


def _struct(graph: Graph, node: Node) -> Scale:
    return product(graph, forward_of(graph, node))


def is_second(graph: Graph, node: Node) -> bool:
    """Whether an error is that of the second map: the first is what it is multiplied with."""
    return forward_of(graph, node).inputs[0] == node.inputs[1]


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Each factor's error is that of the product times the other."""
    if error is not None:
        a, b = node.inputs
        tape.send(a, Node(BACKWARD, node.name, (error, b), ()))
        tape.send(b, Node(BACKWARD, node.name, (error, a), ()))


def _run(env: Env, node: Node) -> None:
    a, b = (env.values[t] for t in node.inputs)
    env.values.update(zip(node.outputs, scaled(_struct(env.graph, node), a, b), strict=False))


def _run_backward(env: Env, node: Node) -> None:
    p, clamp = _struct(env.graph, node), env.clamp(node.clamp)
    error, other = (env.values[t] for t in node.inputs)
    if env.real:
        zero = env.graph.tensors[node.inputs[1]].zero
        result = env.backend.clamped(error * ((other.astype(np.float64) - zero) * p.m), clamp)
    else:
        result = multiply_maps_bwd_x(p, error, other, is_second(env.graph, node), clamp)
    env.values[node.outputs[0]] = result


def _sizes(names: Names, node: Node, tensor: str) -> str:
    about = names.graph.tensors[tensor]
    return f"{names.struct('scale', node)}, {about.pixels}, {about.channels}"


def _call(names: Names, node: Node) -> str:
    a, b, y = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    return (
        f"{MULTIPLY}_fwd_s8({_sizes(names, node, node.outputs[0])}, {a}, {b}, {y}, {names.mask_out(node)});"
    )


def _call_backward(names: Names, node: Node) -> str:
    error, other = node.inputs
    ends = f"{int(is_second(names.graph, node))}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({_sizes(names, node, error)}, {names.error(error)}, {names.at(other)}, {ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("scale", "scale", node.name, product(names.graph, node))


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """A product is exact in float32."""
    a, b = (graph.tensors[t] for t in node.inputs)
    yield Accumulator("a product of two inputs", reach(a) * reach(b), 2**24, SMALLER)


def _backward_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    other = graph.tensors[node.inputs[1]]
    yield Accumulator("an error times a factor", ERROR * reach(other), INT32_MAX, SMALLER)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return env[node.inputs[0]] * env[node.inputs[1]]


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, (a, b) = product(graph, node), (env[t] for t in node.inputs)
    return requantized(centred(a, p.x_zero) * centred(b, p.s_zero) * f32(p.m), p.y_zero)


def _parallel(run: Any, step: Any, a: Any, b: Any) -> Any:
    ta, tb, ty = (run.network.tensors[t] for t in (*step.inputs, step.output))
    return run.stored(step, a * b * (ta.scale * tb.scale / ty.scale))


def glu(low: Lowering, call: Call, natural: Callable[[Lowering, Call], Any]) -> Any:
    """The first half of the channels times a gate that the second opens. natural: makes what a call means"""
    halves = {"self": call.x, "chunks": 2, "dim": call.get("dim", -1)}
    made, gate = natural(low, replace(call, op="chunk", args=halves))
    gate = natural(low, replace(call, op=SIGMOID, args={"self": gate}))
    return natural(low, replace(call, op="mul", args={"self": made, "other": gate}))


_SIZED = (Scale, NUMBER, NUMBER)

OPS: tuple[Op, ...] = (
    ForwardOp(
        MULTIPLY,
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0, 1),
        kernels={f"{MULTIPLY}_fwd_s8": (None, (*_SIZED, S8, S8, S8, U8))},
        header="scale",
        aten=NO_ATEN,  # the rule of mul makes it (scale.py)
        folds=Folds.RELU,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=no_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{MULTIPLY}_fwd_s8",
        struct="scale",
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=no_facts,
        parallel=_parallel,
    ),
    BackwardOp(
        BACKWARD,
        shapes=shape_of_input,
        run=_run_backward,
        call=_call_backward,
        accumulators=_backward_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{BACKWARD}_s8": (None, (*_SIZED, ErrorS8, S8, NUMBER, Clamp, ErrorS8))},
        header="scale",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
