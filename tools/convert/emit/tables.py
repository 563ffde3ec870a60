"""Constant tables and parameter structs of generated code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from microtrain.convert.ir import Graph, Node
from microtrain.convert.names import Names, number
from microtrain.convert.ops import TABLE, ForwardOp, forward_op, hop, log_mel, product_code, saves
from microtrain.convert.ops.ctext import Table
from microtrain.convert.ops.table import StreamOp
from microtrain.convert.trainables import layout, stored_block

COLUMNS = 110
CONSTANT, WEIGHTS, OUTSIDE = "const ", "MODEL_WEIGHTS ", "MODEL_WEIGHTS_OUTSIDE "
PIXELS = "input_table"
WORD, CACHE_LINE = 4, 32  # what tables inside and outside begin at
OCTAL = np.array([f"\\{byte:03o}" for byte in range(256)], "S4")  # a byte in a string of C
LEAST_OUTSIDE = 1024  # bytes of a table
CONSTANTS_ROOM = 42 * 1024  # of the 128 KB: code takes up to 70, parameter structs up to 16


def collect(graph: Graph) -> list[Table]:
    """All tables of a model in forward order, each once, the front end's, and the books of a record."""
    nodes = [node for node in graph.forward_layers if not saves(node)]
    of_layers = {
        t.name: placed(t, node, graph) for node in nodes for t in forward_op(node).tables(graph, node)
    }
    front = [*of_pixels(graph), *log_mel.tables(graph)]
    return beside_the_code([*of_layers.values(), *front]) + product_code.tables(graph)


def of_pixels(graph: Graph) -> list[Table]:
    """What is stored for each pixel, where the model's file says it."""
    values = np.array(graph.input.table, np.int8).ravel()
    return [Table(f"const int8_t {PIXELS}[{values.size}]", values, "tables")] if values.size else []


def placed(table: Table, node: Node, graph: Graph) -> Table:
    """A layer's table, in flash beside the chip where that is meant for its weights."""
    if node.layer not in graph.outside or not is_movable(table):
        return table
    return replace(table, declaration=OUTSIDE + table.declaration.removeprefix(WEIGHTS))


def is_movable(table: Table) -> bool:
    """Whether a table may lie beside the chip: weights, and so many that a line more does not matter."""
    return table.kind == "weights" and table.nbytes >= LEAST_OUTSIDE and table.declaration.startswith(WEIGHTS)


def movable_bytes(graph: Graph) -> dict[str, int]:
    """Layer -> bytes of the chip's flash that its frozen weights take and may leave."""
    found: dict[str, int] = {}
    for node in graph.forward_layers:
        if node.layer is not None and not saves(node):
            made = forward_op(node).tables(graph, node)
            size = sum(aligned(t.nbytes, WORD) for t in made if is_movable(t))
            found |= {node.layer: size} if size else {}
    return found


def is_outside(table: Table) -> bool:
    return table.declaration.startswith(OUTSIDE)


def outside_bytes(graph: Graph) -> int:
    """Of the flash beside the chip: weights, and the model's id."""
    sizes = [aligned(t.nbytes, CACHE_LINE) for t in collect(graph) if is_outside(t)]
    return sum(sizes) + CACHE_LINE if sizes else 0


def inside_bytes(graph: Graph) -> int:
    """Of the chip's flash that is kept for weights: all that lies in section .weights."""
    sizes = [aligned(t.nbytes, WORD) for t in collect(graph) if t.declaration.startswith(WEIGHTS)]
    return sum(sizes) + aligned(len(stored_block(layout(graph))), WORD)


def aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def beside_the_code(found: list[Table]) -> list[Table]:
    """Tables, of which those that have no room beside the code lie with the weights.

    Boards keep 128 KB of flash for code and constants.
    """
    placed, left = [], CONSTANTS_ROOM
    for table in found:
        size = len(table.bytes) if table.declaration.startswith(CONSTANT) else 0
        if size > left:
            table = replace(table, declaration=WEIGHTS + table.declaration.removeprefix(CONSTANT))
            size = 0
        placed.append(table)
        left -= size
    return placed


def body(values: np.ndarray) -> str:
    """The values of a table as C text, wrapped."""
    flat = values.reshape(-1)
    texts = [number(v) for v in flat.tolist()] if flat.dtype.kind == "f" else map(str, flat.tolist())
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > COLUMNS:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line])


def string_body(values: np.ndarray) -> str:
    """The same for a compiler alone, which makes an array of a string in a tenth of the time."""
    if values.dtype.itemsize > 1:
        return body(values)
    return '"' + OCTAL[values.reshape(-1).view(np.uint8)].tobytes().decode() + '"'


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
    yield from log_mel.structs(graph)
    yield from hop.structs(graph)
