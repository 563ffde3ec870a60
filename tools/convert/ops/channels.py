"""Maps side by side, and some of a map's channels: concatenation, chunks, slices, the channel shuffle."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.convert.ir import Clamp as Through
from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.names import Names, identifier, number
from microtrain.convert.reference import kernels as reference
from microtrain.convert.reference.hostlib import FACTOR, NUMBER, S8, U8, U16, Clamp, ErrorS8, Record
from microtrain.convert.reference.kernels import Error
from microtrain.convert.reference.numeric import f32, rint_s32, sat8
from microtrain.convert.reference.windows import centred, requantized

from . import joints
from .aten.channels import CONCAT, CONCAT_ATEN, TAKE, TAKE_ATEN
from .bounds import no_integers
from .ctext import Table, struct
from .environment import Env
from .outputs import as_input, by_range
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
    no_facts,
    no_macs,
    no_scratch,
    no_statistics,
    no_structs,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

ERROR = "error_take"
HEADER = "channels"
NO_CHANNEL = 0xFFFF  # as in the header


class Concat(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("c", "from", "total")),
        *((n, ctypes.c_int16) for n in ("x_zero", "y_zero")),
        ("m", ctypes.c_float),
    )


def concat_fwd(p: Concat, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of concat_fwd_s8: these channels of y, and of its mask. x int8 [h, w, c]"""
    v = rint_s32((x.astype(np.int32) - p.x_zero).astype(f32) * f32(p.m), 1024.0) + p.y_zero
    return sat8(v), (v >= -128) & (v <= 127)


def error_take(ey: Error, channels: np.ndarray, factor: float, clamp: Any) -> Error:
    """The twin of error_take_s8. channels uint16 [n]"""
    there = channels != NO_CHANNEL
    at = np.where(there, channels, 0)
    q = np.where(there, ey.q[..., at], np.int8(0))
    return reference.error_pass(Error(q, np.where(there, ey.scale[at], f32(0.0))), factor, clamp)


def parts(graph: Graph, node: Node) -> Iterator[Concat]:
    """The kernel's parameters of each map."""
    y, start = graph.tensors[node.outputs[0]], 0
    for x in (graph.tensors[t] for t in node.inputs):
        m = float(f32(x.scale / y.scale))
        sizes = {"c": x.channels, "from": start, "total": y.channels}
        yield Concat(**sizes, x_zero=x.zero, y_zero=y.zero, m=m)
        start += x.channels


# ---------------------------------------------------------------- side by side


def _joined_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    shape = (h, w, sum(graph.tensors[t].channels for t in node.inputs))
    return (shape,) * len(node.outputs)


def _run_concat(env: Env, node: Node) -> None:
    made = [concat_fwd(p, env.values[t]) for p, t in zip(parts(env.graph, node), node.inputs, strict=True)]
    results = (np.concatenate(each, axis=-1) for each in zip(*made, strict=True))
    env.values.update(zip(node.outputs, results, strict=False))


def _part(node: Node, number_: int) -> str:
    return f"{node.name}.{number_}"


def _call_concat(names: Names, node: Node) -> str:
    y = names.graph.tensors[node.outputs[0]]
    ends = f"{names.at(y.name)}, {names.mask_out(node)}"
    return "\n    ".join(
        f"concat_fwd_s8(&concat_{identifier(_part(node, i))}, {y.pixels}, {names.at(x)}, {ends});"
        for i, x in enumerate(node.inputs)
    )


def _concat_structs(names: Names, node: Node) -> Iterator[str]:
    for i, p in enumerate(parts(names.graph, node)):
        yield struct("concat", "concat", _part(node, i), p)


def _concat_gradient(tape: Tape, node: Node, error: str | None) -> None:
    """To each map the errors of its channels."""
    if error is None:
        return
    start, y = 0, tape.graph.tensors[node.outputs[0]]
    for x in (tape.graph.tensors[t] for t in node.inputs):
        channels = tuple(range(start, start + x.channels))
        sent = Node(ERROR, node.name, (error,), (), factors=(x.scale / y.scale,), channels=channels)
        tape.send(x.name, sent)
        start += x.channels


