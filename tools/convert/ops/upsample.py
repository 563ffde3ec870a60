"""A map made larger by whole factors: every pixel of a block is its nearest neighbour."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import S8, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import quantize_error

from .aten.upsample import ATEN, UPSAMPLE
from .bounds import ERROR, INT32_MAX, SMALLER, Accumulator, no_integers
from .ctext import struct
from .environment import Env
from .outputs import as_input
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

BACKWARD = f"{UPSAMPLE}_bwd_x"


class Upsample(Record):
    _fields_ = tuple((n, ctypes.c_uint16) for n in ("h", "w", "c", "down", "across"))


def upsample_fwd(x: np.ndarray, down: int, across: int) -> np.ndarray:
    """The twin of upsample_fwd_s8. x [..., h, w, c]"""
    return x.repeat(down, axis=-3).repeat(across, axis=-2)


def sums(error: np.ndarray, down: int, across: int) -> np.ndarray:
    """Over the block of each pixel. error [h, w, c]"""
    h, w, c = error.shape
    made: np.ndarray = error.reshape(h // down, down, w // across, across, c).sum(axis=(1, 3))
    return made


def upsample_bwd_x(p: Upsample, ey: Any, clamp: Any) -> Any:
    """The twin of upsample_bwd_x_s8."""
    return quantize_error(sums(ey.q.astype(np.int64), p.down, p.across), ey.scale, clamp)


def factors_of(node: Node) -> tuple[int, int]:
    """Rows and columns of a block."""
    down, across = node.factors
    return int(down), int(across)


def node_of(name: str, x: str, y: str, factors: tuple[int, int]) -> Node:
    """A map made larger by so many rows and columns a pixel."""
    return Node(UPSAMPLE, name, (x,), (y,), factors=(float(factors[0]), float(factors[1])))


def _made_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    (h, w, c), (down, across) = graph.tensors[node.inputs[0]].shape, factors_of(node)
    return ((h * down, w * across, c),) * len(node.outputs)


def _source_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    (h, w, c), (down, across) = graph.tensors[node.inputs[0]].shape, factors_of(node)
    return ((h // down, w // across, c),)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    if error is not None:
        tape.send(node.inputs[0], Node(BACKWARD, node.name, (error,), (), factors=node.factors))


def _run(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = upsample_fwd(env.values[node.inputs[0]], *factors_of(node))


def _run_backward(env: Env, node: Node) -> None:
    error, clamp = env.values[node.inputs[0]], env.clamp(node.clamp)
    if env.real:
        result = env.backend.clamped(sums(error, *factors_of(node)), clamp)
    else:
        down, across = factors_of(node)
        result = upsample_bwd_x(Upsample(down=down, across=across), error, clamp)
    env.values[node.outputs[0]] = result


def _call(names: Names, node: Node) -> str:
    ends = f"{names.at(node.inputs[0])}, {names.at(node.outputs[0])}"
    return f"{UPSAMPLE}_fwd_s8({names.struct(UPSAMPLE, node)}, {ends});"


def _call_backward(names: Names, node: Node) -> str:
    ends = f"{names.error(node.inputs[0])}, {names.clamp()}, {names.error(node.outputs[0])}"
    return f"{BACKWARD}_s8({names.struct(UPSAMPLE, node)}, {ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    (h, w, c), (down, across) = names.graph.tensors[node.inputs[0]].shape, factors_of(node)
    yield struct(UPSAMPLE, UPSAMPLE, node.name, Upsample(h=h, w=w, c=c, down=down, across=across))


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    down, across = factors_of(node)
    yield Accumulator("the gradient of a pixel that is repeated", down * across * ERROR, INT32_MAX, SMALLER)


def _values(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return upsample_fwd(env[node.inputs[0]], *factors_of(node))


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    return {"factors": factors_of(node)}


def _parallel(run: Any, step: Any, x: Any) -> Any:
    down, across = step.facts["factors"]
    return x.repeat_interleave(down, dim=-2).repeat_interleave(across, dim=-1)


OPS: tuple[Op, ...] = (
    ForwardOp(
        UPSAMPLE,
        shapes=_made_shape,
        run=_run,
        call=_call,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{UPSAMPLE}_fwd_s8": (None, (Upsample, S8, S8))},
        header=UPSAMPLE,
        aten=ATEN,
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=_values,
        int8_run=_values,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.NOTHING,
        tables=no_tables,
        layer_structs=_structs,
        step_structs=no_structs,
        kernel=f"{UPSAMPLE}_fwd_s8",
        struct=UPSAMPLE,
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_facts,
        parallel=_parallel,
        statistics=no_statistics,
    ),
    BackwardOp(
        BACKWARD,
        shapes=_source_shape,
        run=_run_backward,
        call=_call_backward,
        accumulators=_bounds,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{BACKWARD}_s8": (None, (Upsample, ErrorS8, Clamp, ErrorS8))},
        header=UPSAMPLE,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
