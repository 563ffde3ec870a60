"""What is made again for the backward pass has the bytes of what was kept, in less memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import Builder, residual_network
from test_executor import images

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import peak
from microtrain.convert.native_model import NativeModel
from microtrain.convert.native_model import Sgd as SgdStruct
from microtrain.convert.ops import spoils
from microtrain.convert.passes.recompute import recompute, recomputed, run_again, segments
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import Scheme, convolutions

STEPS = 6
LEAST = Passes(arena=0)


def trained(graph: Graph, passes: Passes) -> Compiled:
    """All biases, and the weights of half the convolutions."""
    names = convolutions(graph)
    scheme = Scheme("test", biases=-1, weights=dict.fromkeys(names[::2], 0.5), fraction_bits=4, head="random")
    return compile_graph(graph, scheme, 5, passes)


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_that_makes_things_again_learns_the_same(seed: int, tmp_path: Path) -> None:
    graph = residual_network(seed)
    kept, again = trained(graph, Passes()), trained(graph, LEAST)
    assert again.plan.arena < kept.plan.arena
    assert recomputed(again.graph)
    native, executor = NativeModel(generate(again, "a test"), tmp_path), Executor(kept.graph)
    for step, image in enumerate(images(graph, STEPS)):
        sgd = (0.05, 0.05, 0.05, 7, step)
        assert native.forward(image, train=True).tobytes() == executor.forward(image).tobytes()
        assert native.backward(step % 5, SgdStruct(*sgd)) == executor.backward(step % 5, Sgd(*sgd))
        assert native.trainables() == executor.trainables()


def test_the_executor_makes_things_again_too() -> None:
    graph = residual_network()
    kept, again = (Executor(trained(graph, passes).graph) for passes in (Passes(), LEAST))
    for step, image in enumerate(images(graph, 2)):
        for executor in (kept, again):
            executor.forward(image)
            executor.backward(step, Sgd(0.05, 0.05, 0.05, 7, step))
    assert kept.trainables() == again.trainables()


def test_no_layer_changes_before_it_is_made_again() -> None:
    nodes = trained(residual_network(), LEAST).graph.nodes
    for step, node in enumerate(nodes):
        assert not any(spoils(node, later) for later in nodes[step + 1 :])


def test_only_as_much_is_made_again_as_the_target_asks_for() -> None:
    graph = residual_network()
    kept, least = (trained(graph, passes).plan.lower_bound for passes in (Passes(), LEAST))
    target = (kept + least) // 2
    between = trained(graph, Passes(arena=target))
    assert least <= between.plan.lower_bound <= target
    assert 0 < len(recomputed(between.graph)) <= len(recomputed(trained(graph, LEAST).graph))
    assert not recomputed(trained(graph, Passes(arena=kept)).graph)


def test_a_segment_reads_a_single_tensor_from_before_it() -> None:
    graph = trained(residual_network(), Passes(fused=False)).graph
    for first, end in segments(graph):
        inside = {t for n in graph.nodes[first:end] for t in n.outputs}
        outside = {t for n in graph.nodes[first:end] for t in n.inputs} - inside
        assert len(outside) == 1


def test_what_an_again_node_makes_has_a_reader() -> None:
    graph = trained(residual_network(), Passes(fused=False)).graph
    for segment in segments(graph):
        changed = run_again(graph, frozenset({segment}))
        read = {t for n in changed.nodes for t in n.reads}
        for node in recomputed(changed):
            assert read.intersection(node.outputs)


def test_nothing_is_done_where_nothing_is_won() -> None:
    graph = trained(residual_network(), Passes(fused=False)).graph
    assert recompute(graph, lambda g: 1000, 0).nodes == graph.nodes
    assert recompute(graph, peak, peak(graph)).nodes == graph.nodes
    assert np.isfinite(peak(graph))


def test_a_pooling_that_streams_and_is_made_again_has_one_struct(tmp_path: Path) -> None:
    """Its parameters were defined twice, and the model did not compile."""
    b = Builder(np.random.default_rng(3), (9, 9, 3))
    x = b.conv(b.conv("x", 6), 6)
    for _ in range(3):
        x = b.pool("maxpool", x, 3, 1, 1)
    made = compile_graph(b.finish(x, 3), Scheme("last", 1, head="random"), 3, LEAST)
    again = {n.name for n in made.graph.nodes if n.again and n.op == "maxpool"}
    assert again & {part.name for n in made.graph.nodes for part in n.parts}
    NativeModel(generate(made, "a test"), tmp_path)
