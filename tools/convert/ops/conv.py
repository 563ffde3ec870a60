"""Convolution, dense and depthwise: forward, gradient to the input, gradient to the weights and update."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node, Shape, Window
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import NUMBER, S8, S32, SCRATCH, U8, U16, Clamp, ErrorS8, Sgd

from . import bias, bounds, conv_constants, conv_structs, unit
from .aten import conv as conv_aten
from .bounds import geometry, layer_guard
from .conv_runs import (
    float_run,
    int8_run,
    parallel_dense,
    parallel_depthwise,
    run_bwd_w,
    run_bwd_x,
    run_forward,
)
from .conv_structs import Conv2d, SavedInput, SplitWeights, TrainedBias, TrainedWeights, c_struct
from .outputs import by_range
from .stage import WindowStage, known_scratch, no_stage_structs
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
    gathers_channels,
    no_facts,
    no_output,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import MANY, Unit, depthwise_errors, depthwise_weights, input_errors, of_forward, parts_of, weights
from .work import Terms, with_biases, with_sums, with_updates

if TYPE_CHECKING:
    from .tape import Tape

DENSE = "conv2d"
DEPTHWISE = "dwconv2d"


def node_of(name: str, x: str, y: str, layer: Layer, window: Window) -> Node:
    """A convolution of a layer, whose weights say of which kind."""
    return Node(DEPTHWISE if layer.depthwise else DENSE, name, (x,), (y,), name, window)


def of_linear_end(graph: Graph, made: str) -> Graph:
    """A float graph whose last layer, a linear one, is like any other; what makes the output is missing.

    made  name of the tensor that it makes
    """
    last = graph.nodes[-1]
    x, layer = graph.tensors[last.inputs[0]], graph.layers[last.layer or ""]
    weight = np.ascontiguousarray(layer.weight.reshape(-1, *x.shape))
    layer = replace(layer, weight=weight)
    h, w, _ = x.shape
    return graph.replace(
        nodes=(*graph.nodes[:-1], node_of(last.name, x.name, made, layer, Window(h, w))),
        tensors={**graph.tensors, made: replace(graph.tensors[graph.output], name=made)},
        layers={**graph.layers, last.layer or "": layer},
    )


def forward_shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    _, _, k = geometry(graph, node)
    c_out = graph.layers[node.layer or ""].weight.shape[0]
    return ((*k.outputs(h, w), c_out),) * len(node.outputs)


def input_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (geometry(graph, node)[0].shape,)


def macs(graph: Graph, node: Node) -> int:
    """Multiply-accumulates of the forward pass; those of the gradient to the input are as many."""
    return geometry(graph, node)[1].pixels * int(graph.layers[node.layer or ""].weight.size)


def macs_weights(graph: Graph, node: Node) -> int:
    layer = graph.layers[node.layer or ""]
    return macs(graph, node) * len(layer.trained) // layer.columns


def gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Bias update, error to the input, weight update; the last comes after its weights were read."""
    if error is None:
        return
    x = node.inputs[0]
    tape.append(Node(bias.UPDATE, node.name, (error,), (), layer=node.layer))
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


def call_forward(names: Names, node: Node, more: str = "") -> str:
    """more: arguments behind the struct of the convolution"""
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    conv, weights = names.struct("conv", node), names.struct("weights", node)
    bias, before = expand_biases(names, node, 0)
    scratch = names.scratch(biases_bytes(names.graph, node))
    call = f"{node.op}_fwd_s8({conv}, {more}{x}, {weights}, {bias}, {y}, {names.mask_out(node)}, {scratch});"
    return "\n".join([*before, call])


def call_bwd_x(names: Names, node: Node, more: str = "") -> str:
    conv, weights = names.struct("conv", node), names.struct("weights", node)
    error, out = names.error(node.inputs[0]), names.error(node.outputs[0])
    return f"{node.op}_s8({conv}, {more}{error}, {weights}, {names.clamp()}, {out}, {names.scratch()});"


