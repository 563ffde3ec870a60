"""Backward pruning: drops every update that the scheme does not ask for, and all work only they needed.

The backward pass then stops at the first trained layer, masks nobody reads are not written, and a partly
trained layer keeps only the trained channels of its input.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE


def prune(graph: Graph) -> Graph:
    """Keep the updates of what the layers mark as trained, and what those depend on."""
    kept = [n for n in graph.backward_nodes if not TABLE[n.op].updates or _wanted(graph, n)]
    backward = _live(kept)
    read = {t for n in backward for t in n.reads}
    forward = tuple(
        replace(n, outputs=(n.outputs[0], *(o for o in n.outputs[1:] if o in read)))
        for n in graph.forward_nodes
    )
    nodes = (*forward, *backward)
    used = {t for n in nodes for t in (*n.reads, *n.outputs)}
    tensors = {name: t for name, t in graph.tensors.items() if name in used}
    return gather_inputs(graph.replace(tensors=tensors, nodes=nodes, forward=len(forward)))


def _wanted(graph: Graph, node: Node) -> bool:
    if node.op == "head_bwd_w":
        return True
    layer = graph.layers[node.layer or ""]
    return layer.bias_trained if node.op == "bias_update" else bool(layer.trained)


def _live(nodes: list[Node]) -> tuple[Node, ...]:
    """Nodes with an effect, and those whose results such nodes read."""
    needed: set[str] = set()
    live: list[Node] = []
    for node in reversed(nodes):
        if TABLE[node.op].updates or needed.intersection(node.outputs):
            needed.update(node.reads)
            live.append(node)
    return tuple(reversed(live))


def gather_inputs(graph: Graph) -> Graph:
    """Save only the trained channels of a partly trained layer's input.

    The copy is made right after the layer's forward pass. Where the whole input stays alive for another
    backward reader anyway, the update picks its channels from that instead.
    """
    whole = {t for n in graph.backward_nodes for t in n.reads if not _partial(graph, n)}
    tensors = dict(graph.tensors)
    forward: list[Node] = list(graph.forward_nodes)
    backward: list[Node] = []
    for node in graph.backward_nodes:
        if _partial(graph, node):
            error, x = node.inputs
            trained = graph.layers[node.layer or ""].trained
            if x in whole:
                node = replace(node, channels=trained)
            else:
                saved = f"saved:{node.name}"
                h, w, _ = graph.tensors[x].shape
                tensors[saved] = replace(graph.tensors[x], name=saved, shape=(h, w, len(trained)))
                at = next(i for i, n in enumerate(forward) if n.layer == node.layer)
                forward.insert(
                    at + 1, Node("gather", node.name, (x,), (saved,), layer=node.layer, channels=trained)
                )
                node = replace(node, inputs=(error, saved))
        backward.append(node)
    return graph.replace(tensors=tensors, nodes=(*forward, *backward), forward=len(forward))


def _partial(graph: Graph, node: Node) -> bool:
    """True for the weight update of a layer of which only some channels are trained."""
    if not node.op.endswith("2d_bwd_w"):
        return False
    layer = graph.layers[node.layer or ""]
    return len(layer.trained) < layer.columns
