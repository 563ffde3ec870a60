"""Small networks of ops that the published ones have not, to count these too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lab.networks import Builder, varied_network, with_codes
from lab.pieces.networks import attended, groups, normed
from lab.sizes.networks import SCHEMES
from microtrain.convert.ops.tokens import LAST
from microtrain.convert.pipeline import Compiled, Passes, compile_graph

ATTENDED = ("0", "1", "5", "8", "9", "11", "14")  # with tokens in front, and without; of few and of many
NORMED = ("12", "40")  # pixels a side
CODED = (0, 1, 4, 7)  # seeds of chains without concatenations, which are several calls a step
CELLS = ((3, 6, 5), (9, 17, 16), (20, 1, 24), (6, 40, 32), (12, 10, 8), (20, 6, 1), (16, 24, 12))
STEPS = Passes(fused=False)  # each layer a step of its own


def others() -> Iterator[tuple[str, Compiled]]:
    """Normalisations, groups, attention, positions, codes and cells, in several sizes, by their names."""
    kinds = {"attended": (attended(), ATTENDED), "groups": (groups(), ()), "": (normed(), NORMED)}
    for kind, (networks, chosen) in kinds.items():
        for name, compiled in networks:
            number = "".join(c for c in name.partition("_")[0] if c.isdigit())
            if (number in chosen or not chosen) and (compiled.scheme.weights or kind == "attended"):
                yield name, compiled
    yield from coded()
    yield from cells()


def coded() -> Iterator[tuple[str, Compiled]]:
    """Chains whose weights are codes, with biases that are trained."""
    for seed in CODED:
        graph = with_codes(varied_network(seed), seed)
        classes = graph.tensors[graph.output].channels
        yield f"coded{seed}", compile_graph(graph, SCHEMES[2], classes, STEPS)


def cells() -> Iterator[tuple[str, Compiled]]:
    """Recurrent cells over rows, features and of units."""
    for number, (rows, features, units) in enumerate(CELLS):
        for op in (*LAST, *LAST.values()):
            b = Builder(np.random.default_rng(number), (rows, features, 1))
            x = b.recurrent(b.conv("x", 4), op, units)
            yield f"{op}{number}", compile_graph(b.finish(b.conv(x, 5), 3), SCHEMES[0], 3, STEPS)
