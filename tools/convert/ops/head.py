"""The float head and its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape, Tensor
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference

from . import bounds
from .table import Op, in_place_of

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.passes.autodiff import Tape
    from microtrain.convert.reference.executor import Env


def forward_of(graph: Graph, node: Node) -> Node:
    return next(n for n in graph.forward_nodes if n.layer == node.layer)


def c_struct(graph: Graph, node: Node) -> hostlib.Head:
    """The kernels' parameter struct of the head."""
    forward = forward_of(graph, node)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    return hostlib.Head(pixels=x.pixels, c=x.channels, classes=y.channels, x_zero=x.zero, x_scale=x.scale)


def _logits_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((1, 1, len(graph.layers[node.layer or ""].weight)),)


def _same_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[node.inputs[0]].shape,)


def _features_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _no_output(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ()


def _macs(graph: Graph, node: Node) -> int:
    return int(graph.layers[node.layer or ""].weight.size)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Loss, error to the features (before the head's own update), head update."""
    logits = node.outputs[0]
    grad = f"grad:{logits}"
    tape.tensor(grad, logits, "f32")
    tape.append(Node(f"loss_{tape.loss}", node.name, (logits,), (grad,)))
    tape.send(node.inputs[0], Node("head_bwd_x", node.name, (grad,), (), layer=node.layer))
    tape.append(Node("head_bwd_w", node.name, (grad, node.inputs[0]), (), layer=node.layer))


def _scratch(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes("head_bwd_x", c_struct(graph, node))


def _call_forward(names: Names, node: Node) -> str:
    head, x, y = names.struct("head", node), names.at(node.inputs[0]), names.at(node.outputs[0])
    w, b = names.trained(node.layer or "", "weight"), names.trained(node.layer or "", "bias")
    return f"head_fwd_f32({head}, {x}, {w}, {b}, {y});"


def _call_loss(names: Names, node: Node) -> str:
    classes = names.graph.tensors[node.inputs[0]].channels
    logits, grad = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"const float loss = {node.op}_f32({classes}, {logits}, label, {grad});"


def _call_bwd_x(names: Names, node: Node) -> str:
    head, w = names.struct("head", node), names.trained(node.layer or "", "weight")
    grad, out = names.at(node.inputs[0]), names.error(node.outputs[0])
    return f"head_bwd_x_f32({head}, {grad}, {w}, {names.clamp()}, {out}, {names.scratch()});"


def _call_bwd_w(names: Names, node: Node) -> str:
    head = names.struct("head", node)
    w, b = names.trained(node.layer or "", "weight"), names.trained(node.layer or "", "bias")
    grad, x = (names.at(t) for t in node.inputs)
    return f"head_bwd_w_f32({head}, {grad}, {x}, {w}, {b}, sgd);"


def _features(env: Env, node: Node) -> tuple[Tensor, np.ndarray]:
    """The stored features that the head reads: their tensor and their int8 values."""
    name = forward_of(env.graph, node).inputs[0]
    return env.graph.tensors[name], env.values[name]


def _run_forward(env: Env, node: Node) -> None:
    tensor, x = _features(env, node)
    state = env.state[node.layer or ""]
    env.values[node.outputs[0]] = reference.head_fwd(x, tensor.zero, tensor.scale, state.weight, state.bias)


def _run_loss(env: Env, node: Node) -> None:
    loss, env.values[node.outputs[0]] = getattr(reference, node.op)(env.values[node.inputs[0]], env.label)
    env.loss = float(loss)


def _run_bwd_x(env: Env, node: Node) -> None:
    tensor, _ = _features(env, node)
    weight, grad = env.state[node.layer or ""].weight, env.values[node.inputs[0]]
    clamp = env.clamp(node.clamp)
    env.values[node.outputs[0]] = env.backend.head_bwd_x(tensor.shape, tensor.scale, grad, weight, clamp)


def _run_bwd_w(env: Env, node: Node) -> None:
    tensor, x = _features(env, node)
    name, grad = node.layer or "", env.values[node.inputs[0]]
    env.gradients[name, "weight"] = np.outer(grad, reference.features(x, tensor.zero, tensor.scale))
    env.gradients[name, "bias"] = grad
    if not env.real:
        state = env.state[name]
        state.weight, state.bias = reference.head_bwd_w(
            x, tensor.zero, tensor.scale, grad, state.weight, state.bias, env.sgd
        )


OPS = {
    "head": Op(_logits_shape, _run_forward, _call_forward, _gradient, accumulators=bounds.head, macs=_macs),
    "loss_cross_entropy": Op(
        _same_shape, _run_loss, _call_loss, accumulators=bounds.no_integers, in_place=in_place_of(0)
    ),
    "loss_mse": Op(
        _same_shape, _run_loss, _call_loss, accumulators=bounds.no_integers, in_place=in_place_of(0)
    ),
    "head_bwd_x": Op(
        _features_shape, _run_bwd_x, _call_bwd_x, accumulators=bounds.head, scratch=_scratch, macs=_macs
    ),
    "head_bwd_w": Op(_no_output, _run_bwd_w, _call_bwd_w, accumulators=bounds.head, macs=_macs, updates=True),
}
