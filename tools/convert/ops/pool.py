"""Average and maximum pooling."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.plan import TFLITE
from microtrain.convert.ir import SIDE_MOST, Graph, Node, Shape, Window
from microtrain.convert.names import Names, identifier
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import S8, SCRATCH, U8, Clamp, ErrorS8, Record, Signature
from microtrain.convert.reference.numeric import sat8
from microtrain.convert.reference.windows import taps, torch_padded

from .aten import pool as pool_aten
from .aten.pool import AVERAGE, DOWN, MAXIMUM
from .bounds import ERROR, INT32_MAX, Accumulator, Bounds, fields, taps_at_a_pixel
from .conv_structs import conv2d_struct
from .ctext import numbers, struct
from .environment import Env
from .outputs import as_input
from .pool_structs import Pool, c_struct, forward_of, shapes_of, structs, window_of
from .stage import WindowStage, known_scratch, no_biases, nothing_before
from .table import (
    NOT_ALIGNED,
    Aten,
    BackwardOp,
    BatchRun,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Updates,
    Values,
    gathers_channels,
    no_arrays,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape


def node_of(name: str, x: str, y: str, window: Window) -> Node:
    """An average pooling."""
    return Node(AVERAGE, name, (x,), (y,), None, window)


def _forward_shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    rows, columns, c = shapes_of(graph, node)[1]
    shape = (columns, rows, c) if node.factors == DOWN else (rows, columns, c)
    return (shape,) * len(node.outputs)


def _input_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[forward_of(graph, node).inputs[0]].shape,)


def _gradient_average(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(f"{AVERAGE}_bwd_x", node.name, (error,), ()))


def _gradient_maximum(tape: Tape, node: Node, error: str | None) -> None:
    """The error goes to where the maximum stood: the forward pass writes that down."""
    if error is not None:
        inputs = (error, tape.left_by(node))
        tape.send(node.inputs[0], Node(f"{MAXIMUM}_bwd_x", node.name, inputs, ()))


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
    x, y, window = shapes_of(env.graph, node)
    zero = env.graph.tensors[forward_of(env.graph, node).inputs[0]].zero
    return reference.Pool(x, y, window, zero, env.graph.requantize == TFLITE)


def _run_average(env: Env, node: Node) -> None:
    _made(env, node, (reference.avgpool_fwd(_params(env, node), env.values[node.inputs[0]]),))


def _run_maximum(env: Env, node: Node) -> None:
    _made(env, node, reference.maxpool_fwd(_params(env, node), env.values[node.inputs[0]]))


def _made(env: Env, node: Node, results: tuple[np.ndarray, ...]) -> None:
    """Results as the kernel makes them, in the shape of the node's: of one that is DOWN no byte moves."""
    shape = _forward_shapes(env.graph, node)[0]
    made = (each.reshape(shape) for each in results)
    env.values.update(zip(node.outputs, made, strict=False))


def _run_bwd_x(env: Env, node: Node) -> None:
    kernel, (_, shape, _) = getattr(env.backend, node.op), shapes_of(env.graph, node)
    inputs = (_seen(env.values[t], shape) for t in node.inputs)
    env.values[node.outputs[0]] = kernel(_params(env, node), *inputs, env.clamp(node.clamp))


def _seen(values: Any, shape: Shape) -> Any:
    """Errors or positions as the kernel sees them, whichever way the map lies that they are of."""
    if isinstance(values, reference.Error):
        return replace(values, q=values.q.reshape(shape))
    return values.reshape(shape)


def _fields(x: Shape, y: Shape, k: Window) -> Iterator[Accumulator]:
    """A window may be as large as the map; its padding has a byte."""
    yield from fields(x, y, Window(1, 1, pad_h=k.pad_h, pad_w=k.pad_w))
    window = max(k.kh, k.kw, k.stride_h, k.stride_w)
    yield Accumulator("a side or stride of the window", window, SIDE_MOST, "use a smaller window")


