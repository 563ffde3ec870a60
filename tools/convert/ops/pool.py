"""Average and maximum pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from microtrain.convert.ir import Graph, Node, Shape, Window, out_size
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference

from . import bounds
from .table import Op

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.passes.autodiff import Tape
    from microtrain.convert.reference.executor import Env


def window_of(node: Node) -> Window:
    assert node.window is not None, node.name
    return node.window


def c_struct(graph: Graph, node: Node) -> hostlib.Pool:
    """The kernels' parameter struct of a pooling layer."""
    forward = forward_of(graph, node)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    return hostlib.pool_struct(x.shape, y.shape, window_of(forward), x.zero)


def forward_of(graph: Graph, node: Node) -> Node:
    return next(
        n for n in graph.forward_nodes if n.name == node.name and n.op == node.op.removesuffix("_bwd_x")
    )


def _forward_shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, c = graph.tensors[node.inputs[0]].shape
    k = window_of(node)
    shape = (out_size(h, k.kh, k.stride_h, k.pad_h), out_size(w, k.kw, k.stride_w, k.pad_w), c)
    return (shape,) * len(node.outputs)


def _input_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _gradient_average(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node("avgpool_bwd_x", node.name, (error,), ()))


def _gradient_maximum(tape: Tape, node: Node, error: str | None) -> None:
    """The error goes to where the maximum stood: the forward pass writes that down."""
    if error is not None:
        positions = tape.tensor(f"arg:{node.outputs[0]}", node.outputs[0], "u8")
        tape.send(node.inputs[0], Node("maxpool_bwd_x", node.name, (error, positions), ()))


def _scratch(kernel: str) -> Callable[[Graph, Node], int]:
    def scratch(graph: Graph, node: Node) -> int:
        return hostlib.scratch_bytes(kernel, c_struct(graph, node))

    return scratch


def _call_average(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"avgpool_fwd_s8({names.struct('pool', node)}, {x}, {y});"


def _call_maximum(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"maxpool_fwd_s8({names.struct('pool', node)}, {x}, {y}, {names.mask_out(node)});"


def _call_bwd_x(names: Names, node: Node) -> str:
    positions = f"{names.at(node.inputs[1])}, " if len(node.inputs) > 1 else ""
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    pool = names.struct("pool", node)
    return f"{node.op}_s8({pool}, {error}, {positions}{names.clamp()}, {out}, {names.scratch()});"


def _params(env: Env, node: Node) -> reference.Pool:
    forward = forward_of(env.graph, node)
    x, y = env.graph.tensors[forward.inputs[0]], env.graph.tensors[forward.outputs[0]]
    return reference.Pool(x.shape, y.shape, window_of(forward), x.zero)


def _run_average(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = reference.avgpool_fwd(_params(env, node), env.values[node.inputs[0]])


def _run_maximum(env: Env, node: Node) -> None:
    results = reference.maxpool_fwd(_params(env, node), env.values[node.inputs[0]])
    env.values.update(zip(node.outputs, results, strict=False))


def _run_bwd_x(env: Env, node: Node) -> None:
    kernel = getattr(env.backend, node.op)
    inputs = (env.values[t] for t in node.inputs)
    env.values[node.outputs[0]] = kernel(_params(env, node), *inputs, env.clamp(node.clamp))


def _bwd(kernel: str) -> Op:
    return Op(
        _input_shape, _run_bwd_x, _call_bwd_x, accumulators=bounds.pool_gradient, scratch=_scratch(kernel)
    )


OPS = {
    "avgpool": Op(
        _forward_shapes, _run_average, _call_average, _gradient_average, accumulators=bounds.average_pool
    ),
    "avgpool_bwd_x": _bwd("avgpool_bwd_x"),
    "maxpool": Op(
        _forward_shapes, _run_maximum, _call_maximum, _gradient_maximum, accumulators=bounds.maximum_pool
    ),
    "maxpool_bwd_x": _bwd("maxpool_bwd_x"),
}
