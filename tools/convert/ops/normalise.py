"""Group, layer and instance normalisation without scale and shift, which a depthwise layer behind it has."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import S8, SCRATCH, U8, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import Error, f32, inverse_root, quantize_error, rint_s32, sat8

from .aten.normalise import ATEN, GROUP_NORM
from .bounds import ERROR, INT32_MAX, SMALLER, STORED, Accumulator
from .ctext import struct
from .environment import Env
from .outputs import by_range
from .stage import NOT_A_STAGE
from .table import (
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
    gradient_with_input,
    in_place_of,
    no_arrays,
    no_scratch,
    no_statistics,
    no_structs,
    no_tables,
    shape_of_input,
)
from .unit import whole
from .work import Terms, by_size, one_way

BACKWARD = f"{GROUP_NORM}_bwd_x"
MOST_EPSILON = 1 << 61


class Normalise(Record):
    _fields_ = (
        ("pixels", ctypes.c_uint32),
        *((n, ctypes.c_uint16) for n in ("c", "groups", "apart")),
        ("y_zero", ctypes.c_int16),
        ("unit", ctypes.c_float),
        ("epsilon", ctypes.c_uint64),
    )


@dataclass(frozen=True)
class Cells:
    """What has a mean and a variance of its own. apart: each pixel by itself"""

    pixels: int
    c: int
    groups: int
    apart: bool

    @property
    def n(self) -> int:
        """Values in a cell."""
        return self.c // self.groups * (1 if self.apart else self.pixels)

    def split(self, values: np.ndarray) -> np.ndarray:
        """[..., h, w, c] as [..., cells, pixels, channels]: the groups of a pixel follow one another."""
        lead, each = values.shape[:-3], self.c // self.groups
        if self.apart:
            return values.reshape(*lead, self.pixels * self.groups, 1, each)
        return np.moveaxis(values.reshape(*lead, self.pixels, self.groups, each), -2, -3)

    def join(self, split: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The inverse."""
        return (split if self.apart else np.moveaxis(split, -3, -2)).reshape(shape)


def cells_of(p: Normalise) -> Cells:
    return Cells(p.pixels, p.c, p.groups, bool(p.apart))


