"""The check between the passes: a fault of every kind is planted in a whole graph, and noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from networks import residual_network

from microtrain.convert.ir import Graph
from microtrain.convert.passes.autodiff import differentiate
from microtrain.convert.passes.prune import prune
from microtrain.convert.passes.schedule import schedule, spoils
from microtrain.convert.pipeline import with_head
from microtrain.convert.scheme import Scheme, apply
from microtrain.convert.verify import verify


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A training step that updates weights."""
    marked = apply(with_head(residual_network(), 4, "zeros"), Scheme("s", 2, {-1: 1.0, -2: 1.0}))
    return schedule(prune(differentiate(marked)))


def renamed_op(graph: Graph) -> Graph:
    return graph.replace(nodes=(replace(graph.nodes[0], op="conv3d"), *graph.nodes[1:]))


def lost_layer(graph: Graph) -> Graph:
    node = next(node for node in graph.nodes if node.layer)
    return graph.replace(layers={name: layer for name, layer in graph.layers.items() if name != node.layer})


def lost_node(graph: Graph) -> Graph:
    return graph.replace(nodes=graph.nodes[1:])


def node_twice(graph: Graph) -> Graph:
    return graph.replace(nodes=(graph.nodes[0], *graph.nodes))


def grown_tensor(graph: Graph) -> Graph:
    name = graph.nodes[0].outputs[0]
    return graph.replace(tensors={**graph.tensors, name: replace(graph.tensors[name], shape=(99, 9, 9))})


def lost_output(graph: Graph) -> Graph:
    before = next(i for i, node in enumerate(graph.nodes) if graph.output in node.outputs)
    return graph.replace(nodes=graph.nodes[:before])


def early_update(graph: Graph) -> Graph:
    """The update of a layer's weights runs before the gradient that is to read them as they were."""
    nodes = list(graph.nodes)
    update, reader = next((u, r) for u in nodes for r in nodes if spoils(u, r))
    nodes.remove(update)
    nodes.insert(nodes.index(reader), update)
    return graph.replace(nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (renamed_op, "conv3d of layer0: no such op"),
        (lost_layer, "no layer layer0"),
        (lost_node, "before it is written"),
        (node_twice, "a second time"),
        (grown_tensor, "the op table says"),
        (lost_output, "nothing writes the output"),
        (early_update, "runs after the update of its weights"),
    ],
)
def test_a_planted_fault_is_named(fault: Callable[[Graph], Graph], said: str, graph: Graph) -> None:
    assert verify(graph) is graph
    with pytest.raises(ValueError, match=said):
        verify(fault(graph))
