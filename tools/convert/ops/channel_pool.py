"""Mean and maximum over the channels of each pixel, as spatial attention makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import NUMBER, S8, U8, Clamp, ErrorS8, Signature
from microtrain.convert.reference.kernels import Error
from microtrain.convert.reference.numeric import f32, quantize_error

from .aten.pool import CHANNEL_MAXIMUM, CHANNEL_MEAN
from .bounds import INT32_MAX, STORED, Accumulator, Bounds, no_integers
from .environment import Env
from .outputs import as_input
from .stage import NOT_A_STAGE
from .table import (
    NO_ATEN,
    NOT_ALIGNED,
    BackwardOp,
    BatchRun,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Updates,
    Values,
    gathers_channels,
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

HEADER = "channel_pool"
FEWER = "give the map fewer channels"


def channel_mean_fwd(x: np.ndarray) -> np.ndarray:
    """The twin of channel_mean_fwd_s8. x int8 [..., c]"""
    sums = x.sum(axis=-1, keepdims=True, dtype=np.int64).astype(f32)
    made: np.ndarray = np.rint(sums / f32(x.shape[-1])).astype(np.int8)
    return made


def channel_max_fwd(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of channel_max_fwd_s8: y and the channel, the first of equals."""
    return x.max(axis=-1, keepdims=True), x.argmax(axis=-1).astype(np.uint8)[..., None]


def channel_mean_bwd_x(ey: Error, c: int, clamp: Any) -> Error:
    """The twin of channel_mean_bwd_x_s8."""
    return quantize_error(ey.q.astype(np.int64).repeat(c, axis=-1), ey.scale[0] / f32(c), clamp)


def channel_max_bwd_x(ey: Error, arg: np.ndarray, c: int, clamp: Any) -> Error:
    """The twin of channel_max_bwd_x_s8. arg [h, w, 1]"""
    return quantize_error(np.where(arg == np.arange(c), ey.q.astype(np.int64), 0), ey.scale[0], clamp)


def forward_of(graph: Graph, node: Node) -> Node:
    """The forward node that a gradient belongs to."""
    return graph.forward_named(node.name, (CHANNEL_MEAN, CHANNEL_MAXIMUM))


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return ((h, w, 1),) * len(node.outputs)


def _error_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _run_mean(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = channel_mean_fwd(env.values[node.inputs[0]])


def _run_maximum(env: Env, node: Node) -> None:
    env.values.update(zip(node.outputs, channel_max_fwd(env.values[node.inputs[0]]), strict=False))


def _run_backward(env: Env, node: Node) -> None:
    error, *arg = (env.values[t] for t in node.inputs)
    clamp, c = env.clamp(node.clamp), _error_shape(env.graph, node)[0][2]
    if env.real:
        shares = np.where(arg[0] == np.arange(c), 1.0, 0.0) if arg else np.full(c, 1.0 / c)
        result = env.backend.clamped(error * shares, clamp)
    elif arg:
        result = channel_max_bwd_x(error, arg[0], c, clamp)
    else:
        result = channel_mean_bwd_x(error, c, clamp)
    env.values[node.outputs[0]] = result


def _sizes(names: Names, tensor: str) -> str:
    x = names.graph.tensors[tensor]
    return f"{x.pixels}, {x.channels}"


def _call_mean(names: Names, node: Node) -> str:
    ends = f"{names.at(node.inputs[0])}, {names.at(node.outputs[0])}"
    return f"{node.op}_fwd_s8({_sizes(names, node.inputs[0])}, {ends});"


def _call_maximum(names: Names, node: Node) -> str:
    ends = f"{names.at(node.inputs[0])}, {names.at(node.outputs[0])}, {names.mask_out(node)}"
    return f"{node.op}_fwd_s8({_sizes(names, node.inputs[0])}, {ends});"


def _call_backward(names: Names, node: Node) -> str:
    arg = "".join(f"{names.at(t)}, " for t in node.inputs[1:])
    ends = f"{names.error(node.inputs[0])}, {arg}{names.clamp()}, {names.error(node.outputs[0])}"
    return f"{node.op}_s8({_sizes(names, node.outputs[0])}, {ends});"


def _mean_gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(f"{node.op}_bwd_x", node.name, (error,), ()))


