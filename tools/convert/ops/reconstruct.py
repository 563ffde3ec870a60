"""The end of an autoencoder, in the place of a head: how far what it makes lies from what it was given."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.trained import SCORES
from microtrain.convert.ir import ConvertError, Graph, Node, Shape, Tensor
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import F32, NUMBER, S8, Clamp, ErrorS8, Record
from microtrain.convert.reference.numeric import f32, kept, quantize_error
from microtrain.samples.kind import KNOWN_ORDER

from . import conv, head, losses
from .bounds import INT32_MAX, SMALLER, Accumulator, no_integers
from .ctext import struct
from .environment import Env
from .functions import SIGMOID
from .outputs import stays_float
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
    no_arrays,
    no_facts,
    no_macs,
    no_scratch,
    no_structs,
    no_tables,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

NAME, BACKWARD, OF_MAP = "reconstruct", "reconstruct_bwd_x", "reconstruct_map_bwd_x"
LOSS = "loss_score"
NORMAL, ANOMALY = 0, 1  # the classes
THRESHOLD = 0.25  # in units of a score, before anything is learned
DEVIATIONS = 3.75  # mean absolute ones above the mean: three standard ones of a normal distribution
REMEMBERED = 32  # normal samples, about, that the mean and the deviation of scores are of
ENDINGS = (SIGMOID,)  # that may stand at its end
LOGISTIC = (1.0 / 256.0, -128)  # scale and zero of what a logistic function makes, as TFLite has them


class Reconstruct(Record):
    _fields_ = (
        ("n", ctypes.c_uint32),
        *((n, ctypes.c_int16) for n in ("y_zero", "x_zero")),
        *((n, ctypes.c_float) for n in ("y_scale", "x_scale", "per")),
    )


def closed(graph: Graph) -> Graph:
    """A float network whose last layer makes its input again, with the score of that as its result.

    Raises ConvertError where it makes something else.
    """
    last = graph.nodes[-1]
    x, y = graph.tensors[graph.input.tensor], graph.tensors[graph.output]
    if last.op != head.HEAD and y.shape == x.shape:
        return _scored(graph, graph.output, "logits")
    made = y.elements
    if last.op != head.HEAD or made != x.elements or (x.pixels > 1 and x.channels > 1):
        h, w, c = x.shape
        way = f": end it with view(n, {c}, {h}, {w})" if made == x.elements else ""
        raise ConvertError(
            f"{graph.name} makes {made} numbers of {x.elements}: for --task anomaly it must end in a linear "
            "layer that makes its input again, a vector or one channel, or in one that makes a map like it"
            f"{way}"
        )
    graph = conv.of_linear_end(graph, "again")
    if graph.ending in ENDINGS:
        return _scored(_bounded(graph), "bounded", graph.output)
    return _scored(graph, "again", graph.output)


def _bounded(graph: Graph) -> Graph:
    """With the logistic function at its end that a loss of classes would have applied."""
    again = graph.tensors["again"]
    stored = None if again.given is None else LOGISTIC
    made = replace(again, name="bounded", given=stored)
    node = Node(graph.ending, "bounded", ("again",), ("bounded",))
    return graph.replace(nodes=(*graph.nodes, node), tensors={**graph.tensors, "bounded": made}, ending="")


def _scored(graph: Graph, again: str, output: str) -> Graph:
    """With the score of what is made again as the result, a tensor of that name."""
    end = Node(
        NAME, "score", (again, graph.input.tensor), (output,), factors=(1.0, 0.0, THRESHOLD / DEVIATIONS)
    )
    tensors = {**graph.tensors, output: Tensor(output, (1, 1, 2))}
    return graph.replace(nodes=(*graph.nodes, end), tensors=tensors, output=output, classes=KNOWN_ORDER)


def calibrated(graph: Graph, scores: np.ndarray) -> Graph:
    """With the unit in which a threshold of three deviations above the mean is THRESHOLD.

    scores  of normal samples, in the unit that the graph has
    """
    last = graph.nodes[-1]
    mean = float(scores.mean()) * last.factors[0]
    most = mean + 3.0 * float(scores.std()) * last.factors[0]
    unit = max(most, 1e-6) / THRESHOLD
    normal = (mean / unit, (THRESHOLD - mean / unit) / DEVIATIONS)
    return graph.replace(nodes=(*graph.nodes[:-1], replace(last, factors=(unit, *normal))))


def normal_scores(node: Node) -> np.ndarray:
    """Mean of normal samples' scores as converted, and of how far they lie from it: float32 [2]."""
    return np.array(node.factors[1:], f32)


