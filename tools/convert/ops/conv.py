"""Convolution, dense and depthwise: forward, gradient to the input, gradient to the weights and update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node, Shape, out_size
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference

from . import bounds
from .bounds import bias_limit, forward_of, geometry, guard_bits
from .table import Op, not_in_place

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.passes.autodiff import Tape
    from microtrain.convert.reference.executor import Env


def c_struct(graph: Graph, node: Node) -> hostlib.Conv2d:
    """The kernels' parameter struct of a node's layer, without its table of multipliers."""
    x, y, k = geometry(graph, node)
    return hostlib.conv2d_struct(x.shape, y.shape, k, x.zero, y.zero, guard_bits(x.shape, y.shape, k))


def _forward_shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    _, _, k = geometry(graph, node)
    c_out = graph.layers[node.layer or ""].weight.shape[0]
    shape = (out_size(h, k.kh, k.stride_h, k.pad_h), out_size(w, k.kw, k.stride_w, k.pad_w), c_out)
    return (shape,) * len(node.outputs)


def _input_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (geometry(graph, node)[0].shape,)


def _no_output(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ()


def _gather_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return ((h, w, len(node.channels or ())),)


def _macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of the forward pass; those of the gradient to the input are as many."""
    return geometry(graph, node)[1].pixels * int(graph.layers[node.layer or ""].weight.size)


def _macs_weights(graph: Graph, node: Node) -> int:
    layer = graph.layers[node.layer or ""]
    return _macs(graph, node) * len(layer.trained) // layer.columns


def _macs_bias(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[0]].elements


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Bias update, error to the input, weight update; the last comes after its weights were read."""
    if error is None:
        return
    x = node.inputs[0]
    tape.append(Node("bias_update", node.name, (error,), (), layer=node.layer))
    tape.send(x, Node(f"{node.op}_bwd_x", node.name, (error,), (), layer=node.layer))
    tape.append(Node(f"{node.op}_bwd_w", node.name, (error, x), (), layer=node.layer))


def _scratch(kernel: str) -> Callable[[Graph, Node], int]:
    def scratch(graph: Graph, node: Node) -> int:
        return hostlib.scratch_bytes(kernel, c_struct(graph, node))

    return scratch


def _scratch_weights(kernel: str) -> Callable[[Graph, Node], int]:
    def scratch(graph: Graph, node: Node) -> int:
        trained = len(graph.layers[node.layer or ""].trained)
        return hostlib.scratch_bytes(kernel, c_struct(graph, node), trained) if trained else 0

    return scratch


def biases_bytes(graph: Graph, node: Node) -> int:
    """Scratch for the expanded biases of a forward node; 0 where they are frozen."""
    layer = graph.layers[node.layer or ""]
    return -(-4 * len(layer.bias) // 8) * 8 if layer.bias_trained else 0


def _scratch_forward(kernel: str) -> Callable[[Graph, Node], int]:
    """Expanded biases, then the kernel's scratch."""
    own = _scratch(kernel)
    return lambda graph, node: biases_bytes(graph, node) + own(graph, node)


def expand_biases(names: Names, node: Node, offset: int) -> tuple[str, list[str]]:
    """Where a layer's biases are when it runs, and what must run before that: none for frozen ones.

    offset  from the start of the step's scratch
    """
    layer = node.layer or ""
    if not names.graph.layers[layer].bias_trained:
        return names.frozen_bias(layer), []
    at, count = names.scratch(offset), len(names.graph.layers[layer].bias)
    return at, [f"bias_expand_s32({count}, {names.struct('bias', node)}, {at});"]