def _average_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """The sum is exact in float32, less its zero point too, as the simulation has it."""
    x, y, k = shapes_of(graph, node)
    yield from _fields(x, y, k)
    yield Accumulator("a sum of a window", k.kh * k.kw * 255, 2**24, "use a smaller window")


def _maximum_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """The place of the maximum in its window takes a byte."""
    x, y, k = shapes_of(graph, node)
    yield from _fields(x, y, k)
    yield Accumulator("a place in a window", k.kh * k.kw - 1, 255, "use a window of 256 pixels at most")


def _gradient_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    most = taps_at_a_pixel(*shapes_of(graph, node)) * ERROR
    yield Accumulator("a sum of the gradient to its input", most, INT32_MAX, "use a smaller window")


def _float_average(graph: Graph, node: Node, env: Values) -> np.ndarray:
    k = window_of(node)
    total = np.add.reduce(list(taps(env[node.inputs[0]], k, 0.0)))
    return _turned(node, total / np.float32(k.kh * k.kw))


def _turned(node: Node, results: np.ndarray) -> np.ndarray:
    """Of a batch [n, 1, w, c] as [n, w, 1, c], where the node is DOWN."""
    return results.swapaxes(1, 2) if node.factors == DOWN else results


def _int8_average(graph: Graph, node: Node, env: Values) -> np.ndarray:
    k, x = window_of(node), graph.tensors[node.inputs[0]]
    total = np.add.reduce(list(taps(env[x.name].astype(np.float32), k, x.zero)))
    if graph.requantize == TFLITE:
        total = total.astype(np.int64)
    return _turned(node, sat8(reference.average(total, k.kh * k.kw, graph.requantize == TFLITE)))


