"""Convolutions whose channels fall into groups, or whose taps lie apart: grouped, dilated, with a multiplier.

Weights are (c_out, taps_h, taps_w, channels of a group); `node.window` is what the taps cover, so groups and
dilation follow from the shapes. What is the same for dense convolutions is theirs (conv.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Layer, Node, Window
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import (
    NUMBER,
    S8,
    S32,
    SCRATCH,
    U8,
    Clamp,
    ErrorS8,
    Record,
    Sgd,
    Signature,
)
from microtrain.convert.reference.kernels import Conv, Error, Trained
from microtrain.convert.reference.windows import tap_steps

from . import bounds, conv, conv_constants, conv_runs, conv_structs
from .bounds import geometry, layer_guard
from .conv_structs import Conv2d, SavedInput, SplitWeights, TrainedWeights, c_struct
from .ctext import struct
from .environment import Env
from .outputs import by_range
from .stage import WindowStage, no_stage_structs
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
    no_facts,
    no_output,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import (
    Unit,
    in_groups,
    input_errors_in_groups,
    parts_of,
    weights_in_groups,
    with_biases_expanded,
)
from .work import Terms, one_way, with_biases, with_sums, with_updates

GROUPED = "gconv2d"
HEADER = "grouped"


def node_of(name: str, x: str, y: str, layer: Layer, window: Window, groups: int) -> Node:
    """A convolution of a layer in groups of channels: one is dense, one a channel depthwise."""
    if groups == 1 or layer.depthwise:
        return conv.node_of(name, x, y, layer, window)
    return Node(GROUPED, name, (x,), (y,), name, window)


class Groups(Record):
    _fields_ = (
        ("groups", ctypes.c_uint16),
        ("dilation_h", ctypes.c_uint8),
        ("dilation_w", ctypes.c_uint8),
    )


def groups_of(graph: Graph, node: Node) -> Groups:
    """The kernels' second struct of a node's layer."""
    x, _, window = geometry(graph, node)
    weight = graph.layers[node.layer or ""].weight
    down, across = tap_steps(weight, window)
    return Groups(groups=x.channels // weight.shape[-1], dilation_h=down, dilation_w=across)


def by_group(work: Callable[[Graph, Node], Terms]) -> Callable[[Graph, Node], Terms]:
    """Work, and what is done for each group: at each pixel of the output, and for each tap there."""

    def found(graph: Graph, node: Node) -> Terms:
        terms, weight = work(graph, node), graph.layers[node.layer or ""].weight
        groups, taps = groups_of(graph, node).groups, weight.shape[1] * weight.shape[2]
        pixels = groups * terms["out pixels"]
        return {**terms, "groups": groups, "groups x pixels": pixels, "groups x taps": pixels * taps}

    return found


# ---------------------------------------------------------------- the twins


def _spread(p: Conv, w: np.ndarray) -> np.ndarray:
    """The weights in a window without gaps, zeros between them."""
    down, across = tap_steps(w, p.window)
    found = np.zeros((len(w), p.window.kh, p.window.kw, w.shape[-1]), w.dtype)
    found[:, ::down, ::across] = w
    return found


def _group(p: Conv, groups: int, number: int) -> tuple[Conv, slice, slice]:
    """The dense convolution of a group, and its channels of the input and of the output."""
    inputs, outputs = p.x[2] // groups, p.y[2] // groups
    seen, made = (slice(number * n, (number + 1) * n) for n in (inputs, outputs))
    x, y = (*p.x[:2], inputs), (*p.y[:2], outputs)
    fine = None if p.fine is None else p.fine[made]
    return replace(p, x=x, y=y, m=p.m[made], fine=fine), seen, made


def _channels(value: Any, at: slice) -> Any:
    """Some channels of an error, of a real gradient or of a clamp."""
    if isinstance(value, Error):
        return Error(value.q[..., at], value.scale[at])
    if isinstance(value, reference.Clamp):
        mask, m = (None if part is None else part[..., at] for part in (value.mask, value.m))
        return reference.Clamp(mask, m)
    return value[..., at]


def gconv2d_fwd(
    p: Conv, groups: int, x: np.ndarray, w: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The twin of gconv2d_fwd_s8: outputs and their mask."""
    dense, made = _spread(p, w), []
    for number in range(groups):
        one, seen, at = _group(p, groups, number)
        made.append(reference.conv2d_fwd(one, x[..., seen], dense[at], b[at]))
    y, mask = (np.concatenate(each, axis=-1) for each in zip(*made, strict=True))
    return y, mask


