"""What weights take in flash, counted before they are stored."""

from __future__ import annotations

from .compression import Weights
from .ir import Graph
from .ops import has_head
from .ops.coded import candidates, flash_saved
from .trainables import layout, stored_block


def weights_of(graph: Graph) -> Weights:
    """All layers in front of the head, whatever of them is trained: of a float graph as of an int8 one."""
    layers = {name: layer for name, layer in graph.layers.items() if name != graph.nodes[-1].layer}
    count = sum(layer.weight.size for name, layer in layers.items() if name not in graph.copies)
    size = count + sum(4 * layer.bias.size for layer in layers.values())
    trained = frozenset(name for name, layer in graph.layers.items() if layer.trained)
    saved = flash_saved([graph.layers[name] for name in candidates(graph, trained)])
    if not has_head(graph):
        return Weights(count, size, saved=saved)
    head = graph.layers[graph.nodes[-1].layer or ""].weight.shape
    return Weights(count, size, (head[0], head[1]), saved)


def stored_bytes(graph: Graph) -> int:
    """Of a training graph, with its weights in four bits where they stay frozen, and what learns beside them:
    some hundred bytes more than there will be."""
    weights, items = weights_of(graph), layout(graph)
    moved = sum(layer.weight.size * len(layer.trained) // layer.columns for layer in graph.layers.values())
    return weights.bytes - weights.saved - moved + len(stored_block(items))
