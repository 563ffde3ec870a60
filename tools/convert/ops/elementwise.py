"""Residual add and the joints of the error graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from microtrain.convert.emit.names import number
from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.reference import hostlib
from microtrain.convert.reference import kernels as reference

from . import bounds
from .table import Op, in_place_of

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.passes.autodiff import Tape
    from microtrain.convert.reference.executor import Env


def c_struct(graph: Graph, node: Node) -> hostlib.Add:
    """The kernel's parameter struct of a residual add."""
    a, b, y = (graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    zeros = {"a_zero": a.zero, "b_zero": b.zero, "y_zero": y.zero}
    return hostlib.Add(
        pixels=y.pixels, c=y.channels, **zeros, a_scale=a.scale, b_scale=b.scale, y_scale=y.scale
    )


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    return (graph.tensors[node.inputs[0]].shape,) * len(node.outputs)


def _gradient(tape: Tape, node: Node, error: str | None) -> None:
    """Both inputs receive the error, scaled by their share: nothing is overwritten, readers are summed."""
    if error is None:
        return
    y = tape.graph.tensors[node.outputs[0]]
    for x in node.inputs:
        tape.send_copy(x, error, share(tape.graph.tensors[x].scale, y.scale), node.name)


def share(x_scale: float, y_scale: float) -> float:
    """d(stored y) / d(stored x) of an add."""
    return x_scale / y_scale


def _call_add(names: Names, node: Node) -> str:
    a, b, y = (names.at(t) for t in (*node.inputs, node.outputs[0]))
    return f"add_fwd_s8({names.struct('add', node)}, {a}, {b}, {y}, {names.mask_out(node)});"


def _call_pass(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    error, out = names.error(x.name), names.error(node.outputs[0])
    factor = number(node.factors[0])
    return f"error_pass_s8({x.pixels}, {x.channels}, {error}, {factor}, {names.clamp()}, {out});"


def _call_sum(names: Names, node: Node) -> str:
    x = names.graph.tensors[node.inputs[0]]
    a, b = (f"{names.error(t)}, {number(f)}" for t, f in zip(node.inputs, node.factors, strict=True))
    return (
        f"error_add_s8({x.pixels}, {x.channels}, {a}, {b}, {names.clamp()}, {names.error(node.outputs[0])});"
    )


def _run_add(env: Env, node: Node) -> None:
    a, b, y = (env.graph.tensors[t] for t in (*node.inputs, node.outputs[0]))
    p = reference.Add(a.zero, b.zero, y.zero, a.scale, b.scale, y.scale)
    results = reference.add_fwd(p, *(env.values[t] for t in node.inputs))
    env.values.update(zip(node.outputs, results, strict=False))


def _run_pass(env: Env, node: Node) -> None:
    error = env.values[node.inputs[0]]
    env.values[node.outputs[0]] = env.backend.error_pass(error, node.factors[0], env.clamp(node.clamp))


def _run_sum(env: Env, node: Node) -> None:
    (a, b), (fa, fb) = (env.values[t] for t in node.inputs), node.factors
    env.values[node.outputs[0]] = env.backend.error_add(a, fa, b, fb, env.clamp(node.clamp))


OPS = {
    "add": Op(
        _shapes,
        _run_add,
        _call_add,
        _gradient,
        accumulators=bounds.residual_add,
        clamps=True,
        in_place=in_place_of(0, 1),
    ),
    "error_pass": Op(
        _shapes, _run_pass, _call_pass, accumulators=bounds.no_integers, in_place=in_place_of(0)
    ),
    "error_add": Op(
        _shapes, _run_sum, _call_sum, accumulators=bounds.no_integers, in_place=in_place_of(0, 1)
    ),
}
