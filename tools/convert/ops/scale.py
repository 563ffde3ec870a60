"""A map times one factor per channel: the product in squeeze-and-excitation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names
from microtrain.convert.nearest import NO_PRODUCT, unsupported
from microtrain.convert.reference import tflite
from microtrain.convert.reference.hostlib import NUMBER, S8, U8, Clamp, ErrorS8, Record, Signature
from microtrain.convert.reference.numeric import f32, quantize_error, sat8
from microtrain.convert.reference.windows import centred, requantized

from .add import repeated
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, Bounds, reach
from .ctext import struct
from .environment import Env
from .functions import POWER, SIGMOID, SILU
from .outputs import by_range
from .stage import ElementStage
from .table import (
    NOT_ALIGNED,
    Aten,
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
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    not_in_place,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

SCALE, PIXELS, MULTIPLY = "scale_channels", "scale_pixels", "multiply_maps"
TO_MAP, TO_FACTOR = f"{SCALE}_bwd_x", f"{SCALE}_bwd_s"


class Scale(Record):
    _fields_ = (
        *((n, ctypes.c_int16) for n in ("x_zero", "s_zero", "y_zero")),
        ("m", ctypes.c_float),
        ("fine", ctypes.c_int32),
    )
    _tflite_ = ("fine",)


def scaled(p: Scale, x: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of scale_channels_fwd_s8, scale_pixels_fwd_s8 and multiply_maps_fwd_s8: y and its mask.

    x int8 [h, w, c]; s int8 [c], [h, w, 1], or as x
    """
    values = (x.astype(np.int32) - p.x_zero) * (s.astype(np.int32) - p.s_zero)
    v = _outputs(p, values)
    return sat8(v), (v >= -128) & (v <= 127)


def _outputs(p: Scale, products: np.ndarray) -> np.ndarray:
    """Zero point added, before saturation."""
    return tflite.outputs(products, np.array([p.m], f32), np.array([p.fine], np.int32), p.y_zero)


def errors_times(p: Scale, ey: Any, other: np.ndarray, zero: int, clamp: Any) -> Any:
    """The twin of scale_channels_bwd_x_s8 and the others' bwd_x. zero: of the other factor"""
    sums = ey.q.astype(np.int64) * (other.astype(np.int64) - zero)
    return quantize_error(sums, ey.scale * f32(p.m), clamp)


def scale_channels_bwd_s(p: Scale, ey: Any, x: np.ndarray, clamp: Any) -> Any:
    """The twin of scale_channels_bwd_s_s8: an error of one pixel."""
    sums = (ey.q.astype(np.int64) * (x.astype(np.int64) - p.x_zero)).sum(axis=(0, 1), keepdims=True)
    return quantize_error(sums, ey.scale * f32(p.m), clamp)


def forward_of(graph: Graph, node: Node) -> Node:
    """The product that a node belongs to."""
    return graph.forward_named(node.name, (SCALE, PIXELS, MULTIPLY))


def c_struct(graph: Graph, node: Node) -> Scale:
    """The kernels' parameters."""
    forward = forward_of(graph, node)
    x, s, y = (graph.tensors[t] for t in (*forward.inputs, forward.outputs[0]))
    m, fine = f32(x.scale * s.scale / y.scale), 0
    if graph.requantize == TFLITE:  # which multiplies and divides in float32
        real = np.array([f32(x.scale) * f32(s.scale) / f32(y.scale)], np.float64)
        (m,), (fine,) = tflite.multipliers(real)
    return Scale(x_zero=x.zero, s_zero=s.zero, y_zero=y.zero, m=float(m), fine=int(fine))


def _factor_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((1, 1, graph.tensors[node.inputs[0]].channels),)


def _macs(graph: Graph, node: Node) -> int:
    return graph.tensors[node.inputs[0]].elements


def gradient_by(to_map: str, to_factor: str) -> Callable[[Tape, Node, str | None], None]:
    """Each of the two goes by an op that reads the error and the other one."""

    def gradient(tape: Tape, node: Node, error: str | None) -> None:
        if error is not None:
            x, s = node.inputs
            tape.send(x, Node(to_map, node.name, (error, s), ()))
            tape.send(s, Node(to_factor, node.name, (error, x), ()))

    return gradient


def _run(env: Env, node: Node) -> None:
    x, s = (env.values[t] for t in node.inputs)
    env.values.update(zip(node.outputs, scaled(c_struct(env.graph, node), x, s), strict=False))