def _float_maximum(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return _turned(node, np.maximum.reduce(list(taps(env[node.inputs[0]], window_of(node), -np.inf))))


def _int8_maximum(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return _turned(node, np.maximum.reduce(list(taps(env[node.inputs[0]], window_of(node), -128))))


def _windows(step: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """Kernel and stride as torch takes them."""
    k = step.window
    return (k["kh"], k["kw"]), (k["stride_h"], k["stride_w"])


def _lying(step: Any, results: Any) -> Any:
    """The same of torch's [..., 1, w]."""
    return results.swapaxes(-2, -1) if step.facts.get("down") else results


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    return {"down": True} if node.factors == DOWN else {}


def _parallel_average(run: Any, step: Any, x: Any) -> Any:
    from torch.nn import functional

    zero = run.network.tensors[step.inputs[0]].zero
    (kh, kw), stride = _windows(step)
    runs, c, images, h, w = x.shape
    flat, pad = torch_padded(x.reshape(runs, c * images, h, w), step.window, 0.0)
    sums = functional.avg_pool2d(flat, (kh, kw), stride, pad, divisor_override=1)
    y = run.rounded((sums + kh * kw * zero) / (kh * kw)) - zero
    return _lying(step, y.reshape(runs, c, images, *sums.shape[2:]))


def _parallel_maximum(run: Any, step: Any, x: Any) -> Any:
    from torch.nn import functional

    runs, c, images, h, w = x.shape
    flat, pad = torch_padded(x.reshape(runs, c * images, h, w), step.window, -math.inf)
    y = functional.max_pool2d(flat, *_windows(step), pad)
    return _lying(step, y.reshape(runs, c, images, *y.shape[2:]))


def _padding(graph: Graph, node: Node) -> int:
    """What rows of padding hold: the zero point, which is averaged with the image, or the least there is."""
    return graph.tensors[node.inputs[0]].zero if node.op == AVERAGE else -128


def _geometry(graph: Graph, node: Node) -> Record:
    x, y = (graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    return conv2d_struct(x.shape, y.shape, window_of(node), _padding(graph, node), y.zero, 0)


def _step_structs(names: Names, node: Node) -> Iterator[str]:
    """Nothing for a pooling that is a stage of a stream too, and runs once more for the backward pass."""
    if all(part.name != node.name for each in names.graph.nodes for part in each.parts):
        yield from structs(names, node)


def _stage_structs(names: Names, node: Node) -> str:
    geometry = numbers(_geometry(names.graph, node))
    return "".join(structs(names, node)) + struct("conv2d", "rows", node.name, geometry)


def _operands(names: Names, node: Node, offset: int) -> tuple[str, str, str]:
    return names.struct("rows", node), "NULL", "NULL"


def _rows(names: Names, node: Node) -> str:
    call = f"{node.op}_fwd_s8(&rows, x, y{', NULL' if node.op == MAXIMUM else ''});"
    pool = f"pool_{identifier(node.name)}"
    sizes = "rows.h_in = p->h_in, rows.h_out = p->h_out, rows.pad_h = 0;"
    return f"{{\n    struct pool rows = {pool};\n    {sizes}\n    {call}\n}}"


STAGE = WindowStage(
    kind=None,
    mixes=False,
    geometry=_geometry,
    operands=_operands,
    structs=_stage_structs,
    biases=no_biases,
    before=nothing_before,
    rows=_rows,
    scratch=known_scratch,
)


@dataclass(frozen=True)
class _Kind:
    """What tells one pooling from the other."""

    name: str
    run: Callable[[Env, Node], None]
    call: Callable[[Names, Node], str]
    bounds: Bounds
    arguments: Signature
    aten: Mapping[str, Aten]
    folds: Folds
    batched: tuple[BatchRun, BatchRun]
    gradient: Callable[[Tape, Node, str | None], None]
    leaves: Leaves
    parallel: Callable[..., Any]


def _forward(kind: _Kind) -> ForwardOp:
    return ForwardOp(
        kind.name,
        shapes=_forward_shapes,
        run=kind.run,
        call=kind.call,
        accumulators=kind.bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{kind.name}_fwd_s8": kind.arguments},
        header="pool",
        aten=kind.aten,
        folds=kind.folds,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=kind.batched[0],
        int8_run=kind.batched[1],
        gathers=gathers_channels,
        gradient=kind.gradient,
        leaves=kind.leaves,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=_step_structs,
        kernel=f"{kind.name}_fwd_s8",
        struct="pool",
        stage=STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=kind.parallel,
        statistics=no_statistics,
    )


def _backward(name: str, positions: tuple[Any, ...]) -> BackwardOp:
    kernel = f"{name}_bwd_x"
    return BackwardOp(
        kernel,
        shapes=_input_shape,
        run=_run_bwd_x,
        call=_call_bwd_x,
        accumulators=_gradient_bounds,
        scratch=_scratch(kernel),
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={
            f"{kernel}_s8": (None, (Pool, ErrorS8, *positions, Clamp, ErrorS8, SCRATCH)),
            f"{kernel}_scratch": (ctypes.c_uint32, (Pool,)),
        },
        header="pool",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


_AVERAGE = _Kind(
    AVERAGE,
    _run_average,
    _call_average,
    _average_bounds,
    (None, (Pool, S8, S8)),
    pool_aten.AVERAGE_ATEN,
    Folds.NOTHING,
    (_float_average, _int8_average),
    _gradient_average,
    Leaves.NOTHING,
    _parallel_average,
)
_MAXIMUM = _Kind(
    MAXIMUM,
    _run_maximum,
    _call_maximum,
    _maximum_bounds,
    (None, (Pool, S8, S8, U8)),
    pool_aten.MAXIMUM_ATEN,
    Folds.RELU_PASSES,
    (_float_maximum, _int8_maximum),
    _gradient_maximum,
    Leaves.POSITIONS,
    _parallel_maximum,
)


OPS: tuple[Op, ...] = (
    _forward(_AVERAGE),
    _backward(AVERAGE, ()),
    _forward(_MAXIMUM),
    _backward(MAXIMUM, (U8,)),
)
