"""Chains of convolutions that run row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import hostlib
from ..ir import Graph, Node, Shape
from . import conv, elementwise
from .table import Op

if TYPE_CHECKING:
    from ..executor import Env
    from ..names import Names

PARTS = {**conv.OPS, **elementwise.OPS}


def stages(node: Node) -> tuple[Node, ...]:
    """The convolutions of a stream."""
    return tuple(part for part in node.parts if part.op != "add")


def _shapes(graph: Graph, node: Node) -> tuple[Shape, ...]:
    last = node.parts[-1]
    return PARTS[last.op].shapes(graph, last)


def _macs(graph: Graph, node: Node) -> int:
    return sum(PARTS[part.op].macs(graph, part) for part in node.parts)


def _scratch(graph: Graph, node: Node) -> int:
    rows = [(conv.row_struct(graph, part), part.op == "dwconv2d") for part in stages(node)]
    return hostlib.stream_scratch(rows, len(rows) < len(node.parts))


def _run(env: Env, node: Node) -> None:
    """Layer by layer over whole tensors: the oracle of the rows."""
    for part in node.parts:
        PARTS[part.op].run(env, part)


def _call(names: Names, node: Node) -> str:
    x, y = names.at(node.inputs[0]), names.at(node.outputs[0])
    return f"stream_fwd_s8({names.stream(node)}, {x}, {y}, {names.scratch()});"


OPS = {"stream": Op(_shapes, _run, _call, scratch=_scratch, macs=_macs)}