def _statistics(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    return {SCORES: normal_scores(node)}


def threshold(normal: np.ndarray) -> Any:
    """The score from which on a sample is none of them, float32."""
    return f32(normal[0]) + f32(DEVIATIONS) * f32(normal[1])


def follow(normal: np.ndarray, score: float) -> None:
    """Let them follow the score of a normal sample, the mean of which is first the old one."""
    apart = f32(score) - normal[0]
    normal[0] += apart / f32(REMEMBERED)
    normal[1] += (abs(apart) - normal[1]) / f32(REMEMBERED)


def forward_of(graph: Graph) -> Node:
    return next(n for n in graph.forward_nodes if n.op == NAME)


def c_struct(graph: Graph, node: Node) -> Reconstruct:
    """The kernels' parameter struct; node: the forward one."""
    y, x = (graph.tensors[t] for t in node.inputs)
    zeros = {"y_zero": y.zero, "x_zero": x.zero}
    per = 1.0 / (y.elements * node.factors[0])
    return Reconstruct(n=y.elements, **zeros, y_scale=y.scale, x_scale=x.scale, per=per)


def apart(graph: Graph, node: Node, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What each value is off by, float32; y and x stored, of one sample or more."""
    ty, tx = (graph.tensors[t] for t in node.inputs)
    left = (y.astype(np.int32) - ty.zero).astype(f32) * f32(ty.scale)
    right = (x.astype(np.int32) - tx.zero).astype(f32) * f32(tx.scale)
    return np.asarray(left - right.reshape(left.shape))


def _score(graph: Graph, node: Node, d: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """The two logits of one sample."""
    total = f32(0)
    for square in (d * d).reshape(-1):
        total = total + square
    return np.array([threshold(normal), kept(total * f32(c_struct(graph, node).per))], f32)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    logits = node.outputs[0]
    grad = tape.tensor(f"grad:{logits}", logits, "f32")
    tape.append(Node(LOSS, node.name, (logits,), (grad,)))
    kind = OF_MAP if tape.graph.tensors[node.inputs[0]].pixels > 1 else BACKWARD
    tape.send(node.inputs[0], Node(kind, node.name, (grad, *node.inputs), ()))


def _run(env: Env, node: Node) -> None:
    y, x = (env.values[t] for t in node.inputs)
    env.values[node.outputs[0]] = _score(
        env.graph, node, apart(env.graph, node, y, x), env.statistics[SCORES]
    )


def _run_loss(env: Env, node: Node) -> None:
    logits = env.values[node.inputs[0]]
    env.loss = float(logits[ANOMALY])
    if env.label == NORMAL and not env.real:
        follow(env.statistics[SCORES], env.loss)
    env.values[node.outputs[0]] = np.array([0.0, env.label == NORMAL], f32)


def error(
    graph: Graph, node: Node, grad: np.ndarray, stored: tuple[np.ndarray, np.ndarray], clamp: Any
) -> Any:
    """The twin of reconstruct_bwd_x_s8, and of a map of reconstruct_map_bwd_x_s8.

    node: the forward one; stored: y and x
    """
    return quantize_error(apart(graph, node, *stored), _unit(graph, node, grad), clamp)


def _unit(graph: Graph, node: Node, grad: np.ndarray) -> np.ndarray:
    """Real gradient of 1 in what a value is off by, float32."""
    p = c_struct(graph, node)
    return np.asarray(f32(grad[ANOMALY]) * (f32(2) * f32(p.per) * f32(p.y_scale)))


def _run_bwd_x(env: Env, node: Node) -> None:
    grad, y, x = (env.values[t] for t in node.inputs)
    forward, clamp = forward_of(env.graph), env.clamp(node.clamp)
    if env.real:
        raw = apart(env.graph, forward, y, x) * float(_unit(env.graph, forward, grad))
        env.values[node.outputs[0]] = env.backend.clamped(raw, clamp)
    else:
        env.values[node.outputs[0]] = error(env.graph, forward, grad, (y, x), clamp)


def _call(names: Names, node: Node) -> str:
    y, x, out = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    return f"reconstruct_fwd_f32({names.struct(NAME, node)}, {y}, {x}, {_normal(names, node)}, {out});"


def _normal(names: Names, node: Node) -> str | None:
    return names.trained(node.name, SCORES)


def _call_loss(names: Names, node: Node) -> str:
    logits, grad = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"const float loss = {node.op}_f32(2, {logits}, label, {_normal(names, node)}, {grad});"


def _call_bwd_x(names: Names, node: Node) -> str:
    grad, y, x = (names.at(t) for t in node.inputs)
    ends = f"{grad}, {y}, {x}, {names.clamp()}, {names.error(node.outputs[0])}"
    channels = f"{names.graph.tensors[node.inputs[1]].channels}, " if node.op == OF_MAP else ""
    return f"{node.op}_s8({names.struct(NAME, node)}, {channels}{ends});"


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct(NAME, NAME, node.name, c_struct(names.graph, node))


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    y, x = (env[t].reshape(len(env[t]), -1) for t in node.inputs)
    score = np.square(y - x).mean(axis=1) / node.factors[0]
    most = np.full(len(y), threshold(normal_scores(node)))
    return np.stack([most, score], axis=1).reshape(-1, 1, 1, 2)


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    y, x = (env[t] for t in node.inputs)
    normal = normal_scores(node)
    rows = [_score(graph, node, apart(graph, node, a, b), normal) for a, b in zip(y, x, strict=True)]
    return np.stack(rows).reshape(-1, 1, 1, 2)


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Sums are float32; values are numbered in 32 bits."""
    n = graph.tensors[node.inputs[0]].elements
    yield Accumulator("the number of a value", n, INT32_MAX, SMALLER)


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return ((1, 1, 2),)


def _made_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[node.inputs[1]].shape,)


def _parallel(run: Any, step: Any, y: Any, x: Any) -> Any:
    raise ConvertError(
        "the float simulation knows no autoencoders yet: simulate with the device's arithmetic"
    )


def _backward(op: str, *before: Any) -> BackwardOp:
    """The gradient of a vector or of a map. before: what its kernel takes in front of the gradient"""
    return BackwardOp(
        op,
        shapes=_made_shape,
        run=_run_bwd_x,
        call=_call_bwd_x,
        accumulators=no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=not_in_place,
        kernels={f"{op}_s8": (None, (Reconstruct, *before, F32, S8, S8, Clamp, ErrorS8))},
        header=NAME,
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    )


FORWARD = ForwardOp(
    NAME,
    shapes=_shapes,
    run=_run,
    call=_call,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=no_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={"reconstruct_fwd_f32": (None, (Reconstruct, S8, S8, F32, F32))},
    header=NAME,
    aten=NO_ATEN,  # `closed` makes it
    folds=Folds.NOTHING,
    learns=Learns.STATISTICS,
    output=stays_float,
    float_run=_float_run,
    int8_run=_int8_run,
    gathers=gathers_channels,
    gradient=_gradient,
    leaves=Leaves.NOTHING,
    tables=no_tables,
    layer_structs=no_structs,
    step_structs=_structs,
    kernel="reconstruct_fwd_f32",
    struct=NAME,
    stage=NOT_A_STAGE,
    arrays=no_arrays,
    facts=no_facts,
    parallel=_parallel,
    statistics=_statistics,
)
OPS: tuple[Op, ...] = (
    FORWARD,
    losses.loss(LOSS, _run_loss, _call_loss, NAME, (NUMBER, F32, NUMBER, F32, F32), Updates.STATISTICS),
    _backward(BACKWARD),
    _backward(OF_MAP, NUMBER),
)
