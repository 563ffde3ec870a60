"""The end of an embedding network, in the place of a head: which known class a sample is of, if of any.

Prototypes are running means of embeddings (Snell et al., Prototypical Networks, 2017) that are centred and of
length 1 (Wang et al., SimpleShot, 2019); the loss is cross entropy of distances to them (Yang et al.,
Convolutional Prototype Learning, 2018). firmware/include/kernels/prototypes.h is the contract.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from microtrain.base.trained import DISTANCES, SUMS
from microtrain.convert.ir import ConvertError, Graph, Layer, Node, Shape, Source, Tensor
from microtrain.convert.names import Names
from microtrain.convert.reference import hostlib
from microtrain.convert.reference.hostlib import F32, NUMBER, S8, S16, SCRATCH, Clamp, ErrorS8
from microtrain.convert.reference.numeric import f32
from microtrain.convert.reference.prototypes import (
    BEFORE,
    FINE,
    SHARP,
    Prototypes,
    embedding,
    error,
    gradient_of,
    join,
    logits_of,
    loss,
)

from . import conv, head, losses
from .bounds import INT32_MAX, Accumulator
from .ctext import Table, struct
from .environment import Env
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
    no_output,
    no_scratch,
    no_structs,
    not_in_place,
)
from .unit import whole
from .work import by_size, one_way

if TYPE_CHECKING:
    from .tape import Tape

NAME, LOSS, BACKWARD, UPDATE = "prototypes", "loss_prototypes", "prototypes_bwd_x", "prototypes_update"
MADE, PASSED = "embedding/made", "embedding/passed"  # tensors of a network that ends in one
CENTRE = "embedding_centre"  # of generated code


def centred(graph: Graph, stored: np.ndarray) -> Graph:
    """With the centre of embeddings: of typical samples, as they are stored, int8 [samples, h, w, c].

    Raises ConvertError where they are all alike.
    """
    flat = stored.reshape(len(stored), -1).astype(np.float64)
    if not flat.std(axis=0).any():
        raise ConvertError(
            f"{graph.name} makes the same embedding of all {len(flat)} samples of the calibration: give "
            "samples that differ, or train the network"
        )
    return graph.replace(centre=tuple(int(v) for v in np.rint(flat.mean(axis=0) * FINE)))


def closed(graph: Graph, classes: int) -> Graph:
    """A quantized graph with prototypes of its head's features in the place of the head.

    classes  known ones, and "unknown"
    """
    last = graph.nodes[-1]
    node = Node(NAME, NAME, last.inputs, (graph.output,))
    logits = Tensor(graph.output, (1, 1, classes))
    layers = {name: layer for name, layer in graph.layers.items() if name != last.layer}
    return graph.replace(
        nodes=(*graph.nodes[:-1], node), tensors={**graph.tensors, graph.output: logits}, layers=layers
    )


def passed_on(graph: Graph) -> Graph:
    """A float network whose output is its embedding, with a head behind it that passes that on.

    Until prototypes take the head's place its outputs are what quantization is judged by.
    """
    made, head_of_it = graph.output, graph.nodes[-1].op == head.HEAD
    if head_of_it:
        graph, made = conv.of_linear_end(graph, MADE), MADE
    n = graph.tensors[made].elements
    layer = Layer(np.eye(n, dtype=f32), np.zeros(n, f32), Source(""))
    logits = Tensor(PASSED, (1, 1, n))
    return graph.replace(
        nodes=(*graph.nodes, head.node_of(PASSED, made, PASSED)),
        tensors={**graph.tensors, PASSED: logits},
        layers={**graph.layers, PASSED: layer},
        output=PASSED,
    )


def forward_of(graph: Graph) -> Node:
    return next(n for n in graph.forward_nodes if n.op == NAME)


def c_struct(graph: Graph, node: Node) -> Prototypes:
    """The kernels' parameter struct; node: the forward one."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return Prototypes(pixels=x.pixels, c=x.channels, classes=y.channels, unit=-SHARP)


def statistics(graph: Graph, node: Node) -> Mapping[str, np.ndarray]:
    """What is learned beside any gradient, as converted, by kind."""
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return {
        SUMS: np.zeros((y.channels - 1, x.elements + 1), f32),
        DISTANCES: np.array(BEFORE, f32),
    }


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    logits, x = node.outputs[0], node.inputs[0]
    grad = tape.tensor(f"grad:{logits}", logits, "f32")
    tape.append(Node(LOSS, node.name, (logits,), (grad,)))
    tape.send(x, Node(BACKWARD, node.name, (grad, x), ()))
    tape.append(Node(UPDATE, node.name, (x,), ()))


def _run(env: Env, node: Node) -> None:
    e, _ = embedding(env.graph, env.values[node.inputs[0]])
    env.values[node.outputs[0]] = logits_of(c_struct(env.graph, node), e, env.statistics)


def _run_loss(env: Env, node: Node) -> None:
    distances = env.statistics[DISTANCES]
    own = distances.copy() if env.real else distances
    value, grad = loss(env.values[node.inputs[0]], env.label, own)
    env.loss, env.values[node.outputs[0]] = float(value), grad


def _run_bwd_x(env: Env, node: Node) -> None:
    grad, x = (env.values[t] for t in node.inputs)
    p, clamp = c_struct(env.graph, forward_of(env.graph)), env.clamp(node.clamp)
    if env.real:
        sums, unit = gradient_of(p, env.graph, x, grad, env.statistics)
        env.values[node.outputs[0]] = env.backend.clamped(sums * float(unit), clamp)
    else:
        env.values[node.outputs[0]] = error(p, env.graph, x, grad, env.statistics, clamp)


