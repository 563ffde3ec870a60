"""Networks that no bound is fitted with: others that are drawn, and those of MLPerf Tiny."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from lab.golden.data import find
from lab.networks import with_codes
from lab.sizes.networks import SCHEMES, quantized
from microtrain.base.plan import FLOAT
from microtrain.convert.frontends.checkpoint import read_checkpoint
from microtrain.convert.frontends.module import load_model
from microtrain.convert.pipeline import compile_graph
from microtrain.convert.scheme import find as scheme_of

from .chains import Named, moving, remembering, varied

OTHER_SEEDS = range(1000, 1012)
TINY = ("kws_dscnn_int8", "resnet8_int8", "vww96_int8", "ad01_int8")


def drawn() -> Iterator[Named]:
    """Chains, windows that overlap and records, of seeds that the others have not."""
    yield from varied(OTHER_SEEDS)
    yield from moving(range(1000, 1005))
    yield from remembering(range(1000, 1004))


def published() -> Iterator[Named]:
    """Networks of MLPerf Tiny, each trained in two ways; and MCUNet, as it is and with weights in codes."""
    data = find().folder
    for file, scheme in product(TINY, (SCHEMES[1], SCHEMES[4])):
        loaded = load_model(data / f"mlperf_tiny/{file}.tflite")
        shape = loaded.graph.tensors[loaded.graph.input.tensor].shape
        graph = quantized(loaded, np.random.default_rng(0).integers(0, 256, (8, *shape)).astype(np.uint8))
        classes = graph.tensors[graph.output].channels
        name = f"{file.partition('_')[0]}_{re.sub('[-+]', '_', scheme.name)}"
        yield name, compile_graph(graph.replace(requantize=FLOAT), scheme, classes)  # as the library has it
    graph = read_checkpoint(data / "models/mcunet-5fps.pkl")
    yield "mcunet", compile_graph(graph, scheme_of(Path("mcunet-49kb")), 10)
    yield "mcunet_in_codes", compile_graph(with_codes(graph), SCHEMES[1], 10)


SOURCES: dict[str, Callable[[Path], Iterator[Named]]] = {
    "drawn": lambda _: drawn(),
    "published": lambda _: published(),
}