def gconv2d_bwd_x(
    p: Conv, groups: int, ey: Any, w: np.ndarray, clamp: Any, kernel: Any = reference.conv2d_bwd_x
) -> Any:
    """The twin of gconv2d_bwd_x_s8. kernel: that of a dense convolution, for int8 or for real errors."""
    dense, made = _spread(p, w), []
    for number in range(groups):
        one, seen, at = _group(p, groups, number)
        made.append(kernel(one, _channels(ey, at), dense[at], _channels(clamp, seen)))
    if not isinstance(ey, Error):
        return np.concatenate(made, axis=-1)
    parts = ([e.q for e in made], [e.scale for e in made])
    return Error(*(np.concatenate(each, axis=-1) for each in parts))


def weight_sums_of(p: Conv, groups: int, shape: tuple[int, ...], e: np.ndarray, x: np.ndarray) -> np.ndarray:
    """sum over pixels of e * x by group, of the trained columns. x [h, w, groups * columns]: less its zero

    shape  of the weights
    """
    down, across = tap_steps(np.empty(shape, np.int8), p.window)
    inputs, made = x.shape[2] // groups, []
    for number in range(groups):
        one, _, at = _group(p, groups, number)
        seen = slice(number * inputs, (number + 1) * inputs)
        sums = reference.conv2d_weight_sums_of(one, e[..., at], x[..., seen])
        made.append(sums[:, ::down, ::across])
    return np.concatenate(made)


def gconv2d_bwd_w(p: Conv, groups: int, ey: Error, x: np.ndarray, w: Trained, sgd: reference.Sgd) -> Trained:
    """The twin of gconv2d_bwd_w_s8. x [h, w, groups * columns]: the saved input of the trained channels"""
    factor = reference.f32(sgd.lr_weight) * w.qas.astype(reference.f32) * ey.scale
    integers = ey.q.astype(np.int64), x.astype(np.int64) - p.x_zero
    sums = weight_sums_of(p, groups, w.w.shape, *integers)
    return reference.descend(w, sums, factor[:, None, None, None], sgd)


# ---------------------------------------------------------------- in graphs


def _run_forward(env: Env, node: Node) -> None:
    state, groups = env.state[node.layer or ""], groups_of(env.graph, node).groups
    p = conv_runs.params(env, node)
    results = gconv2d_fwd(p, groups, env.values[node.inputs[0]], state.weight, state.bias)
    env.values.update(zip(node.outputs, results, strict=False))


def _run_bwd_x(env: Env, node: Node) -> None:
    weight, groups = env.state[node.layer or ""].weight, groups_of(env.graph, node).groups
    ends = env.values[node.inputs[0]], weight, env.clamp(node.clamp), env.backend.conv2d_bwd_x
    env.values[node.outputs[0]] = gconv2d_bwd_x(conv_runs.params(env, node), groups, *ends)


def _run_bwd_w(env: Env, node: Node) -> None:
    """The gradient of the trained columns; with int8 errors also their update."""
    name, groups, p = node.layer or "", groups_of(env.graph, node).groups, conv_runs.params(env, node)
    error, x = env.values[node.inputs[0]], env.values[node.inputs[1]]
    if node.channels is not None:
        x = reference.gather(x, np.array(node.channels))
    shape, centred = env.graph.layers[name].weight.shape, x.astype(np.float64) - p.x_zero
    env.gradients[name, "weight"] = weight_sums_of(p, groups, shape, env.gradient(error), centred)
    if not env.real:
        after = gconv2d_bwd_w(p, groups, error, x, conv_runs.before(env, name), env.sgd)
        env.state[name].fraction = after.frac
        env.set_trained_columns(name, after.w)


def _call_forward(names: Names, node: Node) -> str:
    return conv.call_forward(names, node, f"{names.struct('groups', node)}, ")


def _call_bwd_x(names: Names, node: Node) -> str:
    return conv.call_bwd_x(names, node, f"{names.struct('groups', node)}, ")


def _call_bwd_w(names: Names, node: Node) -> str:
    return conv.call_bwd_w(names, node, f"{names.struct('groups', node)}, ")


def _scratch(kernel: str, *more: Callable[[Graph, Node], int]) -> Callable[[Graph, Node], int]:
    """What the kernel asks for. more: numbers that it is asked with"""

    def scratch(graph: Graph, node: Node) -> int:
        numbers = (number(graph, node) for number in more)
        return hostlib.scratch_bytes(kernel, c_struct(graph, node), groups_of(graph, node), *numbers)

    return scratch


def _count_trained(graph: Graph, node: Node) -> int:
    return len(graph.layers[node.layer or ""].trained)


_rows_scratch = _scratch(f"{GROUPED}_fwd")


def _scratch_forward(graph: Graph, node: Node) -> int:
    return conv.biases_bytes(graph, node) + _rows_scratch(graph, node)


