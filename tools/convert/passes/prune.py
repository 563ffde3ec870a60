"""Backward pruning: drops every update that the scheme does not ask for, and all work only they needed.

The backward pass then stops at the first trained layer, masks nobody reads are not written, and a partly
trained layer keeps only the trained channels of its input.
"""

from __future__ import annotations

from dataclasses import replace

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import updates
from microtrain.convert.ops.gather import gathered
from microtrain.convert.ops.table import Updates
from microtrain.convert.splits import columns_read


def prune(graph: Graph) -> Graph:
    """Keep the updates of what the layers mark as trained, and what those depend on."""
    kept = [n for n in graph.backward_nodes if _wanted(graph, n)]
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
    """False for the update of what a layer does not train."""
    what = updates(node)
    if what is Updates.WEIGHTS:
        return bool(graph.layers[node.layer or ""].trained)
    return what is not Updates.BIASES or graph.layers[node.layer or ""].bias_trained


def _live(nodes: list[Node]) -> tuple[Node, ...]:
    """Nodes with an effect, and those whose results such nodes read."""
    needed: set[str] = set()
    live: list[Node] = []
    for node in reversed(nodes):
        if updates(node) is not Updates.NOTHING or needed.intersection(node.outputs):
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
            trained = columns_read(graph.layers[node.layer or ""], tensors[x].channels)
            if x in whole:
                node = replace(node, channels=trained)
            else:
                at = next(i for i, n in enumerate(forward) if n.layer == node.layer)
                saving, saved = gathered(forward[at], graph.tensors[x], trained)
                tensors[saved.name] = saved
                forward.insert(at + 1, saving)
                node = replace(node, inputs=(error, saved.name))
        backward.append(node)
    return graph.replace(tensors=tensors, nodes=(*forward, *backward), forward=len(forward))


def _partial(graph: Graph, node: Node) -> bool:
    """True for the weight update of a layer of which only some channels are trained."""
    if updates(node) is not Updates.WEIGHTS:
        return False
    layer = graph.layers[node.layer or ""]
    return len(layer.trained) < layer.columns
