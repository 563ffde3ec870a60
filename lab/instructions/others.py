"""Small networks of steps that the published ones have not, or seldom, to count these too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from lab.networks import OVER_CHANNELS, Builder, varied_network, with_codes
from lab.pieces.chains import Named
from lab.pieces.networks import attended, gates, groups, normed, sampled
from lab.sizes.networks import SCHEMES
from microtrain.convert.ops.aten.pool import MAXIMUM
from microtrain.convert.ops.tokens import LAST
from microtrain.convert.pipeline import Passes, compile_graph
from microtrain.convert.scheme import Scheme

ATTENDED = ("0", "1", "5", "8", "9", "11", "14")  # with tokens in front, and without; of few and of many
NORMED = ("12", "40")  # pixels a side
GATES = ("0", "3", "7", "10", "13", "16", "18", "23")  # of few and of many channels, by each factor
SAMPLED = ("1", "2", "3", "5", "7", "8", "10")  # each way of sampling anew
CODED = (0, 1, 4, 7)  # seeds of chains without concatenations, which are several calls a step
CELLS = ((3, 6, 5), (9, 17, 16), (20, 1, 24), (6, 40, 32), (12, 10, 8), (20, 6, 1), (16, 24, 12))
POSITIONED = ((10, 40), (18, 8), (14, 20))  # pixels a side and channels; whole eights pass a mask at once
WINDOWED = ((72, 2, (12, 24, 40, 64)), (56, 3, (32, 96, 240)))  # pixels a side, a pooling, channels by layer
STEPS = Passes(fused=False)  # each layer a step of its own


def others() -> Iterator[Named]:
    """Networks of one op or a few: gates, maps sampled anew, norms and so on, by their names."""
    yield from picked(attended(), ATTENDED)
    yield from picked(gates(), GATES)
    yield from picked(sampled(), SAMPLED)
    yield from spatial()
    for networks, numbers in ((groups(), ()), (normed(), NORMED)):
        yield from (each for each in picked(networks, numbers) if each[1].scheme.weights)
    yield from positioned()
    yield from multiplied()
    yield from windows()
    yield from coded()
    yield from cells()


def spatial() -> Iterator[Named]:
    """Attention to pixels by mean or by maximum: with both there is a concatenation, which is two calls."""
    for number, (c, kind) in enumerate(product((2, 7, 24, 70), OVER_CHANNELS)):
        b = Builder(np.random.default_rng(number), (9 + 3 * number, 14, 3))
        graph = b.finish(b.conv(b.attended_to(b.conv("x", c, 3, 2), by=(kind,)), 5), 3)
        yield f"spatial{number}", compile_graph(graph, SCHEMES[2], 3, STEPS)


def picked(networks: Iterable[Named], numbers: Sequence[str]) -> Iterator[Named]:
    """Those with one of the numbers in their names; () means all."""
    for name, compiled in networks:
        number = "".join(c for c in name.partition("_")[0] if c.isdigit())
        if number in numbers or not numbers:
            yield name, compiled


def positioned() -> Iterator[Named]:
    """Tokens behind one that stands in front, with errors that reach what is before them."""
    for number, (size, channels) in enumerate(POSITIONED):
        b = Builder(np.random.default_rng(number), (size, size, 3))
        tokens = b.position(b.conv("x", channels, 3, 2), 1)
        graph = b.finish(b.conv(tokens, 8), 4)
        yield f"positioned{number}", compile_graph(graph, Scheme("biases", -1), 4, STEPS)


def multiplied() -> Iterator[Named]:
    """Factors and terms of int8 TFLite files, and factors for each number, with errors that reach what is
    before them."""
    for number, ((size, channels), with_term) in enumerate(product(POSITIONED, (False, True))):
        b = Builder(np.random.default_rng(number), (size, size, 3))
        x = b.mul_add(b.conv("x", channels, 3, 2), with_term)
        x = x if with_term else b.scaled(b.conv(b.scaled(x), channels))
        yield f"multiplied{number}", compile_graph(b.finish(b.conv(x, 8), 4), Scheme("biases", -1), 4, STEPS)


def windows() -> Iterator[Named]:
    """Depthwise layers of each window and stride, learned whole, on maps that get smaller and deeper; between
    those of stride 1 a pooling.
    """
    for kernel, stride, (size, pool, deep) in product((3, 5, 7), (1, 2), WINDOWED):
        b = Builder(np.random.default_rng(kernel), (size, size, 3))
        x = b.conv("x", 8, 3, 2)
        for channels in deep:
            x = b.conv(x, channels)
            x = b.depthwise(x if stride == 2 else b.pool(MAXIMUM, x, pool, 2, pool - 2), kernel, stride)
        name = f"windows{kernel}by{stride}-{size}"
        yield name, compile_graph(b.finish(b.conv(x, 5), 3), SCHEMES[3], 3, STEPS)


def coded() -> Iterator[Named]:
    """Chains whose weights are codes, with biases that are trained."""
    for seed in CODED:
        graph = with_codes(varied_network(seed), seed)
        classes = graph.tensors[graph.output].channels
        yield f"coded{seed}", compile_graph(graph, SCHEMES[2], classes, STEPS)


def cells() -> Iterator[Named]:
    """Recurrent cells over rows, features and of units."""
    for number, (rows, features, units) in enumerate(CELLS):
        for op in (*LAST, *LAST.values()):
            b = Builder(np.random.default_rng(number), (rows, features, 1))
            x = b.recurrent(b.conv("x", 4), op, units)
            yield f"{op}{number}", compile_graph(b.finish(b.conv(x, 5), 3), SCHEMES[0], 3, STEPS)
