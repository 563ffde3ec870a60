"""The blocks of a network: what lies between tensors on which alone everything behind them depends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from microtrain.convert.ir import Graph

from .cut import bottlenecks, cuts


@dataclass(frozen=True)
class Block:
    """x, y: the tensors that it takes and gives; layers: its layers with weights, in forward order."""

    name: str
    x: str
    y: str
    layers: tuple[str, ...]


def blocks(graph: Graph) -> tuple[Block, ...]:
    """In forward order, from one bottleneck to the next; the last one ends with the last map there is.

    A block is called after the module that holds all of it and nothing else, else after its last layer; in
    what is behind() a cut as in the whole network.
    """
    found: dict[str, Block] = {}
    for block in _spans(graph):
        name = block.name if block.name not in found else block.layers[-1]
        found[name] = Block(name, block.x, block.y, block.layers)
    return tuple(found.values())


def _spans(graph: Graph) -> Iterator[Block]:
    nodes = graph.forward_nodes
    made = {graph.input.tensor: 0} | {n.outputs[0]: i for i, n in enumerate(nodes, 1)}
    for x, y in pairwise(_ends(graph)):
        inside = nodes[made[x] : made[y]]
        layers = tuple(n.layer for n in inside if n.layer)
        if layers:
            others = [n.name for n in nodes if n not in inside] + [n for n in graph.layers if n not in layers]
            yield Block(_module(layers, others) or layers[-1], x, y, layers)


def _ends(graph: Graph) -> list[str]:
    """Bottlenecks with a map, and the last cut that has one."""
    last = [t for t in cuts(graph) if t != graph.output and graph.tensors[t].pixels > 1][-1:]
    inner = [t for t in bottlenecks(graph) if graph.tensors[t].pixels > 1]
    return inner if not last or last[0] in inner else [*inner, *last]


def _module(layers: tuple[str, ...], others: list[str]) -> str:
    """The path that all these layers and none of the other nodes lie in, the shortest such; "" for none."""
    paths = [name.split(".") for name in layers]
    shared = 0
    while all(len(p) > shared + (len(layers) > 1) and p[shared] == paths[0][shared] for p in paths):
        shared += 1
    prefixes = [".".join(paths[0][:n]) for n in range(1, shared + 1)]
    own = (p for p in prefixes if not any(name == p or name.startswith(f"{p}.") for name in others))
    return next(own, "")
