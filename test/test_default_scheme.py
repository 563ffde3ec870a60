"""What is trained where the user names no scheme."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from networks import Builder, residual_network

from microtrain.base.sound import EXAMPLE, parse
from microtrain.convert.default_scheme import (
    BIASES,
    ENOUGH,
    EVERYTHING,
    FRACTION_BITS,
    REACH,
    SHARES,
    beside_records,
    expanding,
    largest,
    last,
    rates,
    widening,
)
from microtrain.convert.defaults import KNOWN_WORDS_RATE, RATE
from microtrain.convert.ir import Graph
from microtrain.convert.memory.replay import PARTS, Request
from microtrain.convert.pipeline import ALL_PASSES, Compiled, Passes, Room, compile_graph, training_graph
from microtrain.convert.scheme import Scheme, convolutions
from microtrain.convert.weights import stored_bytes

CLASSES = 5
GRAPH = residual_network()


def sram(scheme: Scheme) -> int:
    return compile_graph(GRAPH, scheme, CLASSES).sram


def default_scheme(budget: int) -> Compiled:
    """The largest default scheme that fits, as a whole plan."""
    return compile_graph(GRAPH, largest(Room(GRAPH, CLASSES, budget), ALL_PASSES), CLASSES)


LEAST, ALL = sram(Scheme("head")), sram(Scheme("all", -1, {"all": 1.0}, fraction_bits=FRACTION_BITS))


@pytest.mark.parametrize("budget", [LEAST + 100, LEAST + 600, LEAST + 2000, ALL + 1000])
def test_it_fits_and_biases_leave_room_for_weights(budget: int) -> None:
    compiled = default_scheme(budget)
    assert compiled.sram <= budget
    alone = sram(Scheme("b", compiled.scheme.biases))
    assert alone <= 1.01 * (LEAST + BIASES * (budget - LEAST))
    names = convolutions(GRAPH)
    assert set(compiled.scheme.weights) <= set(names[len(names) - compiled.scheme.biases :])


def test_more_room_trains_more() -> None:
    found = [default_scheme(budget).scheme for budget in (LEAST, LEAST + 900, 2 * ALL)]
    assert found[0].biases == 0
    assert not found[0].weights
    assert all(a.biases <= b.biases and len(a.weights) <= len(b.weights) for a, b in pairwise(found))
    assert found[-1].biases == len(convolutions(GRAPH))
    assert set(found[-1].weights.values()) == {1.0}


def test_below_the_head_it_is_the_head_that_is_refused_later() -> None:
    assert default_scheme(LEAST - 500).scheme.name == "head-only"


def test_layers_that_widen() -> None:
    names = widening(GRAPH, convolutions(GRAPH))
    shapes = [GRAPH.layers[name].weight.shape for name in names]
    assert all(shape[1:3] == (1, 1) and shape[0] > shape[3] for shape in shapes)
    sizes = [GRAPH.layers[name].weight.size for name in names]
    assert sizes == sorted(sizes)


def test_where_none_widens_all_dense_ones_count() -> None:
    b = Builder(np.random.default_rng(0), (8, 8, 3))
    plain = b.finish(b.conv(b.depthwise(b.conv("x", 6, 3)), 4), CLASSES)
    assert len(widening(plain, convolutions(plain))) == 2


def test_a_head_that_knows_the_words_of_a_speaker_learns_faster() -> None:
    heard = GRAPH.replace(sound=parse(EXAMPLE))
    for graph, head in ((GRAPH, "keep"), (GRAPH, (0, 1, 2)), (heard, "zeros")):
        assert rates(graph, head) == (RATE, RATE, RATE)
    for known in ("keep", (4, 3, 2, 1, 0)):
        assert rates(heard, known) == (RATE, RATE, KNOWN_WORDS_RATE)
        assert largest(Room(heard, CLASSES, 2 * ALL), ALL_PASSES, known).rates[2] == KNOWN_WORDS_RATE


@pytest.fixture
def plain() -> Graph:
    """No inverted residual: no layer makes more than twice as many channels as it reads."""
    b = Builder(np.random.default_rng(0), (12, 12, 3))
    x = b.conv("x", 8, 3, 2)
    for channels in (16, 16, 24):
        x = b.conv(b.depthwise(x, 3, 1), channels)
    return b.finish(x, CLASSES)


LOOKING = Passes(replay=Request(optional=True, parts=PARTS))


def beside(graph: Graph, sram: int) -> tuple[Room, Scheme]:
    room = Room(graph, CLASSES, sram)
    return room, beside_records(room, LOOKING, "zeros", lambda: None)


def test_a_scheme_leaves_memory_to_records(plain: Graph) -> None:
    """A half of what the head alone leaves, or more, where that is too little for ENOUGH of each class."""
    everything = Scheme("all", -1, {"all": 1.0}, fraction_bits=FRACTION_BITS)
    whole = compile_graph(plain, everything, CLASSES).sram
    least = Room(plain, CLASSES, 0).needed(Scheme("head-only"), ALL_PASSES)
    room, scheme = beside(plain, 3 * whole)
    assert room.records(scheme, LOOKING) >= ENOUGH * CLASSES and scheme == largest(room, ALL_PASSES)
    room, scheme = beside(plain, whole)
    assert room.needed(scheme, ALL_PASSES) <= least + SHARES[0] * (whole - least)
    assert scheme != largest(room, ALL_PASSES)


@pytest.fixture
def residuals() -> Graph:
    """Five inverted residuals that make three times as many channels."""
    b = Builder(np.random.default_rng(0), (12, 12, 3))
    x = b.conv("x", 8, 3, 2)
    for _ in range(5):
        x = b.add(x, b.conv(b.depthwise(b.conv(x, 24), 3, 1), 8, relu=False))
    return b.finish(x, CLASSES)


def test_the_first_layers_of_inverted_residuals_are_told_from_others(residuals: Graph, plain: Graph) -> None:
    names = convolutions(residuals)
    assert sorted(expanding(residuals)) == sorted(names[1::3]) and not expanding(plain)
    assert sorted(expanding(residuals, 4)) == sorted(names[-3:-2])
    b = Builder(np.random.default_rng(0), (12, 12, 3))
    assert not expanding(b.finish(b.conv(b.conv("x", 8, 3, 2), 24), CLASSES)), "no depthwise layer behind it"


def test_beside_records_the_last_inverted_residuals_learn(residuals: Graph) -> None:
    """No others, and as much more memory as the head alone takes; unless the whole network fits."""
    room = Room(residuals, CLASSES, 0)
    alone, whole = (room.needed(scheme, ALL_PASSES) for scheme in (Scheme("head-only"), EVERYTHING))
    enough = int(alone + (whole - alone) / SHARES[0])
    room, scheme = beside(residuals, enough - 100)
    assert 0 < scheme.biases <= round(REACH * len(convolutions(residuals)))
    assert set(scheme.weights) == set(expanding(residuals, scheme.biases)), scheme
    assert room.needed(scheme, ALL_PASSES) <= 2 * alone and scheme != largest(room, ALL_PASSES)
    _, scheme = beside(residuals, enough + 100)
    assert scheme.biases == len(scheme.weights) == len(convolutions(residuals))


def test_the_last_layers_learn_as_far_as_they_fit(residuals: Graph) -> None:
    most = last(Room(residuals, CLASSES, 1 << 20), ALL_PASSES)
    assert most.biases == round(REACH * len(convolutions(residuals)))
    assert dict(most.weights) == dict.fromkeys(expanding(residuals, most.biases), 1.0)
    assert most.name == f"bias-{most.biases}+{len(most.weights)}"
    least, full = (Room(residuals, CLASSES, 0).needed(s, ALL_PASSES) for s in (Scheme("head-only"), most))
    room = Room(residuals, CLASSES, int(full) - 1)
    part = last(room, ALL_PASSES)
    assert room.holds(part, ALL_PASSES) and 0 < part.biases <= most.biases and part != most
    assert last(Room(residuals, CLASSES, int(least)), ALL_PASSES).name == "head-only"


def test_weights_that_learn_stay_out_of_four_bits_only_as_far_as_flash_goes() -> None:
    """A layer of which anything learns stays int8 in a compressed model."""
    b = Builder(np.random.default_rng(0), (8, 8, 3))
    x = b.conv("x", 48, 3, 2)
    for channels in (64, 96, 128):
        x = b.conv(b.depthwise(x, 3, 1), channels)
    wide = b.finish(x, CLASSES)
    everything = largest(Room(wide, CLASSES, 1 << 30), ALL_PASSES)
    sizes = [stored_bytes(training_graph(wide, s, CLASSES, ALL_PASSES)) for s in (Scheme("head"), everything)]
    assert sizes[0] < sizes[1]
    flash = sum(sizes) // 2
    found = largest(Room(wide, CLASSES, 1 << 30, flash), ALL_PASSES)
    assert 0 < len(found.weights) < len(everything.weights)
    assert stored_bytes(training_graph(wide, found, CLASSES, ALL_PASSES)) <= flash
