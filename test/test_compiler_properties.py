"""What must hold of every network and scheme: on networks of odd shapes that hypothesis draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_networks import CLASSES, float_networks, schemes
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from microtrain.convert.emit.code import generate
from microtrain.convert.execute.executor import Executor
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import GAP, Plan, busiest, plan
from microtrain.convert.passes.autodiff import differentiate
from microtrain.convert.passes.fuse import fuse
from microtrain.convert.passes.prune import prune
from microtrain.convert.passes.recompute import recompute
from microtrain.convert.passes.schedule import schedule
from microtrain.convert.pipeline import Compiled, Passes, compile_graph, with_head
from microtrain.convert.quantize.int8 import quantize
from microtrain.convert.quantize.ranges import measure_ranges
from microtrain.convert.reference import kernels as reference
from microtrain.convert.scheme import Scheme, apply
from microtrain.convert.verify import verify
from microtrain.native.model import Model, Sgd, compile_model
from microtrain.samples.stored import stored

RATES = {"lr_weight": 0.05, "lr_bias": 0.02, "lr_head": 0.1}
FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror")
PLAIN = Passes(in_place=False, fused=False)
TIGHT = Passes(arena=1)  # whatever can be made again is made again
Case = tuple[Graph, Scheme, np.ndarray]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A quantized network, a scheme for it and four images, uint8 [4, h, w, c]."""
    graph = draw(float_networks())
    shape = graph.tensors[graph.input.tensor].shape
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    pixels = rng.integers(0, 256, (4, *shape)).astype(np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of channels that became constants
        quantized = quantize(graph, measure_ranges(graph, pixels))
    return quantized, draw(schemes(graph)), pixels


def quick(examples: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples)


# For what must fail: the first example that does is enough, no smaller one is looked for.
BROKEN = settings(max_examples=10, phases=[Phase.generate], report_multiple_bugs=False)


def as_taken(graph: Graph, pixels: np.ndarray) -> np.ndarray:
    """Images as the model takes them, int8."""
    return stored(pixels, graph.input)


@quick(60)
@given(cases())
def test_a_graph_is_whole_after_every_pass(case: Case) -> None:
    quantized, scheme, _ = case
    passes: list[Callable[[Graph], Graph]] = [
        lambda g: with_head(g, CLASSES, scheme.head),
        lambda g: apply(g, scheme),
        lambda g: differentiate(g, scheme.loss),
        prune,
        lambda g: recompute(g, lambda changed: busiest(schedule(changed)), 0),
        fuse,
        schedule,
    ]
    graph = verify(quantized)
    for run in passes:
        before = graph
        graph = verify(run(graph))
        assert graph.tensors[graph.input.tensor] == before.tensors[before.input.tensor]
        assert graph.forward_layers[-1].op == "head"


def test_a_pass_that_loses_a_node_is_noticed() -> None:
    """The check above can fail: a node is dropped, a tensor's shape is changed."""

    @BROKEN
    @given(cases())
    def drops(case: Case) -> None:
        graph = case[0]
        verify(graph.replace(nodes=graph.nodes[1:]))

    @BROKEN
    @given(cases())
    def grows(case: Case) -> None:
        graph = case[0]
        node = graph.nodes[-2]
        wrong = replace(graph.tensors[node.outputs[0]], shape=(9, 9, 9))
        verify(graph.replace(tensors={**graph.tensors, wrong.name: wrong}))

    for broken in (drops, grows):
        with pytest.raises(ValueError, match=r"before it is written|the op table says"):
            broken()


def collisions(found: Plan) -> Iterator[tuple[str, str]]:
    """Pairs of tensors that are alive at once and share a byte."""
    items = list(found.placements.values())
    for i, a in enumerate(items):
        for b in items[i + 1 :]:
            at_once = a.birth <= b.death and b.birth <= a.death
            if at_once and a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes:
                yield a.name, b.name


@quick(40)
@given(cases())
def test_nothing_alive_overlaps_where_nothing_may_be_in_place(case: Case) -> None:
    """By geometry alone: the planner's checker has its own test, this one knows no op."""
    quantized, scheme, _ = case
    compiled = compile_graph(quantized, scheme, CLASSES, PLAIN)
    assert list(collisions(compiled.plan)) == []
    assert all(p.offset >= 0 and p.offset + p.bytes <= compiled.plan.arena for p in placements(compiled))
    assert compiled.plan.lower_bound <= compiled.plan.arena
    smaller = plan(compiled.graph)
    assert smaller.lower_bound <= compiled.plan.lower_bound
    assert smaller.arena <= (1 + GAP) * compiled.plan.arena  # that near its bound, first fit is good enough


def placements(compiled: Compiled) -> list[Any]:
    return list(compiled.plan.placements.values())


def test_a_collision_is_seen() -> None:
    @BROKEN
    @given(cases())
    def squeezed(case: Case) -> None:
        compiled = compile_graph(case[0], case[1], CLASSES, PLAIN)
        flat = {name: replace(p, offset=0) for name, p in compiled.plan.placements.items()}
        assert list(collisions(replace(compiled.plan, placements=flat))) == []

    with pytest.raises(AssertionError):
        squeezed()


@quick(40)
@given(cases())
def test_memory_passes_change_no_number(case: Case) -> None:
    """The NumPy executor learns the same bytes from a graph that is fused, recomputed and reordered."""
    quantized, scheme, pixels = case
    learned = []
    for passes in (PLAIN, Passes(), TIGHT):
        executor = Executor(compile_graph(quantized, scheme, CLASSES, passes).graph)
        for step, image in enumerate(as_taken(quantized, pixels[:2])):
            executor.forward(image)
            executor.backward(step % CLASSES, reference.Sgd(**RATES, seed=7, step=step))
        learned.append(executor.trainables())
    assert learned[0] == learned[1] == learned[2]


class Compiler:
    """Compiles models one after the other, each into a folder of its own: a loaded library stays loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def model(self, compiled: Compiled, change: tuple[str, str] | None = None) -> Model:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for name, code in generate(compiled, "a test").files.items():
            (folder / name).write_text(code.replace(*change) if change else code)
        return Model(folder, compile_model(folder, folder, FLAGS))


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path)


def agree(compiler: Compiler, case: Case, change: tuple[str, str] | None = None) -> None:
    """Generated C, with each choice of memory passes, against the NumPy executor: every byte, every step."""
    quantized, scheme, pixels = case
    executor = Executor(compile_graph(quantized, scheme, CLASSES, PLAIN).graph)
    models = [
        compiler.model(compile_graph(quantized, scheme, CLASSES, p), change)
        for p in (Passes(), Passes(arriving=False), TIGHT)
    ]
    for step, image in enumerate(as_taken(quantized, pixels)):
        logits = executor.forward(image)
        loss = executor.backward(step % CLASSES, reference.Sgd(**RATES, seed=7, step=step))
        for model in models:
            assert model.forward(image, train=True).tobytes() == logits.tobytes()
            assert model.backward(step % CLASSES, Sgd(**RATES, seed=7, step=step)) == np.float32(loss)
            assert model.trainables() == executor.trainables()


def test_generated_c_is_the_executor(compiler: Compiler) -> None:
    @quick(8)
    @given(cases())
    def same(case: Case) -> None:
        agree(compiler, case)

    same()


@pytest.mark.slow
def test_generated_c_is_the_executor_for_many(compiler: Compiler) -> None:
    @quick(250)
    @given(cases())
    def same(case: Case) -> None:
        agree(compiler, case)

    same()


def test_generated_c_that_is_wrong_is_noticed(compiler: Compiler) -> None:
    """The comparison can fail: the generated code asks for another zero point."""

    @BROKEN
    @given(cases())
    def same(case: Case) -> None:
        agree(compiler, case, (".x_zero = ", ".x_zero = 1 + "))

    with pytest.raises(AssertionError):
        same()
