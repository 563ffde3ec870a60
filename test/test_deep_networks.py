"""Compiling a deep network takes time in proportion to its layers, and its plan stays near the bound."""

from __future__ import annotations

import cProfile
import pstats

import numpy as np
import pytest
from networks import Builder

from microtrain.convert.emit.document import rows
from microtrain.convert.ir import Graph
from microtrain.convert.memory.plan import GAP
from microtrain.convert.pipeline import Compiled, compile_graph
from microtrain.convert.scheme import Scheme, convolutions

SHORT = 24  # blocks of three layers
TWICE = 2.2  # at most as many calls for twice the layers


def deep(blocks: int) -> Graph:
    b = Builder(np.random.default_rng(0), (16, 16, 3))
    x = b.conv("x", 6, 3, 2)
    for _ in range(blocks):
        x = b.add(x, b.conv(b.depthwise(b.conv(x, 12)), 6, relu=False))
    return b.finish(x, 4)


def compiled(blocks: int, whole: bool) -> tuple[Compiled, int]:
    """The network, and how many calls of functions it took to compile it and to describe its layers."""
    graph = deep(blocks)
    weights: dict[str | int, float | tuple[int, ...]] = (
        dict.fromkeys(convolutions(graph), 1.0) if whole else {}
    )
    with cProfile.Profile() as profile:
        made = compile_graph(graph, Scheme("deep", biases=-1, weights=weights), 4)
        rows(made)
    return made, pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


@pytest.mark.parametrize("whole", [False, True], ids=["biases", "everything"])
def test_twice_the_layers_take_about_twice_the_calls(whole: bool) -> None:
    compiled(1, whole)
    (_, short), (made, long) = (compiled(blocks, whole) for blocks in (SHORT, 2 * SHORT))
    assert long < TWICE * short
    assert made.plan.arena - made.plan.lower_bound <= GAP * made.plan.arena
