"""A network that ends earlier: its middle may know more of a new task than its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from microtrain.base.plan import OWN_HEAD

from .frontends.module import LoadedModel
from .ir import ConvertError, Graph, Layer, Node, Source, Window
from .ops import forward_op, pool
from .ops.head import HEAD
from .ops.table import Learns

MOST_NAMED = 8


def ending_at(loaded: LoadedModel, layer: str) -> LoadedModel:
    """The model up to a layer; the head reads the mean of its map. ConvertError for a layer it has not."""
    graph = loaded.graph
    learning = [n for n in graph.nodes if n.layer and forward_op(n).learns is Learns.COLUMNS]
    last = next((n for n in learning if n.layer == layer), None)
    if last is None:
        names = [n.layer or "" for n in learning]
        known = ", ".join(names if len(names) <= MOST_NAMED else [*names[:4], "...", *names[-3:]])
        raise ConvertError(f"{graph.name} has no layer {layer} to end at; there are {known}")
    return replace(loaded, graph=_with_end(graph, last), class_names=())


def _with_end(graph: Graph, last: Node) -> Graph:
    """The nodes that `last` depends on, it too, and behind them a mean and a head of zeros."""
    needed, kept = set(last.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if needed & set(node.outputs):
            needed |= set(node.inputs)
            kept.insert(0, node)
    features, (h, w, c) = last.outputs[0], graph.tensors[last.outputs[0]].shape
    ends = []
    tensors = {name: t for name, t in graph.tensors.items() if name in needed}
    if h * w > 1:
        tensors["until"] = replace(graph.tensors[features], name="until", shape=(1, 1, c), given=None)
        ends.append(Node(pool.AVERAGE, "until", (features,), ("until",), window=Window(h, w, h, w)))
        features = "until"
    logits = replace(graph.tensors[graph.output], shape=(1, 1, 2), given=None)
    tensors[graph.output] = logits
    ends.append(Node(HEAD, OWN_HEAD, (features,), (graph.output,), OWN_HEAD))
    own = {n.layer for n in kept}
    layers = {name: layer for name, layer in graph.layers.items() if name in own}
    source = Source(f"{OWN_HEAD}.weight", f"{OWN_HEAD}.bias")
    layers[OWN_HEAD] = Layer(np.zeros((2, c), np.float32), np.zeros(2, np.float32), source)
    return graph.replace(nodes=(*kept, *ends), tensors=tensors, layers=layers, classes=())
