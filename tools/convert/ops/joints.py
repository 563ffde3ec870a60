"""The joints of the error graph: an error passed on, and the sum of two."""

from __future__ import annotations

from microtrain.convert.ir import Clamp, Graph, Node
from microtrain.convert.names import Names, number
from microtrain.convert.reference.hostlib import FACTOR, NUMBER, ErrorS8
from microtrain.convert.reference.hostlib import Clamp as ClampRecord

from . import bounds
from .conv_structs import Conv2d
from .environment import Env
from .table import (
    NOT_ALIGNED,
    BackwardOp,
    Op,
    Updates,
    in_place_of,
    no_macs,
    no_scratch,
    shape_of_input,
)
from .unit import Unit, sums_of_errors, whole
from .work import by_size, one_way

PASS, ADD = "error_pass", "error_add"


def passed(name: str, error: str, factor: float) -> Node:
    """`factor` times an error; the output is still missing."""
    return Node(PASS, name, (error,), (), factors=(factor,))


def turned(name: str, error: str, factor: float) -> Node:
    """The same with a negative factor: a sum, since scales of errors are not negative."""
    return Node(ADD, name, (error, error), (), factors=(factor, 0.0))


def summed(name: str, errors: tuple[str, str], factors: tuple[float, float], out: str, clamp: Clamp) -> Node:
    """The sum of two errors, each times its factor, behind a clamp."""
    return Node(ADD, name, errors, (out,), clamp=clamp, factors=factors)


def _call_pass(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    error, out = names.error(x.name), names.error(node.outputs[0])
    factor = number(node.factors[0])
    return f"error_pass_s8({x.pixels}, {x.channels}, {error}, {factor}, {names.clamp()}, {out});"


def _unit_sum(graph: Graph, node: Node, strip: Conv2d | None) -> Unit:
    error = graph.tensors[node.inputs[0]]
    return sums_of_errors(error.pixels, error.channels)


def _call_sum(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    a, b = (f"{names.error(t)}, {number(f)}" for t, f in zip(node.inputs, node.factors, strict=True))
    return (
        f"error_add_s8({x.pixels}, {x.channels}, {a}, {b}, {names.clamp()}, {names.error(node.outputs[0])});"
    )


def _run_pass(env: Env, node: Node) -> None:
    error = env.values[node.inputs[0]]
    env.values[node.outputs[0]] = env.backend.error_pass(error, node.factors[0], env.clamp(node.clamp))


def _run_sum(env: Env, node: Node) -> None:
    (a, b), (fa, fb) = (env.values[t] for t in node.inputs), node.factors
    env.values[node.outputs[0]] = env.backend.error_add(a, fa, b, fb, env.clamp(node.clamp))


OPS: tuple[Op, ...] = (
    BackwardOp(
        PASS,
        shapes=shape_of_input,
        run=_run_pass,
        call=_call_pass,
        accumulators=bounds.no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=whole,
        in_place=in_place_of(0),
        kernels={f"{PASS}_s8": (None, (NUMBER, NUMBER, ErrorS8, FACTOR, ClampRecord, ErrorS8))},
        header="elementwise",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
    BackwardOp(
        ADD,
        shapes=shape_of_input,
        run=_run_sum,
        call=_call_sum,
        accumulators=bounds.no_integers,
        scratch=no_scratch,
        macs=no_macs,
        way=one_way,
        work=by_size,
        unit=_unit_sum,
        in_place=in_place_of(0, 1),
        kernels={
            f"{ADD}_s8": (None, (NUMBER, NUMBER, ErrorS8, FACTOR, ErrorS8, FACTOR, ClampRecord, ErrorS8))
        },
        header="elementwise",
        updates=Updates.NOTHING,
        reads_weights=False,
        guard=NOT_ALIGNED,
    ),
)