def _call_forward(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    conv, weights = names.struct("conv", node), names.struct("weights", node)
    bias, before = expand_biases(names, node, 0)
    scratch = names.scratch(biases_bytes(names.graph, node))
    call = f"{node.op}_fwd_s8({conv}, {x}, {weights}, {bias}, {y}, {names.mask_out(node)}, {scratch});"
    return "\n".join([*before, call])


def _call_bwd_x(names: Names, node: Node) -> str:
    conv, weights = names.struct("conv", node), names.struct("weights", node)
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    return f"{node.op}_s8({conv}, {error}, {weights}, {names.clamp()}, {out}, {names.scratch()});"


def _call_bwd_w(names: Names, node: Node) -> str:
    conv, trained = names.struct("conv", node), names.struct("trained", node)
    layer = names.graph.layers[node.layer or ""]
    count = len(layer.trained)
    rows = ""
    if layer.depthwise:
        rows = f"{names.channels(node)}, " if count < layer.columns else "NULL, "
    saved = names.struct("saved", node)
    error = names.error(node.inputs[0])
    return f"{node.op}_s8({conv}, {error}, {saved}, {rows}{count}, {trained}, sgd, {names.scratch()});"


def _call_bias(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    bias = names.struct("bias", node)
    return f"bias_update_s32({error.pixels}, {error.channels}, {names.error(error.name)}, {bias}, sgd);"


def _call_gather(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    kept, out = len(node.channels or ()), names.at(node.outputs[0])
    return f"gather_s8({x.pixels}, {x.channels}, {names.at(x.name)}, {names.channels(node)}, {kept}, {out});"


def _params(env: Env, node: Node) -> reference.Conv:
    x, y, window = geometry(env.graph, node)
    m, guard = multipliers(env.graph, forward_of(env.graph, node)), guard_bits(x.shape, y.shape, window)
    return reference.Conv(x.shape, y.shape, window, x.zero, y.zero, m, guard)


def multipliers(graph: Graph, node: Node) -> np.ndarray:
    """m[c] = s_x * s_w[c] / s_y of a convolution, worked out in double, stored as float32."""
    layer = graph.layers[node.layer or ""]
    assert layer.weight_scale is not None
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return (x.scale * layer.weight_scale / y.scale).astype(np.float32)


def _run_forward(env: Env, node: Node) -> None:
    kernel = reference.dwconv2d_fwd if node.op == "dwconv2d" else reference.conv2d_fwd
    state = env.state[node.layer or ""]
    results = kernel(_params(env, node), env.values[node.inputs[0]], state.weight, state.bias)
    env.values.update(zip(node.outputs, results, strict=False))


def _run_bwd_x(env: Env, node: Node) -> None:
    kernel = getattr(env.backend, node.op)
    weight = env.state[node.layer or ""].weight
    error = env.values[node.inputs[0]]
    env.values[node.outputs[0]] = kernel(_params(env, node), error, weight, env.clamp(node.clamp))


def _run_bwd_w(env: Env, node: Node) -> None:
    """The gradient of the trained columns; with int8 errors also their update."""
    name = node.layer or ""
    layer, p = env.graph.layers[name], _params(env, node)
    error, x = env.values[node.inputs[0]], env.values[node.inputs[1]]
    if node.channels is not None:
        x = reference.gather(x, np.array(node.channels))
    sums = reference.dwconv2d_weight_sums_of if layer.depthwise else reference.conv2d_weight_sums_of
    gradient = env.gradient(error)
    gradient = gradient[:, :, list(layer.trained)] if layer.depthwise else gradient
    env.gradients[name, "weight"] = sums(p, gradient, x.astype(np.float64) - p.x_zero)
    if env.real:
        return
    state = env.state[name]
    before = reference.Trained(
        env.trained_columns(name),
        state.fraction,
        layer.fraction_bits,
        qas_weights(layer),
        weight_id(env.graph, name),
    )
    if layer.depthwise:
        after = reference.dwconv2d_bwd_w(p, error, x, np.array(layer.trained), before, env.sgd)
    else:
        after = reference.conv2d_bwd_w(p, error, x, before, env.sgd)
    state.fraction = after.frac
    env.set_trained_columns(name, after.w)


def _run_bias(env: Env, node: Node) -> None:
    name = node.layer or ""
    error = env.values[node.inputs[0]]
    env.gradients[name, "bias"] = env.gradient(error).sum(axis=(0, 1))
    if not env.real:
        state = env.state[name]
        bias = trained_bias(env.graph, name, state.delta)
        state.delta = reference.bias_update(error, bias, env.sgd)
        state.bias = replace(bias, delta=state.delta).expanded


def _run_gather(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = reference.gather(env.values[node.inputs[0]], np.array(node.channels))


def weight_id(graph: Graph, layer: str) -> int:
    """Id of the random numbers of a layer's weights; its biases have the next one."""
    return 2 * list(graph.layers).index(layer)


def qas_weights(layer: Layer) -> np.ndarray:
    """65536 / s_w^2, 0 for dead channels (quantization-aware scaling, arXiv 2206.15472 section 3.1)."""
    assert layer.weight_scale is not None
    return _qas(layer, layer.weight_scale, 65536.0)


def trained_bias(graph: Graph, name: str, delta: np.ndarray) -> reference.Bias:
    """The trained biases of a layer, given what training has added to them."""
    layer = graph.layers[name]
    node = graph.forward_of[name]
    qas, m = qas_biases(graph, name), multipliers(graph, node)
    return reference.Bias(layer.bias, delta, m, qas, bias_limit(layer), weight_id(graph, name) + 1)


def bias_scale(graph: Graph, name: str) -> np.ndarray:
    """Real value of the unit in which a layer's biases are trained, float64 [c]."""
    layer = graph.layers[name]
    assert layer.weight_scale is not None
    node = graph.forward_of[name]
    unit = 2.0 ** reference.bias_shift(multipliers(graph, node))
    return np.asarray(layer.weight_scale * graph.tensors[node.inputs[0]].scale * unit)


def qas_biases(graph: Graph, name: str) -> np.ndarray:
    """256 / (s_x * s_w)^2, in units of what is trained; 0 for dead channels."""
    layer = graph.layers[name]
    assert layer.weight_scale is not None
    node = graph.forward_of[name]
    unit = 2.0 ** reference.bias_shift(multipliers(graph, node))
    return _qas(layer, layer.weight_scale * graph.tensors[node.inputs[0]].scale, 256.0 / unit)


def _qas(layer: Layer, scale: np.ndarray, unit: float | np.ndarray) -> np.ndarray:
    dead = np.zeros(len(scale), bool) if layer.dead is None else layer.dead
    return np.where(dead, 0.0, unit / np.square(scale)).astype(np.float32)


def _in_place(kernel: str) -> Callable[[Graph, Node], Mapping[int, int]]:
    """Where the kernel says so, the result may begin where the first input begins."""

    def in_place(graph: Graph, node: Node) -> Mapping[int, int]:
        return {0: 0} if getattr(hostlib.load(), f"{kernel}_in_place")(c_struct(graph, node)) else {}

    return in_place


def _op(prefix: str, depthwise: bool) -> dict[str, Op]:
    return {
        prefix: Op(
            _forward_shapes,
            _run_forward,
            _call_forward,
            _gradient,
            _scratch_forward(f"{prefix}_fwd"),
            _macs,
            accumulators=bounds.conv_forward,
            clamps=True,
            in_place=_in_place(f"{prefix}_fwd") if depthwise else not_in_place,
        ),
        f"{prefix}_bwd_x": Op(
            _input_shape,
            _run_bwd_x,
            _call_bwd_x,
            accumulators=bounds.depthwise_input_gradient if depthwise else bounds.conv_input_gradient,
            scratch=_scratch(f"{prefix}_bwd_x"),
            macs=_macs,
            in_place=_in_place(f"{prefix}_bwd_x") if depthwise else not_in_place,
        ),
        f"{prefix}_bwd_w": Op(
            _no_output,
            _run_bwd_w,
            _call_bwd_w,
            accumulators=bounds.depthwise_weight_gradient if depthwise else bounds.conv_weight_gradient,
            scratch=_scratch_weights(f"{prefix}_bwd_w"),
            macs=_macs_weights,
            updates=True,
        ),
    }


OPS = {
    **_op("conv2d", depthwise=False),
    **_op("dwconv2d", depthwise=True),
    "bias_update": Op(
        _no_output, _run_bias, _call_bias, accumulators=bounds.bias_gradient, macs=_macs_bias, updates=True
    ),
    "gather": Op(_gather_shape, _run_gather, _call_gather, accumulators=bounds.no_integers),
}
