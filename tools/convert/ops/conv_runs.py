"""Convolutions as they run here: in the executor, on batches of floats or int8 values, in the simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from microtrain.base.plan import FIXED, FLOAT
from microtrain.convert.ir import Graph, Node
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.numeric import sat8
from microtrain.convert.reference.windows import centred, requantized, window_sums

from . import conv_constants
from .bounds import forward_of, geometry, layer_guard
from .conv_constants import multipliers, qas_weights, weight_id
from .environment import Env
from .table import Values

EXACT_F32 = 2**24  # integers up to here, and sums that stay below it in any order, are exact in float32


def params(env: Env, node: Node) -> reference.Conv:
    x, y, window = geometry(env.graph, node)
    m, guard = multipliers(env.graph, forward_of(env.graph, node)), layer_guard(env.graph, node)
    ways = _ways(env.graph, forward_of(env.graph, node))
    return reference.Conv(x.shape, y.shape, window, x.zero, y.zero, m, guard, *ways)


def _ways(graph: Graph, node: Node) -> tuple[bool, np.ndarray | None]:
    """The fields `fixed` and `fine` of a convolution."""
    return graph.requantize == FIXED, conv_constants.fine(graph, node)


def run_forward(env: Env, node: Node) -> None:
    depthwise = env.graph.layers[node.layer or ""].depthwise
    kernel = reference.dwconv2d_fwd if depthwise else reference.conv2d_fwd
    state = env.state[node.layer or ""]
    results = kernel(params(env, node), env.values[node.inputs[0]], state.weight, state.bias)
    env.values.update(zip(node.outputs, results, strict=False))


def run_bwd_x(env: Env, node: Node) -> None:
    kernel = getattr(env.backend, node.op)
    weight = env.state[node.layer or ""].weight
    error = env.values[node.inputs[0]]
    env.values[node.outputs[0]] = kernel(params(env, node), error, weight, env.clamp(node.clamp))


def before(env: Env, name: str) -> reference.Trained:
    """The trained columns of a layer before their step."""
    layer, fraction = env.graph.layers[name], env.state[name].fraction
    number = weight_id(env.graph, name)
    return reference.Trained(
        env.trained_columns(name), fraction, layer.fraction_bits, qas_weights(layer), number
    )


def run_bwd_w(env: Env, node: Node) -> None:
    """The gradient of the trained columns; with int8 errors also their update."""
    name = node.layer or ""
    layer, p = env.graph.layers[name], params(env, node)
    error, x = env.values[node.inputs[0]], env.values[node.inputs[1]]
    if node.channels is not None:
        x = reference.gather(x, np.array(node.channels))
    sums = reference.dwconv2d_weight_sums_of if layer.depthwise else reference.conv2d_weight_sums_of
    gradient = env.gradient(error)
    gradient = gradient[:, :, list(layer.trained)] if layer.depthwise else gradient
    env.gradients[name, "weight"] = sums(p, gradient, x.astype(np.float64) - p.x_zero)
    if env.real:
        return
    if layer.depthwise:
        after = reference.dwconv2d_bwd_w(p, error, x, np.array(layer.trained), before(env, name), env.sgd)
    else:
        after = reference.conv2d_bwd_w(p, error, x, before(env, name), env.sgd)
    env.state[name].fraction = after.frac
    env.set_trained_columns(name, after.w)


def float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    assert node.window is not None, node.name
    layer = graph.layers[node.layer or ""]
    result: np.ndarray = window_sums(env[node.inputs[0]], layer.weight, node.window) + layer.bias
    return result


def int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    total, m = sums(graph, node, env[node.inputs[0]]), multipliers(graph, node)
    zero = graph.tensors[node.outputs[0]].zero
    if graph.requantize != FLOAT:
        return sat8(unclamped(graph, node, total))
    return requantized(total.astype(np.float32) * m, zero)


def unclamped(graph: Graph, node: Node, total: np.ndarray) -> np.ndarray:
    """What sums of a convolution, int64 [.., c_out], would be stored as if int8 had no ends."""
    zero = graph.tensors[node.outputs[0]].zero
    return reference.stored(total, multipliers(graph, node), zero, *_ways(graph, node))


def sums(graph: Graph, node: Node, stored: np.ndarray) -> np.ndarray:
    """The int32 sums of a convolution, bias included, as floats wide enough to hold every one exactly.

    stored  int8 [N, h, w, c_in]
    """
    assert node.window is not None, node.name
    layer = graph.layers[node.layer or ""]
    reach = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.bias), -1).sum(axis=1) * 255
    most = int((reach + np.abs(layer.bias.astype(np.int64))).max())
    wide = np.float32 if most < EXACT_F32 else np.float64
    x = centred(stored, graph.tensors[node.inputs[0]].zero).astype(wide, copy=False)
    result: np.ndarray = window_sums(x, layer.weight.astype(wide), node.window) + layer.bias.astype(wide)
    return result


def parallel_dense(run: Any, step: Any, x: Any) -> Any:
    return run.requantized(step, run.dense(step, x))


def parallel_depthwise(run: Any, step: Any, x: Any) -> Any:
    return run.requantized(step, run.depthwise(step, x))
