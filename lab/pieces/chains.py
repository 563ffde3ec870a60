"""Chains of layers that are drawn: as they are, of few pixels, with windows that overlap, with records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from lab.networks import Builder, varied_network, with_codes
from lab.sizes.networks import SCHEMES
from microtrain.convert.ir import ConvertError, Graph
from microtrain.convert.memory.replay import Request
from microtrain.convert.ops import hop
from microtrain.convert.ops.aten.normalise import GROUP_NORM
from microtrain.convert.pipeline import Compiled, Passes, compile_graph
from microtrain.convert.recording import with_buffer
from microtrain.convert.scheme import Scheme

CODED = 4  # one of so many networks has its weights in codes
PASSES = (Passes(), Passes(fused=False), Passes(arriving=False))
Named = tuple[str, Compiled]


def varied(seeds: Iterable[int]) -> Iterator[Named]:
    """Random chains, each trained in another way; one that cannot be is left out."""
    for seed in seeds:
        graph, scheme = varied_network(seed), SCHEMES[seed % len(SCHEMES)]
        if scheme.name == "part" and min(layer.columns for layer in graph.layers.values()) < 2:
            scheme = SCHEMES[-2]
        graph = with_codes(graph, seed) if seed % CODED == CODED - 1 else graph
        compiled = trained(graph, scheme, PASSES[seed // len(SCHEMES) % len(PASSES)])
        if compiled:
            yield f"varied{seed}", compiled


def trained(graph: Graph, scheme: Scheme, passes: Passes = PASSES[0]) -> Compiled | None:
    try:
        return compile_graph(graph, scheme, graph.tensors[graph.output].channels, passes)
    except ConvertError:
        return None


def small() -> Iterator[Named]:
    """Chains of few pixels and few channels, where all that is done once counts."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 10))
        b = Builder(rng, (size, size, int(rng.choice([1, 3]))))
        x = b.conv("x", int(rng.integers(1, 8)), int(rng.integers(1, 3)), int(rng.integers(1, 3)))
        for kind in rng.choice(list(_KINDS), 4):
            x = _KINDS[kind](b, x, rng)
        graph = b.finish(b.conv(x, int(rng.integers(1, 8))), 3)
        compiled = trained(graph, SCHEMES[int(rng.integers(2, 5))], PASSES[seed % len(PASSES)])
        if compiled:
            yield f"small{seed}", compiled


def _kernel(b: Builder, x: str, rng: np.random.Generator) -> int:
    return int(rng.integers(1, 1 + min(3, b.tensors[x].shape[0])))


def _divisor(channels: int, rng: np.random.Generator) -> int:
    return int(rng.choice([n for n in range(1, channels + 1) if channels % n == 0]))


def _dense(b: Builder, x: str, rng: np.random.Generator) -> str:
    kernel = _kernel(b, x, rng)
    return b.conv(x, int(rng.integers(1, 8)), kernel, int(rng.integers(1, 3)), bool(rng.random() < 0.5))


def _norm(b: Builder, x: str, rng: np.random.Generator) -> str:
    factors = (1e-5, float(_divisor(b.tensors[x].channels, rng)), float(rng.random() < 0.5))
    return b.depthwise(b.layer(GROUP_NORM, x, factors=factors), 1, 1)


def _grouped(b: Builder, x: str, rng: np.random.Generator) -> str:
    groups = _divisor(b.tensors[x].channels, rng)
    return b.grouped(x, groups * int(rng.integers(1, 4)), _kernel(b, x, rng), 1, groups=groups)


def _pool(b: Builder, x: str, rng: np.random.Generator) -> str:
    if b.tensors[x].shape[0] < 2:
        return x
    return b.pool(str(rng.choice(["maxpool", "avgpool"])), x, 2, int(rng.integers(1, 3)))


_KINDS: dict[str, Callable[[Builder, str, np.random.Generator], str]] = {
    "dense": _dense,
    "depthwise": lambda b, x, rng: b.depthwise(x, _kernel(b, x, rng), int(rng.integers(1, 3))),
    "norm": _norm,
    "add": lambda b, x, rng: b.add(b.conv(x, b.tensors[x].channels), x),
    "groups": _grouped,
    "pool": _pool,
}


def moving(seeds: Iterable[int]) -> Iterator[Named]:
    """Windows that overlap, of which the stages go on, or begin anew, or which are whole in memory."""
    for seed in seeds:
        graph = varied_network(seed)
        height = graph.tensors[graph.input.tensor].shape[0]
        rows = (1, 2, 4, height // 2, height - 1)[seed % 5]
        compiled = trained(hop.checked(graph, rows), SCHEMES[1 + seed % 3], PASSES[seed // 2 % len(PASSES)])
        if compiled:
            yield f"moving{seed}", compiled


def remembering(seeds: Iterable[int]) -> Iterator[Named]:
    """Records of few and of many bytes, as they are and with several values in one."""
    for seed in seeds:
        graph = varied_network(seed)
        classes, request = graph.tensors[graph.output].channels, Request(records=40, parts=(seed % 4 + 1,))
        passes = replace(PASSES[seed // 4 % len(PASSES)], replay=request)
        compiled = compile_graph(graph, (SCHEMES[1], Scheme("last", biases=3))[seed % 2], classes, passes)
        images = np.random.default_rng(0).integers(0, 256, (64, *graph.tensors[graph.input.tensor].shape))
        yield f"remembering{seed}", with_buffer(compiled, request, None, images.astype(np.uint8))