def _run_to_map(env: Env, node: Node) -> None:
    zero, other = env.graph.tensors[node.inputs[1]].zero, env.values[node.inputs[1]]
    run_to_map(env, node, c_struct(env.graph, node), other, zero)


def run_to_map(env: Env, node: Node, p: Scale, other: np.ndarray, zero: int) -> None:
    """A backward node that multiplies its error with the other factor. zero: of that"""
    error, clamp = env.values[node.inputs[0]], env.clamp(node.clamp)
    if env.real:
        result = env.backend.clamped(error * ((other.astype(np.float64) - zero) * p.m), clamp)
    else:
        result = errors_times(p, error, other, zero, clamp)
    env.values[node.outputs[0]] = result


def _run_to_factor(env: Env, node: Node) -> None:
    p, clamp = c_struct(env.graph, node), env.clamp(node.clamp)
    error, x = (env.values[t] for t in node.inputs)
    if env.real:
        sums = (error * ((x.astype(np.float64) - p.x_zero) * p.m)).sum(axis=(0, 1), keepdims=True)
        result = env.backend.clamped(sums, clamp)
    else:
        result = scale_channels_bwd_s(p, error, x, clamp)
    env.values[node.outputs[0]] = result


def _call(names: Names, node: Node) -> str:
    x, s, y = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    y_of = names.graph.tensors[node.outputs[0]]
    sizes = f"{names.struct('scale', node)}, {y_of.pixels}, {y_of.channels}"
    return f"{node.op}_fwd_s8({sizes}, {x}, {s}, {y}, {names.mask_out(node)});"