def _scratch_weights(graph: Graph, node: Node) -> int:
    asked = _scratch(f"{GROUPED}_bwd_w", _count_trained)
    return asked(graph, node) if _count_trained(graph, node) else 0


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("groups", "groups", node.layer or "", groups_of(names.graph, node))
    yield from conv_structs.structs(names, node)


def _rows(names: Names, node: Node) -> str:
    groups = names.struct("groups", node)
    return f"{GROUPED}_fwd_s8(p, {groups}, x, stage->w, stage->b, y, NULL, scratch);"


STAGE = WindowStage(
    kind=None,
    mixes=True,
    geometry=c_struct,
    operands=conv.operands,
    structs=no_stage_structs,
    biases=conv.biases_bytes,
    before=conv.before_rows,
    rows=_rows,
    scratch=_rows_scratch,
)
_SIZE = (ctypes.c_uint32, (Conv2d, Groups))
_KERNELS: dict[str, dict[str, Signature]] = {
    "fwd": {
        f"{GROUPED}_fwd_s8": (None, (Conv2d, Groups, S8, SplitWeights, S32, S8, U8, SCRATCH)),
        f"{GROUPED}_fwd_scratch": _SIZE,
    },
    "bwd_x": {
        f"{GROUPED}_bwd_x_s8": (None, (Conv2d, Groups, ErrorS8, SplitWeights, Clamp, ErrorS8, SCRATCH)),
        f"{GROUPED}_bwd_x_scratch": _SIZE,
    },
    "bwd_w": {
        f"{GROUPED}_bwd_w_s8": (
            None,
            (Conv2d, Groups, ErrorS8, SavedInput, NUMBER, TrainedWeights, Sgd, SCRATCH),
        ),
        f"{GROUPED}_bwd_w_scratch": (ctypes.c_uint32, (Conv2d, Groups, NUMBER)),
    },
}


def _taps(graph: Graph, node: Node) -> int:
    weight = graph.layers[node.layer or ""].weight
    return int(weight.shape[1] * weight.shape[2])


def _unit_forward(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    p, groups = strip or c_struct(graph, node), groups_of(graph, node).groups
    return with_biases_expanded(in_groups(p, groups, _taps(graph, node), len(node.outputs) > 1), graph, node)


def _unit_input(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    p, groups = c_struct(graph, node), groups_of(graph, node).groups
    return input_errors_in_groups(p, groups, _taps(graph, node), parts_of(graph, node))


def _unit_weights(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    p, groups, trained = c_struct(graph, node), groups_of(graph, node).groups, parts_of(graph, node)[1]
    return weights_in_groups(p, groups, _taps(graph, node), trained)


OPS: tuple[Op, ...] = (
    ForwardOp(
        GROUPED,
        shapes=conv.forward_shapes,
        run=_run_forward,
        call=_call_forward,
        accumulators=bounds.conv_forward,
        scratch=_scratch_forward,
        macs=conv.macs,
        way=one_way,
        work=by_group(with_biases),
        unit=_unit_forward,
        in_place=not_in_place,
        kernels=_KERNELS["fwd"] | conv.EXPAND,
        header=HEADER,
        aten=NO_ATEN,  # the rules of dense ones make these too
        folds=Folds.NORM_AND_RELU,
        learns=Learns.COLUMNS,
        output=by_range,
        float_run=conv_runs.float_run,
        int8_run=conv_runs.int8_run,
        gathers=conv.gathers_taps,
        gradient=conv.gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=conv_constants.tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{GROUPED}_fwd_s8",
        struct="conv",
        stage=STAGE,
        arrays=conv_constants.arrays,
        facts=no_facts,
        parallel=conv_runs.parallel_dense,
        statistics=no_statistics,
    ),
    BackwardOp(
        f"{GROUPED}_bwd_x",
        shapes=conv.input_shape,
        run=_run_bwd_x,
        call=_call_bwd_x,
        accumulators=bounds.conv_input_gradient,
        scratch=_scratch(f"{GROUPED}_bwd_x"),
        macs=conv.macs,
        way=one_way,
        work=by_group(with_sums),
        unit=_unit_input,
        in_place=not_in_place,
        kernels=_KERNELS["bwd_x"],
        header=HEADER,
        updates=Updates.NOTHING,
        reads_weights=True,
        guard=layer_guard,
    ),
    BackwardOp(
        f"{GROUPED}_bwd_w",
        shapes=no_output,
        run=_run_bwd_w,
        call=_call_bwd_w,
        accumulators=bounds.conv_weight_gradient,
        scratch=_scratch_weights,
        macs=conv.macs_weights,
        way=one_way,
        work=by_group(with_updates),
        unit=_unit_weights,
        in_place=not_in_place,
        kernels=_KERNELS["bwd_w"],
        header=HEADER,
        updates=Updates.WEIGHTS,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