def call_bwd_w(names: Names, node: Node, more: str = "") -> str:
    conv, trained = names.struct("conv", node), names.struct("trained", node)
    layer = names.graph.layers[node.layer or ""]
    count = len(layer.trained)
    rows = ""
    if layer.depthwise:
        rows = f"{names.channels(node)}, " if count < layer.columns else "NULL, "
    saved = names.struct("saved", node)
    error = names.error(node.inputs[0])
    ends = f"{rows}{count}, {trained}, sgd, {names.scratch()}"
    return f"{node.op}_s8({conv}, {more}{error}, {saved}, {ends});"


def _in_place(kernel: str) -> Callable[[Graph, Node], Mapping[int, int]]:
    """Where the kernel says so, the result may begin where the first input begins."""

    def in_place(graph: Graph, node: Node) -> Mapping[int, int]:
        return {0: 0} if hostlib.ask(f"{kernel}_in_place", c_struct(graph, node)) else {}

    return in_place


def gathers_taps(graph: Graph, node: Node) -> int:
    return int(graph.layers[node.layer or ""].weight[0].size)


def operands(names: Names, node: Node, offset: int) -> tuple[str, str, str]:
    return names.struct("conv", node), names.struct("weights", node), expand_biases(names, node, offset)[0]


def before_rows(names: Names, node: Node, offset: int) -> list[str]:
    return expand_biases(names, node, offset)[1]


def _rows(names: Names, node: Node) -> str:
    return f"{node.op}_fwd_s8(p, x, stage->w, stage->b, y, NULL, scratch);"


