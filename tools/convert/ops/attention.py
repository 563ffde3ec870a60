"""Attention of every token of a sequence to every other, and its gradient."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import S8, SCRATCH, U8, Clamp, ErrorS8, Record
from microtrain.convert.reference.kernels import align
from microtrain.convert.reference.numeric import Error, f32, quantize_error, rint_s32, sat8

from .aten.attention import ATTENTION
from .bounds import ERROR, INT16_MAX, INT32_MAX, SMALLER, Accumulator, reach
from .conv_structs import Conv2d
from .ctext import struct
from .environment import Env
from .outputs import by_range
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
    gradient_with_input,
    no_arrays,
    no_statistics,
    no_structs,
    no_tables,
    not_in_place,
)
from .unit import OUTPUT, Unit
from .work import by_size, one_way

BACKWARD = f"{ATTENTION}_bwd_x"
POWER = np.rint(2.0**14 * 2.0 ** (-np.arange(256) / 256)).astype(np.int64)
MOST_OCTAVES, SHARE_BITS, WEIGHT_BITS = 15, 15, 14


class Attention(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h", "w", "heads", "size", "step_h", "step_w")),
        *((n, ctypes.c_int16) for n in ("x_zero", "y_zero")),
        ("sharpness", ctypes.c_uint32),
        *((n, ctypes.c_float) for n in ("unit", "slope")),
    )


def tokens_of(p: Attention) -> int:
    """Tokens of a sequence."""
    return int(p.h // p.step_h) * int(p.w // p.step_w)


def split(p: Attention, values: np.ndarray, parts: int = 1) -> np.ndarray:
    """[h, w, parts * heads * size] as [parts, heads, sequences, tokens, size]."""
    rows, columns = p.h // p.step_h, p.w // p.step_w
    apart = values.reshape(rows, p.step_h, columns, p.step_w, parts, p.heads, p.size)
    turned = apart.transpose(4, 5, 1, 3, 0, 2, 6)
    return turned.reshape(parts, p.heads, p.step_h * p.step_w, rows * columns, p.size)


def joined(p: Attention, values: np.ndarray) -> np.ndarray:
    """The inverse."""
    rows, columns, parts = p.h // p.step_h, p.w // p.step_w, len(values)
    apart = values.reshape(parts, p.heads, p.step_h, p.step_w, rows, columns, p.size)
    return apart.transpose(4, 2, 5, 3, 0, 1, 6).reshape(p.h, p.w, parts * p.heads * p.size)


def shares(p: Attention, q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """e, int64 [..., queries, tokens]."""
    score = (q - p.x_zero) @ k.swapaxes(-1, -2)
    below = (score.max(axis=-1, keepdims=True) - score).astype(np.uint64)
    octaves = (below * np.uint64(p.sharpness) >> np.uint64(24)).astype(np.int64)
    whole = octaves // 256
    e: np.ndarray = np.where(whole < MOST_OCTAVES, POWER[octaves % 256] >> np.minimum(whole, 32), 0)
    return e


def attention_fwd(p: Attention, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of attention_fwd_s8: y and its mask. x int8 [h, w, 3 * c]"""
    q, k, v = split(p, x.astype(np.int64), 3)
    e = shares(p, q, k)
    m = f32(p.unit) / e.sum(axis=-1, keepdims=True).astype(f32)
    sums = rint_s32((e @ (v - p.x_zero)).astype(f32) * m, 1024.0) + p.y_zero
    values = joined(p, sums[None])
    return sat8(values), (values >= -128) & (values <= 127)


