"""Streaming: chains of frozen layers become one step that runs row by row.

What is inside such a chain never exists whole: each stage keeps a window of as many rows as its kernel is
high. A chain ends where a tensor has another reader (a residual add, a saved input) or leaves a mask behind,
where a replayed step goes on (replay.py), and with the residual add over its own input. Where a chain begins
at the image, the image's rows enter it as they arrive and the image is never whole either.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import WINDOW_MOST, Graph, Node
from microtrain.convert.ops import saves, stream
from microtrain.convert.ops.stage import ClosingStage, ElementStage, LastStage, WindowStage
from microtrain.convert.ops.stream import STAGES_MAX


def fuse(graph: Graph, chained: bool = True, arriving: bool = True) -> Graph:
    """Replace every chain of at least two streamable layers in the forward pass by one stream node.

    chained   False: a chain ends with its block, that is with the dense convolution behind a depthwise one
    arriving  False: keep the image whole in memory until the first chain runs
    """
    nodes = list(graph.forward_nodes)
    fused: list[Node] = []
    while nodes:
        chain = _chain(graph, nodes, chained)
        alone = len(chain) == 1 and not (_ends(chain) and chain[0].inputs[0] == graph.input.tensor)
        if not chain or alone or not any(isinstance(stream.stage_of(n), WindowStage) for n in chain):
            fused.append(nodes.pop(0))
            continue
        del nodes[: len(chain)]
        fused.append(stream.node_of(chain))
    image = graph.input.tensor
    begins = bool(fused[0].parts) and len(graph.readers(image)) == 1 and image not in graph.record
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
        if _ends(chain) or _complete(chain, chained) or not _follows(graph, chain, node):
            break
        chain.append(node)
    return chain


def _ends(chain: list[Node]) -> bool:
    """True where the last layer makes one row of all: alone at the input, too, it sees each row but once."""
    return bool(chain) and isinstance(stream.stage_of(chain[-1]), LastStage)


def _complete(chain: list[Node], chained: bool) -> bool:
    """True where the blocks are to be kept apart, and the chain ends one."""
    windows = [s for n in chain if isinstance(s := stream.stage_of(n), WindowStage)]
    return not chained and [s.mixes for s in windows[-2:]] == [False, True]


def _follows(graph: Graph, chain: list[Node], node: Node) -> bool:
    """True for a layer that goes on with the chain's rows and leaves nothing behind for the backward pass."""
    if len(node.outputs) != 1 or saves(node):
        return False
    stage = stream.stage_of(node)
    if not isinstance(stage, WindowStage | ElementStage) or len(stream.stages([*chain, node])) > STAGES_MAX:
        return False
    if isinstance(stage, WindowStage):
        alone, k = len(node.inputs) == 1, node.window
        height = graph.tensors[node.inputs[0]].shape[0]
        small = k is not None and k.pad_h < k.kh and (stage.kind is not None or k.kh < height)
        small = small and k is not None and max(k.fields.values()) <= WINDOW_MOST
    else:
        alone, small = len(node.inputs) == 1 + len(stage.whole), True
    made = {t for n in chain for t in n.outputs}
    apart = not made.intersection(node.inputs[1:]) and node.inputs[0] not in node.inputs[1:]
    joined = not chain or (node.inputs[0] == chain[-1].outputs[0] and len(graph.readers(node.inputs[0])) == 1)
    return alone and small and apart and joined


def _closes(graph: Graph, chain: list[Node], node: Node) -> bool:
    """True for the residual add of the chain's result and its input; a difference only in this order."""
    if not chain or len(node.outputs) != 1 or saves(node):
        return False
    if not isinstance(stream.stage_of(node), ClosingStage):
        return False
    result = chain[-1].outputs[0]
    if node.factors and node.inputs[0] != result:
        return False
    return set(node.inputs) == {result, chain[0].inputs[0]} and len(graph.readers(result)) == 1
