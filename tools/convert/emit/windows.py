"""Which functions for depthwise windows a model uses: the kernels are compiled without the others."""

from __future__ import annotations

from collections.abc import Iterator

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.conv_structs import c_struct
from microtrain.convert.reference import hostlib

WAYS = tuple(
    f"{wide}windows_{k}x{k}{stride}"
    for k in (3, 5, 7)
    for stride in ("", "_stride2")
    for wide in ("", "wide_")
)  # in the order of the bits of MICROTRAIN_WINDOWS (firmware/include/kernels/choices.h)


def all_nodes(graph: Graph) -> Iterator[Node]:
    """All steps, those that streams run row by row among them."""
    return (each for node in graph.nodes for each in (node, *node.parts))


def windows(graph: Graph) -> int:
    """Bits of MICROTRAIN_WINDOWS: those of every depthwise step, as its kernel says them."""
    used = 0
    for node in all_nodes(graph):
        for kernel in TABLE[node.op].kernels:
            used |= hostlib.ask(kernel, c_struct(graph, node)) if kernel.endswith("_ways") else 0
    return used


def names(used: int) -> list[str]:
    """The functions that some bits stand for."""
    return [name for bit, name in enumerate(WAYS) if used >> bit & 1]
