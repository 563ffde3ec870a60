"""The float head and its loss."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape, Tensor
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import F32, S8, SCRATCH, Clamp, ErrorS8, Record, Sgd
from microtrain.convert.reference.windows import centred

from . import regression
from .bounds import INT32_MAX, Accumulator
from .ctext import struct
from .environment import Env
from .losses import AGAINST_A_LABEL, loss
from .outputs import stays_float
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
    no_facts,
    no_output,
    no_scratch,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape


HEAD = "head"


class Head(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("pixels", "c", "classes")),
        ("x_zero", ctypes.c_int16),
        ("x_scale", ctypes.c_float),
    )


def node_of(name: str, x: str, logits: str) -> Node:
    """The head of a layer of that name."""
    return Node(HEAD, name, (x,), (logits,), name)


def forward_of(graph: Graph, node: Node) -> Node:
    return next(n for n in graph.forward_nodes if n.layer == node.layer)


def c_struct(graph: Graph, node: Node) -> Head:
    """The kernels' parameter struct of the head."""
    forward = forward_of(graph, node)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    return Head(pixels=x.pixels, c=x.channels, classes=y.channels, x_zero=x.zero, x_scale=x.scale)


def _logits_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((1, 1, len(graph.layers[node.layer or ""].weight)),)


def _features_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _macs(graph: Graph, node: Node) -> int:
    return int(graph.layers[node.layer or ""].weight.size)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Loss, error to the features (before the head's own update), head update.

    A loss in units has two results: one for the head, one for the features.
    """
    logits, op = node.outputs[0], f"loss_{tape.loss}"
    up = down = tape.tensor(f"grad:{logits}", logits, "f32")
    if op in regression.COSTS:
        down = tape.tensor(f"down:{logits}", logits, "f32")
    tape.append(Node(op, node.name, (logits,), tuple(dict.fromkeys((up, down)))))
    tape.send(node.inputs[0], Node("head_bwd_x", node.name, (down,), (), layer=node.layer))
    tape.append(Node("head_bwd_w", node.name, (up, node.inputs[0]), (), layer=node.layer))


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


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Sums are float32; counts are uint16, and weights are numbered in 32 bits."""
    forward = forward_of(graph, node)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    way_out = "pool the features, or have fewer classes"
    most = max(x.pixels, x.channels, y.channels)
    yield Accumulator("a number of pixels, channels or classes", most, 65535, way_out)
    yield Accumulator("the number of a weight", x.elements * y.channels, INT32_MAX, way_out)


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("head", "head", node.layer or "", c_struct(names.graph, node))


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    layer, x = graph.layers[node.layer or ""], env[node.inputs[0]]
    result: np.ndarray = (x.reshape(len(x), -1) @ layer.weight.T + layer.bias).reshape(len(x), 1, 1, -1)
    return result


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    """The sums in the device's order: from the bias on, feature by feature."""
    layer, x = graph.layers[node.layer or ""], graph.tensors[node.inputs[0]]
    features = centred(env[x.name], x.zero) * np.float32(x.scale)
    flat = features.reshape(len(features), -1)
    result = np.tile(layer.bias.astype(np.float32), (len(flat), 1))
    for column, feature in zip(layer.weight.astype(np.float32).T, flat.T, strict=True):
        result += feature[:, None] * column
    return result.reshape(len(flat), 1, 1, -1)


def _arrays(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    layer = graph.layers[node.layer or ""]
    return {"weight": layer.weight, "bias": layer.bias}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    scale, name = run.network.tensors[step.inputs[0]].scale, step.layer
    features = (x * scale).permute(0, 2, 3, 4, 1).flatten(2)
    weight, bias = run.parameters[name, "head_weight"], run.parameters[name, "head_bias"]
    return features @ weight.transpose(1, 2) + bias[:, None]


FORWARD = ForwardOp(
    HEAD,
    shapes=_logits_shape,
    run=_run_forward,
    call=_call_forward,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={"head_fwd_f32": (None, (Head, S8, F32, F32, F32))},
    header="head",
    aten=NO_ATEN,  # the last linear layer becomes it
    folds=Folds.NOTHING,
    learns=Learns.HEAD,
    output=stays_float,
    float_run=_float_run,
    int8_run=_int8_run,
    gathers=gathers_channels,
    gradient=_gradient,
    leaves=Leaves.NOTHING,
    tables=regression.tables,
    layer_structs=no_structs,
    step_structs=_structs,
    kernel="head_fwd_f32",
    struct="head",
    stage=NOT_A_STAGE,
    arrays=_arrays,
    facts=no_facts,
    parallel=_parallel,
    statistics=no_statistics,
)
INPUT_GRADIENT = BackwardOp(
    "head_bwd_x",
    shapes=_features_shape,
    run=_run_bwd_x,
    call=_call_bwd_x,
    accumulators=_bounds,
    scratch=_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={
        "head_bwd_x_f32": (None, (Head, F32, F32, Clamp, ErrorS8, SCRATCH)),
        "head_bwd_x_scratch": (ctypes.c_uint32, (Head,)),
    },
    header="head",
    updates=Updates.NOTHING,
    reads_weights=True,
    guard=NOT_ALIGNED,
)
UPDATE = BackwardOp(
    "head_bwd_w",
    shapes=no_output,
    run=_run_bwd_w,
    call=_call_bwd_w,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={"head_bwd_w_f32": (None, (Head, F32, S8, F32, F32, Sgd))},
    header="head",
    updates=Updates.HEAD,
    reads_weights=False,
    guard=NOT_ALIGNED,
)

OPS: tuple[Op, ...] = (
    FORWARD,
    loss("loss_cross_entropy", _run_loss, _call_loss, "head", AGAINST_A_LABEL),
    loss("loss_mse", _run_loss, _call_loss, "head", AGAINST_A_LABEL),
    INPUT_GRADIENT,
    UPDATE,
)
