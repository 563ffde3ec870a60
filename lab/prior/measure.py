"""What training one thing gains, network by network: contributions as tools/search measures them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.golden.data import find
from microtrain.base.paths import ROOT
from microtrain.convert.default_scheme import FRACTION_BITS, expanding
from microtrain.convert.defaults import RATE
from microtrain.convert.ir import Graph
from microtrain.convert.loading import load, quantized_with_report
from microtrain.convert.quantize.ptq import Choices
from microtrain.native.model import compile_kernels
from microtrain.samples.source import hold_out
from microtrain.search import features
from microtrain.search.command import images
from microtrain.search.contribution import beside, last_biases, one_layer
from microtrain.search.engine import Engine
from microtrain.search.lab import Lab
from microtrain.search.space import FRACTIONS, Space, space_of
from microtrain.search.store import Outcomes, fill
from microtrain.search.trial import Trial
from microtrain.simulate.machine import FAST

WORK = ROOT / "build/prior"
IMAGES = 800  # that a session sees, each once
EVERY = 5  # numbers of biases
FRONT, HALF = 0.3, 0.5  # of the convolutions: nothing before the one is measured, little before the other
QUARTER, FULL = 2, 4  # levels
KINDS = BIASES, EXPAND, DEPTHWISE, PROJECT, OTHER = "biases", "expand", "depthwise", "project", "other"


@dataclass(frozen=True)
class Gain:
    """What a session gains, in nats (search.trial.log_likelihood), by one thing more.

    kind      BIASES: of all convolutions from here on, over the head alone; of a layer's weights, over
              biases: EXPAND, the first layer of an inverted residual; DEPTHWISE; PROJECT, the one behind
              that; OTHER
    depth     share of the convolutions that lie behind its front
    fraction  of the layer's input channels
    """

    network: str
    dataset: str
    layer: str
    kind: str
    depth: float
    fraction: float
    gain: float

    def row(self) -> dict[str, Any]:
        return asdict(self) | {"depth": round(self.depth, 4), "gain": round(self.gain, 5)}


def graph_of(network: str) -> Graph:
    """Quantized, as it was published."""
    loaded = load(find().checkpoint(network), False, None, None, None)
    return quantized_with_report(loaded, Choices(None), False, None)[0]


def gains(network: str, dataset: str, data: Path, engine: Engine) -> Iterator[tuple[int, int] | list[Gain]]:
    """Run the sessions that are missing; yields how many are done of how many, and at last the gains."""
    graph, (training, validation) = graph_of(network), hold_out(images(data))
    lab = Lab(graph, len(training.classes), training, validation, WORK / f"{network}-{dataset}")
    lab.scratch.mkdir(parents=True, exist_ok=True)
    space = space_of(graph, (FRACTION_BITS,), RATE)
    compile_kernels(FAST)
    for _ in features.fill(lab, engine):
        pass
    weights = layers(graph, space)
    counts = sorted({0, *range(0, len(space.layers), EVERY), *(beside(space, layer) for layer, _ in weights)})
    most = max(beside(space, layer) for layer, _ in weights)
    alone = {count: Trial(last_biases(space, count), 1, IMAGES, 0) for count in counts if count <= most}
    single = {choice: Trial(one_layer(space, *choice, FRACTION_BITS), 1, IMAGES, 0) for choice in weights}
    outcomes, trials = Outcomes(lab), [*alone.values(), *single.values()]
    known = len(trials) - len(outcomes.missing(trials))
    for done, _ in enumerate(fill(lab, outcomes, trials, engine), known + 1):
        yield done, len(trials)
    likely = {count: outcomes[trial].likelihood for count, trial in alone.items()}
    total = len(space.layers)
    found = [
        Gain(network, dataset, space.layers[-count], BIASES, count / total, 1.0, value - likely[0])
        for count, value in likely.items()
        if count
    ]
    for (layer, level), trial in single.items():
        gain = outcomes[trial].likelihood - likely[beside(space, layer)]
        place, name = (total - layer) / total, space.layers[layer]
        found.append(Gain(network, dataset, name, kind(graph, name), place, FRACTIONS[level - 1], gain))
    yield found


def layers(graph: Graph, space: Space) -> list[tuple[int, int]]:
    """(number, level) of the weights to measure: of the last half all, in front of it what expands."""
    total, first = len(space.layers), set(expanding(graph))
    found = []
    for layer in range(int(FRONT * total) + 1, total):
        late = layer >= HALF * total
        if late or space.layers[layer] in first:
            found += [(layer, level) for level in (QUARTER, FULL)[: 1 + late] if level in space.usable[layer]]
    return found


def kind(graph: Graph, name: str) -> str:
    """What a layer is."""
    layer = graph.layers[name]
    if layer.depthwise:
        return DEPTHWISE
    if name in expanding(graph):
        return EXPAND
    outputs, height, width, inputs = layer.weight.shape
    return PROJECT if height == width == 1 and outputs < inputs else OTHER