def statistics(p: Normalise, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of each cell, int64 [..., cells], and 1 / sqrt(weight), float32. x int8 [..., h, w, c]"""
    cells = cells_of(p)
    q = cells.split(x).astype(np.int64)
    sums = q.sum(axis=(-2, -1))
    weights = cells.n * (q * q).sum(axis=(-2, -1)) - sums * sums + int(p.epsilon)
    return sums, np.vectorize(inverse_root, otypes=[f32])(weights)


def distances(p: Normalise, x: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """d of every value, float32 [..., cells, pixels, channels]."""
    cells = cells_of(p)
    d: np.ndarray = (cells.n * cells.split(x).astype(np.int64) - sums[..., None, None]).astype(f32)
    return d


def normalise_fwd(p: Normalise, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of normalise_fwd_s8: y and its mask. x int8 [..., h, w, c]"""
    sums, inverse = statistics(p, x)
    v = rint_s32(distances(p, x, sums) * (inverse * f32(p.unit))[..., None, None], 1024.0) + p.y_zero
    v = cells_of(p).join(v, x.shape)
    return sat8(v), (v >= -128) & (v <= 127)


def normalise_bwd_x(p: Normalise, ey: Error, x: np.ndarray, clamp: Any) -> Error:
    """The twin of normalise_bwd_x_s8."""
    cells = cells_of(p)
    n = f32(cells.n)
    sums, inverse = statistics(p, x)
    whole = np.sign(sums) * (np.abs(sums) // cells.n)
    rest = sums - cells.n * whole
    q = cells.split(ey.q).astype(np.int64)
    errors = q.sum(axis=1)
    products = (q * (cells.split(x).astype(np.int64) - whole[:, None, None])).sum(axis=1)
    scales = cells.split(np.broadcast_to(ey.scale, x.shape))
    first, second = np.zeros(len(sums), f32), np.zeros(len(sums), f32)
    for i in range(errors.shape[1]):  # the order of the sums
        e, whole_errors = scales[:, 0, i], errors[:, i].astype(f32)
        first = first + e * whole_errors
        second = second + e * (products[:, i].astype(f32) * n - whole_errors * rest.astype(f32))
    mean, slope, gain = first / n, second * inverse / n * inverse, inverse * f32(p.unit) * n
    mean, slope, gain = (v[:, None, None] for v in (mean, slope, gain))
    values = ((scales * q.astype(f32) - mean) - distances(p, x, sums) * slope) * gain
    return quantize_error(cells.join(values, x.shape), 1.0, clamp)


def node_of(name: str, x: str, y: str, groups: int, eps: float) -> Node:
    """A group norm without scale and shift, and a ReLU where its output begins with 0."""
    return Node(GROUP_NORM, name, (x,), (y,), act="relu", factors=(eps, float(groups), 0.0))


def c_struct(graph: Graph, node: Node) -> Normalise:
    """The kernels' parameters of the layer that a node belongs to."""
    forward = graph.forward_named(node.name, (GROUP_NORM,))
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    eps, groups, apart = forward.factors
    n = Cells(x.pixels, x.channels, int(groups), bool(apart)).n
    epsilon = min(max(int(np.rint(n * n * eps / x.scale**2)), 1), MOST_EPSILON)
    sizes = {"pixels": x.pixels, "c": x.channels, "groups": int(groups), "apart": int(apart)}
    return Normalise(**sizes, y_zero=y.zero, unit=float(f32(1.0 / y.scale)), epsilon=epsilon)


def _work(graph: Graph, node: Node) -> Terms:
    """Also what is done once for each set of values that are normalised together."""
    p = c_struct(graph, node)
    return {**by_size(graph, node), "sets": p.groups * (p.pixels if p.apart else 1)}


def _run(env: Env, node: Node) -> None:
    made = normalise_fwd(c_struct(env.graph, node), env.values[node.inputs[0]])
    env.values.update(zip(node.outputs, made, strict=False))


def _run_backward(env: Env, node: Node) -> None:
    p, clamp = c_struct(env.graph, node), env.clamp(node.clamp)
    error, x = (env.values[t] for t in node.inputs)
    if not env.real:
        env.values[node.outputs[0]] = normalise_bwd_x(p, error, x, clamp)
        return
    cells = cells_of(p)
    sums, inverse = statistics(p, x)
    z = distances(p, x, sums).astype(np.float64) * inverse[:, None, None]
    e = cells.split(error)
    means = [np.mean(v, axis=(-2, -1), keepdims=True) for v in (e, e * z)]
    found = (e - means[0] - z * means[1]) * (inverse * float(p.unit) * cells.n)[:, None, None]
    env.values[node.outputs[0]] = env.backend.clamped(cells.join(found, x.shape), clamp)


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"{GROUP_NORM}_fwd_s8({names.struct(GROUP_NORM, node)}, {x}, {y}, {names.mask_out(node)});"


def _call_backward(names: Names, node: Node) -> str:
    error, x, out = names.error(node.inputs[0]), names.at(node.inputs[1]), names.error(node.outputs[0])
    ends = f"{names.clamp()}, {out}, {names.scratch()}"
    return f"{BACKWARD}_s8({names.struct(GROUP_NORM, node)}, {error}, {x}, {ends});"


def _scratch(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes(BACKWARD, c_struct(graph, node))


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct(GROUP_NORM, GROUP_NORM, node.name, c_struct(names.graph, node))


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    n = cells_of(c_struct(graph, node)).n
    yield Accumulator("a sum of squares", n * STORED * STORED, INT32_MAX, SMALLER)


def _backward_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """A value less the mean takes 9 bits."""
    pixels = graph.tensors[node.inputs[0]].pixels
    yield Accumulator("a sum of errors times inputs", pixels * ERROR * 255, INT32_MAX, SMALLER)
    yield from _bounds(graph, node)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    eps, groups, apart = node.factors
    x = env[node.inputs[0]]
    _, h, w, c = x.shape
    cells = Cells(h * w, c, int(groups), bool(apart))
    split = cells.split(x)
    off = split - split.mean(axis=(-2, -1), keepdims=True)
    deviation = np.sqrt((off * off).mean(axis=(-2, -1), keepdims=True) + np.float32(eps))
    return cells.join(off / deviation, x.shape)


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return normalise_fwd(c_struct(graph, node), env[node.inputs[0]])[0]


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    p = c_struct(graph, node)
    return {"groups": p.groups, "apart": p.apart, "epsilon": p.epsilon, "unit": p.unit}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    runs, _, images, h, w = x.shape
    split = x.reshape(runs, step.facts["groups"], -1, images, h, w)
    over = (2,) if step.facts["apart"] else (2, 4, 5)
    n = split.shape[2] * (1 if step.facts["apart"] else h * w)
    off = split - split.mean(dim=over, keepdim=True)
    variance = (off * off).mean(dim=over, keepdim=True) + step.facts["epsilon"] / n**2
    return run.stored(step, (off / variance.sqrt()).reshape(x.shape) * step.facts["unit"])


OPS: tuple[Op, ...] = (
    ForwardOp(
        GROUP_NORM,
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=lambda graph, node: 2 * graph.tensors[node.inputs[0]].elements,
        way=one_way,
        work=_work,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{GROUP_NORM}_fwd_s8": (None, (Normalise, S8, S8, U8))},
        header="normalise",
        aten=ATEN,
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=gradient_with_input(BACKWARD),
        leaves=Leaves.CLAMP_MASK,
        tables=no_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{GROUP_NORM}_fwd_s8",
        struct=GROUP_NORM,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=shape_of_input,
        run=_run_backward,
        call=_call_backward,
        accumulators=_backward_bounds,
        scratch=_scratch,
        macs=lambda graph, node: 2 * graph.tensors[node.inputs[0]].elements,
        way=one_way,
        work=_work,
        unit=whole,
        in_place=in_place_of(0),
        kernels={
            f"{BACKWARD}_s8": (None, (Normalise, ErrorS8, S8, Clamp, ErrorS8, SCRATCH)),
            f"{BACKWARD}_scratch": (ctypes.c_uint32, (Normalise,)),
        },
        header="normalise",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