def _kernels(op: str, rows: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """C functions of forward, gradient to the input and gradient to the weights."""
    number, errors = ctypes.c_uint32, (Conv2d, ErrorS8)
    step = (TrainedWeights, Sgd, SCRATCH)
    return (
        {
            f"{op}_fwd_s8": (None, (Conv2d, S8, SplitWeights, S32, S8, U8, SCRATCH)),
            f"{op}_fwd_scratch": (number, (Conv2d,)),
        },
        {
            f"{op}_bwd_x_s8": (None, (*errors, SplitWeights, Clamp, ErrorS8, SCRATCH)),
            f"{op}_bwd_x_scratch": (number, (Conv2d,)),
        },
        {
            f"{op}_bwd_w_s8": (None, (*errors, SavedInput, *rows, NUMBER, *step)),
            f"{op}_bwd_w_scratch": (number, (Conv2d, NUMBER)),
        },
    )


def _asked(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, (ctypes.c_uint32, (Conv2d,)))


EXPAND: dict[str, hostlib.Signature] = {"bias_expand_s32": (None, (NUMBER, TrainedBias, S32))}


def _way_dense(graph: Graph, node: Node) -> str:
    """A window of one pixel is a matrix product."""
    _, _, window = geometry(graph, node)
    return " kxk" if window.kh * window.kw > 1 else ""


def _way_input(graph: Graph, node: Node) -> str:
    """Behind a global average pool all pixels have the same errors while nothing saturates."""
    before = graph.producer(node.inputs[0])
    pooled = before is not None and before.op == "avgpool_bwd_x" and before.inputs[0]
    alike = pooled and graph.tensors[pooled].pixels == 1
    return _way_dense(graph, node) or (" alike" if alike else "")


def _work_input(graph: Graph, node: Node) -> Terms:
    """Rows of many values are summed in parts, or by fewer lanes."""
    found = with_sums(graph, node)
    return {**found, "long macs": found["macs"]} if found["in channels"] > MANY else found


def _way_depthwise(graph: Graph, node: Node) -> str:
    """The kernels are specialised by window and stride."""
    _, _, window = geometry(graph, node)
    return f" {window.kh}x{window.kw}/{window.stride_h}"


def _way_dense_weights(graph: Graph, node: Node) -> str:
    """Of a matrix product also how many fraction bits its update carries."""
    bits = graph.layers[node.layer or ""].fraction_bits
    return _way_dense(graph, node) or (f" +{bits} bits" if bits else "")


def _unit_input(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    p = c_struct(graph, node)
    return (
        depthwise_errors(p)
        if graph.layers[node.layer or ""].depthwise
        else input_errors(p, parts_of(graph, node))
    )


def _unit_weights(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    layer, p = graph.layers[node.layer or ""], c_struct(graph, node)
    return (
        depthwise_weights(p, len(layer.trained))
        if layer.depthwise
        else weights(p, len(layer.trained), layer.fraction_bits)
    )


def _forward(op: str, depthwise: bool) -> ForwardOp:
    kernels, _, _ = _kernels(op, ())
    return ForwardOp(
        op,
        shapes=forward_shapes,
        run=run_forward,
        call=call_forward,
        accumulators=bounds.conv_forward,
        scratch=_scratch_forward(f"{op}_fwd"),
        macs=macs,
        way=_way_depthwise if depthwise else _way_dense,
        work=with_biases,
        unit=of_forward(unit.depthwise if depthwise else unit.dense, c_struct),
        in_place=_in_place(f"{op}_fwd"),
        kernels=kernels | _asked(f"{op}_fwd_in_place") | (_asked(f"{op}_fwd_ways") if depthwise else EXPAND),
        header="conv2d",
        aten=NO_ATEN if depthwise else conv_aten.RULES,  # the rules make both kinds
        folds=Folds.NORM_AND_RELU,
        learns=Learns.COLUMNS,
        output=by_range,
        float_run=float_run,
        int8_run=int8_run,
        gathers=gathers_channels if depthwise else gathers_taps,
        gradient=gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=conv_constants.tables,
        layer_structs=conv_structs.structs,
        step_structs=no_structs,
        kernel=f"{op}_fwd_s8",
        struct="conv",
        stage=_stage(depthwise),
        arrays=conv_constants.arrays,
        facts=no_facts,
        parallel=parallel_depthwise if depthwise else parallel_dense,
        statistics=no_statistics,
    )


def _stage(depthwise: bool) -> WindowStage:
    return WindowStage(
        kind=int(depthwise),
        mixes=not depthwise,
        geometry=c_struct,
        operands=operands,
        structs=no_stage_structs,
        biases=biases_bytes,
        before=before_rows,
        rows=_rows,
        scratch=known_scratch,
    )


def _input_gradient(op: str, depthwise: bool) -> BackwardOp:
    _, kernels, _ = _kernels(op, ())
    return BackwardOp(
        f"{op}_bwd_x",
        shapes=input_shape,
        run=run_bwd_x,
        call=call_bwd_x,
        accumulators=bounds.depthwise_input_gradient if depthwise else bounds.conv_input_gradient,
        scratch=_scratch(f"{op}_bwd_x"),
        macs=macs,
        way=_way_depthwise if depthwise else _way_input,
        work=with_sums if depthwise else _work_input,
        unit=_unit_input,
        in_place=_in_place(f"{op}_bwd_x") if depthwise else not_in_place,
        kernels=kernels | (_asked(f"{op}_bwd_x_in_place", f"{op}_bwd_x_ways") if depthwise else {}),
        header="conv2d",
        updates=Updates.NOTHING,
        reads_weights=True,
        guard=NOT_ALIGNED if depthwise else layer_guard,
    )


def _weight_gradient(op: str, depthwise: bool) -> BackwardOp:
    _, _, kernels = _kernels(op, (U16,) if depthwise else ())
    return BackwardOp(
        f"{op}_bwd_w",
        shapes=no_output,
        run=run_bwd_w,
        call=call_bwd_w,
        accumulators=bounds.depthwise_weight_gradient if depthwise else bounds.conv_weight_gradient,
        scratch=_scratch_weights(f"{op}_bwd_w"),
        macs=macs_weights,
        way=_way_depthwise if depthwise else _way_dense_weights,
        work=with_updates,
        unit=_unit_weights,
        in_place=not_in_place,
        kernels=kernels,
        header="conv2d",
        updates=Updates.WEIGHTS,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


OPS: tuple[Op, ...] = (
    _forward(DENSE, depthwise=False),
    _input_gradient(DENSE, depthwise=False),
    _weight_gradient(DENSE, depthwise=False),
    _forward(DEPTHWISE, depthwise=True),
    _input_gradient(DEPTHWISE, depthwise=True),
    _weight_gradient(DEPTHWISE, depthwise=True),
)
