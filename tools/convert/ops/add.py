"""Residual add."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Graph, Node
from microtrain.convert.lowering import Act, Call, Lowering, Param
from microtrain.convert.names import Names
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import S8, U8, Record
from microtrain.convert.reference.proofs import add_words
from microtrain.convert.reference.windows import centred, requantized

from .bounds import INT16_MAX, SMALLER, Accumulator, reach
from .ctext import struct
from .environment import Env
from .outputs import by_range
from .stage import ClosingStage
from .table import (
    Aten,
    Folds,
    ForwardOp,
    Learns,
    Leaves,
    Op,
    Values,
    gathers_channels,
    in_place_of,
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_structs,
    no_tables,
    shape_of_input,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape


class Add(Record):
    _fields_ = (
        ("pixels", ctypes.c_uint32),
        ("c", ctypes.c_uint16),
        *((n, ctypes.c_int16) for n in ("a_zero", "b_zero", "y_zero")),
        *((n, ctypes.c_int32) for n in ("a", "b", "y")),
    )


def node_of(name: str, inputs: tuple[str, str], y: str) -> Node:
    return Node("add", name, inputs, (y,))


def c_struct(graph: Graph, node: Node) -> Add:
    """The kernel's parameter struct of a residual add."""
    a, b, y = (graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    p = reference.Add(a.zero, b.zero, y.zero, a.scale, b.scale, y.scale)
    return params(p, y.pixels, y.channels)


def params(p: reference.Add, pixels: int, c: int) -> Add:
    """The same of the reference's parameters."""
    zeros = {"a_zero": p.a_zero, "b_zero": p.b_zero, "y_zero": p.y_zero}
    return Add(pixels=pixels, c=c, **zeros, **dict(zip("aby", add_words(p), strict=True)))


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Both inputs receive the error, scaled by their share: nothing is overwritten, readers are summed."""
    if error is None:
        return
    y = tape.graph.tensors[node.outputs[0]]
    for x in node.inputs:
        tape.send_copy(x, error, tape.graph.tensors[x].scale / y.scale, node.name)


def _call(names: Names, node: Node) -> str:
    a, b, y = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    return f"add_fwd_s8({names.struct('add', node)}, {a}, {b}, {y}, {names.mask_out(node)});"


def _run(env: Env, node: Node) -> None:
    a, b, y = (env.graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    p = reference.Add(a.zero, b.zero, y.zero, a.scale, b.scale, y.scale)
    results = reference.add_fwd(p, *(env.values[t] for t in node.inputs))
    env.values.update(zip(node.outputs, results, strict=False))


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return env[node.inputs[0]] + env[node.inputs[1]]


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    a, b, y = (graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    left = centred(env[a.name], a.zero) * np.float32(a.scale)
    right = centred(env[b.name], b.zero) * np.float32(b.scale)
    return requantized((left + right) / np.float32(y.scale), y.zero)


def _accumulators(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Halves of a word on Armv7E-M; the sum itself is float32."""
    most = max(reach(graph.tensors[name]) for name in node.inputs)
    yield Accumulator("an input less its zero point", most, INT16_MAX, SMALLER)


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("add", "add", node.name, c_struct(names.graph, node))


def _row(graph: Graph, node: Node) -> Record:
    record = c_struct(graph, node)
    record.pixels = graph.tensors[node.outputs[0]].shape[1]
    return record


def _parallel(run: Any, step: Any, a: Any, b: Any) -> Any:
    ta, tb, ty = (run.network.tensors[t] for t in (*step.inputs, step.output))
    return run.stored(step, (a * ta.scale + b * tb.scale) / ty.scale)


def lower(low: Lowering, call: Call) -> Any:
    a, b = call.x, call.args.get("other")
    if isinstance(a, Param) and call.op.endswith("_"):
        raise call.error(f"{a.name} is changed by forward(); call model.eval() before the model is saved")
    for value in (a, b):
        if not isinstance(value, Act):
            raise call.error("only the sum of two activations is supported, not that with a constant")
    a, b = low.activation(call, a), low.activation(call, b)
    if call.get("alpha", 1) != 1:
        raise call.error("add with alpha is not supported; the nearest that is: a plain sum")
    if a.dims != b.dims or low.shape(a) != low.shape(b):
        raise call.error(
            f"adds tensors of shapes {list(a.dims)} and {list(b.dims)}; they must have one shape"
        )
    if low.tensor_of(a) == low.tensor_of(b):
        raise call.error(
            "adds a tensor to itself; the nearest that is supported: twice the weights before it"
        )
    return low.emit(call, "add", (a, b), low.shape(a), dims=a.dims)


ATEN: Mapping[str, Aten] = {"add": Aten("self other", lower)}

OPS: tuple[Op, ...] = (
    ForwardOp(
        "add",
        shapes=shape_of_input,
        run=_run,
        call=_call,
        accumulators=_accumulators,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0, 1),
        kernels={"add_fwd_s8": (None, (Add, S8, S8, S8, U8))},
        header="elementwise",
        aten=ATEN,
        folds=Folds.RELU,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_run,
        int8_run=_int8_run,
        gathers=gathers_channels,
        gradient=_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=no_tables,
        layer_structs=no_structs,
        step_structs=_structs,
        kernel="add_fwd_s8",
        struct="add",
        stage=ClosingStage(_row),
        arrays=no_arrays,
        facts=no_facts,
        parallel=_parallel,
    ),
)
