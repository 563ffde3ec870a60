"""The part of a forward graph behind a tensor, as a network of its own."""

from __future__ import annotations

from microtrain.convert.ir import ConvertError, Graph, Input
from microtrain.convert.verify import verify

MIDDLE = 128.0  # a stored value is shown to the rest as the pixel value + MIDDLE


def cuts(graph: Graph) -> list[str]:
    """Tensors of a forward graph on which alone everything behind them depends, the input first."""
    nodes = graph.forward_nodes
    found = []
    for place, tensor in enumerate([graph.input.tensor, *(n.outputs[0] for n in nodes)]):
        made = {t for n in nodes[place:] for t in n.outputs} | {tensor}
        if nodes[place:] and all(t in made for n in nodes[place:] for t in n.inputs):
            found.append(tensor)
    return found


def bottlenecks(graph: Graph) -> list[str]:
    """Cuts of a graph that take little to keep: no larger than their neighbours. The input is one."""
    found = cuts(graph)
    sizes = [graph.tensors[t].elements for t in found]
    inner = zip(found[1:], sizes[:-1], sizes[1:], [*sizes[2:], sizes[-1]], strict=True)
    return [found[0], *(t for t, before, size, after in inner if size <= before and size <= after)]


def behind(graph: Graph, tensor: str) -> Graph:
    """The forward graph of what comes behind a tensor of cuts(), which becomes its input.

    A pixel p of the new network is the stored value p - 128. Training it changes the same bytes that
    training the whole network changes, where nothing before the tensor is trained: it keeps the layers before
    the tensor in its table, whose places number the streams of random bits (ops.conv.weight_id).
    """
    if tensor == graph.input.tensor:
        return graph
    if tensor not in cuts(graph):
        raise ConvertError(f"{graph.name} cannot be cut at {tensor}: layers behind it read what is before it")
    place = next(i for i, n in enumerate(graph.nodes) if tensor in n.outputs) + 1
    nodes = graph.nodes[place:]
    used = {t for n in nodes for t in (*n.inputs, *n.outputs)}
    channels = graph.tensors[tensor].channels
    return verify(
        graph.replace(
            input=Input(tensor, (1.0,) * channels, (-MIDDLE,) * channels),
            nodes=nodes,
            tensors={name: t for name, t in graph.tensors.items() if name in used},
        )
    )
