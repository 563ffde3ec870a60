"""Constant tables and parameter structs of generated code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from microtrain.convert.ir import Graph
from microtrain.convert.names import Names, number
from microtrain.convert.ops import TABLE, ForwardOp, forward_op, product_code, saves
from microtrain.convert.ops.ctext import Table
from microtrain.convert.ops.table import StreamOp

COLUMNS = 110


def collect(graph: Graph) -> list[Table]:
    """All tables of a model in forward order, each once, and the books of a record."""
    nodes = [node for node in graph.forward_layers if not saves(node)]
    of_layers = [table for node in nodes for table in forward_op(node).tables(graph, node)]
    return of_layers + product_code.tables(graph)


def body(values: np.ndarray) -> str:
    """The values of a table as C text, wrapped."""
    flat = values.reshape(-1)
    texts = [number(float(v)) for v in flat] if flat.dtype.kind == "f" else [str(int(v)) for v in flat]
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line])


def structs(names: Names) -> Iterator[str]:
    """Parameter structs of every layer, then those of steps and of the streams made of layers."""
    graph = names.graph
    for node in graph.forward_layers:
        if not saves(node):
            yield from forward_op(node).layer_structs(names, node)
    steps = {n.name: (i, n) for i, n in enumerate(graph.nodes) if i < len(graph.forward_nodes) or n.again}
    for step, node in steps.values():
        op = TABLE[node.op]
        if isinstance(op, ForwardOp | StreamOp):
            yield from op.step_structs(replace(names, step=step), node)
    yield from product_code.structs(graph)
