"""Streaming: chains of frozen convolutions become one step that runs row by row.

What is inside such a chain never exists whole: each stage keeps a window of as many rows as its kernel is
high. A chain ends where a tensor has another reader (a residual add, a saved input) or leaves a mask behind,
where a replayed step goes on (replay.py), and with the residual add over its own input. Where a chain begins
at the image, the image's rows enter it as they arrive and the image is never whole either.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node

STAGES_MAX = 12  # STREAM_STAGES_MAX of kernels/stream.h
CONVOLUTIONS = ("conv2d", "dwconv2d")


def fuse(graph: Graph, chained: bool = True, arriving: bool = True) -> Graph:
    """Replace every chain of at least two streamable convolutions in the forward pass by one stream node.

    chained   False: a chain ends with its block, that is with the dense convolution behind a depthwise one
    arriving  False: keep the image whole in memory until the first chain runs
    """
    nodes = list(graph.forward_nodes)
    fused: list[Node] = []
    while nodes:
        chain = _chain(graph, nodes, chained)
        if len(chain) < 2:
            fused.append(nodes.pop(0))
            continue
        del nodes[: len(chain)]
        name = f"{chain[0].name} .. {chain[-1].name}"
        fused.append(Node("stream", name, chain[0].inputs[:1], chain[-1].outputs, parts=tuple(chain)))
    image = graph.input.tensor
    begins = fused[0].op == "stream" and len(graph.readers(image)) == 1 and image not in graph.record
    nodes = [*fused, *graph.backward_nodes]
    return graph.replace(nodes=tuple(nodes), forward=len(fused), arriving=arriving and begins)


def _chain(graph: Graph, nodes: list[Node], chained: bool) -> list[Node]:
    """The longest chain that begins with the first of the nodes."""
    chain: list[Node] = []
    for node in nodes:
        if chain and graph.record[-1:] == chain[-1].outputs:
            break
        if _closes(graph, chain, node):
            return [*chain, replace(node, inputs=(chain[-1].outputs[0], chain[0].inputs[0]))]
        follows = not chain or (node.inputs == chain[-1].outputs and len(graph.readers(node.inputs[0])) == 1)
        complete = not chained and [n.op for n in chain[-2:]] == ["dwconv2d", "conv2d"]
        if not (_streamable(node) and follows and len(chain) < STAGES_MAX) or complete:
            break
        chain.append(node)
    return chain


def _streamable(node: Node) -> bool:
    """A convolution that leaves nothing behind for the backward pass."""
    small = node.window is not None and node.window.pad_h < node.window.kh
    return node.op in CONVOLUTIONS and len(node.outputs) == 1 and small


def _closes(graph: Graph, chain: list[Node], node: Node) -> bool:
    """True for the residual add of the chain's result and its input."""
    if node.op != "add" or not chain or len(node.outputs) != 1:
        return False
    result = chain[-1].outputs[0]
    return set(node.inputs) == {result, chain[0].inputs[0]} and len(graph.readers(result)) == 1
