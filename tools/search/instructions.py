"""Instructions of a training step on the Cortex-M7, estimated layer by layer.

The entry of an op says which way through its kernels a step takes, and which numbers its instructions grow
with. Each way has a coefficient for each of them: `make instructions` fits them to what the emulator counts,
on the published networks (instructions.json), and what these have not or seldom on others
(instructions_others.json).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from microtrain.convert.ir import Graph, Node
from microtrain.convert.ops import TABLE
from microtrain.convert.ops.work import by_size, kind, of_part, priced

COEFFICIENTS = Path(__file__).with_name("instructions.json")
OTHERS = COEFFICIENTS.with_name("instructions_others.json")
AVERAGE = "other"  # kernel, of all that were counted
Model = Mapping[str, Mapping[str, float]]  # kind -> coefficient of each term


@cache
def coefficients() -> Model:
    """What lab/instructions wrote."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in (OTHERS, COEFFICIENTS)]
    model: Model = read[0] | read[1]
    return model


def step_instructions(graph: Graph) -> float:
    """Of the forward and the backward pass, without the serial line."""
    return sum(estimate(graph, node, coefficients()) for node in graph.nodes)


def estimate(graph: Graph, node: Node, model: Model) -> float:
    """Instructions of a step."""
    known = model.get(kind(graph, node), {})
    counted = priced(known, TABLE[node.op].work(graph, node))
    return counted + sum(guessed(graph, each, model) for each in uncounted(graph, node, model))


def guessed(graph: Graph, node: Node, model: Model) -> float:
    """Of what was never counted: as of a step of its own, where these were, else as of the average kernel."""
    alone = model.get(kind(graph, node))
    if alone:
        return priced(alone, TABLE[node.op].work(graph, node))
    return priced(model[AVERAGE], by_size(graph, node))


def uncounted(graph: Graph, node: Node, model: Model) -> Iterator[Node]:
    """The step, or those of the layers inside it, of which no instructions were ever counted."""
    known = model.get(kind(graph, node), {})
    for part in node.parts:
        if known.keys().isdisjoint(of_part(graph, node, part)):
            yield part
    if not known and not node.parts:
        yield node


def unmeasured(graph: Graph) -> list[str]:
    """Kinds of steps whose instructions are a guess."""
    model = coefficients()
    pairs = [(node, guess) for node in graph.nodes for guess in uncounted(graph, node, model)]
    return sorted({kind(graph, guess) + (" by rows" if node.parts else "") for node, guess in pairs})