def _call_backward(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    sizes = f"{names.struct('scale', node)}, {error.pixels}, {error.channels}"
    ends = f"{names.clamp()}, {names.error(node.outputs[0])}"
    return f"{node.op}_s8({sizes}, {names.error(error.name)}, {names.at(node.inputs[1])}, {ends});"


def _rows(names: Names, node: Node, x: str) -> str:
    sizes = f"{names.struct('scale', node)}, (uint32_t)p->h_out * p->w_out, p->c_out"
    return f"{SCALE}_fwd_s8({sizes}, {x}, {names.at(node.inputs[1])}, y, NULL);"


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("scale", "scale", node.name, c_struct(names.graph, node))


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """A product is exact in float32."""
    x, s = (graph.tensors[t] for t in node.inputs)
    yield Accumulator("a product of two inputs", reach(x) * reach(s), 2**24, SMALLER)


def _map_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    s = graph.tensors[node.inputs[1]]
    yield Accumulator("an error times a factor", ERROR * reach(s), INT32_MAX, SMALLER)


def _factor_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    x = graph.tensors[node.inputs[1]]
    yield Accumulator("the gradient of a factor", x.pixels * ERROR * reach(x), INT32_MAX, SMALLER)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return env[node.inputs[0]] * env[node.inputs[1]]


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, (x, s) = c_struct(graph, node), (env[t] for t in node.inputs)
    products = centred(x, p.x_zero) * centred(s, p.s_zero)
    return sat8(_outputs(p, products)) if p.fine else requantized(products * f32(p.m), p.y_zero)


def _parallel(run: Any, step: Any, x: Any, s: Any) -> Any:
    tx, ts, ty = (run.network.tensors[t] for t in (*step.inputs, step.output))
    return run.stored(step, x * s * (tx.scale * ts.scale / ty.scale))


def lower(low: Lowering, call: Call) -> Act:
    """The product of a map and one factor a channel or a pixel, in either order, or of two maps."""
    a, b = call.x, call.args.get("other")
    if not isinstance(a, Act) or not isinstance(b, Act):
        raise unsupported(call)
    for x, gate in ((a, b), (b, a)):
        if a.dims == b.dims and low.is_made_of(gate, SIGMOID, x):
            return low.emit(call, SILU, (x,), low.shape(x), dims=x.dims)
    a, b = low.activation(call, a), low.activation(call, b)
    if a.dims == b.dims and low.tensor_of(a) == low.tensor_of(b):
        return low.emit(call, POWER, (a,), low.shape(a), dims=a.dims, factors=(2.0, 1.0))
    if a.dims == b.dims and low.shape(a) == low.shape(b):
        return low.emit(call, MULTIPLY, (a, b), low.shape(a), dims=a.dims)
    if len(a.dims) == len(b.dims) == 2 and low.shape(a)[:2] == low.shape(b)[:2] == (1, 1):
        a, b = (replace(v, dims=(*v.dims, 1, 1)) for v in (a, b))
        made = lower(low, replace(call, args={"self": a, "other": b}))
        return replace(made, dims=made.dims[:2])
    a, b = low.image(call, a), low.image(call, b)
    if len(a.dims) == len(b.dims) and (found := _of_pixels(low, a, b)):
        return low.emit(call, PIXELS, found, low.shape(found[0]), dims=found[0].dims)
    x, s = (b, a) if low.shape(a)[:2] == (1, 1) else (a, b)
    alike = len(a.dims) == len(b.dims)  # else other axes than those of channels belong together
    if alike and low.shape(s) != (1, 1, low.shape(x)[2]) and (found := _of_lines(low, call, a, b)):
        return lower(low, replace(call, args={"self": found[0], "other": found[1]}))
    if not alike or low.shape(s) != (1, 1, low.shape(x)[2]):
        raise call.error(
            f"the op mul of tensors of shapes {list(a.dims)} and {list(b.dims)} is not supported; the "
            f"nearest that is: {NO_PRODUCT}"
        )
    return low.emit(call, SCALE, (x, s), low.shape(x), dims=x.dims)


def _of_pixels(low: Lowering, a: Act, b: Act) -> tuple[Act, Act] | None:
    """The map, and the one of one channel, of as many pixels, with its factors."""
    x, s = (a, b) if low.shape(b)[2] == 1 else (b, a)
    sizes, own = low.shape(x), low.shape(s)
    return (x, s) if sizes[:2] == own[:2] and own[2] == 1 < sizes[2] else None


def _of_lines(low: Lowering, call: Call, a: Act, b: Act) -> tuple[Act, Act] | None:
    """Both, where one has one row or column, which then stands there as often as the other has them."""
    for x, s in ((a, b), (b, a)):
        like = replace(x, dims=(x.dims[0], low.shape(s)[2], *x.dims[2:]))
        whole = repeated(low, call, s, like)
        if whole.tensor != s.tensor:
            return (x, whole) if x is a else (whole, x)
    return None


ATEN: Mapping[str, Aten] = {"mul": Aten("self other", lower)}
_SIZED = (Scale, NUMBER, NUMBER)


def _backward(
    name: str,
    run: Callable[[Env, Node], None],
    accumulators: Bounds,
    shapes: Callable[[Graph, Node], tuple[Shape, ...]],
    in_place: Callable[[Graph, Node], Mapping[int, int]],
) -> BackwardOp:
    takes: Signature = (None, (*_SIZED, ErrorS8, S8, Clamp, ErrorS8))
    return BackwardOp(
        name,
        shapes=shapes,
        run=run,
        call=_call_backward,
        accumulators=accumulators,
        scratch=no_scratch,
        macs=_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place,
        kernels={f"{name}_s8": takes},
        header="scale",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


# Products by other factors are these but for what they name (multiply.py, scale_pixels.py).
FORWARD = ForwardOp(
    SCALE,
    shapes=shape_of_input,
    run=_run,
    call=_call,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=in_place_of(0),
    kernels={f"{SCALE}_fwd_s8": (None, (*_SIZED, S8, S8, S8, U8))},
    header="scale",
    aten=ATEN,
    folds=Folds.RELU,
    learns=Learns.NOTHING,
    output=by_range,
    float_run=_float_run,
    int8_run=_int8_run,
    gathers=gathers_channels,
    gradient=gradient_by(TO_MAP, TO_FACTOR),
    leaves=Leaves.CLAMP_MASK,
    tables=no_tables,
    layer_structs=_structs,
    step_structs=no_structs,
    kernel=f"{SCALE}_fwd_s8",
    struct="scale",
    stage=ElementStage((1,), _rows),
    arrays=no_arrays,
    facts=no_facts,
    parallel=_parallel,
    statistics=no_statistics,
)
BACK_TO_MAP = _backward(TO_MAP, _run_to_map, _map_bounds, shape_of_input, in_place_of(0))
BACK_TO_FACTOR = _backward(TO_FACTOR, _run_to_factor, _factor_bounds, _factor_shape, not_in_place)

OPS: tuple[Op, ...] = (FORWARD, BACK_TO_MAP, BACK_TO_FACTOR)
