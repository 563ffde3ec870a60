"""Activations that a table of 256 values holds: one entry each, one kernel for all.

An activation is a function of real numbers and its derivative; everything else follows. The result of each
stored x stands in a table, and so does the derivative, which is 0 where the result is saturated: no mask is
kept, the backward pass reads x again.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.aten_call import Act, Call
from microtrain.convert.ir import ConvertError, Graph, Node, Tensor
from microtrain.convert.lowering import Lowering
from microtrain.convert.names import Names, identifier
from microtrain.convert.nearest import unsupported
from microtrain.convert.reference.hostlib import NUMBER, S8, S16, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import f32, quantize_error

from . import scale_values
from .bounds import ERROR, INT32_MAX, Accumulator
from .ctext import Table, struct
from .curves import ARGUMENTS, NAMES
from .environment import Env
from .functions import (
    ABSOLUTE,
    ACTIVATIONS,
    CURVE,
    EXPONENTIAL,
    EXPONENTS,
    LEAKY,
    LOGARITHM,
    POWER,
    Activation,
    has_pole,
)
from .outputs import Output, by_range
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
    gradient_with_input,
    in_place_of,
    no_arrays,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

ONE = 2.0**14  # a derivative of 1 in the table, or less of steep ones
BACKWARD = "lookup_bwd_x"
MOST_SPAN = 128.0  # of the largest reciprocal to the smallest, which has two steps then


class Lookup(Record):
    _fields_ = (("y", ctypes.c_void_p), ("slope", ctypes.c_void_p), ("unit", ctypes.c_float))
    _arrays_: ClassVar = {"y": S8, "slope": S16}


def stored(graph: Graph, node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Of each x = -128..127: y, int8, and dy/dx in stored units, float64, 0 where y is saturated."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    activation, real = ACTIVATIONS[node.op], x.scale * (np.arange(-128, 128) - x.zero).astype(np.float64)
    value = np.rint(activation.value(real, *node.factors) / y.scale) + y.zero
    inside = (value >= -128) & (value <= 127)
    slope = np.where(inside, _slope(activation, real, x.scale, node.factors), 0.0) * (x.scale / y.scale)
    if graph.requantize == TFLITE and activation.as_tflite:
        sides = (x.scale, x.zero), (y.scale, y.zero)
        made = activation.as_tflite(np.arange(-128, 128), *sides, *node.factors)
        if made is not None:
            return made, slope
    return np.clip(value, -128, 127).astype(np.int8), slope


def _slope(activation: Activation, real: np.ndarray, step: float, factors: tuple[float, ...]) -> np.ndarray:
    """dy/dx of real numbers that lie a step apart."""
    if activation.slope is not None:
        return activation.slope(real, *factors)
    before, behind = (activation.value(real + off, *factors) for off in (-step / 2, step / 2))
    return np.asarray((behind - before) / step)


def one(graph: Graph, node: Node) -> float:
    """What the table of slopes holds of a dy/dx of 1: as much as leaves room for the largest."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    largest = float(np.abs(stored(graph, node)[1]).max()) / (x.scale / y.scale)
    return ONE / 2.0 ** max(0, math.ceil(math.log2(max(largest, 1.0) * ONE / 32767)))


def unit(graph: Graph, node: Node) -> float:
    """dy/dx in stored units where the table of slopes holds 1."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return float(f32(x.scale / y.scale / one(graph, node)))


def slopes(graph: Graph, node: Node) -> np.ndarray:
    """The derivatives as the kernel reads them, int16 [256]."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return np.rint(stored(graph, node)[1] / (x.scale / y.scale) * one(graph, node)).astype(np.int16)