def attention_bwd_x(p: Attention, ey: Error, x: np.ndarray, clamp: Any) -> Error:
    """The twin of attention_bwd_x_s8."""
    q, k, v = split(p, x.astype(np.int64), 3)
    e = shares(p, q, k)
    total = e.sum(axis=-1, keepdims=True)
    share = ((e << SHARE_BITS) + total // 2) // total
    error = split(p, ey.q.astype(np.int64))[0]
    scale = ey.scale.reshape(p.heads, p.size)
    found = [align(each, 8) for each in scale]
    aligned = error * np.stack([r for r, _ in found])[:, None, None, :]
    f = aligned @ v.swapaxes(-1, -2)
    half = 1 << SHARE_BITS >> 1
    mean = ((share * f).sum(axis=-1, keepdims=True) + half) >> SHARE_BITS
    g = (share * (f - mean) + half) >> SHARE_BITS
    shift = np.array([_shift(int(np.abs(each).max())) for each in g])
    by = shift[:, None, None, None]
    w = (g + (1 << by >> 1)) >> by
    sums = [w @ (k - p.x_zero), w.swapaxes(-1, -2) @ (q - p.x_zero), share.swapaxes(-1, -2) @ error]
    one = np.exp2(shift).astype(f32)
    joint = np.array([unit for _, unit in found], f32) * (f32(p.unit) * f32(p.slope)) * one
    own = ey.scale * (f32(p.unit) / f32(1 << SHARE_BITS))
    units = np.concatenate([np.repeat(joint, p.size), np.repeat(joint, p.size), own])
    return quantize_error(joined(p, np.stack(sums)), units, clamp)


def _shift(peak: int) -> int:
    return max(0, peak.bit_length() - WEIGHT_BITS)


def real_bwd_x(p: Attention, error: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The gradient in real numbers, of the softmax that the integers stand for."""
    q, k, v = split(p, x.astype(np.float64) - p.x_zero, 3)
    score = q @ k.swapaxes(-1, -2) * float(p.slope)
    e = np.exp(score - score.max(axis=-1, keepdims=True))
    share = e / e.sum(axis=-1, keepdims=True)
    ey = split(p, error)[0] * float(p.unit)
    f = ey @ v.swapaxes(-1, -2)
    w = share * (f - (share * f).sum(axis=-1, keepdims=True)) * float(p.slope)
    return joined(p, np.stack([w @ k, w.swapaxes(-1, -2) @ q, share.swapaxes(-1, -2) @ ey]))


def c_struct(graph: Graph, node: Node) -> Attention:
    """The kernels' parameters of the layer that a node belongs to."""
    forward = graph.forward_named(node.name, (ATTENTION,))
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    factor, heads, down, across = forward.factors
    sizes = {"h": x.shape[0], "w": x.shape[1], "step_h": int(down), "step_w": int(across)}
    slope = x.scale * x.scale * factor
    sharpness = min(int(np.rint(slope / math.log(2.0) * 2.0**32)), 2**32 - 1)
    return Attention(
        **sizes,
        heads=int(heads),
        size=x.channels // 3 // int(heads),
        x_zero=x.zero,
        y_zero=y.zero,
        sharpness=sharpness,
        unit=float(f32(x.scale / y.scale)),
        slope=float(f32(slope)),
    )


def _shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, c = graph.tensors[node.inputs[0]].shape
    return ((h, w, c // 3),) * len(node.outputs)


def _error_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[node.inputs[1]].shape,)


def _products(graph: Graph, node: Node, each: int) -> int:
    """Multiply-accumulates, `each` for a feature of two tokens."""
    p = c_struct(graph, node)
    return each * int(p.h * p.w) * tokens_of(p) * int(p.heads * p.size)


def _unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    """A head of a pixel."""
    p = c_struct(graph, node)
    work = tokens_of(p) * (2 * int(p.size) + OUTPUT) + int(p.size) * OUTPUT
    return Unit(work, work * int(p.h * p.w * p.heads), {"work": 1.0}, {"piece": 1.0})


def _backward_unit(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    """A pixel of the errors of a head's queries, keys or values, or what is behind all of them."""
    p = c_struct(graph, node)
    pixels = int(p.h * p.w)
    work = max(tokens_of(p), pixels) * (3 * int(p.size) + OUTPUT)
    return Unit(work, 3 * int(p.heads) * (pixels + 1) * work, {"work": 1.0}, {"piece": 1.0})


def _run(env: Env, node: Node) -> None:
    made = attention_fwd(c_struct(env.graph, node), env.values[node.inputs[0]])
    env.values.update(zip(node.outputs, made, strict=False))


def _run_backward(env: Env, node: Node) -> None:
    p, clamp = c_struct(env.graph, node), env.clamp(node.clamp)
    error, x = (env.values[t] for t in node.inputs)
    if env.real:
        env.values[node.outputs[0]] = env.backend.clamped(real_bwd_x(p, error, x), clamp)
    else:
        env.values[node.outputs[0]] = attention_bwd_x(p, error, x, clamp)


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    ends = f"{names.mask_out(node)}, {names.scratch()}"
    return f"{ATTENTION}_fwd_s8({names.struct(ATTENTION, node)}, {x}, {y}, {ends});"


def _call_backward(names: Names, node: Node) -> str:
    error, x, out = names.error(node.inputs[0]), names.at(node.inputs[1]), names.error(node.outputs[0])
    ends = f"{names.clamp()}, {out}, {names.scratch()}"
    return f"{BACKWARD}_s8({names.struct(ATTENTION, node)}, {error}, {x}, {ends});"


def _scratch(graph: Graph, node: Node) -> int:
    name = BACKWARD if node.op == BACKWARD else f"{ATTENTION}_fwd"
    return hostlib.scratch_bytes(name, c_struct(graph, node))


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct(ATTENTION, ATTENTION, node.name, c_struct(names.graph, node))


FEWER_TOKENS = "give attention fewer tokens, or make the map smaller before it"


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    p, x = c_struct(graph, node), graph.tensors[node.inputs[-1]]
    n, most = tokens_of(p), reach(x)
    yield Accumulator("an input less its zero point", most, INT16_MAX, SMALLER)
    yield Accumulator("a score of attention", int(p.size) * most * 128, INT32_MAX, "use more heads")
    yield Accumulator("a sum of weighted values", n * (1 << 14) * most, INT32_MAX, FEWER_TOKENS)


def _backward_bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    p, x = c_struct(graph, node), graph.tensors[node.inputs[1]]
    n = tokens_of(p)
    yield Accumulator(
        "a product of errors and values", 2 * int(p.size) * ERROR * 256 * 128, INT32_MAX, SMALLER
    )
    yield Accumulator("a sum of shares times errors", n * ERROR << SHARE_BITS, INT32_MAX, FEWER_TOKENS)
    yield Accumulator("a sum of the gradient to keys", n * reach(x) << WEIGHT_BITS, INT32_MAX, FEWER_TOKENS)


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    factor, heads, down, across = node.factors
    x = env[node.inputs[0]]
    _, h, w, c = x.shape
    p = Attention(h=h, w=w, heads=int(heads), size=c // 3 // int(heads), step_h=int(down), step_w=int(across))
    made = []
    for each in x:
        q, k, v = split(p, each, 3)
        score = q @ k.swapaxes(-1, -2) * np.float32(factor)
        e = np.exp(score - score.max(axis=-1, keepdims=True))
        made.append(joined(p, (e / e.sum(axis=-1, keepdims=True) @ v)[None]))
    return np.stack(made)


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p = c_struct(graph, node)
    return np.stack([attention_fwd(p, x)[0] for x in env[node.inputs[0]]])


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    p = c_struct(graph, node)
    sizes = {name: getattr(p, name) for name in ("heads", "size", "step_h", "step_w")}
    return {**sizes, "slope": p.slope, "unit": p.unit, "sharpness": p.sharpness}


def _stored_softmax(step: Any, q: Any, k: Any, v: Any) -> Any:
    """The integers' result, with the gradient of the softmax that they stand for."""
    import torch

    unit, sharpness = step.facts["unit"], step.facts["sharpness"]
    score = q.detach().double() @ k.detach().double().transpose(-1, -2)
    octaves = (score.amax(dim=-1, keepdim=True) - score).long() * sharpness >> 24
    e = torch.tensor(POWER)[octaves % 256] >> (octaves // 256).clamp(max=32)
    e = torch.where(octaves < 256 * MOST_OCTAVES, e, 0).double()
    m = torch.tensor(unit, dtype=torch.float32) / e.sum(dim=-1, keepdim=True).float()
    made = (e @ v.detach().double()).float() * m
    through = torch.softmax(q @ k.transpose(-1, -2) * step.facts["slope"], dim=-1) @ v * unit
    return through + (made - through).detach()


def _parallel(run: Any, step: Any, x: Any) -> Any:
    """x: [runs][c][images][h][w]"""
    runs, _, images, h, w = x.shape
    heads, size, down, across = (step.facts[k] for k in ("heads", "size", "step_h", "step_w"))
    apart = x.reshape(runs, 3, heads, size, images, h // down, down, w // across, across)
    turned = apart.permute(1, 0, 4, 2, 6, 8, 5, 7, 3)
    q, k, v = turned.reshape(3, runs, images, heads, down, across, -1, size)
    made = _stored_softmax(step, q, k, v)
    back = made.reshape(runs, images, heads, down, across, h // down, w // across, size)
    back = back.permute(0, 2, 7, 1, 5, 3, 6, 4)
    return run.stored(step, back.reshape(runs, heads * size, images, h, w))


OPS: tuple[Op, ...] = (
    ForwardOp(
        ATTENTION,
        shapes=_shape,
        run=_run,
        call=_call,
        accumulators=_bounds,
        scratch=_scratch,
        macs=lambda graph, node: _products(graph, node, 2),
        way=one_way,
        work=by_size,
        unit=_unit,
        in_place=not_in_place,
        kernels={
            f"{ATTENTION}_fwd_s8": (None, (Attention, S8, S8, U8, SCRATCH)),
            f"{ATTENTION}_fwd_scratch": (ctypes.c_uint32, (Attention,)),
        },
        header=ATTENTION,
        aten=NO_ATEN,
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
        kernel=f"{ATTENTION}_fwd_s8",
        struct=ATTENTION,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=_error_shape,
        run=_run_backward,
        call=_call_backward,
        accumulators=_backward_bounds,
        scratch=_scratch,
        macs=lambda graph, node: _products(graph, node, 9),
        way=one_way,
        work=by_size,
        unit=_backward_unit,
        in_place=not_in_place,
        kernels={
            f"{BACKWARD}_s8": (None, (Attention, ErrorS8, S8, Clamp, ErrorS8, SCRATCH)),
            f"{BACKWARD}_scratch": (ctypes.c_uint32, (Attention,)),
        },
        header=ATTENTION,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