def _run_update(env: Env, node: Node) -> None:
    if not env.real:
        e, _ = embedding(env.graph, env.values[node.inputs[0]])
        join(e, env.label, env.statistics[SUMS])


def _learned(names: Names, *kinds: str) -> str:
    return ", ".join(str(names.trained(NAME, kind)) for kind in kinds)


def _of(names: Names, node: Node) -> str:
    return f"{names.struct(NAME, node)}, {CENTRE}"


def _call(names: Names, node: Node) -> str:
    out, learned = names.at(node.outputs[0]), _learned(names, SUMS, DISTANCES)
    return f"prototypes_fwd_f32({_of(names, node)}, {names.at(node.inputs[0])}, {learned}, {out});"


def _call_loss(names: Names, node: Node) -> str:
    classes = names.graph.tensors[node.inputs[0]].channels
    logits, grad = names.at(node.inputs[0]), names.at(node.outputs[0])
    learned = _learned(names, DISTANCES)
    return f"const float loss = {node.op}_f32({classes}, {logits}, label, {learned}, {grad});"


def _call_bwd_x(names: Names, node: Node) -> str:
    grad, x = (names.at(t) for t in node.inputs)
    to = f"{names.clamp()}, {names.error(node.outputs[0])}, {names.scratch()}"
    return f"{node.op}_f32({_of(names, node)}, {x}, {grad}, {_learned(names, SUMS)}, {to});"


def _call_update(names: Names, node: Node) -> str:
    x, learned = names.at(node.inputs[0]), _learned(names, SUMS)
    return f"{node.op}_f32({_of(names, node)}, {x}, label, {learned});"


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    values = np.array(graph.centre, np.int16)
    yield Table(f"const int16_t {CENTRE}[{len(values)}]", values, "tables")


def _facts(graph: Graph, node: Node) -> Mapping[str, Any]:
    """The centre of embeddings in stored units, and what a squared distance of 1 takes off a logit."""
    return {"centre": [value / FINE for value in graph.centre], "sharp": SHARP}


def _structs(names: Names, node: Node) -> Iterator[str]:
    yield struct(NAME, NAME, node.name, c_struct(names.graph, node))


def _float_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    raise ConvertError("prototypes are of stored embeddings: they join a network once it is quantized")


def _int8_run(graph: Graph, node: Node, env: Values) -> np.ndarray:
    p, learned = c_struct(graph, node), statistics(graph, node)
    stored = env[node.inputs[0]]
    rows = [logits_of(p, embedding(graph, each)[0], learned) for each in stored]
    return np.stack(rows).reshape(len(rows), 1, 1, -1)


def _bounds(graph: Graph, node: Node) -> Iterator[Accumulator]:
    """Sums are float32; counts are uint16, and values of prototypes are numbered in 32 bits."""
    forward = forward_of(graph)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    way_out = "pool the embedding, or have fewer classes"
    yield Accumulator(
        "a number of pixels, channels or classes", max(x.pixels, x.channels, y.channels), 65535, way_out
    )
    yield Accumulator("the number of a value", x.elements * y.channels, INT32_MAX, way_out)


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[graph.output].shape,)


def _made_shape(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[node.inputs[1]].shape,)


def _macs(graph: Graph, node: Node) -> int:
    forward = forward_of(graph)
    x, y = graph.tensors[forward.inputs[0]], graph.tensors[forward.outputs[0]]
    return x.elements * (y.channels - 1)


def _scratch(graph: Graph, node: Node) -> int:
    return hostlib.scratch_bytes(BACKWARD, c_struct(graph, forward_of(graph)))


def _parallel(run: Any, step: Any, x: Any) -> Any:
    raise ConvertError("the float simulation knows no prototypes yet: simulate with the device's arithmetic")


FORWARD = ForwardOp(
    NAME,
    shapes=_shapes,
    run=_run,
    call=_call,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={"prototypes_fwd_f32": (None, (Prototypes, S16, S8, F32, F32, F32))},
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
    tables=_tables,
    layer_structs=no_structs,
    step_structs=_structs,
    kernel="prototypes_fwd_f32",
    struct=NAME,
    stage=NOT_A_STAGE,
    arrays=no_arrays,
    facts=_facts,
    parallel=_parallel,
    statistics=statistics,
)
INPUT_GRADIENT = BackwardOp(
    BACKWARD,
    shapes=_made_shape,
    run=_run_bwd_x,
    call=_call_bwd_x,
    accumulators=_bounds,
    scratch=_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={
        "prototypes_bwd_x_f32": (None, (Prototypes, S16, S8, F32, F32, Clamp, ErrorS8, SCRATCH)),
        "prototypes_bwd_x_scratch": (ctypes.c_uint32, (Prototypes,)),
    },
    header=NAME,
    updates=Updates.NOTHING,
    reads_weights=True,
    guard=NOT_ALIGNED,
)
JOIN = BackwardOp(
    UPDATE,
    shapes=no_output,
    run=_run_update,
    call=_call_update,
    accumulators=_bounds,
    scratch=no_scratch,
    macs=_macs,
    way=one_way,
    work=by_size,
    unit=whole,
    in_place=not_in_place,
    kernels={"prototypes_update_f32": (None, (Prototypes, S16, S8, NUMBER, F32))},
    header=NAME,
    updates=Updates.STATISTICS,
    reads_weights=False,
    guard=NOT_ALIGNED,
)
TAKES = (NUMBER, F32, NUMBER, F32, F32)
OPS: tuple[Op, ...] = (
    FORWARD,
    losses.loss(LOSS, _run_loss, _call_loss, NAME, TAKES, Updates.STATISTICS),
    INPUT_GRADIENT,
    JOIN,
)
