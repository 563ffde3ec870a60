"""What is made again for the backward pass has the bytes of what was kept, in less memory."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from networks import Builder, residual_network
from test_executor import images

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import busiest, peak
from microtrain.convert.native_model import NativeModel
from microtrain.convert.native_model import Sgd as SgdStruct
from microtrain.convert.ops import saves, spoils
from microtrain.convert.passes.recompute import (
    Segment,
    _changes,
    _with,
    choose,
    recompute,
    recomputed,
    run_again,
    segments,
)
from microtrain.convert.passes.schedule import schedule
from microtrain.convert.pipeline import Compiled, Passes, compile_graph, planned, sparse_graph
from microtrain.convert.reference.kernels import Sgd
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.verify import verify

STEPS = 6
LEAST = Passes(arena=0)


def trained(graph: Graph, passes: Passes) -> Compiled:
    """All biases, and the weights of half the convolutions."""
    names = convolutions(graph)
    scheme = Scheme("test", biases=-1, weights=dict.fromkeys(names[::2], 0.5), fraction_bits=4, head="random")
    return compile_graph(graph, scheme, 5, passes)


def learns_the_same(again: Compiled, kept: Compiled, tmp_path: Path) -> None:
    """The one as compiled C, the other in NumPy."""
    graph = kept.graph
    native, executor = NativeModel(generate(again, "a test"), tmp_path), Executor(kept.graph)
    for step, image in enumerate(images(graph, STEPS)):
        sgd = (0.05, 0.05, 0.05, 7, step)
        assert native.forward(image, train=True).tobytes() == executor.forward(image).tobytes()
        assert native.backward(step % 5, SgdStruct(*sgd)) == executor.backward(step % 5, Sgd(*sgd))
        assert native.trainables() == executor.trainables()


@pytest.mark.parametrize("seed", range(3))
def test_a_plan_that_makes_things_again_learns_the_same(seed: int, tmp_path: Path) -> None:
    kept, again = (trained(residual_network(seed), passes) for passes in (Passes(), LEAST))
    assert again.plan.arena < kept.plan.arena
    assert recomputed(again.graph)
    learns_the_same(again, kept, tmp_path)


@pytest.mark.parametrize("moved", [False, True])
def test_a_segment_may_lead_through_what_another_one_serves(moved: bool, tmp_path: Path) -> None:
    """layer2 to layer6 run for the block behind them, and once more for themselves."""
    kept = trained(residual_network(), Passes(fused=False))
    graph = sparse_graph(residual_network(), kept.scheme, 5)
    names = [n.name for n in graph.forward_nodes]
    first, middle, end = (names.index(name) for name in ("layer2", "add7", "layer12"))
    overlapping = frozenset({Segment(first, first, middle), Segment(first, middle, end)})
    if moved:  # found from two that meet
        apart = frozenset({Segment(first, first, middle + 1), Segment(middle + 1, middle + 1, end)})
        assert overlapping in set(_changes(graph, apart, [], set()))
    changed = verify(schedule(run_again(graph, overlapping)))
    runs = Counter(n.name for n in recomputed(changed) if not saves(n))
    assert runs["layer3"] == 2 and runs["add7"] == 1
    assert not {t for n in changed.forward_nodes for t in n.outputs[1:] if n.name in names[first:end]}
    learns_the_same(planned(changed, kept.scheme, LEAST), kept, tmp_path)


def test_what_a_segment_serves_is_served_by_no_other() -> None:
    one = frozenset({Segment(2, 2, 9)})
    assert _with(one, Segment(4, 5, 7)) == {Segment(2, 2, 5), Segment(4, 5, 7), Segment(2, 7, 9)}
    assert _with(one, Segment(1, 1, 9)) == {Segment(1, 1, 9)}
    assert _with(one, Segment(9, 9, 11)) == {*one, Segment(9, 9, 11)}


def test_no_segment_is_made_again_that_the_target_does_not_need() -> None:
    scheme = trained(residual_network(), Passes()).scheme
    graph = sparse_graph(residual_network(), scheme, 5)

    def alive(chosen: frozenset[Segment]) -> int:
        return ordered(run_again(graph, chosen))[0]

    def ordered(changed: Graph) -> tuple[int, set[str]]:
        return busiest(schedule(changed))

    most = alive(frozenset())
    smaller = ((target, choose(graph, ordered, target)) for target in range(most - 1, 0, -200))
    reached = list(takewhile(lambda made: alive(made[1]) <= made[0], smaller))
    assert len(reached) > 3
    for target, chosen in reached:
        assert all(alive(chosen - {segment}) > target for segment in chosen)


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
    for first, serves, end in segments(graph):
        assert serves == first
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
    assert recompute(graph, lambda g: (1000, set(g.tensors)), 0).nodes == graph.nodes
    assert recompute(graph, busiest, peak(graph)).nodes == graph.nodes
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