def _maximum_gradient(tape: Tape, node: Node, error: str | None) -> None:
    """To the channel that was the largest: the forward pass writes that down."""
    if error is not None:
        inputs = (error, tape.left_by(node))
        tape.send(node.inputs[0], Node(f"{node.op}_bwd_x", node.name, inputs, ()))


def _mean_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    most = graph.tensors[node.inputs[0]].channels * STORED
    yield Accumulator("a sum of all channels", most, INT32_MAX, FEWER)


def _maximum_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """The channel of the maximum takes a byte."""
    most = graph.tensors[node.inputs[0]].channels - 1
    yield Accumulator("the channel of a maximum", most, 255, FEWER)


def _float_mean(graph: Graph, node: Node, env: Values) -> np.ndarray:
    made: np.ndarray = env[node.inputs[0]].mean(axis=-1, keepdims=True)
    return made


def _int8_mean(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return channel_mean_fwd(env[node.inputs[0]])


def _largest(graph: Graph, node: Node, env: Values) -> np.ndarray:
    made: np.ndarray = env[node.inputs[0]].max(axis=-1, keepdims=True)
    return made


def _parallel_mean(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w], less its zero, which the mean is rounded with"""
    zero = run.network.tensors[step.inputs[0]].zero
    return run.rounded(x.mean(dim=1, keepdim=True) + zero) - zero


def _parallel_maximum(run: Any, step: Any, x: Any) -> Any:
    return x.max(dim=1, keepdim=True).values  # the gradient goes to the first of equals


def _forward(
    name: str,
    run: Callable[[Env, Node], None],
    call: Callable[[Names, Node], str],
    bounds: Bounds,
    arguments: Signature,
    batched: tuple[BatchRun, BatchRun],
    gradient: Callable[[Tape, Node, str | None], None],
    parallel: Callable[..., Any],
) -> ForwardOp:
    is_mean = name == CHANNEL_MEAN
    return ForwardOp(
        name,
        shapes=_shape,
        run=run,
        call=call,
        accumulators=bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{name}_fwd_s8": arguments},
        header=HEADER,
        aten=NO_ATEN,  # the rules of means and maxima make them (aten/pool.py)
        folds=Folds.NOTHING if is_mean else Folds.RELU_PASSES,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=batched[0],
        int8_run=batched[1],
        gathers=gathers_channels,
        gradient=gradient,
        leaves=Leaves.NOTHING if is_mean else Leaves.POSITIONS,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=no_structs,
        kernel=f"{name}_fwd_s8",
        struct="channels_of",
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=no_facts,
        parallel=parallel,
        statistics=no_statistics,
    )


def _backward(name: str, positions: tuple[Any, ...]) -> BackwardOp:
    takes = {f"{name}_bwd_x_s8": (None, (NUMBER, NUMBER, ErrorS8, *positions, Clamp, ErrorS8))}
    kernels: Mapping[str, Signature] = takes
    return BackwardOp(
        f"{name}_bwd_x",
        shapes=_error_shape,
        run=_run_backward,
        call=_call_backward,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels=kernels,
        header=HEADER,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


OPS: tuple[Op, ...] = (
    _forward(
        CHANNEL_MEAN,
        _run_mean,
        _call_mean,
        _mean_bounds,
        (None, (NUMBER, NUMBER, S8, S8)),
        (_float_mean, _int8_mean),
        _mean_gradient,
        _parallel_mean,
    ),
    _backward(CHANNEL_MEAN, ()),
    _forward(
        CHANNEL_MAXIMUM,
        _run_maximum,
        _call_maximum,
        _maximum_bounds,
        (None, (NUMBER, NUMBER, S8, S8, U8)),
        (_largest, _largest),
        _maximum_gradient,
        _parallel_maximum,
    ),
    _backward(CHANNEL_MAXIMUM, (U8,)),
)
