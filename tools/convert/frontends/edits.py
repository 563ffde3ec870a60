"""Single changes to the raw graph of a reader."""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node


def needed(graph: Graph, tensors: set[str]) -> set[str]:
    """The tensors that some are made of, and these."""
    found = set(tensors)
    for node in reversed(graph.nodes):
        if found.intersection(node.outputs):
            found.update(node.inputs)
    return found


def exchanged(graph: Graph, node: Node, several: tuple[Node, ...]) -> tuple[Node, ...]:
    """The graph's nodes, with several in the place of one."""
    return tuple(n for each in graph.nodes for n in (several if each is node else (each,)))


def without(graph: Graph, node: Node) -> Graph:
    """The graph without a node; what read its result reads its first input."""
    kept, gone = node.inputs[0], node.outputs[0]
    rest = [n for n in graph.nodes if n is not node]
    return graph.replace(
        nodes=tuple(replace(n, inputs=tuple(kept if i == gone else i for i in n.inputs)) for n in rest),
        tensors={name: t for name, t in graph.tensors.items() if name != gone},
        layers={name: layer for name, layer in graph.layers.items() if name != node.layer},
        output=kept if graph.output == gone else graph.output,
    )


def bypass(graph: Graph, node: Node, act: str | None = None) -> Graph:
    """Remove a node; the one before it writes its output instead, with the given activation."""
    gone, kept = node.inputs[0], node.outputs[0]
    nodes = []
    for n in graph.nodes:
        if n is node:
            continue
        if n.outputs[0] == gone:
            n = replace(n, outputs=(kept,), act=act or n.act)
        nodes.append(n)
    tensors = {name: t for name, t in graph.tensors.items() if name != gone}
    return graph.replace(nodes=tuple(nodes), tensors=tensors)
