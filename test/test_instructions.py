"""The estimate of a step's instructions: what it was, what it says of kernels that nobody counted."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from pathlib import Path

import numpy as np
import pytest
from conftest import EXAMPLE
from networks import residual_network

from lab.instructions import cli as lab
from lab.instructions.others import others
from lab.networks import Builder
from microtrain.convert.ir import Graph
from microtrain.convert.loading import load, quantized_with_report
from microtrain.convert.ops import TABLE, attention
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.ops.aten.pool import CHANNEL_MAXIMUM, CHANNEL_MEAN
from microtrain.convert.ops.aten.resample import RESAMPLE
from microtrain.convert.ops.coded import CODED
from microtrain.convert.ops.grouped import GROUPED
from microtrain.convert.ops.mul_add import MUL_ADD
from microtrain.convert.ops.position import POSITION
from microtrain.convert.ops.scale import MULTIPLY, PIXELS
from microtrain.convert.ops.scale_values import VALUES
from microtrain.convert.ops.tokens import LAST
from microtrain.convert.ops.upsample import UPSAMPLE
from microtrain.convert.ops.work import STRIP, by_size, kind
from microtrain.convert.pipeline import Compiled, compile_graph, training_graph
from microtrain.convert.quantize.ptq import Choices
from microtrain.convert.scheme import Scheme, find
from microtrain.search.instructions import (
    AVERAGE,
    coefficients,
    estimate,
    priced,
    step_instructions,
    uncounted,
    unmeasured,
)

STRIP_SIDE = isqrt(STRIP)  # of the largest square map whose sums are kept


@pytest.fixture(scope="module")
def example() -> Graph:
    """The digits example, int8."""
    return quantized_with_report(load(EXAMPLE / "model.pt", False, None), Choices(), False, None)[0]


@pytest.fixture(scope="module")
def everything() -> Graph:
    """A training graph of all weights, with four fraction bits."""
    scheme = Scheme("all", -1, {"all": 1.0}, fraction_bits=4)
    return training_graph(residual_network(classes=3), scheme, 3)


@pytest.fixture(scope="module")
def streams() -> Graph:
    """A training graph of the last bias: all before it runs by rows."""
    return training_graph(residual_network(classes=3), Scheme("last", 1), 3)


@pytest.mark.parametrize(
    ("scheme", "instructions"),
    [("bias.yaml", 2289572.3614952), ("head.yaml", 1634678.89672), ("scheme.yaml", 2600191.3520304)],
)
def test_the_examples_schemes_cost_what_they_did(example: Graph, scheme: str, instructions: float) -> None:
    """By the coefficients that are checked in: what a step grows with is what they were fitted to."""
    graph = training_graph(example, find(EXAMPLE / scheme), 10)
    assert step_instructions(graph) == pytest.approx(instructions, rel=1e-12)


def test_every_coefficient_is_of_an_op() -> None:
    assert {name.split(" ")[0] for name in coefficients()} <= {AVERAGE, *TABLE}


def test_a_kernel_that_was_never_counted_costs_what_the_average_does(everything: Graph) -> None:
    model = coefficients()
    node = next(n for n in everything.backward_nodes if kind(everything, n) in model)
    without = {name: own for name, own in model.items() if name != kind(everything, node)}
    assert not list(uncounted(everything, node, model))
    assert list(uncounted(everything, node, without)) == [node]
    guess = priced(model[AVERAGE], by_size(everything, node))
    assert estimate(everything, node, without) == guess != estimate(everything, node, model)


def test_what_was_never_counted_by_rows_costs_what_it_does_alone(streams: Graph) -> None:
    model = coefficients()
    stream = next(n for n in streams.forward_nodes if n.parts)
    assert not list(uncounted(streams, stream, model))
    gone = stream.parts[0].op
    kept = {name: value for name, value in model[stream.op].items() if gone not in name.split()}
    without = {**model, stream.op: kept}
    missing = [part for part in stream.parts if part.op == gone]
    assert list(uncounted(streams, stream, without)) == missing
    guess = sum(priced(model[kind(streams, p)], TABLE[p.op].work(streams, p)) for p in missing)
    rest = priced(kept, TABLE[stream.op].work(streams, stream))
    assert estimate(streams, stream, without) == pytest.approx(rest + guess)


@pytest.mark.parametrize(("side", "twice"), [(STRIP_SIDE, False), (STRIP_SIDE + 1, True)])
def test_sums_that_are_not_kept_are_made_twice(side: int, twice: bool) -> None:
    """The gradient to a map of more pixels than have sums in scratch costs each product once more."""
    b = Builder(np.random.default_rng(5), (side, side, 3))
    graph = b.finish(b.conv(b.depthwise(b.conv("x", 8), 3, 1), 10), 4)
    step = compile_graph(graph, Scheme("biases", -1), 4).graph
    costly = {"conv2d_bwd_x", "dwconv2d_bwd_x"}
    found = {n.op: TABLE[n.op].work(step, n) for n in step.backward_nodes if n.op in costly}
    assert found.keys() == costly
    for terms in found.values():
        assert terms.get("macs again") == (terms["macs"] if twice else None)
        assert terms.get("elements again") == (terms["out elements"] if twice else None)


def test_what_was_never_counted_is_named(
    everything: Graph, streams: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unmeasured(everything) == []
    known = {name: own for name, own in coefficients().items() if name not in ("add", "conv2d_bwd_x kxk")}
    monkeypatch.setattr("microtrain.search.instructions.coefficients", lambda: known)
    assert unmeasured(everything) == ["add", "conv2d_bwd_x kxk"]
    assert unmeasured(streams) == ["avgpool by rows", "maxpool by rows"]


# ---------------------------------------------------------------- what no published network has

CELLS = (*LAST, *LAST.values())
MAPS = (MULTIPLY, UPSAMPLE, RESAMPLE, PIXELS, CHANNEL_MEAN, CHANNEL_MAXIMUM)
OTHERS = (*MAPS, attention.ATTENTION, GROUP_NORM, POSITION, MUL_ADD, VALUES, GROUPED, CODED, *CELLS)


def forward(kind: str) -> str:
    """The op of a kind of step, or that of which it is a gradient."""
    return kind.split(" ")[0].removesuffix("_bwd_x").removesuffix("_bwd_w").removesuffix("_bwd_s")


def of_others(kinds: set[str]) -> Iterator[str]:
    return (name for name in kinds if forward(name) in OTHERS)


def test_ops_of_no_published_network_are_counted() -> None:
    seen = {kind(compiled.graph, n) for _, compiled in others() for n in compiled.graph.nodes}
    assert {forward(name) for name in of_others(seen)} == {*OTHERS}
    guessed = {name for _, compiled in others() for name in unmeasured(compiled.graph)}
    assert not set(of_others(guessed))


def test_few_steps_and_published_kinds_are_not_fitted() -> None:
    """Made-up counts are found again; the kind of a step that is known already stays as it is."""
    compiled = next(each for name, each in others() if name.startswith("layer"))
    node = next(n for n in compiled.graph.nodes if n.op == GROUP_NORM)
    terms = TABLE[node.op].work(compiled.graph, node)
    made = lab.Counted(compiled.graph, node, round(9.0 * terms["in elements"]))
    known = kind(compiled.graph, node)
    assert lab.fit_others([made] * (lab.ENOUGH - 1), {}) == {}
    assert lab.fit_others([made] * lab.ENOUGH, {known}) == {}
    found = lab.fit_others([made] * lab.ENOUGH, {})
    assert estimate(compiled.graph, node, found) == pytest.approx(made.instructions, rel=1e-3)


def unseen() -> Compiled:
    """Tokens and a norm of each, in sizes that were not fitted with."""
    b = Builder(np.random.default_rng(77), (20, 20, 3))
    x = b.position(b.conv("x", 16, 3, 2), 1)
    normed = b.depthwise(b.layer(GROUP_NORM, x, factors=(1e-5, 1.0, 1.0)), 1, 1)
    y = b.attention(b.conv(normed, 3 * 16, relu=False), 2)
    graph = b.finish(b.conv(b.add(b.conv(y, 16, relu=False), x), 10), 4)
    return compile_graph(graph, Scheme("biases", -1), 4)


@pytest.mark.slow
def test_an_unseen_network_takes_what_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "WORK", tmp_path)
    steps = lab.counted(unseen(), "unseen")
    own = [s for s in steps if forward(s.node.op) in OTHERS]
    assert {forward(s.node.op) for s in own} == {attention.ATTENTION, GROUP_NORM, POSITION}
    for step in own:
        said = estimate(step.graph, step.node, coefficients())
        assert said == pytest.approx(step.instructions, rel=0.25), step.node.name
    all_of = sum(estimate(s.graph, s.node, coefficients()) for s in own)
    assert all_of == pytest.approx(sum(s.instructions for s in own), rel=0.1)


@pytest.mark.slow
def test_the_example_takes_what_is_estimated(
    example: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its layers was fitted to; two are of kinds that published networks hardly have."""
    monkeypatch.setattr(lab, "WORK", tmp_path)
    steps = lab.counted(compile_graph(example, find(EXAMPLE / "scheme.yaml"), 10), "example")
    found = sum(estimate(s.graph, s.node, coefficients()) for s in steps)
    assert found == pytest.approx(sum(s.instructions for s in steps), rel=0.1)
