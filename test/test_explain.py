"""The waterfall of memory passes, and recomputation to fit a budget."""

from __future__ import annotations

import io

import pytest
from networks import residual_network
from rich.console import Console

from microtrain.base.plan import Origin
from microtrain.convert.boards import Limits
from microtrain.convert.emit.code import generate
from microtrain.convert.emit.document import document
from microtrain.convert.emit.explain import gradients, print_waterfall, waterfall
from microtrain.convert.emit.report import print_table
from microtrain.convert.ir import Graph
from microtrain.convert.passes.recompute import recomputed
from microtrain.convert.pipeline import (
    FIRMWARE_SRAM,
    Compiled,
    Passes,
    compile_graph,
    compile_within,
    sparse_graph,
)
from microtrain.convert.scheme import Scheme, convolutions

CLASSES = 5


def network() -> tuple[Graph, Scheme]:
    """Half of the layers frozen: enough to stream, to train and to make again."""
    graph = residual_network(size=32)
    names = convolutions(graph)
    half = len(names) // 2
    return graph, Scheme("half", biases=half, weights=dict.fromkeys(names[half::2], 0.5))


def test_each_pass_saves_and_the_last_rows_are_what_is_built() -> None:
    graph, scheme = network()
    rows = list(waterfall(graph, scheme, CLASSES))
    assert [row.sram for row in rows] == sorted((row.sram for row in rows), reverse=True)
    assert rows[0].sram > 2 * rows[1].sram > 2 * rows[-1].sram
    by_name = {row.name: row for row in rows}
    built = compile_graph(graph, scheme, CLASSES)
    assert (by_name["+ chained"].arena, by_name["+ chained"].sram) == (built.plan.arena, built.sram)
    least = compile_graph(graph, scheme, CLASSES, Passes(arena=0))
    assert by_name["+ recompute"].arena == least.plan.arena < built.plan.arena
    assert all(row.backward <= row.arena for row in rows)


def test_every_gradient_has_a_buffer_until_the_end_of_the_step() -> None:
    graph, scheme = network()
    training = sparse_graph(graph, scheme, CLASSES)
    trained = [layer for layer in training.layers.values() if layer.trained]
    found = gradients(training)
    heads = 1
    assert len(found) == len(trained) + scheme.biases + heads
    assert {buffer.death for buffer in found} == {len(training.nodes) - 1}


@pytest.mark.parametrize("width", [80, 240])
def test_the_table_names_every_pass(width: int) -> None:
    graph, scheme = network()
    out = io.StringIO()
    print_waterfall(graph, compile_graph(graph, scheme, CLASSES), Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    for name in ("full update", "sparse update", "+ immediate update", "+ in-place", "+ fused streaming"):
        assert sum(name in line for line in lines) == (2 if width == 80 else 1), "a row, and what it means"
    assert any("rows flow through several blocks" in line for line in lines)


def test_the_plan_says_what_is_made_again() -> None:
    graph, scheme = network()
    least = compile_graph(graph, scheme, CLASSES, Passes(arena=0))
    out = io.StringIO()
    print_table(least, Limits(), Console(file=out, width=160))
    (line,) = (line for line in out.getvalue().splitlines() if line.startswith("again "))
    assert all(node.name in line for node in recomputed(least.graph))
    plan = document(least, generate(least, "a test"), Origin("", "", ""), None)
    assert sum(" again" in step.text for step in plan.steps) == len(recomputed(least.graph))


def test_as_much_is_made_again_as_the_budget_asks_for() -> None:
    graph, scheme = network()

    def within(budget: int) -> Compiled:
        return compile_within(graph, scheme, CLASSES, budget)

    free = compile_graph(graph, scheme, CLASSES)
    least = compile_graph(graph, scheme, CLASSES, Passes(arena=0))
    assert not recomputed(within(free.sram).graph)
    tight = within(free.sram - 1)
    assert recomputed(tight.graph)
    assert least.sram <= tight.sram < free.sram
    assert within(FIRMWARE_SRAM).sram == free.sram  # no recomputation helps