def lookup_fwd(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The twin of lookup_fwd_s8."""
    return np.asarray(table[x.astype(np.int16) + 128])


def lookup_bwd_x(slope: np.ndarray, factor: float, ey: Any, x: np.ndarray, clamp: Any) -> Any:
    """The twin of lookup_bwd_x_s8. slope: int16 [256]; factor: float32 of struct lookup."""
    sums = ey.q.astype(np.int64) * slope[x.astype(np.int16) + 128]
    return quantize_error(sums, ey.scale * f32(factor), clamp)


def forward_of(graph: Graph, node: Node) -> Node:
    """The activation that a backward node belongs to."""
    return graph.forward_named(node.name, ACTIVATIONS)


def _run(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = lookup_fwd(stored(env.graph, node)[0], env.values[node.inputs[0]])


def _run_bwd_x(env: Env, node: Node) -> None:
    forward, clamp = forward_of(env.graph, node), env.clamp(node.clamp)
    error, x = (env.values[t] for t in node.inputs)
    if env.real:
        raw = error * stored(env.graph, forward)[1][x.astype(np.int16) + 128]
        result = env.backend.clamped(raw, clamp)
    else:
        result = lookup_bwd_x(slopes(env.graph, forward), unit(env.graph, forward), error, x, clamp)
    env.values[node.outputs[0]] = result


def _call(names: Names, node: Node) -> str:
    n, (x, y) = names.graph.tensors[node.inputs[0]].elements, (*node.inputs, node.outputs[0])
    return f"lookup_fwd_s8({names.struct('lookup', node)}, {n}, {names.at(x)}, {names.at(y)});"


def _call_bwd_x(names: Names, node: Node) -> str:
    error = names.graph.tensors[node.inputs[0]]
    ends = f"{names.clamp()}, {names.error(node.outputs[0])}"
    read = f"{error.pixels}, {error.channels}, {names.error(error.name)}, {names.at(node.inputs[1])}"
    return f"lookup_bwd_x_s8({names.struct('lookup', node)}, {read}, {ends});"


def _rows(names: Names, node: Node, x: str) -> str:
    n = "(uint32_t)p->h_out * p->w_out * p->c_out"
    return f"lookup_fwd_s8({names.struct('lookup', node)}, {n}, {x}, y);"


def _learns_through(graph: Graph, node: Node) -> bool:
    return any(n.op == BACKWARD and n.name == node.name for n in graph.backward_nodes)


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    cid = identifier(node.name)
    yield Table(f"const int8_t y_{cid}[256]", stored(graph, node)[0], "tables")
    if _learns_through(graph, node):
        yield Table(f"const int16_t slope_{cid}[256]", slopes(graph, node), "tables")


def _structs(names: Names, node: Node) -> Iterator[str]:
    cid = identifier(node.name)
    slope = f"slope_{cid}" if _learns_through(names.graph, node) else "NULL"
    fields = {"y": f"y_{cid}", "slope": slope, "unit": unit(names.graph, node)}
    yield struct("lookup", "lookup", node.name, fields)


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    """y and dy/dx of each stored x."""
    table, slope = stored(graph, node)
    return {"table": table.tolist(), "slope": slope.tolist()}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """The table's result, exactly, and its slope as the gradient."""
    tensors = run.network.tensors
    at = (x + (tensors[step.inputs[0]].zero + 128)).long()
    table, slope = (x.new_tensor(step.facts[key]) for key in ("table", "slope"))
    through = x * slope[at]
    return through - through.detach() + (table[at] - tensors[step.output].zero)


def _output(out: Output) -> Tensor:
    """By its range; of a reciprocal that spans more than int8 has steps, or a pole, there is none."""
    made = by_range(out)
    low, high = out.ranges.get(out.tensor.name, (1.0, 1.0))
    least, most = sorted((abs(low), abs(high)))
    if has_pole(out.node) and (low * high <= 0 or most > MOST_SPAN * least):
        raise ConvertError(
            f"{out.node.name} divides by numbers that come too near to 0 (its results lie between {low:.3g} "
            f"and {high:.3g}; int8 has 255 steps): add to the divisor what it mostly is, or use a layer norm"
        )
    return made


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return np.asarray(ACTIVATIONS[node.op].value(env[node.inputs[0]], *(f32(f) for f in node.factors)))


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return lookup_fwd(stored(graph, node)[0], env[node.inputs[0]])


def _forward_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    yield Accumulator("a place in its table", 255, 255, "use another activation")


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    yield Accumulator("an error times a slope", ERROR * 32768, INT32_MAX, "use another activation")


def _prelu(low: Lowering, call: Call) -> Act:
    """Slopes that are all alike are a leaky ReLU; others stay frozen.

    x + relu((a - 1) x) where no slope is above 1, x - relu((1 - a) x) where none is below, and
    a x + (1 - a) relu(x) else.
    """
    slope = low.constant(call, call.args.get("weight"), "slope").value
    if not slope.size:
        raise unsupported(call)
    if not np.ptp(slope):
        args = {"self": call.x, "negative_slope": float(slope.flat[0])}
        return _lower(low, replace(call, op=LEAKY, args=args))
    x, apart = low.channelled(call, call.x), replace(call, builtin=False)
    scaled = _by_slopes(low, call, x, slope)
    side = 1.0 if slope.max() <= 1 else -1.0 if slope.min() >= 1 else None
    if side is None:
        above = low.emit(call, "relu", (x,), low.shape(x), dims=x.dims)
        parts = (scaled(x, slope), scaled(above, 1.0 - slope))
        return low.emit(apart, "add", parts, low.shape(x), dims=x.dims)
    below = scaled(x, side * (slope - 1.0))
    below = low.emit(apart, "relu", (below,), low.shape(x), dims=x.dims)
    factors = (side,) if side < 0 else ()
    return low.emit(apart, "add", (x, below), low.shape(x), dims=x.dims, factors=factors)


def _by_slopes(low: Lowering, call: Call, x: Act, slope: np.ndarray) -> Callable[[Act, np.ndarray], Act]:
    """What multiplies a map with slopes: [c], one for each channel, or [c, h, w], for each place."""
    h, w, c = low.shape(x)
    shape = (*slope.shape, 1, 1) if slope.ndim == 1 else slope.shape
    if shape == (c, 1, 1):
        return lambda act, factors: low.scaled(call, act, factors.ravel())
    if (
        x.order is not None
        or len(shape) != 3
        or any(n not in (1, m) for n, m in zip(shape, (c, h, w), strict=True))
    ):
        raise unsupported(call)
    apart = replace(call, builtin=False)

    def by_places(act: Act, factors: np.ndarray) -> Act:
        table = np.broadcast_to(factors.reshape(shape), (c, h, w)).transpose(1, 2, 0)
        return scale_values.scaled(low, apart, act, np.ascontiguousarray(table, np.float32))

    return by_places


def _lower(low: Lowering, call: Call) -> Act:
    x, name = low.activation(call, call.x), call.op.rstrip("_")
    name = ALSO.get(name, name)
    return low.emit(call, name, (x,), low.shape(x), dims=x.dims, factors=ACTIVATIONS[name].factors(call))


ALSO = {  # by what PyTorch calls them
    **dict.fromkeys(("pow", *EXPONENTS), POWER),
    **dict.fromkeys(("log", "log1p", "log10", "log2"), LOGARITHM),
    "exp": EXPONENTIAL,
    "abs": ABSOLUTE,
    **dict.fromkeys(NAMES, CURVE),
}
PRELU = {"prelu": Aten("self weight", _prelu)}


def _names(each: Activation) -> list[str]:
    """What PyTorch calls an activation."""
    return [name for name, own in ALSO.items() if own == each.name] or [each.name]


def _forward(each: Activation) -> ForwardOp:
    return ForwardOp(
        each.name,
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_forward_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={"lookup_fwd_s8": (None, (Lookup, NUMBER, S8, S8))},
        header="lookup",
        aten={
            **{name: Aten(ARGUMENTS.get(name, each.arguments), _lower) for name in _names(each)},
            **(PRELU if each.name == LEAKY else {}),
        },
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=_output,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=gradient_with_input(BACKWARD),
        leaves=Leaves.NOTHING,
        tables=_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel="lookup_fwd_s8",
        struct="lookup",
        stage=ElementStage((), _rows),
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    )


OPS: tuple[Op, ...] = (
    *(_forward(each) for each in ACTIVATIONS.values()),
    BackwardOp(
        BACKWARD,
        shapes=shape_of_input,
        run=_run_bwd_x,
        call=_call_bwd_x,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={"lookup_bwd_x_s8": (None, (Lookup, NUMBER, NUMBER, ErrorS8, S8, Clamp, ErrorS8))},
        header="lookup",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
