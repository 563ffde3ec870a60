"""The update of a layer's biases."""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import Names
from microtrain.convert.reference.biases import bias_update
from microtrain.convert.reference.hostlib import NUMBER, ErrorS8, Sgd

from . import bounds
from .conv_constants import trained_bias
from .conv_structs import Conv2d, TrainedBias
from .environment import Env
from .table import NOT_ALIGNED, BackwardOp, Op, Updates, no_output, no_scratch, not_in_place
from .unit import Unit, biases
from .work import by_size, one_way

UPDATE = "bias_update"


def _macs(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[0]].elements


def _unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    error = graph.tensors[node.inputs[0]]
    return biases(error.pixels, error.channels)


def _call(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    bias = names.struct("bias", node)
    return f"bias_update_s32({error.pixels}, {error.channels}, {names.error(error.name)}, {bias}, sgd);"


def _run(env: Env, node: Node) -> None:
    name = node.layer or ""
    error = env.values[node.inputs[0]]
    env.gradients[name, "bias"] = env.gradient(error).sum(axis=(0, 1))
    if not env.real:
        state = env.state[name]
        bias = trained_bias(env.graph, name, state.delta)
        state.delta = bias_update(error, bias, env.sgd)
        state.bias = replace(bias, delta=state.delta).expanded


OPS: tuple[Op, ...] = (
    BackwardOp(
        UPDATE,
        shapes=no_output,
        run=_run,
        call=_call,
        accumulators=bounds.bias_gradient,
        scratch=no_scratch,
        macs=_macs,
        way=one_way,
        work=by_size,
        unit=_unit,
        in_place=not_in_place,
        kernels={"bias_update_s32": (None, (NUMBER, NUMBER, ErrorS8, TrainedBias, Sgd))},
        header="conv2d",
        updates=Updates.BIASES,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
