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
    FRACTION_BITS,
    SHARES,
    beside_records,
    default_scheme,
    largest,
    rates,
    widening,
)
from microtrain.convert.defaults import KNOWN_WORDS_RATE, RATE
from microtrain.convert.memory.replay import PARTS, Request
from microtrain.convert.pipeline import ALL_PASSES, Passes, Room, compile_graph
from microtrain.convert.scheme import Scheme, convolutions

CLASSES = 5
GRAPH = residual_network()


def sram(scheme: Scheme) -> int:
    return compile_graph(GRAPH, scheme, CLASSES).sram


LEAST, ALL = sram(Scheme("head")), sram(Scheme("all", -1, {"all": 1.0}, fraction_bits=FRACTION_BITS))


@pytest.mark.parametrize("budget", [LEAST + 100, LEAST + 600, LEAST + 2000, ALL + 1000])
def test_it_fits_and_biases_leave_room_for_weights(budget: int) -> None:
    compiled = default_scheme(GRAPH, CLASSES, budget)
    assert compiled.sram <= budget
    alone = sram(Scheme("b", compiled.scheme.biases))
    assert alone <= 1.01 * (LEAST + BIASES * (budget - LEAST))
    names = convolutions(GRAPH)
    assert set(compiled.scheme.weights) <= set(names[len(names) - compiled.scheme.biases :])


def test_more_room_trains_more() -> None:
    found = [default_scheme(GRAPH, CLASSES, budget).scheme for budget in (LEAST, LEAST + 900, 2 * ALL)]
    assert found[0].biases == 0
    assert not found[0].weights
    assert all(a.biases <= b.biases and len(a.weights) <= len(b.weights) for a, b in pairwise(found))
    assert found[-1].biases == len(convolutions(GRAPH))
    assert set(found[-1].weights.values()) == {1.0}


def test_below_the_head_it_is_the_head_that_is_refused_later() -> None:
    assert default_scheme(GRAPH, CLASSES, LEAST - 500).scheme.name == "head-only"


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


def test_a_scheme_leaves_memory_to_records() -> None:
    """A half of what the head alone leaves, or more, where that is too little for ENOUGH of each class."""
    looking = Passes(replay=Request(optional=True, parts=PARTS))

    def chosen(sram: int) -> tuple[Room, Scheme]:
        room = Room(GRAPH, CLASSES, sram)
        return room, beside_records(room, looking, "zeros", lambda: None)

    least = Room(GRAPH, CLASSES, 0).needed(Scheme("head-only"), ALL_PASSES)
    room, scheme = chosen(2 * ALL)
    assert room.records(scheme, looking) >= ENOUGH * CLASSES and scheme == largest(room, ALL_PASSES)
    room, scheme = chosen(ALL)
    assert room.needed(scheme, ALL_PASSES) <= least + SHARES[0] * (ALL - least)
    assert scheme != largest(room, ALL_PASSES)
