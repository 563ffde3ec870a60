"""The parameter struct of poolings: a ctypes record, and its text in generated code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from microtrain.convert.ir import Graph, Node, Shape, Window
from microtrain.convert.names import Names
from microtrain.convert.reference.hostlib import Record

from .aten.pool import AVERAGE, MAXIMUM
from .ctext import struct


class Pool(Record):
    _fields_ = (
        *((n, ctypes.c_uint16) for n in ("h_in", "w_in", "c", "h_out", "w_out")),
        *((n, ctypes.c_uint16) for n in ("kh", "kw", "stride_h", "stride_w")),
        *((n, ctypes.c_uint8) for n in ("pad_h", "pad_w")),
        ("x_zero", ctypes.c_int16),
    )


def pool_struct(x: Shape, y: Shape, window: Window, x_zero: int) -> Pool:
    """Parameters of a pooling from x to y."""
    values = dict(zip(("h_in", "w_in", "c", "h_out", "w_out"), (*x, *y[:2]), strict=True))
    return Pool(**values, **window.fields, x_zero=x_zero)


def window_of(node: Node) -> Window:
    assert node.window is not None, node.name
    return node.window


def c_struct(graph: Graph, node: Node) -> Pool:
    """The kernels' parameter struct of a pooling layer."""
    x, y, window = shapes_of(graph, node)
    return pool_struct(x, y, window, graph.tensors[forward_of(graph, node).inputs[0]].zero)


def forward_of(graph: Graph, node: Node) -> Node:
    """The pooling that a node belongs to."""
    return graph.forward_named(node.name, (AVERAGE, MAXIMUM))


def shapes_of(graph: Graph, node: Node) -> tuple[Shape, Shape, Window]:
    """Input, output and window of the pooling that a node belongs to, as its kernel sees them."""
    forward = forward_of(graph, node)
    (h, w, c), window = graph.tensors[forward.inputs[0]].shape, window_of(forward)
    return (h, w, c), (*window.outputs(h, w), c), window


def structs(names: Names, node: Node) -> Iterator[str]:
    yield struct("pool", "pool", node.name, c_struct(names.graph, node))
