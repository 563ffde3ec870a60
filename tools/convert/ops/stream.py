"""Chains of convolutions that run row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from microtrain.convert.ir import Graph, Node, Shape
from microtrain.convert.reference import hostlib

from . import bounds, conv, elementwise
from .table import Op

if TYPE_CHECKING:
    from microtrain.convert.emit.names import Names
    from microtrain.convert.reference.executor import Env

PARTS = {**conv.OPS, **elementwise.OPS}


def stages(node: Node) -> tuple[Node, ...]:
    """The convolutions of a stream."""
    return tuple(part for part in node.parts if part.op != "add")


def row_add(graph: Graph, node: Node) -> hostlib.Add | None:
    """The kernels' parameters of the residual add that closes a stream, for one row; None without one."""
    last = node.parts[-1]
    if last.op != "add":
        return None
    record = elementwise.c_struct(graph, last)
    record.pixels = graph.tensors[last.outputs[0]].shape[1]
    return record


def resident(graph: Graph, node: Node) -> bool:
    """True where the stream's input is a tensor in memory."""
    return node.inputs[0] != graph.input.tensor or not graph.arriving


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    last = node.parts[-1]
    return PARTS[last.op].shapes(graph, last)


def _macs(graph: Graph, node: Node) -> int:
    return sum(PARTS[part.op].macs(graph, part) for part in node.parts)


def _scratch(graph: Graph, node: Node) -> int:
    """Expanded biases, then the kernels' scratch."""
    chain = [(conv.c_struct(graph, part), part.op == "dwconv2d") for part in stages(node)]
    kernels = hostlib.stream_scratch(chain, row_add(graph, node), node.rows, resident(graph, node))
    return _biases_bytes(graph, node) + kernels


def _biases_bytes(graph: Graph, node: Node) -> int:
    return sum(conv.biases_bytes(graph, part) for part in stages(node))


def biases_at(graph: Graph, node: Node) -> dict[str, int]:
    """Where in the step's scratch each stage's expanded biases are: before what the kernels use."""
    places, offset = {}, 0
    for part in stages(node):
        places[part.layer or ""] = offset
        offset += conv.biases_bytes(graph, part)
    return places


def kernel_scratch_at(names: Names, node: Node) -> str:
    return names.scratch(_biases_bytes(names.graph, node))


def before_rows(names: Names, node: Node) -> list[str]:
    """What runs before the first row enters."""
    places = biases_at(names.graph, node)
    calls = (conv.expand_biases(names, part, places[part.layer or ""])[1] for part in stages(node))
    return [line for lines in calls for line in lines]


def _in_place(graph: Graph, node: Node) -> Mapping[int, int]:
    """The output grows into the rows of the input that have entered the chain.

    It must begin so far before the input that row r of it, once written, ends before the first input row
    that had not entered when r was complete. A residual add reads row r of the input last of all: it is of
    the same size as row r of the output, which does not begin behind it.
    """
    if not resident(graph, node):
        return {}
    x, y = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    x_row, y_row = x.elements // x.shape[0], y.elements // y.shape[0]
    entered = [rows_entered(graph, node, row) for row in range(y.shape[0])]
    ends = [(row + 1) * y_row - n * x_row for row, n in enumerate(entered) if n < x.shape[0]]
    return {0: max([0, *ends])}


def rows_entered(graph: Graph, node: Node, row: int) -> int:
    """Input rows of a stream that must have entered before output row `row` can be made."""
    last = row
    for part in reversed(stages(node)):
        x, _, window = bounds.geometry(graph, part)
        last = min(last * window.stride_h + window.kh - 1 - window.pad_h, x.shape[0] - 1)
    return max(last, 0) + 1


def _run(env: Env, node: Node) -> None:
    """Layer by layer over whole tensors: the oracle of the rows."""
    for part in node.parts:
        PARTS[part.op].run(env, part)


def _call(names: Names, node: Node) -> str:
    """A resident stream runs here; one whose rows arrived before has only to be finished."""
    stream, y, scratch = names.stream(node), names.at(node.outputs[0]), kernel_scratch_at(names, node)
    if not resident(names.graph, node):
        return f"stream_end({stream}, {y}, {scratch});"
    call = f"stream_fwd_s8({stream}, {names.at(node.inputs[0])}, {y}, {scratch});"
    return "\n".join([*before_rows(names, node), call])


OPS = {
    "stream": Op(
        _shapes, _run, _call, accumulators=bounds.stream, scratch=_scratch, macs=_macs, in_place=_in_place
    )
}
