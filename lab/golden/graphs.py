"""The graphs that are compared with the golden data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.ir import Graph
from microtrain.convert.pipeline import Passes, training_graph
from microtrain.convert.scheme import Scheme
from microtrain.convert.verify import verify

from .data import Data

CLASSES = 10  # of the head that the golden training steps start from
IMAGENET_CLASSES = 1000
CLASSIFIER, LOGITS = "int8_classifier", "int8_logits"


def golden_scheme(golden: Mapping[str, np.ndarray]) -> Scheme:
    """All biases, and the weights of every layer whose weight gradient is in the golden data."""
    numbers = [int(k.split("/")[1].removeprefix("conv")) for k in golden if k.endswith("/weight_grad")]
    return Scheme("golden", -1, dict.fromkeys(numbers, 1.0))


def step_graph(data: Data, network: str, golden: Mapping[str, np.ndarray]) -> Graph:
    """The training graph of `golden_scheme` from the golden head, with every tensor whole."""
    graph = read_checkpoint(data.checkpoint(network))
    return golden_head(training_graph(graph, golden_scheme(golden), CLASSES, Passes(fused=False)), golden)


def golden_head(graph: Graph, golden: Mapping[str, np.ndarray]) -> Graph:
    """The training graph with the head that the golden training steps start from."""
    head = graph.layers["classifier"]
    start = replace(head, weight=golden["head_weight"], bias=golden["head_bias"])
    return graph.replace(layers={**graph.layers, "classifier": start})


def with_classifier(graph: Graph, data: Data, network: str, rows: Sequence[int]) -> Graph:
    """A training graph that also makes `int8_logits`: rows of the checkpoint's int8 classifier, as its last
    forward step. The float head and the backward pass stay as they are."""
    whole = read_checkpoint(data.checkpoint(network), integer_head=True)
    layer, node, chosen = whole.layers["classifier"], whole.nodes[-1], list(rows)
    assert layer.weight_scale is not None and layer.dead is not None
    part = replace(
        layer,
        weight=layer.weight[chosen],
        bias=layer.bias[chosen],
        weight_scale=layer.weight_scale[chosen],
        dead=layer.dead[chosen],
    )
    node = replace(node, name=CLASSIFIER, layer=CLASSIFIER, outputs=(LOGITS,))
    logits = replace(whole.tensors[whole.output], name=LOGITS, shape=(1, 1, len(chosen)))
    return verify(
        graph.replace(
            layers={**graph.layers, CLASSIFIER: part},
            tensors={**graph.tensors, LOGITS: logits},
            nodes=(*graph.forward_nodes, node, *graph.backward_nodes),
            forward=len(graph.forward_nodes) + 1,
        )
    )


def golden_blocks(graph: Graph, golden: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The tensor that each block of a network ends in, and its golden value for image 0, int8 [h, w, c]."""
    for number in range(sum(key.startswith("0/block") for key in golden)):
        total = f"blocks.{number}.add"
        name = total if total in graph.tensors else f"blocks.{number}.pointwise2.y"
        yield name, golden[f"0/block{number}_s8"][0].transpose(1, 2, 0)