def _float_concat(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return np.concatenate([env[t] for t in node.inputs], axis=-1)


def _int8_concat(graph: Graph, node: Node, env: Values) -> np.ndarray:
    maps = zip(parts(graph, node), (env[t] for t in node.inputs), strict=True)
    return np.concatenate([requantized(centred(x, p.x_zero) * f32(p.m), p.y_zero) for p, x in maps], axis=-1)


def _parallel_concat(run: Any, step: Any, *maps: Any) -> Any:
    import torch

    y = run.network.tensors[step.output]
    scales = [run.network.tensors[t].scale for t in step.inputs]
    return run.stored(step, torch.cat([x * (s / y.scale) for x, s in zip(maps, scales, strict=True)], dim=1))


# ---------------------------------------------------------------- some channels


def _taken_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    h, w, _ = graph.tensors[node.inputs[0]].shape
    return ((h, w, len(node.channels or ())),) * len(node.outputs)


def _index(node: Node) -> np.ndarray:
    return np.array(node.channels, np.uint16)


def _run_take(env: Env, node: Node) -> None:
    env.values[node.outputs[0]] = reference.gather(env.values[node.inputs[0]], _index(node))


def _table(node: Node) -> str:
    """Name of the table of a node's channels: by what it holds, so that nodes share it."""
    return f"channels_{hashlib.sha256(_index(node).tobytes()).hexdigest()[:12]}"


def _call_take(names: Names, node: Node) -> str:
    x, y = (names.graph.tensors[t] for t in (node.inputs[0], node.outputs[0]))
    sizes = f"{x.pixels}, {x.channels}, {names.at(x.name)}"
    return f"gather_s8({sizes}, {_table(node)}, {y.channels}, {names.at(y.name)});"


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    """Of the node, and of the gradients that come back through it."""
    back = [n for n in graph.backward_nodes if n.op == ERROR and n.name == node.name]
    for each in [*([node] if node.op == TAKE else []), *back]:
        index = _index(each)
        yield Table(f"const uint16_t {_table(each)}[{index.size}]", index, "tables")


def _take_gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Nothing to the channels that were not taken; to one that was taken often the sum over its copies.

    Factors of the node: from which of its channels on, and up to which, there are errors; none: of all.
    """
    if error is None:
        return
    x, listed = tape.graph.tensors[node.inputs[0]], list(enumerate(node.channels or ()))
    begin, end = (int(f) for f in node.factors or (0, len(listed)))
    copies: list[dict[int, int]] = []  # channel of x -> place among those taken
    for place, channel in listed[begin:end]:
        free = next((copy for copy in copies if channel not in copy), None)
        if free is None:
            copies.append(free := {})
        free[channel] = place
    sent = [
        Node(
            ERROR,
            node.name,
            (error,),
            (),
            factors=(1.0,),
            channels=tuple(copy.get(i, NO_CHANNEL) for i in range(x.channels)),
        )
        for copy in copies
    ]
    tape.send(x.name, _summed(tape, node, sent) if len(sent) > 1 else sent[0])


def _summed(tape: Tape, node: Node, sent: list[Node]) -> Node:
    """The node that makes the sum of what several make; all before it are appended."""
    x, y = node.inputs[0], node.outputs[0]
    names = [tape.tensor(f"copy:{y}.{i}", x, "error") for i in range(len(sent))]
    for name, each in zip(names, sent, strict=True):
        tape.append(replace(each, outputs=(name,), clamp=Through()))
    total = names[0]
    for i, name in enumerate(names[1:-1]):
        out = tape.tensor(f"copy:{y}.sum{i}", x, "error")
        tape.append(joints.summed(node.name, (total, name), (1.0, 1.0), out, Through()))
        total = out
    return joints.summed(node.name, (total, names[-1]), (1.0, 1.0), "", Through())


def _taken(graph: Graph, node: Node, env: Values) -> np.ndarray:
    return env[node.inputs[0]][..., _index(node)]


def _take_facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    return {"channels": list(node.channels or ())}


def _parallel_take(run: Any, step: Any, x: Any) -> Any:
    return x[:, step.facts["channels"]]


# ---------------------------------------------------------------- their errors


def _run_error(env: Env, node: Node) -> None:
    clamp, channels, factor = env.clamp(node.clamp), _index(node), node.factors[0]
    error = env.values[node.inputs[0]]
    if not env.real:
        env.values[node.outputs[0]] = error_take(error, channels, factor, clamp)
        return
    there = channels != NO_CHANNEL
    taken = np.where(there, error[..., np.where(there, channels, 0)], 0.0)
    env.values[node.outputs[0]] = env.backend.error_pass(taken, factor, clamp)


def _call_error(names: Names, node: Node) -> str:
    y, n = names.graph.tensors[node.inputs[0]], len(node.channels or ())
    taken = f"{names.error(y.name)}, {_table(node)}, {n}, {number(node.factors[0])}"
    return f"{ERROR}_s8({y.pixels}, {y.channels}, {taken}, {names.clamp()}, {names.error(node.outputs[0])});"


OPS: tuple[Op, ...] = (
    ForwardOp(
        CONCAT,
        shapes=_joined_shape,
        run=_run_concat,
        call=_call_concat,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={"concat_fwd_s8": (None, (Concat, NUMBER, S8, S8, U8))},
        header=HEADER,
        aten=CONCAT_ATEN,
        folds=Folds.RELU,
        learns=Learns.NOTHING,
        output=by_range,
        float_run=_float_concat,
        int8_run=_int8_concat,
        gathers=gathers_channels,
        gradient=_concat_gradient,
        leaves=Leaves.CLAMP_MASK,
        tables=_tables,
        layer_structs=no_structs,
        step_structs=_concat_structs,
        kernel="concat_fwd_s8",
        struct="concat",
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=no_facts,
        parallel=_parallel_concat,
        statistics=no_statistics,
    ),
    ForwardOp(
        TAKE,
        shapes=_taken_shape,
        run=_run_take,
        call=_call_take,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={"gather_s8": (None, (NUMBER, NUMBER, S8, U16, NUMBER, S8))},
        header="conv2d",
        aten=TAKE_ATEN,
        folds=Folds.NOTHING,
        learns=Learns.NOTHING,
        output=as_input,
        float_run=_taken,
        int8_run=_taken,
        gathers=gathers_channels,
        gradient=_take_gradient,
        leaves=Leaves.NOTHING,
        tables=_tables,
        layer_structs=no_structs,
        step_structs=no_structs,
        kernel="gather_s8",
        struct="channels_of",
        stage=NOT_A_STAGE,
        arrays=no_arrays,
        facts=_take_facts,
        parallel=_parallel_take,
        statistics=no_statistics,
    ),
    BackwardOp(
        ERROR,
        shapes=_taken_shape,
        run=_run_error,
        call=_call_error,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{ERROR}_s8": (None, (NUMBER, NUMBER, ErrorS8, U16, NUMBER, FACTOR, Clamp, ErrorS8))},
        header=HEADER,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
